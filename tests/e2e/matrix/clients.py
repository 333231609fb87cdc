"""The clients, where each is installed, and how one is sent on its walk."""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.servers import ROOT

HERE = Path(__file__).parent
ENVIRONMENTS = ROOT / ".venv-clients"
INSTALL_TIMEOUT = 300
WALK_TIMEOUT = 120
# As it is now: pytest writes to the environment of the process while threads start others with it.
ENVIRONMENT = dict(os.environ)
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
LATEST_LEGACY, MODERN = REVISIONS[-2:]


@dataclass(frozen=True)
class Client:
    """One version of an official package: its program, what it is installed as, and the newest revision it speaks.

    A Python package without a version to install is the one that the tests themselves use.
    """

    name: str
    program: str
    package: str
    newest: str

    @property
    def revisions(self) -> tuple[str, ...]:
        return tuple(revision for revision in REVISIONS if revision <= self.newest)


CLIENTS = (
    Client("python-1.8", "sdk1.py", "1.8.1", "2024-11-05"),
    Client("python-1.12", "sdk1.py", "1.12.4", "2025-06-18"),
    Client("python-1.30", "sdk1.py", "1.30.0", "2025-11-25"),
    Client("python-2.3", "sdk2.py", "", MODERN),
    Client("typescript-1.10", "sdk1.mjs", "sdk-1.10", "2024-11-05"),
    Client("typescript-1.12", "sdk1.mjs", "sdk-1.12", "2025-03-26"),
    Client("typescript-1.17", "sdk1.mjs", "sdk-1.17", "2025-06-18"),
    Client("typescript-1.32", "sdk1.mjs", "@modelcontextprotocol/sdk", "2025-11-25"),
    Client("typescript-2.4", "client2.mjs", "", MODERN),
)


@dataclass(frozen=True)
class Case:
    """A client that speaks one revision over one transport."""

    client: Client
    revision: str
    transport: str

    def __str__(self) -> str:
        return f"{self.client.name}-{self.revision}-{self.transport}"

    @property
    def modern(self) -> bool:
        return self.revision == MODERN

    @property
    def has_session(self) -> bool:
        return self.transport == "http" and not self.modern

    @property
    def is_asked(self) -> bool:
        """Whether the server puts questions to the client; over HTTP with SSE it does not."""
        return self.transport != "sse"

    @property
    def asks_its_user(self) -> bool:
        """Whether it puts questions to the client's user as well, which the revisions have not always known."""
        return self.is_asked and self.knows("2025-06-18")

    def knows(self, since: str) -> bool:
        """Whether the revision has what there is since another one."""
        return self.revision >= since


# Every revision where they differ most; the other transports are there for the handshake, and stdio for both eras.
CASES = (
    *(Case(client, revision, "http") for client in CLIENTS for revision in client.revisions),
    *(Case(client, min(client.newest, LATEST_LEGACY), "sse") for client in CLIENTS),
    *(Case(client, client.newest, "stdio") for client in CLIENTS),
)


# Each client with the newest that it speaks, which is each revision at least once; the other transports, where the
# client is the oldest or the newest of a language.
KINDS = (
    *(Case(client, client.newest, "http") for client in CLIENTS),
    *(Case(client, LATEST_LEGACY, "sse") for client in CLIENTS if client.name in ("python-2.3", "typescript-1.32")),
    *(Case(client, client.newest, "stdio") for client in CLIENTS if client.name in ("python-2.3", "typescript-1.10")),
)


@dataclass(frozen=True, eq=False)
class Walk:
    """What a client told of its walk."""

    case: Case
    steps: Mapping[str, Mapping[str, Any]]
    output: str

    def __getitem__(self, step: str) -> Any:
        """What the step told. A step that failed fails the test."""
        assert step in self.steps, f"{self.case} did not get as far as {step}\n{self.output}"
        told = self.steps[step]
        assert "told" in told, f"{self.case}, {step}: {told['error']}"
        return told["told"]


def install(name: str) -> Path:
    """The interpreter of an environment that has the requirements of this name and no other package of ours.

    It is made once, and again when what it holds has changed.
    """
    requirements = HERE / "requirements" / f"{name}.txt"
    directory = ENVIRONMENTS / name
    python, stamp = directory / "bin" / "python", directory / ".installed"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    ENVIRONMENTS.mkdir(exist_ok=True)
    # Several test processes may want the same one.
    with (ENVIRONMENTS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(directory)])
            # By the pip of the tests. Of the modules a client imports a few, which Python compiles as it does.
            pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
            _run([*pip, "install", "--no-deps", "--no-compile", "-r", str(requirements)])
            stamp.write_text(wanted)
    return python


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=INSTALL_TIMEOUT)
    if done.returncode != 0:
        reason = f"{' '.join(command)}: {done.stderr.strip()[-500:]}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def send(case: Case, node: str, given: Mapping[str, Any]) -> Walk:
    """Let a client walk to the end; `given` says how it reaches the server."""
    options = {"offer": case.revision, "modern": case.modern, "transport": case.transport, **given}
    program = HERE / case.client.program
    if program.suffix == ".mjs":
        command = [node, str(program), json.dumps(options), case.client.package]
    else:
        python = install(f"mcp-{case.client.package}") if case.client.package else sys.executable
        command = [str(python), str(HERE / "walk.py"), json.dumps({**options, "sdk": program.stem})]
    try:
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=WALK_TIMEOUT)
    except subprocess.TimeoutExpired as late:
        return Walk(case, {}, f"the walk took more than {WALK_TIMEOUT} s: {late.output!r:.2000}")
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return Walk(case, {line["step"]: line for line in told}, done.stdout[-2000:] + done.stderr[-2000:])

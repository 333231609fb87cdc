"""Whatever a client writes to standard input, the process goes on, says nothing but messages, and ends in order."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import budget
from tests.fuzz.mutations import bodies
from tests.fuzz.shapes import Draw, chance, pick
from tests.fuzz.wire import BAD_LINES, PATIENCE, ROOT
from tests.protocol_messages import LEGACY, META, MODERN, PARAMS

pytestmark = pytest.mark.one_django

# Seconds that a database may take to be made, on a machine with much else to do.
START = 120
TOGETHER = 25
# Of the messages that the other tests send.
PART = 5
VERSIONS = {"legacy": LEGACY, "modern": (MODERN,)}
PREPARE = """
from tests.conformance_project.__main__ import prepare
prepare()
from django.contrib.auth.models import User
User.objects.create_superuser("ada")
"""
GARBAGE = st.binary(max_size=200)


@st.composite
def lines(draw: Draw, versions: tuple[str, ...]) -> bytes:
    """A line that is nearly a message, or no message at all."""
    if chance(draw, 12):
        line = draw(GARBAGE)
    else:
        _, line = draw(bodies(pick(draw, versions)))
    return line.replace(b"\n", b" ") + b"\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    database = tmp_path_factory.mktemp("fuzz") / "db.sqlite3"
    settings = {"DJANGO_SETTINGS_MODULE": "tests.conformance_project.settings", "CONFORMANCE_DATABASE": str(database)}
    found = {**os.environ, **settings, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", PREPARE], env=found, check=True, timeout=START)
    return found


class Program:
    """The command, running, and what it says."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.number = 0
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line)

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The answer to a good request; all that is said before must be messages."""
        self.number += 1
        identifier = f"good-{self.number}"
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
        self.send(json.dumps(message).encode() + b"\n")
        while True:
            said = json.loads(self.said.get(timeout=PATIENCE))
            for item in said if isinstance(said, list) else [said]:
                assert item["jsonrpc"] == "2.0"
                assert "method" in item or "result" in item or "error" in item
            if isinstance(said, dict) and said.get("id") == identifier:
                return said


@pytest.fixture
def program(environment: dict[str, str], tmp_path: Path) -> Iterator[Program]:
    command = [sys.executable, "-m", "django", "mcp_stdio", "--user", "ada"]
    log = tmp_path / "stderr"
    with log.open("wb") as errors:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        with subprocess.Popen(command, env=environment, cwd=ROOT, **pipes) as process:
            running = Program(process)
            try:
                yield running
            except BaseException:
                process.kill()
                raise
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE) == 0
            running.reader.join(PATIENCE)
    text = log.read_text(errors="replace")
    assert not any(bad in text for bad in BAD_LINES), text


@pytest.mark.parametrize("era", VERSIONS)
def test_no_line_ends_the_process_or_its_order(era: str, program: Program) -> None:
    if era == "legacy":
        hello = {**PARAMS["initialize"], "protocolVersion": "2025-03-26"}
        assert "result" in program.ask("initialize", hello)

    @budget(together=TOGETHER, part=PART)
    @given(st.lists(lines(VERSIONS[era]), min_size=TOGETHER, max_size=TOGETHER))
    def run(batch: list[bytes]) -> None:
        program.send(b"".join(batch))
        assert "result" in program.ask("tools/list", {"_meta": META})

    run()

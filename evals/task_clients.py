"""Interactive Claude Code and the Inspector make calls that go on as tasks: a result, questions, and an end before it.

A stub takes the place of the model. The clients are those that are installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.e2e.orm import orm_of
from tests.e2e.servers import Server, manage, prepare_example, run_example

from .obedient import ModelAPI, Move, serving
from .terminal import Terminal

TIMEOUT: Final = 90
SETTINGS: Final = "tests.e2e.tasks.settings"
ENTER, DOWN = "\r", "\x1b[B"
READY: Final = "bypass permissions on"


@dataclass
class TaskModel:
    """Makes one call, and stops its task if it ``stops``: by the id that the client's own text has."""

    tool: str
    arguments: Mapping[str, Any]
    stops: bool = False
    heard: str = ""

    def move(self, names: Sequence[str], results: Sequence[str]) -> Move | None:
        """Return the next call, None for none: of the tools with these names, after these results."""
        ours = [name for name in names if name.endswith(f"__{self.tool}")]
        if not results:
            return (ours[0], dict(self.arguments)) if ours else None
        named = re.search(r'task_id "(\w+)"', results[0])
        if self.stops and len(results) == 1 and named is not None:
            return "TaskStop", {"task_id": named[1]}
        return None


class ListeningAPI(ModelAPI):
    """Keeps what the client has told the model, its own messages too."""

    def _anthropic(self, asked: Any) -> None:
        assert isinstance(self.model, TaskModel)
        self.model.heard += json.dumps(asked["messages"], ensure_ascii=False)
        super()._anthropic(asked)


@dataclass
class Trial:
    """One client at one server: its home, the token, and what asks the server's database."""

    server: Server
    home: Path
    token: str
    ask: Callable[[str], Any]
    failures: list[str] = field(default_factory=list)
    # Environment variables of its programs.
    more: Mapping[str, str] = field(default_factory=dict)

    def check(self, what: str, holds: Callable[[], object], wait: Callable[[float], object] = time.sleep) -> None:
        """Wait until something holds; note what does not."""
        until = time.monotonic() + TIMEOUT
        while not holds():
            if time.monotonic() > until:
                self.failures.append(what)
                return
            wait(0.5)

    def last_task(self, field_name: str) -> Any:
        """Return a field of the newest task."""
        return self.ask(f"__import__('mcp_django').models.Task.objects.latest('created').{field_name}")

    def place(self, name: str) -> Path:
        """Return the file in which a tool says what it does."""
        return self.home / name

    # Claude Code

    def claude(self) -> None:
        """Let Claude Code do each of the three at a terminal."""
        self._claude_result()
        self._claude_questions()
        self._claude_stop()

    def _claude_result(self) -> None:
        model = TaskModel("count", {"place": str(self.place("counted")), "steps": 8})
        with serving(model, ListeningAPI) as (address, _), self._at_terminal(address) as terminal:
            self.check("its result reaches the model", lambda: "counted to 8" in model.heard, terminal.draw)

    def _claude_questions(self) -> None:
        model = TaskModel("ask_on_the_way", {"place": str(self.place("asked"))})
        with serving(model, ListeningAPI) as (address, _), self._at_terminal(address) as terminal:
            for question, answer in (("Who is it for?", "Ada"), ("How many for Ada?", "3")):
                terminal.wait_for(question, TIMEOUT)
                terminal.type(answer, DOWN, ENTER)
            self.check("answers reach the task", lambda: "3 for Ada" in model.heard, terminal.draw)

    def _claude_stop(self) -> None:
        place = self.place("stopped")
        model = TaskModel("count", {"place": str(place), "steps": 500}, stops=True)
        with serving(model, ListeningAPI) as (address, _), self._at_terminal(address) as terminal:
            self.check("its task is cancelled", lambda: self.last_task("state") == "cancelled", terminal.draw)
            self.check("its work stops", lambda: "stopped" in place.read_text(), terminal.draw)

    def _at_terminal(self, address: str) -> Terminal:
        """Start Claude Code with a model at an address, and ask it for something."""
        headers = {"Authorization": f"Bearer {self.token}"}
        config = self.home / "mcp.json"
        config.write_text(
            json.dumps({"mcpServers": {"shop": {"type": "http", "url": self.server.url, "headers": headers}}})
        )
        # It asks nothing else before it begins.
        known = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        settings = {
            "hasCompletedOnboarding": True,
            "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": ["stub"], "rejected": []},
            "projects": {str(self.home): known},
        }
        (self.home / ".claude.json").write_text(json.dumps(settings))
        environment = {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "stub", "IS_SANDBOX": "1"}
        environment |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false"}
        options = ["--mcp-config", str(config), "--strict-mcp-config", "--dangerously-skip-permissions"]
        terminal = Terminal(["claude", *options], {**self._environment, **environment}, self.home)
        terminal.wait_for(READY, TIMEOUT)
        terminal.type("Do it.", ENTER)
        return terminal

    @property
    def _environment(self) -> dict[str, str]:
        kept = {"PATH": os.environ["PATH"], "HOME": str(self.home), **self.more}
        return kept | {"NO_PROXY": "127.0.0.1", "TERM": "xterm-256color"}

    # The Inspector

    def mcpdo(self) -> None:
        """Let the Inspector do each of the three, by its command for other programs."""
        connection = {"type": "http", "url": self.server.url, "headers": {"Authorization": f"Bearer {self.token}"}}
        config = self.home / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"first": connection, "second": connection}}))
        # A daemon of its own keeps the connections.
        exports = subprocess.run(
            ["mcpdo", "private"], env=self._environment, capture_output=True, text=True, check=True
        )
        self.more = dict(re.findall(r"export (\w+)='([^']*)'", exports.stdout))
        try:
            for name in ("first", "second"):
                self._mcpdo("connect", "--era", "modern", "--config", str(config), name)
            self._inspect()
        finally:
            self._mcpdo("daemon", "stop")

    def _inspect(self) -> None:
        counted = self._mcpdo("@first", "tools/call", "count", f"place:={self.place('counted')}", "steps:=8")
        self.check("its result arrives", lambda: "counted to 8" in counted)

        told = self._mcpdo("@first", "tools/call", "ask_on_the_way", f"place:={self.place('asked')}")
        for answer in ("name:=Ada", "pieces:=3"):
            [asked] = re.findall(r'"elicitationId": "([^"]+)"', told)
            told = self._mcpdo("elicitation/respond", asked, answer)
        self.check("answers reach the task", lambda: "3 for Ada" in told)

        # One connection makes one call at a time, and so another one cancels it.
        place = self.place("cancelled")
        quiet = subprocess.DEVNULL
        call = ["mcpdo", "@first", "tools/call", "count", f"place:={place}", "steps:=500"]
        with subprocess.Popen(call, env=self._environment, stdout=quiet, stderr=quiet) as waiting:
            self.check("its call begins", place.exists)
            self._mcpdo("@second", "tasks/cancel", self.last_task("pk"))
            self.check("its task is cancelled", lambda: self.last_task("state") == "cancelled")
            self.check("its work stops", lambda: "stopped" in place.read_text())
            waiting.terminate()

    def _mcpdo(self, *arguments: str) -> str:
        command = ["mcpdo", "--format", "json", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=TIMEOUT)
        return done.stdout


def main(names: Sequence[str]) -> int:
    """Let each of the clients that are installed make its calls; return 1 if something does not go as it should."""
    installed = [name for name in names or ("claude", "mcpdo") if shutil.which(name)]
    if not installed:
        print("claude and mcpdo are not installed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as made:
        failures = _tried(Path(made), installed)
    return int(any(failures.values()))


def _tried(directory: Path, names: Sequence[str]) -> dict[str, list[str]]:
    prepared = directory / "prepared"
    prepared.mkdir()
    prepare_example(prepared)
    application = "example_project.asgi:application"
    found = {}
    with run_example(prepared, directory / "shop", "uvicorn-workers", application, SETTINGS) as server:
        token = manage(server, "mcp_token", "admin").split()[0]
        with orm_of(server) as ask:
            for name in names:
                home = directory / name
                home.mkdir()
                trial = Trial(server, home, token, ask)
                try:
                    getattr(trial, name)()
                except (TimeoutError, subprocess.TimeoutExpired, ValueError) as error:
                    trial.failures.append(str(error))
                found[name] = trial.failures
                print(f"{name}: {'; '.join(f'NOT: {what}' for what in trial.failures) or 'all as it should be'}")
    return found

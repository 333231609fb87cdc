"""Who does what the tutorial says gets what it says: its files are written, its commands run, its output compared."""

import json
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import pytest

from tests.documentation import DOCS, ROOT, Block, blocks_of
from tests.e2e.forks import Dialogue, Fork, run_to_end

pytestmark = pytest.mark.one_django

PAGE = DOCS / "tutorial.md"
PASSWORD = "a long and private sentence"
START = 60
# What the environment of the tests provides, and what only people's machines have.
PROVIDED = ("python3 -m venv", "source ", "python -m pip install")
PROGRAMS = {"django-admin": ["-m", "django"], "daphne": ["-m", "daphne"], "uvicorn": ["-m", "uvicorn"]}
# Runs commands of `manage.py` in children of one process, which has loaded the project once.
RUNNER = """
import json, os, runpy, sys
import django
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bookshop.settings")
sys.path.insert(0, "")
django.setup()
for line in sys.stdin:
    sys.argv, output = json.loads(line)
    child = os.fork()
    if not child:
        status = 1
        try:
            sys.stdout = sys.stderr = open(output, "w")
            runpy.run_path("manage.py", run_name="__main__")
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            sys.stdout.close()
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass
class Step:
    """A command, and the lines that the page shows after it."""

    where: str
    command: str
    shown: list[str] = field(default_factory=list)

    def compare(self, output: str) -> None:
        """Look for the shown lines in the output, in their order; "..." stands for anything."""
        rest = output
        for line in filter(None, (line.strip() for line in self.shown)):
            if line == "...":
                continue
            found = re.search(r"\S*.*?".join(map(re.escape, line.split("..."))), rest)
            assert found, f"{self.where}: {self.command}\nlacks {line!r}:\n{output}"
            rest = rest[found.end() :]


def steps_of(block: Block) -> list[Step]:
    found: list[Step] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Step(block.where, line.removeprefix("$ ")))
        else:
            found[-1].shown.append(line)
    return found


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@dataclass
class Reader:
    """A person who follows the page in a directory of their own. Port 8000 is another, free one."""

    path: Path
    port: int = field(default_factory=free_port)
    environment: dict[str, str] = field(default_factory=dict)
    server: Fork | None = None
    drain: threading.Thread = field(default_factory=threading.Thread)
    runner: Dialogue | None = None
    token: str = ""

    def __post_init__(self) -> None:
        named = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        self.environment = {**named, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}

    def ported(self, text: str) -> str:
        return re.sub(r"\b8000\b", str(self.port), text)

    def write(self, block: Block) -> None:
        self.forget()
        path = self.path / block.file
        before = path.read_text() if block.is_appended else ""
        path.write_text(before + self.ported(block.text))

    def do(self, step: Step) -> None:
        step = Step(step.where, self.ported(step.command), [self.ported(line) for line in step.shown])
        match shlex.split(step.command):
            case ["mkdir", name]:
                (self.path / name).mkdir()
            case ["cd", name]:
                self.path /= name
            case ["export", _]:
                self.export(step.command.removeprefix("export "))
            case _ if step.command.startswith(PROVIDED):
                pass
            case ["python", "manage.py", "createsuperuser", *options] if "--noinput" not in options:
                step.compare(self.type_answers(step))
            case ["python", "manage.py", "runserver"]:
                self.serve(step, ["manage.py", "runserver", "--noreload", f"127.0.0.1:{self.port}"])
            case [("daphne" | "uvicorn") as program, *arguments]:
                self.serve(step, [*PROGRAMS[program], *arguments])
            case ["python", "manage.py", "startapp", *_] as command:
                step.compare(self.run(step, command[1:]))
            case ["python", *arguments]:
                step.compare(self.manage(step, arguments))
            case [program, *arguments]:
                step.compare(self.run(step, [*PROGRAMS[program], *arguments]))

    def export(self, assigned: str) -> None:
        self.forget()
        name, _, value = assigned.partition("=")
        if code := re.fullmatch(r'"\$\(python -c \'(.+)\'\)"', value):
            value = subprocess.check_output([sys.executable, "-c", code[1]], text=True).strip()
        self.environment[name] = value

    def run(self, step: Step, arguments: list[str]) -> str:
        done = run_to_end(arguments, self.environment, self.path)
        assert done.returncode == 0, f"{step.where}: {step.command}\n{done.stderr}"
        return done.stdout

    def manage(self, step: Step, arguments: list[str]) -> str:
        """Run a command of `manage.py` and return its output; it fails where the page shows that it does."""
        if self.runner is None:
            self.runner = Dialogue([sys.executable, "-c", RUNNER], self.environment, self.path)
        written = self.path.parent / "output"
        watchdog = threading.Timer(2 * START, self.runner.fork.kill)
        watchdog.start()
        status = self.runner.ask([arguments, str(written)])
        watchdog.cancel()
        output = written.read_text()
        assert status == ("CommandError" in "".join(step.shown)), f"{step.where}: {step.command}\n{output}"
        if "mcp_token" in arguments:
            (self.token,) = re.findall(r"^[\w-]{40,}$", output, re.MULTILINE)
        return output

    def forget(self) -> None:
        """End the process that has loaded the project as it was."""
        if self.runner is not None:
            self.runner.close()
            self.runner = None

    def type_answers(self, step: Step) -> str:
        """Answer each question of the command at its prompt, as the page does; the password is not shown there."""
        terminal, theirs = pty.openpty()
        command = [sys.executable, *shlex.split(step.command)[1:]]
        pipes: dict[str, int] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        child = subprocess.Popen(command, cwd=self.path, env=self.environment, **pipes)
        os.close(theirs)
        watchdog = threading.Timer(START, child.kill)
        watchdog.start()
        seen = ""
        for line in step.shown:
            if not (found := re.match(r"(\w+)[^:]*:(.*)", line)):
                continue
            asked = seen
            while not re.search(rf"{found[1]}[^:]*: ?$", seen.removeprefix(asked)):
                seen += os.read(terminal, 1024).decode()
            os.write(terminal, (PASSWORD if found[1] == "Password" else found[2].strip()).encode() + b"\n")
        while part := self.last_words(terminal):
            seen += part
        watchdog.cancel()
        assert child.wait(START) == 0, seen
        os.close(terminal)
        step.shown = step.shown[-1:]
        return seen

    def last_words(self, terminal: int) -> str:
        try:
            return os.read(terminal, 1024).decode()
        except OSError:  # the other end is closed
            return ""

    def serve(self, step: Step, arguments: list[str]) -> None:
        """Start a server in the place of the one before, and wait until it has said the last shown line."""
        self.stop()
        reading, writing = os.pipe()
        with open(writing, "w") as output, open(os.devnull) as nothing:
            command = [sys.executable, *arguments]
            self.server = Fork(command, self.environment, nothing, output, output, directory=self.path)
        said = open(reading)  # noqa: SIM115
        watchdog = threading.Timer(START, self.server.kill)
        watchdog.start()
        seen = ""
        for line in said:
            seen += line
            if self.ends(step, line):
                break
        watchdog.cancel()
        self.drain = threading.Thread(target=self.read_on, args=[said], daemon=True)
        self.drain.start()
        step.compare(seen)
        self.reach()

    def ends(self, step: Step, line: str) -> bool:
        last = step.shown[-1].split("...")
        return all(part.strip() in line for part in last)

    def reach(self) -> None:
        """Wait for the port: `runserver` says that it listens a moment before it does."""
        end = time.monotonic() + START
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), START):
                return
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.05)

    def stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(START)
            self.drain.join(START)

    def read_on(self, said: TextIO) -> None:
        """Let the server say more, until its end."""
        with said:
            said.read()

    def ask(self, tool: str, **arguments: object) -> str:
        """Call a tool over HTTP as a client with the token and return what the model reads."""
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
        }
        url = f"http://127.0.0.1:{self.port}/mcp"
        request = urllib.request.Request(url, json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=START) as response:
            text: str = json.load(response)["result"]["content"][0]["text"]
        return text

    def open(self, path: str) -> str:
        """Open a page as a browser."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={"Accept": "text/html"})
        with urllib.request.urlopen(request, timeout=START) as response:
            page: str = response.read().decode()
        return page


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    person = Reader(tmp_path)
    yield person
    person.forget()
    person.stop()


def test_who_follows_the_tutorial_gets_what_it_shows(reader: Reader) -> None:
    for block in blocks_of(PAGE):
        if block.file:
            reader.write(block)
        else:
            for step in steps_of(block):
                reader.do(step)
        if "mcp_token" in block.text:
            assert "Emma" in reader.ask("query_records", model="books.book", search="austen")
            assert "supplier_note" in reader.ask("describe_model", model="books.book")
            assert "claude mcp add" in reader.open("/mcp")

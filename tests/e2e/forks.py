"""Python programs, each in a process of its own: a fork of one that has the libraries imported.

To import the libraries of the example project takes longer than all else that a server does before it answers. They are
imported once for a run; what reads settings, such as the package and the project, each program imports by itself.
Run as a module it is the process that forks: a byte comes to it by a socket with three open files, and a line that says
what to run with them as standard input, output and error; it answers with the number of the process.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]
# What reads no settings when it is imported, and neither starts a thread nor chooses a loop.
LIBRARIES = """
asgiref.server asgiref.wsgi autobahn.twisted.websocket cryptography.x509 django.contrib.admin
django.contrib.messages.storage.fallback django.contrib.staticfiles.finders django.core.handlers.asgi
django.core.handlers.wsgi django.core.mail.backends.smtp django.core.management.commands.runserver
django.db.backends.postgresql.base django.db.backends.sqlite3.base django.db.migrations.executor
django.db.models.functions django.forms django.template.defaulttags django.template.loader_tags django.urls
django.views.debug django.views.generic django.views.i18n docutils.core html.parser jwcrypto.jwt mcp_types.methods
multiprocessing.context oauthlib.oauth2 oauthlib.openid PIL.Image psycopg.types.json redis.asyncio requests
service_identity sqlparse twisted.web.http uvicorn.loops.uvloop uvicorn.main uvicorn.protocols.http.h11_impl
uvicorn.protocols.http.httptools_impl websockets.server xml.etree.ElementTree yaml
""".split()
# Seconds between two looks at a process that is waited for, as in `subprocess`.
LOOK_EVERY = 0.05
CODE_TIMEOUT = 300


class HasFileno(Protocol):
    """An open file or socket."""

    def fileno(self) -> int: ...


class Forking:
    """The process that forks; its forks end with it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.socket, other = socket.socketpair()
        with other:
            environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
            command = [sys.executable, "-m", "tests.e2e.forks", str(other.fileno())]
            self.process = subprocess.Popen(command, env=environment, cwd=ROOT, pass_fds=[other.fileno()])
        self.answers = self.socket.makefile("r")

    def ask(self, request: dict[str, Any], files: Sequence[int] = ()) -> Any:
        with self.lock:
            if files:
                socket.send_fds(self.socket, [b"."], files)
            else:
                self.socket.sendall(b".")
            self.socket.sendall(f"{json.dumps(request)}\n".encode())
            return json.loads(self.answers.readline())

    def close(self) -> None:
        with self.lock:
            self.answers.close()
            self.socket.close()
            self.process.wait(30)


_one: list[Forking] = []
_choosing = threading.Lock()


def forking() -> Forking:
    """The one of this run."""
    with _choosing:
        if not _one:
            _one.append(Forking())
        return _one[0]


@atexit.register
def _close() -> None:
    while _one:
        _one.pop().close()


class Fork:
    """A program that runs, with those methods of `subprocess.Popen` that the tests need.

    `command` is what Python would be started with, which is a module, a script or code.
    """

    returncode: int | None = None

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *files: HasFileno, directory: Path = ROOT
    ) -> None:
        """`files` are standard input, output and error; the program begins in the directory."""
        self.args = [*command]
        assert self.args[0] == sys.executable
        request = {"command": self.args[1:], "environment": dict(environment), "directory": str(directory)}
        self.pid: int = forking().ask(request, [file.fileno() for file in files])

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = forking().ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(LOOK_EVERY)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_to_end(
    arguments: Sequence[str], environment: Mapping[str, str], directory: Path = ROOT, given: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run Python with these arguments to its end; `given` is its standard input."""
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as errors:
        asked.write(given.encode())
        asked.seek(0)
        process = Fork([sys.executable, *arguments], environment, asked, told, errors, directory=directory)
        try:
            status = process.wait(CODE_TIMEOUT)
        finally:
            process.kill()
        told.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(process.args, status, told.read().decode(), errors.read().decode())


def run_code(code: str, environment: Mapping[str, str]) -> None:
    """Run code, which must not fail, to its end."""
    done = run_to_end(["-c", code], environment)
    assert done.returncode == 0, done.stdout + done.stderr


class Dialogue:
    """A program that answers each line of its standard input by a line."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: Path = ROOT) -> None:
        (given, asking), (answering, told) = os.pipe(), os.pipe()
        with open(given) as standard_input, open(told, "w") as output:
            self.fork = Fork(command, environment, standard_input, output, sys.__stderr__, directory=directory)
        self.asking, self.answering = open(asking, "w"), open(answering)  # noqa: SIM115

    def ask(self, question: Any) -> Any:
        """The answer; both are JSON."""
        print(json.dumps(question), file=self.asking, flush=True)
        return json.loads(self.answering.readline())

    def close(self) -> None:
        self.asking.close()
        self.fork.wait(30)
        self.answering.close()


def run_as_python_does(command: list[str]) -> None:
    """Run the program in this process, which is its own."""
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif command[0] == "-c":
        exec(command[1], {"__name__": "__main__"})
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def fork(request: dict[str, Any], files: list[int]) -> int:
    """The number of the new process; 0 in that process, which finds modules as Python does if it starts there."""
    pid = os.fork()
    if pid == 0:
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout.reconfigure(line_buffering=True)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        sys.path[:1] = [request["directory"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    for file in files:
        os.close(file)
    return pid


def look(pid: int) -> int | None:
    """How a process ended, None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def main() -> None:
    for name in LIBRARIES:
        import_module(name)
    # A fork has the thread that forks and no other.
    assert threading.active_count() == 1
    # No fork looks for garbage in what all of them have.
    gc.freeze()
    asked = socket.socket(fileno=int(sys.argv[1]))
    running: set[int] = set()
    lines = asked.makefile("r")
    while True:
        start, files, *_ = socket.recv_fds(asked, 1, 3)
        if not start:
            break
        request = json.loads(lines.readline())
        answer: int | None
        if "poll" in request:
            answer = look(request["poll"])
            running -= {request["poll"]} if answer is not None else set()
        else:
            answer = fork(request, files)
            if answer == 0:
                lines.close()
                asked.close()
                return run_as_python_does(request["command"])
            running.add(answer)
        asked.sendall(f"{json.dumps(answer)}\n".encode())
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()

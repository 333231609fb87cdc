"""The servers that the tests talk to: each a process of its own, on a port and a database of its own."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from tests.e2e.commands import run_command
from tests.e2e.forks import ROOT, Fork, run_code

HOST = "127.0.0.1"
START_TIMEOUT = 180
STOP_TIMEOUT = 10
# Requests after which a worker is replaced.
REQUESTS = 8
# Fills an empty database: small, but with several pages of everything.
PREPARE = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
call_command("load_places", min_population={population})
call_command("load_shop", orders=200)
call_command("create_accounts")
"""


@dataclass(frozen=True)
class Server:
    """A server that is running."""

    origin: str
    database: Path
    environment: Mapping[str, str]

    @property
    def url(self) -> str:
        """The MCP endpoint."""
        return f"{self.origin}/mcp"


def free_port() -> int:
    """A port that nothing listened on a moment ago."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


def command(server: str, application: str, port: int) -> list[str]:
    """The command line of a server: those below, or `runserver`."""
    if server == "runserver":
        # The only one that serves static files, as in `make demo`.
        return [sys.executable, str(ROOT / "manage.py"), server, "--noreload", f"{HOST}:{port}"]
    uvicorn = ["--host", HOST, "--port", str(port), "--lifespan", "off", "--log-level", "warning"]
    replacing = ["--bind", f"{HOST}:{port}", "--log-level", "warning", "--max-requests", str(REQUESTS)]
    address = {
        # As `uvicorn[standard]` chooses by itself: its timers and connections are not those of asyncio.
        "uvicorn": [*uvicorn, "--loop", "uvloop", "--http", "httptools"],
        # With asyncio's own loop, as where nothing but uvicorn is installed.
        "uvicorn-workers": [*uvicorn, "--workers", "2", "--loop", "asyncio"],
        "daphne": ["-b", HOST, "-p", str(port), "-v", "0"],
        # Ends what is not done soon after its answer, a tenth of daphne's own time.
        "daphne-hasty": ["-b", HOST, "-p", str(port), "-v", "0", "--application-close-timeout", "1"],
        "hypercorn": ["--bind", f"{HOST}:{port}", "--log-level", "warning"],
        "gunicorn-asgi": ["-k", "asgi", "--bind", f"{HOST}:{port}", "--log-level", "warning"],
        # Those that replace their workers after so many requests.
        "uvicorn-replacing": [*uvicorn, "--workers", "2", "--limit-max-requests", str(REQUESTS)],
        "gunicorn-asgi-replacing": ["-k", "asgi", *replacing],
        "gunicorn-uvicorn-replacing": ["-k", "uvicorn.workers.UvicornWorker", *replacing],
        "hypercorn-replacing": ["--bind", f"{HOST}:{port}", "--workers", "2", "--max-requests", str(REQUESTS)],
        "gunicorn": ["--bind", f"{HOST}:{port}", "--threads", "4", "--log-level", "warning"],
    }
    return [sys.executable, "-m", server.partition("-")[0], *address[server], application]


def environment(settings: str, **more: str) -> dict[str, str]:
    """The environment of a process of a project with these settings."""
    return {**os.environ, "DJANGO_SETTINGS_MODULE": settings, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}


def prepare_example(directory: Path, database: str = "", population: int = 300_000) -> Path:
    """Fill the media in `directory`, and the database there or at the URL, without cities of fewer people."""
    env = environment(
        "tests.e2e.settings",
        EXAMPLE_DATABASE=database or str(directory / "example.sqlite3"),
        EXAMPLE_MEDIA=str(directory / "media"),
    )
    run_code(PREPARE.format(population=population), env)
    return directory


@contextmanager
def run_example(
    prepared: Path,
    directory: Path,
    server: str,
    application: str,
    settings: str = "tests.e2e.settings",
    url: str = "",
) -> Iterator[Server]:
    """Serve a copy of the prepared data until the block ends; or the database at the URL itself."""
    shutil.copytree(prepared, directory, dirs_exist_ok=True)
    port = free_port()
    database = directory / "example.sqlite3"
    env = environment(
        settings,
        EXAMPLE_DATABASE=url or str(database),
        EXAMPLE_MEDIA=str(directory / "media"),
        MCP_BASE_URL=f"http://{HOST}:{port}",
        E2E_MARKERS=str(directory),
    )
    with run(command(server, application, port), port, env, directory / "server.log") as origin:
        yield Server(origin, database, env)


def manage(server: Server, *arguments: str) -> str:
    """What a management command of the server's project prints."""
    done = run_command(server.environment, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def run(
    command_line: Sequence[str], port: int, env: Mapping[str, str], log: Path, directory: Path = ROOT
) -> Iterator[str]:
    """Run a server until the block ends, and give its origin. It must not have logged a traceback by then."""
    with log.open("wb") as output, open(os.devnull) as nothing:
        process = Fork(command_line, env, nothing, output, output, directory=directory)
        try:
            origin = f"http://{HOST}:{port}"
            _wait_until_ready(process, f"{origin}/mcp", log)
            yield origin
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_TIMEOUT)
    text = log.read_text(errors="replace")
    assert "Traceback" not in text, text


def _wait_until_ready(process: Fork, url: str, log: Path) -> None:
    """Wait for the first answer, which warms the server up as well."""
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")
        try:
            httpx2.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, timeout=START_TIMEOUT)
        except httpx2.TransportError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{url} did not answer within {START_TIMEOUT} s\n{log.read_text(errors='replace')}")

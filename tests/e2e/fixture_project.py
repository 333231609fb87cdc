"""The conformance project, served by one worker or several."""

import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.e2e.servers import Server, environment, free_port, run

SETTINGS = "tests.conformance_project.settings"
WARMING_UP = 16


@contextmanager
def run_conformance_project(directory: Path, program: str, *, workers: int = 1, redis: str = "") -> Iterator[Server]:
    """Serve it, with its database in `directory`, until the block ends; several workers need the URL of a Redis."""
    port = free_port()
    database = directory / "conformance.sqlite3"
    env = environment(
        SETTINGS, CONFORMANCE_DATABASE=str(database), CONFORMANCE_REDIS=redis, CONFORMANCE_PREFIX=uuid.uuid4().hex
    )
    module = [sys.executable, "-m", "tests.conformance_project", "--port", str(port)]
    command = [*module, "--server", program, "--workers", str(workers)]
    with run(command, port, env, directory / "server.log") as origin:
        server = Server(origin, database, env)
        warm_up(server)
        yield server


def warm_up(server: Server) -> None:
    """Let every worker answer, so that none of them still has to import and compile when time counts."""

    def ask(_: int) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        httpx2.post(server.url, json=message, headers=headers, timeout=30).raise_for_status()

    with ThreadPoolExecutor(WARMING_UP) as pool:
        list(pool.map(ask, range(WARMING_UP)))

"""Downloads that end in their middle, over real connections: no client takes a part for the whole file, and none gets
the next answer on its connection as the rest of a file."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.servers import ROOT, free_port

HOST = "127.0.0.1"
BODY = 300_000
SERVERS = {
    "uvicorn": ["uvicorn", "--host", HOST, "--port", "{port}", "--lifespan", "off", "tests.served_files:asgi"],
    "daphne": ["daphne", "-b", HOST, "-p", "{port}", "tests.served_files:asgi"],
    "gunicorn": ["gunicorn", "--bind", HOST + ":{port}", "--threads", "2", "tests.served_files:wsgi"],
    # The development server, as runserver starts it.
    "django": ["tests.served_files", HOST, "{port}"],
}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """Run a server; return its port, and the file of its log."""
    pytest.importorskip(request.param)
    port = free_port()
    command = [sys.executable, "-m", *(part.format(port=port) for part in SERVERS[request.param])]
    log = tmp_path_factory.mktemp("served") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        try:
            for _ in range(600):
                try:
                    socket.create_connection((HOST, port)).close()
                    break
                except ConnectionError:
                    assert process.poll() is None, log.read_text()
                    time.sleep(0.1)
            yield port, log
        finally:
            process.terminate()
            process.wait(30)


def answer(port: int, method: str, kind: str) -> tuple[str, bytes]:
    """Ask for a file and, on the same connection, for something else; return the head and all that follows it."""
    with socket.create_connection((HOST, port), timeout=60) as connection:
        asked = (f"{method} /file/{kind}", "GET /next")
        connection.sendall("".join(f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n" for line in asked).encode())
        found = b""
        try:
            while b"THE NEXT ANSWER" not in found and (data := connection.recv(65536)):
                found += data
        except ConnectionError:
            # It was reset.
            pass
    head, _, rest = found.partition(b"\r\n\r\n")
    return head.decode(), rest


def length(head: str) -> int:
    return int(re.findall(r"(?i)content-length: (\d+)", head)[0])


def test_a_whole_file_is_followed_by_the_next_answer(server: tuple[int, Path]) -> None:
    head, rest = answer(server[0], "GET", "whole")
    assert length(head) == BODY
    assert rest.startswith(b"x" * BODY + b"HTTP/1.1 200")


@pytest.mark.parametrize("kind", ["shorter", "longer", "failing"])
def test_a_file_that_is_not_whole_ends_the_connection_before_its_announced_length(
    server: tuple[int, Path], kind: str
) -> None:
    head, rest = answer(server[0], "GET", kind)
    assert len(rest) < length(head)
    assert set(rest) <= {ord("x")}
    assert "The download of the export of call 0" in server[1].read_text()


def test_a_look_at_the_head_gets_nothing_of_the_file(server: tuple[int, Path]) -> None:
    head, rest = answer(server[0], "HEAD", "whole")
    assert length(head) == BODY
    assert rest.startswith(b"HTTP/1.1 200")


def was_read(port: int) -> int:
    """Return how many bytes the server has read of large files."""
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.sendall(b"GET /read HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = b""
        while (told := re.search(rb"READ (\d+)\.", found)) is None:
            found += connection.recv(65536)
    return int(told[1])


def test_a_client_that_does_not_read_makes_the_server_hold_little_of_a_file(server: tuple[int, Path]) -> None:
    port = server[0]
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.sendall(b"GET /file/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while (before := was_read(port)) == 0:
            time.sleep(0.1)
        # It reads on until nothing more goes into the connection.
        while time.sleep(1) or (now := was_read(port)) > before:
            before = now
    assert now < 20_000_000


def test_the_server_goes_on(server: tuple[int, Path]) -> None:
    for kind in ("failing", "shorter"):
        answer(server[0], "GET", kind)
    # Daphne looks at its applications once a second, and stops that for good if one has failed within a body.
    time.sleep(1.5)
    assert answer(server[0], "GET", "whole")[1].startswith(b"x" * BODY)
    assert "already been started" not in server[1].read_text()

"""Raw HTTP/1.1 to a server of this machine, on connections that stay open: what no client library would send."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
# Seconds after which something that should have happened counts as not happening.
PATIENCE = 30
# What the log of a server must not have.
BAD_LINES = ("Traceback", "Unhandled", "never retrieved", "was destroyed", "never awaited", "ERROR", "CRITICAL")


@dataclass(frozen=True)
class Request:
    """A request; header names in lower case."""

    method: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    def to_bytes(self) -> bytes:
        head = [f"{self.method} /mcp HTTP/1.1", f"host: {HOST}", f"content-length: {len(self.body)}"]
        head += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*head, "", ""]).encode("latin1") + self.body


@dataclass(frozen=True)
class Answer:
    """The head of an answer, names in lower case, and its body; a stream is left after its first event."""

    status: int
    headers: dict[str, str]
    body: bytes


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Wire:
    """Connections to one server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.idle: list[Connection] = []

    async def send(self, request: Request) -> Answer:
        """The answer to a request, on a connection that was open already if there is one."""
        while self.idle:
            # The server closes connections that were idle for long.
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                return await self._send(request, self.idle.pop())
        return await self._send(request, await asyncio.open_connection(HOST, self.port))

    async def _send(self, request: Request, connection: Connection) -> Answer:
        reader, writer = connection
        keep = False
        try:
            writer.write(request.to_bytes())
            async with asyncio.timeout(PATIENCE):
                answer, keep = await read_answer(reader, request.method)
            return answer
        finally:
            if keep:
                self.idle.append(connection)
            else:
                await _close(writer)

    async def send_all(self, requests: Sequence[Request]) -> list[Answer]:
        """The answers to requests that are sent at the same time."""
        found = await asyncio.gather(*map(self.send, requests), return_exceptions=True)
        for request, answer in zip(requests, found, strict=True):
            if isinstance(answer, BaseException):
                raise AssertionError(f"no answer to {request}") from answer
        return [answer for answer in found if isinstance(answer, Answer)]

    async def close(self) -> None:
        """Close all connections."""
        while self.idle:
            await _close(self.idle.pop()[1])


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader, method: str) -> tuple[Answer, bool]:
    """An answer, and whether its connection may be used again."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    status = int(head[0].split()[1])
    if method == "HEAD":
        return Answer(status, headers, b""), False
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
        return Answer(status, headers, body), headers.get("connection") != "close"
    if status == 204:
        return Answer(status, headers, b""), True
    # A stream, which is left when it has begun; one that answers a GET may have nothing to say.
    return Answer(status, headers, await reader.read(65536) if method == "POST" else b""), False


def post(message: Any, *headers: tuple[str, str]) -> Request:
    """A request with a message, as a client that does everything right sends it."""
    fixed = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
    return Request("POST", [*fixed, *headers], json.dumps(message).encode())


class Target:
    """A server in a process of its own, and what it holds."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    def files(self) -> int:
        """How many descriptors it has open beside those of its database, which its threads keep."""
        directory = f"/proc/{self.process.pid}/fd"
        found = 0
        for name in os.listdir(directory):
            with contextlib.suppress(FileNotFoundError):  # closed by now
                found += "sqlite" not in os.readlink(f"{directory}/{name}")
        return found

    def tasks(self) -> int:
        """How many tasks its event loop has."""
        self.process.send_signal(signal.SIGUSR1)
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def bad_lines(self) -> list[str]:
        """The lines of its log that tell of something unforeseen, with what follows the first."""
        lines = self.log.read_text(errors="replace").splitlines()
        first = next((number for number, line in enumerate(lines) if any(bad in line for bad in BAD_LINES)), None)
        return [] if first is None else lines[first : first + 60]


@contextmanager
def serving(directory: Path) -> Iterator[Target]:
    """Serve the conformance project until the block ends; it must end by itself then."""
    log = directory / "server.log"
    command = [sys.executable, "-m", "tests.fuzz.serve", str(directory / "db.sqlite3")]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline()
        assert port, log.read_text(errors="replace")
        yield Target(process, int(port), log)
        process.terminate()
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def eventually(count: Callable[[], int], most: int) -> int:
    """The count, once it is no more than `most`, or in the end."""
    deadline = time.monotonic() + PATIENCE
    while (found := count()) > most and time.monotonic() < deadline:
        time.sleep(0.05)
    return found

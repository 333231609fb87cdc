"""A load generator: keep-alive connections that send prepared requests one after the other and check each answer."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SETTLE_SECONDS = 30


class BadAnswer(Exception):
    """An answer that is not what was asked for; nothing is measured then."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer; header names are in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


Check = Callable[[Answer], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one stretch of load gave: the seconds it took and those of each call."""

    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        """Calls a second."""
        return len(self.latencies) / self.seconds

    def quantile(self, part: float) -> float:
        """Return the time in seconds within which ``part`` of the calls were answered."""
        ordered = sorted(self.latencies)
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def split_answer(data: bytes | bytearray) -> tuple[Answer, int] | None:
    """Return the first answer of the data and its length in bytes, or None while it is not whole.

    Raises:
        BadAnswer: it says neither how long it is nor that it is chunked.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    status, *lines = bytes(data[:end]).split(b"\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    start = end + 4
    if (length := headers.get(b"content-length")) is not None:
        stop = start + int(length)
        return None if len(data) < stop else (Answer(int(status[9:12]), headers, bytes(data[start:stop])), stop)
    if headers.get(b"transfer-encoding") != b"chunked":
        raise BadAnswer(f"no length: {bytes(data[:end])!r}")
    whole = _join_chunks(data, start)
    return None if whole is None else (Answer(int(status[9:12]), headers, whole[0]), whole[1])


def _join_chunks(data: bytes | bytearray, position: int) -> tuple[bytes, int] | None:
    parts: list[bytes] = []
    while (end := data.find(b"\r\n", position)) >= 0:
        size = int(bytes(data[position:end]).partition(b";")[0], 16)
        position = end + 2 + size + 2
        if len(data) < position:
            return None
        if not size:
            return b"".join(parts), position
        parts.append(bytes(data[end + 2 : position - 2]))
    return None


class Connection(asyncio.Protocol):
    """Sends the next request as soon as the last is answered, until there is none or it is told to stop."""

    def __init__(self, requests: Iterator[bytes], check: Check, done: "asyncio.Future[None]") -> None:
        self.requests, self.check, self.done = requests, check, done
        self.latencies: list[float] = []
        self.stopping = False
        self.buffer = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send()

    def send(self) -> None:
        """Send the next request, or end where there is none."""
        request = next(self.requests, None)
        if request is None:
            self.finish(None)
            return
        self.sent = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        try:
            found = split_answer(self.buffer)
            if found is None:
                return
            answer, length = found
            self.latencies.append(time.perf_counter() - self.sent)
            if length != len(self.buffer):
                raise BadAnswer("more than one answer to one request")
            self.check(answer)
        except Exception as error:
            self.finish(error)
            return
        self.buffer.clear()
        if self.stopping:
            self.finish(None)
        else:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.finish(exc or BadAnswer("the server closed the connection"))

    def finish(self, error: Exception | None) -> None:
        """Tell whoever waits, once."""
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
        self.transport.close()


async def run(port: int, requests: Iterator[bytes], check: Check, *, connections: int, seconds: float) -> Sample:
    """Put load on a server of this machine: for a time, or until each request is answered.

    Raises:
        BadAnswer: ``check`` refused an answer, or none came.
    """
    loop = asyncio.get_running_loop()
    open_ones: list[Connection] = []
    begin = time.perf_counter()
    for _ in range(connections):
        connection = Connection(requests, check, loop.create_future())
        await loop.create_connection(lambda connection=connection: connection, "127.0.0.1", port)  # type: ignore[misc]
        open_ones.append(connection)
    waiting = [connection.done for connection in open_ones]
    try:
        # Only a failure ends it before its time.
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for connection in open_ones:
            connection.stopping = True
        await asyncio.wait_for(asyncio.gather(*waiting), SETTLE_SECONDS)
    except TimeoutError:
        raise BadAnswer(f"no answer within {SETTLE_SECONDS} s") from None
    finally:
        for connection in open_ones:
            connection.transport.abort()
    elapsed = time.perf_counter() - begin
    return Sample(elapsed, [latency for connection in open_ones for latency in connection.latencies])


async def fetch(port: int, request: bytes) -> Answer:
    """Return the answer to one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        data = bytearray()
        while (found := split_answer(data)) is None:
            received = await asyncio.wait_for(reader.read(65536), SETTLE_SECONDS)
            if not received:
                raise BadAnswer("the server closed the connection")
            data += received
        return found[0]
    finally:
        writer.close()
        await writer.wait_closed()

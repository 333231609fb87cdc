"""Streams that stay open: connections that wait for news, as clients of either era open them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from .calls import LEGACY, MODERN, OK, http_request, mcp_request
from .load import Answer, BadAnswer, split_answer

# Connections that are on their way at the same time: the servers' backlog is not what is measured.
AT_ONCE = 50
OPEN_SECONDS = 60
NEWS_SECONDS = 30
ACKNOWLEDGED = b"notifications/subscriptions/acknowledged"
UPDATED = b"notifications/resources/updated"
HEAD_END = b"\r\n\r\n"
# What comes at once with the head of a stream, keep-alives included, is of no size.
MAX_HEAD = 65_536

# Requests that are answered one after the other; what it returns is the request whose answer is the stream.
Opening = Generator[bytes, Answer, bytes]


def listen(port: int, uri: str, token: str) -> Opening:
    """Open a stream of 2026-07-28: one request, which names the resource."""
    yield from ()
    params = {"notifications": {"resourceSubscriptions": [uri]}}
    return mcp_request(port, "subscriptions/listen", params, token=token, revision=MODERN)


def handshake(port: int, uri: str, token: str, *, subscribe: bool = True) -> Opening:
    """Open a stream of 2025-11-25: a session of its own, a subscription in it, and its GET."""
    client = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "benchmarks", "version": "1"}}
    answer = yield mcp_request(port, "initialize", client, token=token, revision=LEGACY)
    session = answer.headers[b"mcp-session-id"].decode()
    yield in_session(port, token, session, {"method": "notifications/initialized"})
    if subscribe:
        message = {"id": 2, "method": "resources/subscribe", "params": {"uri": uri}}
        answer = yield in_session(port, token, session, message)
        if b'"result"' not in answer.body:
            raise BadAnswer(f"not subscribed: {answer.body[:500]!r}")
    headers = {"Accept": "text/event-stream"}
    return http_request("GET", "/mcp", session_headers(port, token, session) | headers)


def session_headers(port: int, token: str, session: str) -> dict[str, str]:
    """Return what each request of a session carries."""
    return {
        "Host": f"127.0.0.1:{port}",
        "Authorization": f"Bearer {token}",
        "MCP-Protocol-Version": LEGACY,
        "Mcp-Session-Id": session,
    }


def in_session(port: int, token: str, session: str, message: dict[str, Any]) -> bytes:
    """Return the POST of a message in a session."""
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    more = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
    }
    return http_request("POST", "/mcp", session_headers(port, token, session) | more, body)


class Stream(asyncio.Protocol):
    """One connection: it asks for its stream, waits until that is open, then counts the changes it is told of."""

    def __init__(self, opening: Opening, ready: bytes, told: Callable[[], None]) -> None:
        self.opening, self.ready, self.told = opening, ready, told
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.buffer = bytearray()
        self.streaming = self.closed = False
        self.changes = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.next_request(None))

    def next_request(self, answer: Answer | None) -> bytes:
        """Return the request that follows an answer, or begins."""
        try:
            return next(self.opening) if answer is None else self.opening.send(answer)
        except StopIteration as end:
            self.streaming = True
            request: bytes = end.value
            return request

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        try:
            if self.opened.done():
                self.count()
            elif self.streaming:
                self.look_for_ready()
            elif (found := split_answer(self.buffer)) is not None:
                answer, length = found
                del self.buffer[:length]
                if answer.status not in (OK, 202):
                    raise BadAnswer(f"{answer.status} {answer.body[:500]!r}")
                assert self.transport is not None
                self.transport.write(self.next_request(answer))
        except Exception as error:
            self.fail(error)

    def look_for_ready(self) -> None:
        """See whether the stream is open."""
        if len(self.buffer) > MAX_HEAD or (HEAD_END in self.buffer and not self.buffer.startswith(b"HTTP/1.1 200 ")):
            raise BadAnswer(f"no stream: {bytes(self.buffer[:500])!r}")
        at = self.buffer.find(self.ready)
        if at >= 0:
            del self.buffer[: at + len(self.ready)]
            self.opened.set_result(None)
            self.count()

    def count(self) -> None:
        """Count the changes told, and keep what may be the beginning of the next one."""
        while (at := self.buffer.find(UPDATED)) >= 0:
            del self.buffer[: at + len(UPDATED)]
            self.changes += 1
            self.told()
        del self.buffer[: max(len(self.buffer) - len(UPDATED), 0)]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.fail(exc or BadAnswer("the server closed a stream"))

    def fail(self, error: Exception) -> None:
        """Tell whoever waits for the stream."""
        if not self.opened.done():
            self.opened.set_exception(error)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self.transport is not None:
            self.transport.abort()


class Streams:
    """Streams that are open, and how many changes all of them were told of."""

    def __init__(self) -> None:
        self.all: list[Stream] = []
        self.number = self.wanted = 0
        self.reached: asyncio.Future[None] | None = None

    def told(self) -> None:
        """Count one change of one stream."""
        self.number += 1
        if self.reached is not None and self.number >= self.wanted and not self.reached.done():
            self.reached.set_result(None)

    @asynccontextmanager
    async def next_change(self) -> AsyncIterator[None]:
        """Do in the block what changes something; the block ends when each stream was told of it, once.

        Raises:
            BadAnswer: one was not, or was told twice, or has ended.
        """
        before = [stream.changes for stream in self.all]
        self.wanted = self.number + len(self.all)
        self.reached = asyncio.get_running_loop().create_future()
        yield
        try:
            await asyncio.wait_for(self.reached, NEWS_SECONDS)
        except TimeoutError:
            missing = self.wanted - self.number
            raise BadAnswer(f"{missing} of {len(self.all)} streams were not told of a change") from None
        if any(stream.changes != old + 1 for stream, old in zip(self.all, before, strict=True)):
            raise BadAnswer("not every stream was told of a change once")

    def check(self) -> None:
        """Check that all of them are open still.

        Raises:
            BadAnswer: some are not.
        """
        ended = sum(stream.closed for stream in self.all)
        if ended:
            raise BadAnswer(f"{ended} of {len(self.all)} streams have ended")


@asynccontextmanager
async def streams(port: int, openings: Sequence[Opening], ready: bytes) -> AsyncIterator[Streams]:
    """Hold a stream for each opening while the block runs; ``ready`` is what shows that one is open."""
    held = Streams()
    loop = asyncio.get_running_loop()
    waiting = iter(openings)

    async def open_some() -> None:
        for opening in waiting:
            stream = Stream(opening, ready, held.told)
            held.all.append(stream)
            await loop.create_connection(lambda stream=stream: stream, "127.0.0.1", port)  # type: ignore[misc]
            await asyncio.wait_for(stream.opened, OPEN_SECONDS)

    tasks = [asyncio.ensure_future(open_some()) for _ in range(AT_ONCE)]
    try:
        await asyncio.gather(*tasks)
        yield held
    finally:
        for task in tasks:
            task.cancel()
        for stream in held.all:
            stream.close()

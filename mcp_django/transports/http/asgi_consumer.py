"""The ASGI consumer of one HTTP request: its connection to the client, and the steps to the answer.

Unread output is bounded: responses are sent in pieces, each of which waits for the one before it, and a client that
reads nothing for ``WRITE_TIMEOUT`` seconds is disconnected.
"""

import asyncio
import contextlib
import socket
import struct
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from channels.consumer import AsyncConsumer

from ...conf import settings
from ...exceptions import Cancelled
from ...protocol.server_sent_events import ServerSentEvent
from ...runtime.thread_pools import give_up, in_thread
from .http_exchange import BASE_HEADERS, SHORT_BODY, Exchange, Refused, Response
from .stream_registry import descriptors, registry, socket_of

# Seconds before the consumer starts to watch for the client disconnecting: most calls finish sooner.
WATCH_AFTER: Final = 0.5

# Seconds between the comments that keep a quiet stream open.
KEEP_ALIVE_EVERY: Final = 15.0
# Seconds that a client has to read each piece before it counts as gone. ASGI servers themselves wait forever.
WRITE_TIMEOUT: Final = 15.0
# Maximum bytes per piece; size in bytes above which a response counts towards the caller's unsent responses; maximum
# bytes of those for all connections of one caller. Beyond it, the connection that has waited longest is closed.
PIECE: Final = 64 * 1024
LARGE: Final = 256 * 1024
MAX_HELD: Final = 32 * 1024 * 1024
# Seconds between checks whether a client has read its data under daphne, whose ``send`` does not wait for it.
LOOK_EVERY: Final = 0.05
DAPHNE: Final = "daphne.server"
REACTOR: Final = "twisted.internet.reactor"
STREAM_HEADERS: Final = (*BASE_HEADERS, ("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no"))


class BodyTooLarge(Exception):
    """Raised when a body crosses ``MAX_BODY_BYTES``."""


class ClientGone(Exception):
    """Raised when the client closes the connection before the answer."""


class Connection:
    """The ASGI connection of one HTTP request: it reads the body, and writes responses and event streams."""

    def __init__(self, receive: Any, send: Any, client: Sequence[Any] | None = None) -> None:
        self._receive = receive
        self._send = send
        self._client = client
        # The workers of ``uvicorn --workers`` share a socket for which asyncio leaves Nagle's algorithm on. Uvicorn
        # writes head and body separately, and the body would wait 40 ms for the head to be acknowledged.
        if (transport := _transport(send)) is not None:
            connected = transport.get_extra_info("socket")
            if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_streaming = False
        # The caller to whom large responses on this connection are counted.
        self.owner = ""
        self._limit: asyncio.Timeout | None = None
        # Whether to ask daphne how much the client has read, and daphne's transport once it is known.
        self._asks_daphne = DAPHNE in sys.modules
        self._twisted: Any = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._listener: asyncio.Future[None] | None = None

    async def read_body(self, enough: int | None = None) -> bytes | None:
        """Return the body of the request, None if it is longer than ``enough`` bytes."""
        while enough is None or self._size <= enough:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            self._size += len(chunk)
            if self._size > settings.MAX_BODY_BYTES:
                self._chunks.clear()
                raise BodyTooLarge
            self._chunks.append(chunk)
            if not message.get("more_body", False):
                body = b"".join(self._chunks)
                self._chunks.clear()
                return body
        return None

    def closed(self) -> "asyncio.Future[None]":
        """Return a future that is done once the client has closed the connection; it can be cancelled.

        One task listens for the life of the connection: some servers take a cancelled ``receive`` for a disconnect.
        """
        if self._listener is None:
            self._listener = asyncio.ensure_future(self._listen())
        return asyncio.shield(self._listener)

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def close(self) -> None:
        """Stop listening for the end of the connection, after the answer."""
        if self._listener is not None:
            self._listener.cancel()

    async def respond(self, response: Response) -> None:
        head = _head(response.status, response.header_list())
        await self._write(head, {"type": "http.response.body", "body": response.body})

    async def open_stream(self, headers: Mapping[str, str]) -> None:
        """Send the head of an event stream, once."""
        if not self.is_streaming:
            self.is_streaming = True
            await self._write(_head(200, [*STREAM_HEADERS, *headers.items()]))

    async def send_event(self, data: bytes = ServerSentEvent.KEEP_ALIVE) -> None:
        await self._write({"type": "http.response.body", "body": data, "more_body": True})

    async def end_stream(self, data: bytes = b"") -> None:
        await self._write({"type": "http.response.body", "body": data, "more_body": False})

    async def _write(self, *messages: Mapping[str, Any]) -> None:
        size = sum([len(message.get("body", b"")) for message in messages])
        if size > LARGE:
            # Above the caller's limit, close the connection that has waited longest for its client.
            held = _held[self.owner]
            held[self] = size
            while len(held) > 1 and sum(held.values()) > MAX_HELD:
                oldest, _ = held.popitem(last=False)
                if oldest._limit is not None and not oldest._limit.expired():
                    oldest._limit.reschedule(0)
        # A short response is sent as a whole; each piece of a longer one has its own timeout.
        parts = [messages] if size <= PIECE else [[piece] for message in messages for piece in _pieces(message)]
        try:
            for part in parts:
                async with asyncio.timeout(WRITE_TIMEOUT) as self._limit:
                    for message in part:
                        await self._send(message)
                    if self._asks_daphne and part[-1].get("body"):
                        await self._until_read()
        except TimeoutError:
            if self._twisted is not None:
                self._twisted.abortConnection()
            elif (transport := _transport(self._send)) is not None:
                transport.abort()
            else:
                cut_off(self._client)
            raise ClientGone from None
        finally:
            if size > LARGE:
                _held[self.owner].pop(self, 0)
                if not _held[self.owner]:
                    del _held[self.owner]

    async def _until_read(self) -> None:
        if self._twisted is None:
            self._twisted = twisted_transport(self._client)
            self._asks_daphne = self._twisted is not None
        if self._twisted is not None and self._twisted.producerPaused:
            # Daphne cancels this task ten seconds after the end of a response, but leaves the connection open.
            registry.keep(cut := asyncio.ensure_future(cut_unless_read(self._twisted)))
            await asyncio.shield(cut)


# For each caller, the connections that are sending large responses, oldest first, and the bytes of each response.
_held: defaultdict[str, "OrderedDict[Connection, int]"] = defaultdict(OrderedDict)


class Runner(Protocol):
    """Interface of work that needs the connection: a call, a batch, a stream."""

    async def run(self, connection: Connection) -> None:
        """Answer on the connection."""


class MCPConsumer(AsyncConsumer):
    """Channels consumer that answers one HTTP request; ``exchange(scope)`` makes its exchange.

    A Channels consumer dispatches neither disconnects nor layer events while it answers. So this class has its own
    ``__call__``, and each kind of response watches the connection itself.
    """

    def __init__(self, exchange: Callable[[Mapping[str, Any]], Exchange]) -> None:
        self.new_exchange = exchange

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Answer one HTTP request, as an ASGI application.

        1. ``front_door`` refuses what it can without body and database.
        2. The consumer reads the body; a long body only after the caller is authenticated.
        3. A worker thread authenticates the caller, parses the message and runs as much of the call as it can.
        4. The consumer sends the response, or lets a runner use the connection: a call, a batch or a stream.
        """
        exchange = self.new_exchange(scope)
        connection = Connection(receive, send, scope.get("client"))
        self.exchange = exchange
        self.connection = connection
        if not registry.watches_signals:
            registry.watch_signals()
        try:
            outcome = exchange.guarded(exchange.front_door) or await self.read_body()
            if isinstance(outcome, bytes):
                outcome = await self.answered(outcome)
            if hasattr(exchange.request, "user"):
                connection.owner = exchange.caller
            if isinstance(outcome, Response):
                await connection.respond(outcome)
            else:
                await outcome.run(connection)
        except (ClientGone, Cancelled):
            return
        except Exception as error:
            response = exchange.failed(error)
            with contextlib.suppress(ClientGone):
                # Once the head is sent, only the stream can be ended, so that the client reconnects.
                await (connection.end_stream() if connection.is_streaming else connection.respond(response))
        finally:
            connection.close()
            if not exchange.outlives_connection:
                exchange.close()

    async def read_body(self) -> bytes | Response:
        exchange = self.exchange
        try:
            async with asyncio.timeout(settings.BODY_TIMEOUT):
                length = exchange.header("content-length")
                if length is None or int(length) <= SHORT_BODY:
                    body = await self.connection.read_body(SHORT_BODY)
                    if body is not None:
                        return body
                refusal = await self.at_the_door(partial(exchange.guarded, exchange.admit_body))
                return refusal or await self.connection.read_body() or b""
        except BodyTooLarge:
            raise exchange.too_large() from None
        except TimeoutError:
            remedy = f"It has {settings.BODY_TIMEOUT} seconds; a proxy that holds bodies back must be faster."
            raise Refused(408, "The body did not arrive in time", remedy, {"Connection": "close"}) from None

    def at_the_door(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Run first steps, such as authentication, in threads that calls do not occupy; return their result."""
        return in_thread("door", work, thread_sensitive=self.exchange.request.mcp.site.needs_middleware)

    async def answered(self, body: bytes) -> Any:
        """Run the message in a thread; return the response, or the runner that needs the connection.

        Stop waiting when the client disconnects or ``CALL_TIMEOUT`` is over: what runs here only reads.
        """
        work = self.at_the_door(partial(self.exchange.answer, body))
        watch = None
        try:
            done, _ = await asyncio.wait([work], timeout=WATCH_AFTER)
            if not done:
                watch = self.connection.closed()
                await asyncio.wait([work, watch], timeout=self.exchange.time_left, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            if watch is not None and watch.done():
                raise ClientGone
            raise self.exchange.too_long()
        except BaseException:
            give_up(work)
            raise
        finally:
            if watch is not None:
                watch.cancel()


async def cut_unless_read(twisted: Any) -> None:
    """Abort the connection under daphne unless its client reads what was sent within ``WRITE_TIMEOUT``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WRITE_TIMEOUT):
            while twisted.producerPaused and twisted.connected:
                await asyncio.sleep(LOOK_EVERY)
            return
    twisted.abortConnection()


def _pieces(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Split an ASGI message into several, none of which has a long body."""
    body = message.get("body", b"")
    starts = range(0, len(body), PIECE) if len(body) > PIECE else ()
    for start in starts:
        more = message.get("more_body", False) or start + PIECE < len(body)
        yield {"type": message["type"], "body": body[start : start + PIECE], "more_body": more}
    if not starts:
        yield message


def _transport(send: Any) -> asyncio.Transport | None:
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if isinstance(transport, asyncio.Transport):
        return transport
    return None


def cut_off(client: Sequence[Any] | None) -> bool:
    """Reset the TCP connection to this client address under any ASGI server; return whether there was one.

    A server that is told to close it would wait forever for the client to read what was sent.
    """
    is_cut = False
    for descriptor in descriptors() if client and client[1] else ():
        with contextlib.suppress(OSError), socket_of(descriptor) as connection:
            if connection is not None and tuple(connection.getpeername()[:2]) == tuple(client[:2]):  # type: ignore[index]
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)
                is_cut = True
    return is_cut


def twisted_transport(client: Sequence[Any] | None) -> Any:
    """Return daphne's transport for the connection to a client's address; None under other servers.

    Daphne's ``send`` returns at once, whether or not the client reads, but its transport knows.
    """
    if REACTOR not in sys.modules or not client:
        return None
    reactor = sys.modules[REACTOR]
    for transport in (*reactor.getReaders(), *reactor.getWriters()):
        address = getattr(transport, "client", None)
        if address is not None and hasattr(transport, "producerPaused") and tuple(address[:2]) == tuple(client[:2]):
            return transport
    return None


def _head(status: int, headers: list[tuple[str, str]]) -> dict[str, Any]:
    encoded = [(name.lower().encode(), value.encode("latin1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": encoded}

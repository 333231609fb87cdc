"""Registry of open streams and running calls in this worker: list them, disconnect them, end them at shutdown.

Servers wait for connections to close, or cut them, without telling the application, and nothing here may need ASGI's
lifespan: so the first request of a process puts a handler before the server's own for SIGTERM and SIGINT. It has the
log of calls written, as some servers end by the signal itself, ends what is open, and then hands the signal on.

Nothing is written down while a stream is open. Whoever wants to know asks through the bus, and each worker that has
streams answers; where workers share no channel layer, the answer is that of this process alone.
"""

import asyncio
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from types import FrameType
from typing import Any, Final

from django.utils import timezone

from ...context.request import MCPRequest
from ...context.untrusted_text import plain
from ...operating.call_lifecycle import describe_caller
from ...operating.call_log_storage import drain
from ...operating.gauges_and_query_comments import gauge
from ...runtime.cache_and_rate_limits import open_streams, running_calls
from ...server.sessions import ClientSession
from ...subscriptions.bus import bus, shared_layer

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# Seconds that streams have to end before the server is told to stop, and between two looks at them.
PATIENCE: Final = 3.0
LOOK_EVERY: Final = 0.05

TOPIC: Final = "roll"
# Streams that one worker tells of: its answer has to fit into one message of the bus.
MAX_TOLD: Final = 100
MAX_NAME: Final = 60
# Seconds in which workers answer.
ANSWER_WITHIN: Final = 0.5


@dataclass(frozen=True, slots=True)
class OpenStream:
    """An open stream: whose it is, since when (ISO 8601), and in which ``worker`` ("host:pid")."""

    id: str
    since: str
    method: str
    site: str
    version: str
    username: str
    client: str
    session: str
    worker: str = ""

    @property
    def opened(self) -> datetime:
        return datetime.fromisoformat(self.since)

    @classmethod
    def of(cls, request: MCPRequest, session: ClientSession | None, method: str) -> "OpenStream":
        context, record = request.mcp, replace(request.mcp.record)
        describe_caller(request, record)
        # A GET names neither its client nor its revision: its session does.
        client = session.client.get("name", "") if session is not None else ""
        return cls(
            secrets.token_hex(8),
            timezone.now().isoformat(timespec="seconds"),
            method,
            record.site,
            context.version or (session.version if session is not None else ""),
            plain(record.username, MAX_NAME),
            plain(client or record.client_name or record.client_id, MAX_NAME),
            record.session,
        )


@dataclass(frozen=True, slots=True)
class OpenStreams:
    """The open streams of all workers: ``count`` in ``workers`` of them, and the ``streams`` that they listed."""

    count: int
    workers: int
    streams: tuple[OpenStream, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An entry in the registry of open streams and running calls: how it is ended, and on which event loop."""

    end: Callable[[], object]
    loop: asyncio.AbstractEventLoop
    stream: OpenStream | None


class Registry:
    def __init__(self) -> None:
        # What runs apart from its connection: the event loop itself holds tasks weakly.
        self.tasks: set[asyncio.Future[Any]] = set()
        # Of the streams of calls, by id: what a call of this worker has told, and who sends it to a client here.
        self.logs: dict[str, Any] = {}
        self.tails: dict[str, Any] = {}
        # Whether the worker is about to stop and opens no more streams, and whether it would be known.
        self.is_closing = self.watches_signals = False
        self._previous: dict[int, Any] = {}
        self._open: dict[Entry, None] = {}
        self._lock = threading.Lock()
        self._unsubscribe: Callable[[], None] | None = None

    def keep(self, task: "asyncio.Future[Any]") -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def enter(self, end: Callable[[], object], stream: OpenStream | None = None) -> Callable[[], None]:
        """Register an open stream or running call, whose ``end()`` is called at shutdown; return what removes it.

        A ``stream`` is told to those who ask, and ended when somebody disconnects it.
        """
        self.watch_signals()
        entry = Entry(end, asyncio.get_running_loop(), stream)
        with self._lock:
            self._open[entry] = None
            if stream is not None and self._unsubscribe is None:
                self._unsubscribe = bus.subscribe(TOPIC, self._heard)

        def leave() -> None:
            unsubscribe = None
            with self._lock:
                self._open.pop(entry, None)
                # A process in which nobody listens has no news to take part in.
                if not self._streams():
                    unsubscribe, self._unsubscribe = self._unsubscribe, None
            if unsubscribe is not None:
                unsubscribe()

        return leave

    # The end of the worker

    def watch_signals(self) -> None:
        """Put a handler before the server's, once."""
        if self.watches_signals:
            return
        self.watches_signals = True
        # Only the main thread may set handlers; a loop elsewhere is some program's own, which stops it as it likes.
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._close)

    def _close(self, number: int, frame: FrameType | None) -> None:
        first, self.is_closing = not self.is_closing, True
        if first:
            drain()
        # Without the lock, which this very thread may hold.
        entries = list(self._open)
        if not first or not entries:
            self._hand_on(number, frame)
            return
        for entry in entries:
            entry.loop.call_soon_threadsafe(entry.end)
        entries[-1].loop.call_soon_threadsafe(lambda: self.keep(asyncio.ensure_future(self._wait_and_hand_on(number))))

    async def _wait_and_hand_on(self, number: int) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while self._open and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(LOOK_EVERY)
        self._hand_on(number, None)

    def _hand_on(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous.get(number)
        if callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    # The streams of all workers

    def _streams(self) -> list[tuple[OpenStream, Entry]]:
        return [(entry.stream, entry) for entry in list(self._open) if entry.stream is not None]

    def _heard(self, news: Any) -> None:
        """List or disconnect open streams when another worker asks by the bus."""
        if not isinstance(news, Mapping):
            return
        with self._lock:
            streams = self._streams()
        if "ask" in news:
            told = [asdict(stream) for stream, _ in streams[-MAX_TOLD:]]
            worker = f"{socket.gethostname()}:{os.getpid()}"
            bus.publish(f"{TOPIC}:{news['ask']}", {"worker": worker, "count": len(streams), "streams": told})
        for stream, entry in streams:
            if stream.id == news.get("end"):
                entry.loop.call_soon_threadsafe(entry.end)

    def ask_workers(self, patience: float = ANSWER_WITHIN) -> OpenStreams:
        """Ask all workers for their open streams, and return the answers that come within ``patience`` seconds."""
        answers: list[Mapping[str, Any]] = []
        told, token = threading.Event(), secrets.token_hex(8)

        def hear(news: Any) -> None:
            if isinstance(news, Mapping):
                answers.append(news)
                told.set()

        unsubscribe = bus.subscribe(f"{TOPIC}:{token}", hear)
        try:
            deadline = time.monotonic() + patience
            bus.wait_ready(patience)
            bus.publish(TOPIC, {"ask": token})
            if shared_layer() is not None:
                time.sleep(max(0.0, deadline - time.monotonic()))
            elif self._streams():
                told.wait(patience)
        finally:
            unsubscribe()
        streams = [
            OpenStream(**{**item, "worker": answer["worker"]}) for answer in answers for item in answer["streams"]
        ]
        count = sum(answer["count"] for answer in answers)
        newest_first = sorted(streams, key=lambda stream: stream.since, reverse=True)
        return OpenStreams(count, len(answers), tuple(newest_first))

    def disconnect(self, stream_id: str) -> None:
        """Disconnect an open stream in whichever worker it is. Its client may open another one."""
        bus.publish(TOPIC, {"end": stream_id})


registry: Final = Registry()
gauge("running_calls", "Calls that run now.", lambda: sum(running_calls.values()))
gauge("open_streams", "Streams of changes that are open now.", lambda: sum(open_streams.values()))

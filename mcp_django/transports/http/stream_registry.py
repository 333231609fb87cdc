"""Registry of open streams and running calls in this worker: list them, disconnect them, end them at shutdown.

At shutdown, servers wait for connections to close, or cut them, without telling the application, and ASGI's lifespan
is not always available. So the first request of a process installs a handler for SIGTERM and SIGINT in front of the
server's. It writes the call log (some servers exit on the signal), ends streams and calls, and then runs the server's.

A worker that is replaced after a number of requests gets no signal, but its server stops listening. While streams are
open, the registry looks at the listening socket, and ends streams when it is gone; running calls go on to their end.

Open streams are not stored anywhere. To list them, the registry asks through the bus, and each worker that has streams
answers. Without a shared channel layer, only this process answers.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from types import FrameType
from typing import Any, Final

from django.utils import timezone

from ...context.request import MCPRequest
from ...context.untrusted_text import plain
from ...operating.call_log_storage import drain
from ...operating.gauges import gauge
from ...operating.recorded_calls import RecordedCall
from ...runtime.cache_and_rate_limits import Held
from ...server.sessions import ClientSession
from ...subscriptions.bus import bus

logger = logging.getLogger("mcp_django")

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# Seconds that streams have to end before the server gets the signal, and seconds between checks whether they have.
PATIENCE: Final = 3.0
LOOK_EVERY: Final = 0.05

# Seconds between two looks at the server's listening socket. A worker that stops serves nobody until its streams end.
LISTENING_EVERY: Final = 1.0
# The directory that lists the process's open file descriptors, on every system but Windows.
DESCRIPTORS: Final = "/dev/fd"

TOPIC: Final = "roll"
# Maximum number of streams that one worker lists, so that its answer fits into one message of the bus.
MAX_TOLD: Final = 100
MAX_NAME: Final = 60
# Seconds to wait for the workers' answers.
ANSWER_WITHIN: Final = 0.5


@dataclass(frozen=True, slots=True)
class OpenStream:
    """An open stream: its caller, its start (ISO 8601), and its ``worker`` ("host:pid")."""

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
        context = request.mcp
        record = replace(request.mcp.record)
        RecordedCall(request, record).describe_caller()
        # A GET does not name the client and can omit the protocol version; its session knows both.
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
    """An open stream or running call: the function that ends it, and its event loop."""

    end: Callable[[], object]
    loop: asyncio.AbstractEventLoop
    stream: OpenStream | None

    def end_soon(self) -> None:
        """End the stream or call in its event loop, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.end)


def descriptors() -> list[int]:
    """Return the numbers of this process's open file descriptors, lowest first; none where the system has no list."""
    try:
        return sorted(map(int, os.listdir(DESCRIPTORS)))
    except OSError:
        return []


@contextlib.contextmanager
def socket_of(descriptor: int) -> Iterator[socket.socket | None]:
    """Yield a copy of the socket with this descriptor, closed afterwards; None if it is something else."""
    # socket.fromfd() leaks its copy of a descriptor that is not a socket.
    is_socket = False
    with contextlib.suppress(OSError):
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    if not is_socket:
        yield None
        return
    with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
        yield copy


class ListeningSocket:
    """The socket on which the server of this process accepts connections, as far as it can be seen.

    A server whose socket belongs to another process never counts as stopped.
    """

    def __init__(self) -> None:
        self.descriptor: int | None = None

    def has_closed(self) -> bool:
        """Return whether the server listens no more, although it did at an earlier call."""
        if self.descriptor is not None and _is_listening(self.descriptor):
            return False
        descriptor = next(filter(_is_listening, descriptors()), None)
        if descriptor is not None:
            self.descriptor = descriptor
        return descriptor is None and self.descriptor is not None


def _is_listening(descriptor: int) -> bool:
    with contextlib.suppress(OSError), socket_of(descriptor) as listener:
        return listener is not None and bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False


class Registry:
    def __init__(self) -> None:
        # Tasks that outlive their connection: the event loop only has weak references to them.
        self.tasks: set[asyncio.Future[Any]] = set()
        # For each call's stream, by its id: the CallLog of a call in this worker, and the Tail that sends it from here.
        self.logs: dict[str, Any] = {}
        self.tails: dict[str, Any] = {}
        # Whether the worker is stopping and opens no more streams; whether the signal handlers are installed.
        self.is_closing = False
        self.watches_signals = False
        self._previous: dict[int, Any] = {}
        self._open: dict[Entry, None] = {}
        self._lock = threading.Lock()
        self._unsubscribe: Callable[[], None] | None = None
        # Whether the server has stopped listening, as far as this is known; the loop on which the registry looks.
        self.has_stopped_listening = False
        self._looks_on: asyncio.AbstractEventLoop | None = None
        self._listening = ListeningSocket()

    def keep(self, task: "asyncio.Future[Any]") -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def enter(self, end: Callable[[], object], stream: OpenStream | None = None) -> Callable[[], None]:
        """Register an open stream or running call, whose ``end()`` is called at shutdown; return its remove function.

        A ``stream`` is listed by :meth:`ask_workers`, and :meth:`disconnect` can end it. What is registered after the
        signal to stop ends at once: the server may already wait for it.
        """
        self.watch_signals()
        entry = Entry(end, asyncio.get_running_loop(), stream)
        with self._lock:
            self._open[entry] = None
            if stream is not None and self._unsubscribe is None:
                self._unsubscribe = bus.subscribe(TOPIC, self._heard)
        # Look after the entry is in the registry: the signal ends what is there when it comes.
        if self.is_closing:
            entry.end_soon()
        if self._looks_on is not entry.loop:
            self._looks_on = entry.loop
            self._listening = ListeningSocket()
            self._look(entry.loop)

        def leave() -> None:
            unsubscribe = None
            with self._lock:
                self._open.pop(entry, None)
                # Without open streams, this worker has nothing to answer on the bus.
                if not self._streams():
                    unsubscribe = self._unsubscribe
                    self._unsubscribe = None
            if unsubscribe is not None:
                unsubscribe()

        return leave

    # Shutdown of the worker

    def watch_signals(self) -> None:
        """Install a signal handler in front of the server's, once."""
        if self.watches_signals:
            return
        self.watches_signals = True
        # Only the main thread may set handlers. A program that runs a loop in another thread stops it itself.
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._close)

    def _close(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal: end what is open, then give the signal to the server, whatever fails before."""
        is_waiting = False
        try:
            is_waiting = self._begin_to_close(number)
        except Exception:
            logger.exception("The worker stops without ending its streams in order")
        if not is_waiting:
            self._hand_on(number, frame)

    def _begin_to_close(self, number: int) -> bool:
        """Write the call log and end streams and calls; return whether the server gets the signal after them."""
        is_first = not self.is_closing
        self.is_closing = True
        if not is_first:
            return False
        try:
            drain()
        except Exception:
            logger.exception("The last rows of the log of calls were not written")
        # Do not take the lock: this thread may hold it already.
        entries = list(self._open)
        for entry in entries:
            entry.end_soon()
        running = [entry.loop for entry in entries if entry.loop.is_running()]
        if not running:
            return False
        running[-1].call_soon_threadsafe(lambda: self.keep(asyncio.ensure_future(self._wait_and_hand_on(number))))
        return True

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

    # Workers that are replaced without a signal

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the registered streams if the server has stopped listening, and look again soon."""
        if self._looks_on is not loop:
            return
        self.has_stopped_listening = self._listening.has_closed()
        if self._listening.descriptor is None:
            return
        if self.has_stopped_listening:
            for _, entry in self._streams():
                entry.end_soon()
        loop.call_later(LISTENING_EVERY, self._look, loop)

    # The streams of all workers

    def _streams(self) -> list[tuple[OpenStream, Entry]]:
        return [(entry.stream, entry) for entry in list(self._open) if entry.stream is not None]

    def _heard(self, news: Any) -> None:
        """List or disconnect open streams when a worker asks for it on the bus."""
        if not isinstance(news, Mapping):
            return
        with self._lock:
            streams = self._streams()
        if "ask" in news:
            listed = [asdict(stream) for stream, _ in streams[-MAX_TOLD:]]
            worker = f"{socket.gethostname()}:{os.getpid()}"
            bus.publish(f"{TOPIC}:{news['ask']}", {"worker": worker, "count": len(streams), "streams": listed})
        for stream, entry in streams:
            if stream.id == news.get("end"):
                entry.end_soon()

    def ask_workers(self, patience: float = ANSWER_WITHIN) -> OpenStreams:
        """Ask all workers for their open streams; return the answers that arrive within ``patience`` seconds."""
        answers: list[Mapping[str, Any]] = []
        answered = threading.Event()
        token = secrets.token_hex(8)

        def hear(news: Any) -> None:
            if isinstance(news, Mapping):
                answers.append(news)
                answered.set()

        unsubscribe = bus.subscribe(f"{TOPIC}:{token}", hear)
        try:
            deadline = time.monotonic() + patience
            bus.wait_ready(patience)
            bus.publish(TOPIC, {"ask": token})
            if bus.shared_layer() is not None:
                time.sleep(max(0.0, deadline - time.monotonic()))
            elif self._streams():
                answered.wait(patience)
        finally:
            unsubscribe()
        streams = [
            OpenStream(**{**item, "worker": answer["worker"]}) for answer in answers for item in answer["streams"]
        ]
        count = sum(answer["count"] for answer in answers)
        newest_first = sorted(streams, key=lambda stream: stream.since, reverse=True)
        return OpenStreams(count, len(answers), tuple(newest_first))

    def disconnect(self, stream_id: str) -> None:
        """Disconnect an open stream in any worker. Its client can open another one."""
        bus.publish(TOPIC, {"end": stream_id})


registry: Final = Registry()
gauge("running_calls", "Calls that run now.", lambda: sum(Held.running_calls.values()))
gauge("open_streams", "Streams of changes that are open now.", lambda: sum(Held.open_streams.values()))

"""The roll of open streams: who holds which of them in which worker, and their end from any worker.

Nothing is written down while a stream is open. Whoever wants to know asks through the hub, and each worker that has
streams answers; where workers share no channel layer, the answer is that of this process alone.
"""

import asyncio
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from django.utils import timezone

from ...context.text import plain
from ...operating.calls import describe_caller
from ...subscriptions.hub import hub, shared_layer
from .shutdown import register

if TYPE_CHECKING:
    from .exchange import Exchange

TOPIC: Final = "roll"
# Streams that one worker tells of: its answer has to fit into one message of the hub.
MAX_TOLD: Final = 100
MAX_NAME: Final = 60
# Seconds in which workers answer.
PATIENCE: Final = 0.5


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream that is open: whose, since when (ISO 8601), and in which ``worker`` ("host:pid")."""

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
        """When it was opened."""
        return datetime.fromisoformat(self.since)


@dataclass(frozen=True, slots=True)
class Roll:
    """What workers answered: ``count`` open streams in ``workers`` of them, and the ``streams`` that they told of."""

    count: int
    workers: int
    streams: tuple[OpenStream, ...]


_open: Final[dict[str, tuple[OpenStream, Callable[[], object], asyncio.AbstractEventLoop]]] = {}
_lock: Final = threading.Lock()
_stop: Callable[[], None] | None = None


@cache
def _worker(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}"


def enter(exchange: "Exchange", method: str, end: Callable[[], object]) -> Callable[[], None]:
    """Put an open stream on the roll; return what takes it off.

    ``end`` ends it, on the running loop: when the worker stops, or when somebody disconnects it.
    """
    global _stop
    stream, unregister = _stream(exchange, method), register(end)
    with _lock:
        _open[stream.id] = (stream, end, asyncio.get_running_loop())
        if _stop is None:
            _stop = hub.subscribe(TOPIC, _heard)

    def leave() -> None:
        global _stop
        unregister()
        with _lock:
            _open.pop(stream.id, None)
            # A process in which nobody listens has no news to take part in.
            stop, _stop = (_stop, None) if not _open else (None, _stop)
        if stop is not None:
            stop()

    return leave


def _stream(exchange: "Exchange", method: str) -> OpenStream:
    context, session = exchange.request.mcp, exchange.session
    record = replace(context.record)
    describe_caller(exchange.request, record)
    # A GET names neither its client nor its revision: its session does.
    client = session.client.get("name", "") if session is not None else ""
    return OpenStream(
        secrets.token_hex(8),
        timezone.now().isoformat(timespec="seconds"),
        method,
        record.site,
        context.version or (session.version if session is not None else ""),
        plain(record.username, MAX_NAME),
        plain(client or record.client_name or record.client_id, MAX_NAME),
        record.session,
    )


def _heard(news: Any) -> None:
    """Answer who asks, or end a stream; called in the hub's thread."""
    if not isinstance(news, Mapping):
        return
    with _lock:
        found = list(_open.values())
    if "ask" in news:
        told = [asdict(stream) for stream, _, _ in found[-MAX_TOLD:]]
        answer = {"worker": _worker(os.getpid()), "count": len(found), "streams": told}
        hub.publish(f"{TOPIC}:{news['ask']}", answer)
    for stream, end, loop in found:
        if stream.id == news.get("end"):
            loop.call_soon_threadsafe(end)


def call(patience: float = PATIENCE) -> Roll:
    """Ask all workers, and return what they answered within ``patience`` seconds."""
    answers: list[Mapping[str, Any]] = []
    told, token = threading.Event(), secrets.token_hex(8)

    def hear(news: Any) -> None:
        if isinstance(news, Mapping):
            answers.append(news)
            told.set()

    stop = hub.subscribe(f"{TOPIC}:{token}", hear)
    try:
        deadline = time.monotonic() + patience
        hub.wait_ready(patience)
        hub.publish(TOPIC, {"ask": token})
        if shared_layer() is not None:
            time.sleep(max(0.0, deadline - time.monotonic()))
        elif _open:
            told.wait(patience)
    finally:
        stop()
    streams = [OpenStream(**{**item, "worker": answer["worker"]}) for answer in answers for item in answer["streams"]]
    count = sum(answer["count"] for answer in answers)
    return Roll(count, len(answers), tuple(sorted(streams, key=lambda stream: stream.since, reverse=True)))


def end(stream_id: str) -> None:
    """Have whichever worker holds the stream end it. A client may open another one while it has access."""
    hub.publish(TOPIC, {"end": stream_id})

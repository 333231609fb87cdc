"""The bridge between processes: one subscription of this process to the channel layer, and one sender.

Layers deliver at most once, and drop without a word what a channel has no room for. So each message carries its
publisher and a number; a number that is missing means that something got lost, and whoever listens here is told to
look at everything again. Nothing is sent twice on purpose, and no message says more than that there is news.
"""

import asyncio
import contextlib
import logging
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import orjson

logger = logging.getLogger("mcp_django")

MESSAGE_TYPE: Final = "mcp_django.news"
# Bytes of one event, of one message, and of all that wait; events of one message.
MAX_EVENT: Final = 64 * 1024
MAX_MESSAGE: Final = 256 * 1024
MAX_WAITING: Final = 4 * 1024 * 1024
MAX_EVENTS: Final = 500
MAX_PUBLISHERS: Final = 4096
# Seconds: of one operation of the layer, and between attempts while it does not answer.
OPERATION_TIMEOUT: Final = 5.0
RETRY_FIRST: Final = 0.5
RETRY_MOST: Final = 15.0
# Seconds after the last message at which its number is told again, so that its loss is noticed too.
TICKS: Final = (1.0, 5.0, 30.0, 120.0)
# Seconds between two proofs that what is sent to this process arrives, and until one is given up. A membership of a
# group expires by itself (channels_redis: after a day), and is gone when the layer's server starts anew.
PULSE_EVERY: Final = 60.0
PULSE_TIMEOUT: Final = 10.0
# Seconds that channels_redis may have its server wait for a message. Its own 5 are as many as redis-py waits for an
# answer, so that a quiet connection would be given up, and with it what arrives just then.
SERVER_WAIT: Final = 2


class Ledger:
    """The last number of each publisher, by which a gap is seen."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, int] = OrderedDict()

    def enter(
        self, publisher: str, number: int, *, has_events: bool, since: float | None, heard_for: float
    ) -> tuple[bool, bool]:
        """Enter a message and return whether it is new, and whether one before it is missing.

        A message without events repeats the number of the last one. ``since`` is how many seconds before it the
        publisher sent the one before, None for its first; ``heard_for`` for how many seconds this process listens: what
        an unknown publisher sent before that is not missed.
        """
        last = self._last.get(publisher)
        before = number - 1 if has_events else number
        if last is None:
            gap = before > 0 and since is not None and since <= heard_for
        elif has_events and number <= last:
            return False, False
        else:
            gap = before > last
        self._last[publisher] = max(number, last or 0)
        self._last.move_to_end(publisher)
        if len(self._last) > MAX_PUBLISHERS:
            self._last.popitem(last=False)
        return True, gap

    def clear(self) -> None:
        self._last.clear()


class Relay:
    """One subscription of this process to a channel layer, and one sender; all of it runs in the hub's event loop.

    ``deliver(topic, payload)`` is called for what other processes publish, ``resync()`` when something may have been
    missed, ``joined(bool)`` when this process begins or ceases to hear the others.
    """

    def __init__(
        self,
        layer: Any,
        group: str,
        *,
        deliver: Callable[[str, Any], None],
        resync: Callable[[], None],
        joined: Callable[[bool], None],
    ) -> None:
        self.id = uuid.uuid4().hex
        if hasattr(layer, "brpop_timeout"):
            layer.brpop_timeout = min(layer.brpop_timeout, SERVER_WAIT)
        self.layer, self.group = layer, group
        self._deliver, self._resync, self._joined = deliver, resync, joined
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._waiting = 0
        self._number = 0
        self._sent_at = 0.0
        self._ticks: list[float] = []
        self._wake, self._closing = asyncio.Event(), asyncio.Event()
        self._ledger = Ledger()
        self._heard_since = 0.0
        self._channel: str | None = None
        self._pulse, self._answered = 0, asyncio.Event()
        self._troubled: set[str] = set()
        self._sender = self._loop.create_task(self._send_all())
        self._listener: asyncio.Task[None] | None = None

    # Sending

    def send(self, topic: str, payload: Any) -> None:
        """Send an event to all other processes; where there are too many to send, they will look at everything."""
        try:
            event = orjson.dumps([topic, payload])
        except TypeError:
            logger.exception("An event of the topic %s is no JSON", topic)
            self.skip()
            return
        if len(event) > MAX_EVENT:
            self.skip()
        elif self._waiting + len(event) > MAX_WAITING:
            self._queue.clear()
            self._waiting = 0
            self.skip()
        else:
            self._queue.append(event)
            self._waiting += len(event)
            self._wake.set()

    def skip(self) -> None:
        """Leave out a number: other processes notice, and look at everything."""
        self._count()
        self._wake.set()

    def _count(self) -> float | None:
        """Take the next number and return the seconds since the one before was taken."""
        now = self._loop.time()
        since = now - self._sent_at if self._number else None
        self._number, self._sent_at = self._number + 1, now
        self._ticks = [now + seconds for seconds in TICKS]
        return since

    async def _send_all(self) -> None:
        while (message := await self._next_message()) is not None:
            delay = RETRY_FIRST
            while not await self._attempt("send", self.layer.group_send(self.group, message)):
                if self._closing.is_set():
                    return
                await _wait(self._closing, delay)
                delay = min(delay * 2, RETRY_MOST)

    async def _next_message(self) -> dict[str, Any] | None:
        """Return the next message: of what waits, or the last number again when that is due; None at the end."""
        while not self._queue:
            if self._closing.is_set():
                return None
            rest = max(self._ticks[0] - self._loop.time(), 0) if self._ticks else None
            if not await _wait(self._wake, rest):
                self._ticks.pop(0)
                return self._message([], self._loop.time() - self._sent_at)
            self._wake.clear()
        events = [self._queue.popleft()]
        size = len(events[0])
        while self._queue and len(events) < MAX_EVENTS and size + len(self._queue[0]) <= MAX_MESSAGE:
            events.append(self._queue.popleft())
            size += len(events[-1])
        self._waiting -= size
        return self._message(events, self._count())

    def _message(self, events: list[bytes], since: float | None) -> dict[str, Any]:
        news = [orjson.Fragment(event) for event in events]
        return _wrap({"from": self.id, "number": self._number, "since": since, "events": news})

    # Listening

    def listen(self) -> None:
        if self._listener is None:
            self._listener = self._loop.create_task(self._listen())

    async def _listen(self) -> None:
        delay = RETRY_FIRST
        while True:
            if await self._attempt("listen", self._join()):
                delay = RETRY_FIRST
                try:
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(self._receive())
                        tasks.create_task(self._prove())
                except Exception as error:
                    self._failed("listen", error)
                self._joined(False)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MOST)

    async def _join(self) -> None:
        if self._channel is not None:
            await self.layer.group_discard(self.group, self._channel)
        self._channel = await self.layer.new_channel()
        await self.layer.group_add(self.group, self._channel)
        self._ledger.clear()
        self._heard_since = self._loop.time()
        # In this order: who waits for the first is not told of the second.
        self._resync()
        self._joined(True)

    async def _receive(self) -> None:
        while True:
            try:
                message = await self.layer.receive(self._channel)
            except Exception as error:
                # Nothing came: whether the connection still works is for the pulse to find out.
                if type(error).__name__ != "TimeoutError":
                    raise
                continue
            try:
                self._handle(orjson.loads(message["body"]))
            except (KeyError, TypeError, ValueError):
                logger.warning("A message in the group %s is not of this app", self.group)

    def _handle(self, body: Mapping[str, Any]) -> None:
        publisher = body["from"]
        if publisher == self.id:
            if body.get("pulse") == self._pulse:
                self._answered.set()
            return
        events, heard_for = body["events"], self._loop.time() - self._heard_since
        is_new, gap = self._ledger.enter(
            publisher, body["number"], has_events=bool(events), since=body["since"], heard_for=heard_for
        )
        if gap:
            self._resync()
        if is_new:
            for topic, payload in events:
                self._deliver(topic, payload)

    async def _prove(self) -> None:
        """Stay in the group, and fail unless what is sent to this process itself arrives."""
        while True:
            await asyncio.sleep(PULSE_EVERY)
            self._pulse += 1
            self._answered.clear()
            async with asyncio.timeout(PULSE_TIMEOUT):
                await self.layer.group_add(self.group, self._channel)
                await self.layer.send(self._channel, _wrap({"from": self.id, "pulse": self._pulse}))
                await self._answered.wait()

    # Trouble

    async def _attempt(self, part: str, operation: Coroutine[Any, Any, Any]) -> bool:
        """Return whether the layer did it."""
        try:
            async with asyncio.timeout(OPERATION_TIMEOUT):
                await operation
        except Exception as error:
            self._failed(part, error)
            return False
        self._troubled.discard(part)
        return True

    def _failed(self, part: str, error: Exception) -> None:
        # Once for each outage, and by its kind alone: the text may hold the address of the layer, with its password.
        if not self._troubled:
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            logger.warning(
                "The channel layer does not answer (%s): changes reach no other process", type(cause).__name__
            )
        self._troubled.add(part)

    async def close(self, timeout: float) -> None:
        """Send what waits and leave, both within ``timeout`` seconds; what cannot be sent is given up."""
        self._closing.set()
        self._wake.set()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait({self._sender})
                if self._channel is not None and not self._troubled:
                    await self._attempt("leave", self.layer.group_discard(self.group, self._channel))
        except TimeoutError:
            logger.warning("The last changes did not reach other processes")
        for task in (self._sender, self._listener):
            if task is not None:
                task.cancel()


def _wrap(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": MESSAGE_TYPE, "body": orjson.dumps(body).decode()}


async def _wait(event: asyncio.Event, timeout: float | None) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await event.wait()
    return event.is_set()

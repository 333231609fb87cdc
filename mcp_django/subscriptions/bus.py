"""The bus: publish and subscribe within this process and, through the channel layer, in other processes.

One thread with its own event loop serves the whole process. It starts at the first use and ends with the process; a
forked child starts without it. Publishing puts a payload into a bounded queue and returns: it never waits for a slow
listener or for a channel layer that is down.

Channel layers deliver at most once, and silently drop messages that a channel has no room for. So each message has its
publisher and a number, which heartbeats repeat. If a number is missing, listeners get :data:`RESYNC` and check
everything again. Messages only say that something has changed, never what it is now.
"""

import asyncio
import atexit
import contextlib
import hashlib
import logging
import os
import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import orjson
from channels.layers import InMemoryChannelLayer, channel_layers
from django.conf import settings as django_settings
from django.core.signals import setting_changed

from ..conf import settings
from ..operating.gauges import gauge
from .changes import CHANGES, LISTS, Changes

logger = logging.getLogger("mcp_django")

# Delivered instead of a payload when payloads may have been lost: listeners must check everything again.
RESYNC: Final = object()
MESSAGE_TYPE: Final = "mcp_django.news"
# Maximum number of payloads that wait for the bus's thread; beyond it, one RESYNC replaces all of them.
MAX_QUEUE: Final = 10_000
# Seconds for which changes are collected before they are published, and seconds that close() waits to send the last.
SOON: Final = 0.05
FLUSH_TIMEOUT: Final = 2.0
# Maximum bytes of one event, of one message and of all waiting events; maximum events per message; known publishers.
MAX_EVENT: Final = 64 * 1024
MAX_MESSAGE: Final = 256 * 1024
MAX_WAITING: Final = 4 * 1024 * 1024
MAX_EVENTS: Final = 500
MAX_PUBLISHERS: Final = 4096
# Seconds that one operation of the layer may take; first and longest pause between attempts while it does not answer.
OPERATION_TIMEOUT: Final = 5.0
RETRY_FIRST: Final = 0.5
RETRY_MOST: Final = 3.0
# Seconds after the last message, and between heartbeats, after which the last number is sent again. A process receives
# its own messages: after SILENCE seconds without any, it has lost its group membership, by a restart or by expiry.
CONFIRM: Final = 1.0
HEARTBEAT: Final = 30.0
SILENCE: Final = 75.0
# Seconds between the numbered messages that a process sends to its own channel, and seconds without any after which it
# listens anew. Some layers connect again in silence after an outage: a missing echo shows that messages were lost.
ECHO: Final = 1.0
ECHO_SILENCE: Final = 10.0
# Seconds that channels_redis lets the Redis server wait for a message. Its default of 5 equals redis-py's timeout, so a
# quiet connection would be closed, and a message that arrives at that moment would be lost.
SERVER_WAIT: Final = 2

Deliver = Callable[[Any], None]


def group_name() -> str:
    """Return the channel-layer group of the processes of this installation; each installation has its own."""
    text = f"{settings.BASE_URL}\n{django_settings.ROOT_URLCONF}"
    return f"mcp_django.{hashlib.sha256(text.encode()).hexdigest()[:24]}"


class Bus:
    """Publish and subscribe, in this process and through the channel layer in other processes."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start anew without closing anything, in the child of a fork; subscribers are dropped too."""
        self._lock = threading.Lock()
        self._subscribers: dict[str, tuple[Deliver, ...]] = {}
        self._queue: deque[tuple[str, Any]] = deque()
        self._changes = Changes()
        # Whether _drain() is scheduled, whether _tell_changes() is, and whether the thread is serving.
        self._scheduled = False
        self._timed = False
        self._is_serving = False
        self._lost = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._heard = threading.Event()
        # The shared layer and the group that the thread uses to reach other processes.
        self.road: Any = None
        self._layer: Any = None

    # Methods for any thread

    @staticmethod
    def shared_layer() -> tuple[str, Any] | None:
        """Return alias and configuration of the channel layer that reaches other processes, None if there is none.

        The in-memory layer does not count: it reaches no other process, and the bus delivers in this process itself.
        """
        alias = settings.EVENTS
        config = channel_layers.configs.get(alias)
        if config is None or config.get("BACKEND") == "channels.layers.InMemoryChannelLayer":
            return None
        return alias, config

    def is_idle(self) -> bool:
        """Return whether publishing would reach nobody: no subscriber here, no channel layer to other processes."""
        return not self._subscribers and self.shared_layer() is None

    def publish(self, topic: str, payload: Any) -> None:
        """Publish to all subscribers of the topic, here and in other processes.

        ``payload`` must be serialisable to at most 64 KiB of JSON. This neither waits nor raises.
        """
        if self.is_idle():
            return
        with self._lock:
            if len(self._queue) >= MAX_QUEUE:
                self._queue.clear()
                self._lost = True
            self._queue.append((topic, payload))
            scheduled = self._scheduled
            self._scheduled = True
        if not scheduled and not self._call(self._drain):
            self._scheduled = False

    def put(self, changes: Changes) -> None:
        """Publish changes under :data:`CHANGES`, merged with the changes of the next 50 ms."""
        if self.is_idle():
            return
        with self._lock:
            self._changes.merge(changes)
            timed = self._timed
            self._timed = True
        if not timed and not self._call(self._tell_soon):
            self._timed = False

    def subscribe(self, topic: str, deliver: Deliver) -> Callable[[], None]:
        """Call ``deliver(payload)`` in the bus's thread for each payload of a topic; return a function to unsubscribe.

        ``deliver`` must be quick. It gets :data:`RESYNC` when payloads may have been lost.
        """
        with self._lock:
            self._subscribers[topic] = (*self._subscribers.get(topic, ()), deliver)
        self._call(self._listen)

        def unsubscribe() -> None:
            with self._lock:
                rest = tuple(item for item in self._subscribers.pop(topic, ()) if item is not deliver)
                if rest:
                    self._subscribers[topic] = rest

        return unsubscribe

    def wait_ready(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until messages of other processes arrive here; return whether they do."""
        return self.shared_layer() is None or self._heard.wait(timeout)

    def _call(self, function: Callable[[], Any]) -> bool:
        """Call a function in the bus's thread, which is started if necessary; return False if it cannot run."""
        try:
            with self._lock:
                loop = self._loop
                if loop is None or self._thread is None or not self._thread.is_alive():
                    self._is_serving = False
                    loop = asyncio.new_event_loop()
                    self._stop = asyncio.Event()
                    thread = threading.Thread(target=self._run, args=(loop, self._stop), name="mcp-bus", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:
                        loop.close()
                        raise
                    self._loop = loop
                    self._thread = thread
            loop.call_soon_threadsafe(function)
        except RuntimeError:  # no thread can be started, or the interpreter is ending
            return False
        return True

    def close(self) -> None:
        """Send waiting events to other processes, for at most 2 s, and end the bus's thread."""
        with self._lock:
            loop = self._loop
            thread = self._thread
            stop = self._stop
        if loop is None or thread is None or stop is None or thread is threading.current_thread():
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)
        # The thread gives up by itself after FLUSH_TIMEOUT seconds, unless it is stuck before that.
        thread.join(FLUSH_TIMEOUT + 0.5)
        if thread.is_alive():
            logger.warning("The last changes did not reach other processes")
        with self._lock:
            if self._thread is thread:
                self._loop = None
                self._thread = None
                self._is_serving = False
                self._scheduled = False
                self._timed = False

    # Methods for the bus's thread

    def _run(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(_Resolver(1, thread_name_prefix="mcp-bus-resolver"))
        try:
            loop.run_until_complete(self._serve(stop))
        except Exception:
            logger.exception("The bus has stopped")
        finally:
            # Let cancelled tasks finish.
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=FLUSH_TIMEOUT))
            loop.close()

    async def _serve(self, stop: asyncio.Event) -> None:
        self.id = uuid.uuid4().hex
        self._group = group_name()
        # Events that wait to be sent, and their bytes; number and time of the last message; whether it was repeated.
        self._outgoing: deque[bytes] = deque()
        self._waiting = 0
        self._number = 0
        self._sent_at = 0.0
        self._is_confirmed = True
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        # The last number received from each publisher; the operations of the layer that currently fail.
        self._last: OrderedDict[str, int] = OrderedDict()
        self._troubled: set[str] = set()
        # When this process last heard itself, through the group and on its own channel; the last echo sent and heard.
        self._heard_since = 0.0
        self._heard_at = 0.0
        self._echo_at = 0.0
        self._echo_sent = 0
        self._echo_heard = 0
        self._channel: str | None = None
        self._sender: asyncio.Future[None] | None = None
        self._listener: asyncio.Future[None] | None = None
        self._layer = self._make_layer()
        if self._layer is not None:
            self._sender = asyncio.ensure_future(self._send_all())
        self._is_serving = True
        if self._subscribers:
            self._listen()
        # An earlier thread may have left changes and payloads.
        self._tell_soon()
        self._drain()
        await stop.wait()
        self._tell_changes()
        self._drain()
        is_member = self._heard.is_set()
        self._heard.clear()
        if self._sender is None:
            return
        # Drop events that cannot be sent in time.
        self._closing.set()
        self._wake.set()
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT):
                await asyncio.wait({self._sender})
                if is_member and not self._troubled:
                    await self._attempt("leave", self._layer.group_discard(self._group, self._channel))
        except TimeoutError:
            logger.warning("The last changes did not reach other processes")

    def _make_layer(self) -> Any:
        shared = self.shared_layer()
        self.road = (shared, group_name())
        if shared is None:
            return None
        try:
            # Use a separate instance: a layer serves only one event loop, and must not be shared across a fork.
            layer = channel_layers.make_backend(shared[0])
        except Exception:
            logger.exception("The channel layer cannot be used: changes reach no other process")
            return None
        if hasattr(layer, "brpop_timeout"):
            layer.brpop_timeout = min(layer.brpop_timeout, SERVER_WAIT)
        if isinstance(layer, InMemoryChannelLayer):
            return None
        return layer

    def _tell_soon(self) -> None:
        asyncio.get_running_loop().call_later(SOON, self._tell_changes)

    def _tell_changes(self) -> None:
        if not self._is_serving:
            return
        with self._lock:
            changes = self._changes
            self._changes = Changes()
            self._timed = False
        if changes:
            self._deliver(CHANGES, changes)
            if self._layer is not None:
                for topic, payload in changes.messages():
                    self._send(topic, payload)

    def _drain(self) -> None:
        if not self._is_serving:
            return
        with self._lock:
            queue = list(self._queue)
            lost = self._lost
            self._queue.clear()
            self._scheduled = False
            self._lost = False
        if lost:
            self._resync()
            self._count()
        for topic, payload in queue:
            self._deliver(topic, payload)
            if self._layer is not None:
                self._send(topic, payload)

    def _resync(self) -> None:
        """Deliver :data:`RESYNC` to all subscribers, because a payload may have been lost."""
        for topic in list(self._subscribers):
            self._deliver(topic, RESYNC)

    def _deliver(self, topic: str, payload: Any) -> None:
        for deliver in self._subscribers.get(topic, ()):
            try:
                deliver(payload)
            except Exception:
                logger.exception("A listener of the bus failed")

    # Sending to other processes

    def _send(self, topic: str, payload: Any) -> None:
        """Queue an event for the channel layer; skip a number if the event cannot be sent."""
        try:
            event = orjson.dumps([topic, payload])
        except TypeError:
            logger.exception("An event of the topic %s is not JSON", topic)
            self._count()
            return
        if len(event) > MAX_EVENT:
            self._count()
        elif self._waiting + len(event) > MAX_WAITING:
            self._outgoing.clear()
            self._waiting = 0
            self._count()
        else:
            self._outgoing.append(event)
            self._waiting += len(event)
            self._wake.set()

    def _count(self) -> float | None:
        """Take the next message number, and return the seconds since the previous one was taken."""
        now = asyncio.get_running_loop().time()
        since = now - self._sent_at if self._number else None
        self._number = self._number + 1
        self._sent_at = now
        self._is_confirmed = False
        self._wake.set()
        return since

    async def _send_all(self) -> None:
        while (message := await self._next_message()) is not None:
            delay = RETRY_FIRST
            while not await self._attempt("send", self._layer.group_send(self._group, message)):
                if self._closing.is_set():
                    return
                await _wait(self._closing, delay)
                delay = min(delay * 2, RETRY_MOST)

    async def _next_message(self) -> dict[str, Any] | None:
        """Return the next message for the channel layer: queued events or a heartbeat; None at the end."""
        while not self._outgoing:
            if self._closing.is_set():
                return None
            self._wake.clear()
            if not await _wait(self._wake, HEARTBEAT if self._is_confirmed else CONFIRM):
                self._is_confirmed = True
                if self._channel is not None:
                    # Renew the group membership, which expires: after a day in channels_redis.
                    await self._attempt("stay", self._layer.group_add(self._group, self._channel))
                if self._number or self._channel is not None:
                    since = asyncio.get_running_loop().time() - self._sent_at if self._number else None
                    return self._message([], since)
        events = [self._outgoing.popleft()]
        size = len(events[0])
        while self._outgoing and len(events) < MAX_EVENTS and size + len(self._outgoing[0]) <= MAX_MESSAGE:
            events.append(self._outgoing.popleft())
            size += len(events[-1])
        self._waiting -= size
        return self._message(events, self._count())

    def _message(self, events: list[bytes], since: float | None) -> dict[str, Any]:
        news = [orjson.Fragment(event) for event in events]
        body = {"from": self.id, "number": self._number, "since": since, "events": news}
        return {"type": MESSAGE_TYPE, "body": orjson.dumps(body).decode()}

    # Receiving from other processes

    def _listen(self) -> None:
        if self._layer is not None and self._listener is None:
            self._listener = asyncio.ensure_future(self._hear_all())

    async def _hear_all(self) -> None:
        delay = RETRY_FIRST
        while True:
            if await self._attempt("listen", self._join()):
                delay = RETRY_FIRST
                echoes = asyncio.ensure_future(self._send_echoes())
                try:
                    while True:
                        await self._hear()
                except Exception as error:
                    self._failed("listen", error)
                finally:
                    echoes.cancel()
                self._heard.clear()
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MOST)

    async def _send_echoes(self) -> None:
        """Send numbered echoes to this process's own channel until cancelled."""
        while True:
            await asyncio.sleep(ECHO)
            self._echo_sent += 1
            body = orjson.dumps({"from": self.id, "echo": self._echo_sent}).decode()
            await self._attempt("echo", self._layer.send(self._channel, {"type": MESSAGE_TYPE, "body": body}))

    async def _join(self) -> None:
        if self._channel is not None:
            await self._layer.group_discard(self._group, self._channel)
        self._channel = await self._layer.new_channel()
        await self._layer.group_add(self._group, self._channel)
        self._last.clear()
        now = asyncio.get_running_loop().time()
        self._heard_since = now
        self._heard_at = now
        self._echo_at = now
        self._echo_heard = self._echo_sent
        # Resync first, so that a subscriber that waits for _heard does not get a late RESYNC.
        self._resync()
        self._heard.set()

    async def _hear(self) -> None:
        """Receive the next message from the channel layer, and deliver its events to subscribers."""
        try:
            async with asyncio.timeout_at(min(self._heard_at + SILENCE, self._echo_at + ECHO_SILENCE)) as silence:
                message = await self._layer.receive(self._channel)
        except Exception as error:
            # The Redis client's own timeout on a quiet connection, whose class also has this name, is not a failure.
            if type(error).__name__ != "TimeoutError" or silence.expired():
                raise
            return
        try:
            body = orjson.loads(message["body"])
            if body["from"] == self.id:
                self._hear_itself(body)
                return
            publisher, number, since, events = (body[name] for name in ("from", "number", "since", "events"))
            if not self._is_new(publisher, number, since, bool(events)):
                return
            for topic, payload in events:
                if topic in (CHANGES, LISTS):
                    self._deliver(CHANGES, Changes.read(topic, payload))
                else:
                    self._deliver(topic, payload)
        except (KeyError, TypeError, ValueError):
            logger.warning("A message in the group %s is not from this app", self._group)

    def _hear_itself(self, body: dict[str, Any]) -> None:
        """Note that a message of this process came back through the channel layer, and resync if one before it did not.

        Only messages of its own show that a process still belongs to the group: others can be heard again after an
        outage, of which the layer says nothing.
        """
        now = asyncio.get_running_loop().time()
        if "echo" not in body:
            self._heard_at = now
            return
        self._echo_at = now
        last = self._echo_heard
        self._echo_heard = body["echo"]
        if self._echo_heard > last + 1:
            self._resync()

    def _is_new(self, publisher: str, number: int, since: float | None, has_events: bool) -> bool:
        """Return whether a message of another process is new, and resync if a number before it is missing.

        A heartbeat has the number of the last message. ``since`` is the seconds since the publisher's previous message,
        None for its first one: messages from before this process listened do not count as missing.
        """
        last = self._last.get(publisher)
        if last is not None and has_events and number <= last:
            return False
        self._last[publisher] = max(number, last or 0)
        self._last.move_to_end(publisher)
        if len(self._last) > MAX_PUBLISHERS:
            self._last.popitem(last=False)
        before = number - 1 if has_events else number
        if last is None:
            heard_for = asyncio.get_running_loop().time() - self._heard_since
            last = 0 if since is not None and since <= heard_for else before
        if before > last:
            self._resync()
        return True

    async def _attempt(self, part: str, operation: Coroutine[Any, Any, Any]) -> bool:
        """Run an operation on the channel layer; return whether it succeeded."""
        try:
            async with asyncio.timeout(OPERATION_TIMEOUT):
                await operation
        except Exception as error:
            self._failed(part, error)
            return False
        self._troubled.discard(part)
        return True

    def _failed(self, part: str, error: Exception) -> None:
        # Log each outage once, and only the error's class: its text may contain the layer's address and password.
        if not self._troubled:
            logger.warning(
                "The channel layer does not answer (%s): changes reach no other process", type(error).__name__
            )
        self._troubled.add(part)


async def _wait(event: asyncio.Event, timeout: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await event.wait()
    return event.is_set()


class _Resolver(ThreadPoolExecutor):
    """Executor of the bus's event loop, which runs work in the calling thread once the interpreter is shutting down."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            future: Future[Any] = Future()
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
            return future


bus: Final = Bus()
gauge("hub_queue", "Changes that wait to be delivered.", lambda: len(bus._queue))
gauge("hub_topics", "Topics with a listener in this process.", lambda: len(bus._subscribers))
# The bus's state in parent processes, kept so that garbage collection does not close their event loops here.
_inherited: list[Any] = []


def _forked() -> None:
    _inherited.append(dict(vars(bus)))
    bus.reset()


def _reconnect(*, setting: str, **kwargs: Any) -> None:
    if setting in ("CHANNEL_LAYERS", "MCP_DJANGO") and bus._thread and bus.road != (bus.shared_layer(), group_name()):
        bus.close()
        if bus._subscribers:
            bus._call(bus._listen)


atexit.register(bus.close)
setting_changed.connect(_reconnect)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

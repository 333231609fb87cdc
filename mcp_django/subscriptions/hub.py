"""Publish/subscribe within this process, with one bridge to the other processes.

One thread with an event loop of its own serves the whole process. It is started by the first use and ends with the
process; a fork starts without it. Publishing puts the news into a bounded queue and returns: neither a slow listener
nor a channel layer that is down is ever waited for. Who may have missed something is given :data:`RESYNC` instead.

Changes of rows, resources and lists are news of their own kind: what comes within a moment is told as one.
"""

import asyncio
import atexit
import contextlib
import hashlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from channels.layers import InMemoryChannelLayer, channel_layers
from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.db import close_old_connections, connections

from ..conf import settings
from ..operating.telemetry import gauge
from .changes import CHANGES, LISTS, Changes
from .relay import Relay

logger = logging.getLogger("mcp_django")

# What is delivered instead of a payload when news may have been lost: look at everything again.
RESYNC: Final = object()
# News that wait for the thread; beyond it all of them become one RESYNC.
MAX_QUEUE: Final = 10_000
# Seconds in which changes are put together, and that the end of the process may wait for the last news to get out.
SOON: Final = 0.05
FLUSH_TIMEOUT: Final = 2.0

# Seconds of rest during which a worker keeps its connections to databases, and after a failure that it did not expect.
SHORT_REST: Final = 1.0
AFTER_FAILURE: Final = 5.0

Deliver = Callable[[Any], None]


def shared_layer() -> tuple[str, Any] | None:
    """Return alias and configuration of the layer that other processes hear too, None where there is none.

    The in-memory layer reaches nobody else, and what is in this process is delivered without it.
    """
    alias = settings.CHANNEL_LAYER
    config = channel_layers.configs.get(alias)
    if config is None or config.get("BACKEND") == "channels.layers.InMemoryChannelLayer":
        return None
    return alias, config


def group_name() -> str:
    """Return the group of this project's processes: another installation on the same server has another one."""
    named = f"{settings.BASE_URL}\n{django_settings.ROOT_URLCONF}"
    return f"mcp_django.{hashlib.sha256(named.encode()).hexdigest()[:24]}"


class Hub:
    """The news of this process, and of the others as far as there is a road to them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, without listeners and whatever another thread was about to do: for the child of a fork."""
        self._lock = threading.Lock()
        self._subscribers: dict[str, tuple[Deliver, ...]] = {}
        self._queue: deque[tuple[str, Any]] = deque()
        self._changes = Changes()
        # Whether the thread has been told to look at the queue and at the changes.
        self._scheduled = self._timed = False
        # Whether the thread has made its relay, so that news may be sent.
        self._is_serving = False
        self._lost = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._relay: Relay | None = None
        self._heard = threading.Event()
        # The shared layer and the group by which the thread reaches other processes.
        self.road: Any = None

    # Any thread

    def is_idle(self) -> bool:
        """Return whether nobody could hear of anything: no one listens here, and no road leads to other processes."""
        return not self._subscribers and shared_layer() is None

    def publish(self, topic: str, payload: Any) -> None:
        """Tell all who listen to the topic, here at once, in other processes through the channel layer.

        ``payload`` is JSON, at most 64 KiB of it. Nothing is waited for and nothing raised.
        """
        if self.is_idle():
            return
        with self._lock:
            if len(self._queue) >= MAX_QUEUE:
                self._queue.clear()
                self._lost = True
            self._queue.append((topic, payload))
            scheduled, self._scheduled = self._scheduled, True
        if not scheduled and not self._call(self._drain):
            self._scheduled = False

    def put(self, changes: Changes) -> None:
        """Tell who listens to :data:`CHANGES` of them, put together with others, in 50 ms or when the process ends."""
        if self.is_idle():
            return
        with self._lock:
            self._changes.merge(changes)
            timed, self._timed = self._timed, True
        if not timed and not self._call(self._tell_soon):
            self._timed = False

    def subscribe(self, topic: str, deliver: Deliver) -> Callable[[], None]:
        """Have ``deliver(payload)`` called, in the hub's thread, for what is published; return what ends it.

        It must be quick. It gets :data:`RESYNC` when news may have been lost.
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
        """Return whether this process hears the others, after ``timeout`` seconds at most."""
        return shared_layer() is None or self._heard.wait(timeout)

    def _call(self, function: Callable[[], Any]) -> bool:
        """Have a function called in the hub's thread, which is started if need be; return whether there is one."""
        try:
            with self._lock:
                loop = self._loop
                if loop is None or self._thread is None or not self._thread.is_alive():
                    loop = self._start()
            loop.call_soon_threadsafe(function)
        except RuntimeError:  # no thread can be started, or the interpreter is ending
            return False
        return True

    def _start(self) -> asyncio.AbstractEventLoop:
        self._is_serving = False
        loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        thread = threading.Thread(target=self._run, args=(loop, self._stop), name="mcp-hub", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        self._loop, self._thread = loop, thread
        return loop

    def close(self) -> None:
        """Send what waits, for 2 s at most, and end the thread; the next use starts it again."""
        with self._lock:
            loop, thread, stop = self._loop, self._thread, self._stop
        if loop is None or thread is None or stop is None or thread is threading.current_thread():
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)
        # The thread gives up by itself, unless it did not come to that yet.
        thread.join(FLUSH_TIMEOUT + 0.5)
        if thread.is_alive():
            logger.warning("The last changes did not reach other processes")
        with self._lock:
            if self._thread is thread:
                self._loop = self._thread = None
                self._is_serving = self._scheduled = self._timed = False

    # The hub's thread

    def _run(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(_Resolver(1, thread_name_prefix="mcp-hub-resolver"))
        try:
            loop.run_until_complete(self._serve(stop))
        except Exception:
            logger.exception("The hub has stopped")
        finally:
            # What was cancelled comes to its end.
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=FLUSH_TIMEOUT))
            loop.close()

    async def _serve(self, stop: asyncio.Event) -> None:
        self._relay = relay = self._make_relay()
        self._is_serving = True
        if self._subscribers:
            self._listen()
        # What an earlier thread may have left.
        self._tell_soon()
        self._drain()
        await stop.wait()
        self._tell_changes()
        self._drain()
        if relay is not None:
            self._heard.clear()
            await relay.close(FLUSH_TIMEOUT)

    def _make_relay(self) -> Relay | None:
        self.road = shared, group = shared_layer(), group_name()
        if shared is None:
            return None
        try:
            # An instance of its own: a layer serves one event loop, and not the same one before and after a fork.
            layer = channel_layers.make_backend(shared[0])
        except Exception:
            logger.exception("The channel layer cannot be used: changes reach no other process")
            return None
        if isinstance(layer, InMemoryChannelLayer):
            return None
        return Relay(layer, group, deliver=self._take, resync=self._resync, joined=self._joined)

    def _joined(self, hears: bool) -> None:
        if hears:
            self._heard.set()
        else:
            self._heard.clear()

    def _listen(self) -> None:
        if self._relay is not None:
            self._relay.listen()

    def _tell_soon(self) -> None:
        asyncio.get_running_loop().call_later(SOON, self._tell_changes)

    def _tell_changes(self) -> None:
        if not self._is_serving:
            return
        with self._lock:
            changes, self._changes = self._changes, Changes()
            self._timed = False
        if not changes:
            return
        self._deliver(CHANGES, changes)
        if self._relay is not None:
            for topic, payload in changes.messages():
                self._relay.send(topic, payload)

    def _drain(self) -> None:
        if not self._is_serving:
            return
        with self._lock:
            news, lost = list(self._queue), self._lost
            self._queue.clear()
            self._scheduled = self._lost = False
        if lost:
            self._resync()
            if self._relay is not None:
                self._relay.skip()
        for topic, payload in news:
            self._deliver(topic, payload)
            if self._relay is not None:
                self._relay.send(topic, payload)

    def _take(self, topic: str, payload: Any) -> None:
        if topic in (CHANGES, LISTS):
            topic, payload = CHANGES, Changes.read(topic, payload)
        self._deliver(topic, payload)

    def _resync(self) -> None:
        with self._lock:
            topics = list(self._subscribers)
        for topic in topics:
            self._deliver(topic, RESYNC)

    def _deliver(self, topic: str, payload: Any) -> None:
        for deliver in self._subscribers.get(topic, ()):
            try:
                deliver(payload)
            except Exception:
                logger.exception("A listener of the hub failed")


class _Resolver(ThreadPoolExecutor):
    """Threads for what an event loop cannot do itself; when the interpreter ends and has no more, the calling one."""

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


class Worker:
    """A daemon thread around ``work``, which returns after how many seconds it wants to run again.

    None stands for "when woken". The thread is started by the first :meth:`wake` and ends with the process.
    """

    def __init__(self, name: str, work: Callable[[], float | None]) -> None:
        self.name, self.work = name, work
        self._wake, self._stop, self._hurry = threading.Event(), threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Have the work run soon; during a rest that it asked for, after the rest."""
        self._wake.set()
        with self._lock:
            if self._thread is None:
                stop, hurry = threading.Event(), threading.Event()
                thread = threading.Thread(target=self._run, args=[stop, hurry], name=self.name, daemon=True)
                thread.start()
                self._thread, self._stop, self._hurry = thread, stop, hurry

    def hurry(self) -> None:
        """End a rest that the work asked for; where there is none, nothing happens or the next one is left out."""
        self._hurry.set()

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread, within ``timeout`` seconds or when its work is done; the next :meth:`wake` starts another."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
        self._hurry.set()
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self, stop: threading.Event, hurry: threading.Event) -> None:
        while not stop.is_set():
            self._wake.wait()
            self._wake.clear()
            while not stop.is_set():
                close_old_connections()
                try:
                    rest = self.work()
                except BaseException:
                    # Whatever a hook of the project raises, such as an exit: nobody would start the thread again.
                    logger.exception("The thread %s failed", self.name)
                    rest = AFTER_FAILURE
                if rest is None:
                    break
                if rest >= SHORT_REST:
                    connections.close_all()
                hurry.wait(rest)
                if not stop.is_set():
                    hurry.clear()
            connections.close_all()


hub: Final = Hub()
gauge("hub_queue", "News that wait for the thread of the hub.", lambda: len(hub._queue))
gauge("hub_topics", "Topics that somebody in this process listens to.", lambda: len(hub._subscribers))
# What it was in the parents of this process: their loops are not closed by being collected here.
_inherited: list[Any] = []


def _forked() -> None:
    _inherited.append(dict(vars(hub)))
    hub.reset()


def _reconnect(*, setting: str, **kwargs: Any) -> None:
    if setting in ("CHANNEL_LAYERS", "MCP_DJANGO") and hub._thread and hub.road != (shared_layer(), group_name()):
        hub.close()
        if hub._subscribers:
            hub._call(hub._listen)


atexit.register(hub.close)
setting_changed.connect(_reconnect)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

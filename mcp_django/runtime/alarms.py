"""Timeouts that are hardly ever reached: one timer of the loop for all of them, because a timer each costs more.

Two or three stand around every request. ``asyncio.timeout`` is for those around work that takes its time.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol, Self


class _Bound(Protocol):
    when: float

    def ring(self) -> None: ...


class _Clock:
    """The bounds of one event loop, and the timer for the first of them, or for one that is no more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.bounds: set[_Bound] = set()
        self.timer: asyncio.TimerHandle | None = None

    def add(self, bound: _Bound) -> None:
        self.bounds.add(bound)
        if self.timer is None or bound.when < self.timer.when():
            self.set_timer(bound.when)

    def set_timer(self, when: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.loop.call_at(when, self.look)

    def look(self) -> None:
        self.timer = None
        now = self.loop.time()
        for bound in [found for found in self.bounds if found.when <= now]:
            self.bounds.discard(bound)
            bound.ring()
        if self.bounds and self.timer is None:
            self.set_timer(min(found.when for found in self.bounds))


_local = threading.local()


def _clock() -> _Clock:
    """Return the clock of the loop that runs in this thread."""
    loop = asyncio.get_running_loop()
    found: _Clock | None = getattr(_local, "clock", None)
    if found is None or found.loop is not loop:
        found = _local.clock = _Clock(loop)
    return found


class Alarm:
    """Calls ``ring`` on the event loop after ``seconds``, unless it is cancelled before."""

    __slots__ = ("_clock", "ring", "when")

    def __init__(self, seconds: float, ring: Callable[[], None]) -> None:
        self.ring, self._clock = ring, _clock()
        self.when = self._clock.loop.time() + seconds
        self._clock.add(self)

    def cancel(self) -> None:
        """Never call."""
        self._clock.bounds.discard(self)


class within:
    """A context that takes ``seconds`` at most, as that of ``asyncio.timeout``: then its task is interrupted.

    Raises:
        TimeoutError: it took longer, or somebody called :meth:`ring`.
    """

    __slots__ = ("_cancelling", "_clock", "_is_over", "_task", "seconds", "when")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._is_over = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling, self._clock = task, task.cancelling(), _clock()
        self.when = self._clock.loop.time() + self.seconds
        self._clock.add(self)
        return self

    def ring(self) -> None:
        """Interrupt the task now."""
        self._is_over = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, _: object) -> None:
        self._clock.bounds.discard(self)
        if self._is_over and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from raised

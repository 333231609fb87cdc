"""Thread pools in which coroutines run synchronous work: lanes limit each kind of work, and users take turns.

Coroutines run synchronous work with :func:`in_thread`, in a lane that they name. The lanes of one pool share its
threads, and each lane has a limit, so that short work never waits for long work:

- "door": without limit. Authenticates callers and parses messages, and returns a :class:`Handover` for the rest;
- "reads": short work of the server itself, such as lists; it leaves one thread for the door;
- "queries": calls that read rows, at most ``THREADS`` at once;
- "slow": the project's own tools and actions, and writes, in a pool of ``SLOW_THREADS``;
- "streams": stores the messages of calls, in a separate pool.

One owner gets at most half of the places in "queries" and "slow", and one in "reads". Work without a place waits at
most ``QUEUE_TIMEOUT`` seconds for one; waiting owners take turns.
"""

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Generic, Literal, TypeVar

from asgiref.sync import SyncToAsync, _restore_context, sync_to_async
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connections

from ..conf import settings

logger = logging.getLogger("mcp_django")

T = TypeVar("T")
LaneName = Literal["door", "reads", "queries", "slow", "streams"]
# Threads in addition to THREADS: one for the door, two for "reads".
EXTRA_THREADS: Final = 3
# Threads that store messages.
STREAM_THREADS: Final = 2
POOLS: Final[tuple[Literal["reads", "slow", "streams"], ...]] = ("reads", "slow", "streams")

# A worker closes its database connections for rests of this many seconds or more; seconds of rest after a failure.
SHORT_REST: Final = 1.0
AFTER_FAILURE: Final = 5.0


class Busy(Exception):
    """The thread pool had no place for the work within ``QUEUE_TIMEOUT``; the work was not started.

    The text is the error message for the client.
    """

    def __init__(self) -> None:
        super().__init__("The server is busy. Nothing was done. Repeat the call in a few seconds.")


@dataclass(slots=True)
class Handover(Generic[T]):
    """Work that moves to another lane of the thread pool, where it takes a place of its owner."""

    lane: LaneName
    owner: str
    work: "Callable[[], T | Handover[T]]"


@dataclass(slots=True, eq=False)
class Lane:
    """A lane of a thread pool: free places for one kind of work, and the share of one owner.

    ``held`` are the places of each owner, ``waiting`` the jobs without a place, by owner: the next owner comes first.
    """

    free: int
    share: int
    held: dict[str, int] = field(default_factory=dict)
    waiting: "OrderedDict[str, deque[Job]]" = field(default_factory=OrderedDict)


class Job:
    """A piece of work for a thread pool, and the future of its result, which belongs to an event loop."""

    __slots__ = ("context", "future", "lane", "loop", "owner", "work")

    def __init__(self, lane: LaneName, owner: str, work: Callable[[], Any]) -> None:
        self.lane = lane
        self.owner = owner
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.context = contextvars.copy_context()

    def in_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the event loop of the job's future."""
        try:  # noqa: SIM105 - every call comes here, and contextlib.suppress costs more
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            # The loop is closed, so nothing waits for the job.
            pass


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not future.done():
        settle(outcome)


def take_over(context: contextvars.Context) -> None:
    """Move asgiref's ``Local`` values of a context into this thread, though another thread has set them.

    Django keeps language, time zone, script prefix and URLconf in asgiref's ``Local``, which hides values set by other
    threads unless asgiref itself moves the work. This does the same; ``sync_to_async`` takes twice as long.
    """
    _restore_context(context)


# The outcome of a job whose rest waits for a place. The thread must not touch the job: another one may run it already.
WAITING: Final = object()


class Pool:
    """A thread pool and the lanes that share it; the lanes leave ``spare`` threads for the door."""

    def __init__(self, name: str, lanes: dict[LaneName, Lane], threads: int, spare: int = 0) -> None:
        self.lanes = lanes
        self.free = threads - spare
        self.lock = threading.Lock()
        self.threads = threads
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix=f"mcp-{name}")

    def submit(self, job: Job) -> None:
        """Run the job in a thread of the pool, as soon as it has a place."""
        if job.lane == "door" or self.take(job):
            # Settling the loop's future directly costs half as much as run_in_executor's chain of two futures.
            self.executor.submit(self.run, job)
        else:
            self.bound_wait(job)

    # Places

    def has_place(self, lane: Lane, owner: str) -> bool:
        """Take a place in a lane of the thread pool if one is free; without an owner, only the lane's limit counts."""
        if not self.free or not lane.free or (owner and lane.held.get(owner, 0) >= lane.share):
            return False
        self.free -= 1
        lane.free -= 1
        lane.held[owner] = lane.held.get(owner, 0) + 1
        return True

    def take(self, job: Job) -> bool:
        """Take a place in the job's lane of the thread pool, or let the job wait; return whether it has one."""
        lane = self.lanes[job.lane]
        with self.lock:
            if self.has_place(lane, job.owner):
                return True
            lane.waiting.setdefault(job.owner, deque()).append(job)
            return False

    def give_back(self, job: Job) -> Job | None:
        """Give back the place of a job in its lane, and return the waiting job that gets a place now, if any."""
        lane = self.lanes[job.lane]
        with self.lock:
            self.free += 1
            lane.free += 1
            lane.held[job.owner] -= 1
            if not lane.held[job.owner]:
                del lane.held[job.owner]
            for lane in self.lanes.values():
                for owner in lane.waiting:
                    if self.has_place(lane, owner):
                        jobs = lane.waiting.pop(owner)
                        found = jobs.popleft()
                        if jobs:
                            lane.waiting[owner] = jobs
                        return found
        return None

    def stop_waiting(self, job: Job) -> bool:
        """Stop a job from waiting for a place in its lane; return whether it was waiting."""
        with self.lock:
            waiting = self.lanes[job.lane].waiting if job.lane != "door" else {}
            jobs = waiting.get(job.owner, ())
            if job not in jobs:
                return False
            waiting[job.owner].remove(job)
            if not waiting[job.owner]:
                del waiting[job.owner]
            return True

    def bound_wait(self, job: Job) -> None:
        """Limit a job's wait for a thread: it ends after ``QUEUE_TIMEOUT`` or when the job's future is cancelled."""

        def expire() -> None:
            if self.stop_waiting(job) and not job.future.done():
                job.future.set_exception(Busy())

        def forget(_: asyncio.Future[Any]) -> None:
            timer.cancel()
            self.stop_waiting(job)

        timer = job.loop.call_later(settings.QUEUE_TIMEOUT, expire)
        job.future.add_done_callback(forget)

    # Running jobs in a thread

    def run(self, job: Job | None) -> None:
        """Run a job in this thread of the pool, then the waiting jobs that get its place."""
        # Jobs in "door" notice a dead database connection themselves, at authentication.
        is_idle = job is not None and job.lane != "door"
        while job is not None:
            outcome = None
            # Do not start abandoned work: its client was told that nothing was done.
            if not job.future.done():
                try:
                    check = is_idle or job.lane == "slow"
                    settle = job.future.set_result
                    outcome = job.context.run(self.bracketed, job, check)
                except BaseException as error:
                    settle = job.future.set_exception
                    outcome = error
                if outcome is not WAITING:
                    job.in_loop(_settle, job.future, settle, outcome)
            job = self.give_back(job) if outcome is not WAITING and job.lane != "door" else None
            is_idle = False

    def bracketed(self, job: Job, check: bool) -> Any:
        """Run a job in the thread pool between ``request_started`` and ``request_finished``, like a Django request.

        With ``check``, a persistent connection is checked before it is used.
        """
        take_over(job.context)
        request_started.send(sender=in_thread)
        try:
            if check:
                for connection in connections.all(initialized_only=True):
                    # Like CONN_HEALTH_CHECKS: no work has begun yet, so the connection can still be replaced.
                    connection.health_check_enabled = True  # type: ignore[attr-defined]
            outcome = job.work()
            if isinstance(outcome, Handover) and job.lane == "door":
                job.lane = outcome.lane
                job.owner = outcome.owner
                job.work = outcome.work
                # Another thread may continue the job at once, and only one thread at a time can enter a context.
                job.context = contextvars.copy_context()
                if not self.take(job):
                    job.in_loop(self.bound_wait, job)
                    return WAITING
                outcome = job.work()
            return outcome
        finally:
            request_finished.send(sender=in_thread)


def close_connections(timeout: float) -> None:
    """Close the database connections of all threads of the thread pools within ``timeout`` seconds.

    Each thread closes its own: closing a SQLite connection while another thread uses it crashes the process.
    """

    def close(met: threading.Barrier) -> None:
        connections.close_all()
        # Wait for the other threads after closing, so that each thread runs this exactly once.
        with contextlib.suppress(threading.BrokenBarrierError):
            met.wait(timeout)

    pools = [(pool.executor, pool.threads) for pool in map(_pool, POOLS)]
    closings: list[Future[None]] = []
    for executor, threads in [*pools, (SyncToAsync.single_thread_executor, 1)]:
        met = threading.Barrier(threads)
        closings += [executor.submit(close, met) for _ in range(threads)]
    wait(closings, timeout)


def _run_through(work: Callable[[], Any]) -> Any:
    """Do the work of thread pools in the calling thread: run the work, then each handover."""
    outcome = work()
    while isinstance(outcome, Handover):
        outcome = outcome.work()
    return outcome


@cache
def _pool(name: Literal["reads", "slow", "streams"]) -> Pool:
    if name == "streams":
        return Pool(name, {name: Lane(STREAM_THREADS, STREAM_THREADS)}, STREAM_THREADS)
    if name == "slow":
        threads = settings.SLOW_THREADS
        return Pool(name, {"slow": Lane(threads, half(threads))}, threads)
    threads = settings.THREADS + EXTRA_THREADS
    lanes: dict[LaneName, Lane] = {
        "reads": Lane(threads, share=1),
        "queries": Lane(settings.THREADS, half(settings.THREADS)),
    }
    return Pool(name, lanes, threads, spare=1)


def half(threads: int) -> int:
    """Return how many places of a thread pool one owner can have."""
    return max(1, threads // 2)


def in_thread(
    lane: LaneName, work: Callable[[], T], *, owner: str = "", thread_sensitive: bool = False
) -> asyncio.Future[T]:
    """Run ``work`` in a lane of a thread pool, with the caller's context variables; return the future of its result.

    The variables hold what middleware and the server activated: language, time zone, script prefix, URLconf. Changes
    that the work makes to them end with it.

    The threads keep their database connections for ``CONN_MAX_AGE``, because each piece of work sends the same request
    signals that Django sends around its requests. ``thread_sensitive`` work runs in the thread of Django's middleware
    instead, which may have set something there. The future raises :class:`Busy` if the work found no place.
    """
    if thread_sensitive:
        # Cancelling the returned future must not wait for the thread.
        running = asyncio.ensure_future(sync_to_async(_run_through, thread_sensitive=True)(work))
        running.add_done_callback(give_up)
        return asyncio.shield(running)
    job = Job(lane, owner, work)
    _pool(lane if lane in ("slow", "streams") else "reads").submit(job)
    return job.future


def in_background(work: Callable[[], object]) -> None:
    """Run work that nothing waits for in a thread of "streams", however long it has to wait for a place."""
    job = Job("streams", "", work)
    pool = _pool("streams")
    if pool.take(job):
        pool.executor.submit(pool.run, job)


def give_up(future: asyncio.Future[Any]) -> None:
    """Cancel a future, or retrieve its exception if it is done: asyncio logs exceptions that nobody retrieves."""
    if not (future.cancel() or future.cancelled()):
        future.exception()


class Worker:
    """A daemon thread that calls ``work``, which returns the seconds until it wants to run again.

    None means "when woken". The first :meth:`wake` starts the thread, which ends with the process.
    """

    def __init__(self, name: str, work: Callable[[], float | None]) -> None:
        self.name = name
        self.work = work
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Make the daemon thread work soon, or after the rest that it asked for."""
        self._wake.set()
        with self._lock:
            if self._thread is None:
                stop = threading.Event()
                hurry = threading.Event()
                thread = threading.Thread(target=self._run, args=[stop, hurry], name=self.name, daemon=True)
                thread.start()
                self._thread = thread
                self._stop = stop
                self._hurry = hurry

    def hurry(self) -> None:
        """End the rest that the daemon thread asked for."""
        self._hurry.set()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop the daemon thread within ``timeout`` seconds or when its work is done; :meth:`wake` starts another."""
        with self._lock:
            thread = self._thread
            self._thread = None
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
                    # Catch everything that a project's hook may raise, even SystemExit: nothing restarts the thread.
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

"""The threads of a process that run tasks."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from django.db import connections

from mcp_django.tasks import own_threads as module
from mcp_django.tasks.own_threads import RUN, THREADS, OwnThreads

pytestmark = pytest.mark.one_django

PATIENCE = 10
# Ends with the interpreter, although a thread is at work, and prints what the thread does in the meantime.
ENDING = """
import threading
from mcp_django.tasks import own_threads

started = threading.Event()
own_threads.import_string = lambda name: lambda task_id: (started.set(), threading.Event().wait())
own_threads.own_threads.put("a")
assert started.wait(10)
print("over")
"""


def join() -> None:
    """Wait until no thread has a task."""
    for thread in threading.enumerate():
        if thread.name == "mcp-tasks":
            thread.join(PATIENCE)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], None]], None]:
    """Have tasks run by a function of the test."""

    def run_by(function: Callable[[str], None]) -> None:
        monkeypatch.setattr(RUN, function, raising=False)

    return run_by


@pytest.fixture
def threads() -> Iterator[OwnThreads]:
    """Threads of the test's own, which are over when it is."""
    own = OwnThreads()
    yield own
    join()
    assert own._running == 0


def test_no_thread_starts_before_there_is_a_task(threads: OwnThreads, runs: Any) -> None:
    before = threading.active_count()
    done: SimpleQueue[tuple[str, bool]] = SimpleQueue()
    runs(lambda task_id: done.put((task_id, threading.current_thread().daemon)))
    assert threading.active_count() == before
    threads.put("a")
    assert done.get(timeout=PATIENCE) == ("a", True)


def test_so_many_tasks_run_at_a_time_and_the_others_wait_in_their_order(threads: OwnThreads, runs: Any) -> None:
    started: SimpleQueue[str] = SimpleQueue()
    places = threading.Semaphore(0)

    def run(task_id: str) -> None:
        started.put(task_id)
        assert places.acquire(timeout=PATIENCE)

    runs(run)
    ids = [str(number) for number in range(THREADS + 3)]
    for task_id in ids:
        threads.put(task_id)
    first = {started.get(timeout=PATIENCE) for _ in range(THREADS)}
    assert first == set(ids[:THREADS])
    assert started.empty()
    for expected in ids[THREADS:]:
        places.release()
        assert started.get(timeout=PATIENCE) == expected
    places.release(THREADS)


def test_an_id_that_waits_waits_once_and_one_that_runs_can_be_handed_on_again(threads: OwnThreads, runs: Any) -> None:
    """A task that has asked a question is run again with the answer, which may come before its thread has ended."""
    started: SimpleQueue[str] = SimpleQueue()
    go_on = threading.Event()

    def run(task_id: str) -> None:
        started.put(task_id)
        assert go_on.wait(PATIENCE)

    runs(run)
    for task_id in "abcd":
        threads.put(task_id)
        assert started.get(timeout=PATIENCE) == task_id
    for task_id in "aea":
        threads.put(task_id)
    assert list(threads._waiting) == ["a", "e"]
    go_on.set()
    assert {started.get(timeout=PATIENCE) for _ in range(2)} == {"a", "e"}


def test_a_task_that_fails_is_logged_and_stops_no_other(
    threads: OwnThreads, runs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    done: SimpleQueue[str] = SimpleQueue()

    def run(task_id: str) -> None:
        done.put(task_id)
        if task_id == "a":
            raise SystemExit("out")

    runs(run)
    with caplog.at_level(logging.ERROR, "mcp_django"):
        for task_id in "ab":
            threads.put(task_id)
            assert done.get(timeout=PATIENCE) == task_id
        join()
        assert [message for message in caplog.messages if "task a" in message] == ["The task a ended with an error"]


def test_a_thread_closes_its_connections_after_each_task(
    threads: OwnThreads, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(connections, "close_all", lambda: told.put("closed"))
    runs(told.put)
    for task_id in "ab":
        threads.put(task_id)
        assert [told.get(timeout=PATIENCE), told.get(timeout=PATIENCE)] == [task_id, "closed"]


def test_a_thread_that_cannot_be_started_takes_no_place(
    threads: OwnThreads, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: SimpleQueue[str] = SimpleQueue()
    runs(done.put)

    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(2 * THREADS):
            with pytest.raises(RuntimeError):
                threads.put("a")
    threads.put("b")
    assert [done.get(timeout=PATIENCE), done.get(timeout=PATIENCE)] == ["a", "b"]


def test_a_fork_runs_its_own_tasks_and_none_of_its_parent(runs: Any) -> None:
    own = module.own_threads
    go_on = threading.Event()
    runs(lambda task_id: go_on.wait(PATIENCE))
    for task_id in "abcdef":
        own.put(task_id)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        runs(lambda task_id: os.write(writing, task_id.encode()))
        own.put("g")
        join()
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with open(reading) as said:
        assert (status, said.read()) == (0, "g")
    go_on.set()
    join()
    assert not own._waiting


def test_the_interpreter_ends_while_a_task_runs() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")

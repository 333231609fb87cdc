import threading

import pytest
from django.db import connection

from mcp_django.runtime import thread_pools as workers
from mcp_django.runtime.thread_pools import Worker
from tests.subscribers import TIMEOUT


class Work:
    """Work that takes its rests from a list, then needs to be woken."""

    def __init__(self, *rests):
        self.rests, self.runs = list(rests), 0
        self.changed = threading.Condition()
        self.worker = Worker("test-worker", self.run)

    def run(self):
        with self.changed:
            self.runs += 1
            self.changed.notify_all()
            rest = self.rests.pop(0) if self.rests else None
        if isinstance(rest, BaseException):
            raise rest
        return rest

    def wait(self, runs):
        with self.changed:
            return self.changed.wait_for(lambda: self.runs >= runs, TIMEOUT)


@pytest.fixture
def start():
    made = []

    def make(*rests):
        made.append(Work(*rests))
        return made[-1]

    yield make
    for work in made:
        work.worker.stop()


def test_nothing_runs_before_it_is_woken(start):
    work = start()
    assert work.worker._thread is None
    work.worker.wake()
    assert work.wait(1)
    work.worker.wake()
    assert work.wait(2)


def test_it_runs_again_after_the_rest_that_it_asked_for(start):
    work = start(0.0, 0.001, None)
    work.worker.wake()
    assert work.wait(3)


def test_a_rest_is_not_cut_short_by_being_woken_but_by_being_stopped(start):
    work = start(1000.0)
    work.worker.wake()
    assert work.wait(1)
    work.worker.wake()
    thread = work.worker._thread
    work.worker.stop()
    assert not thread.is_alive()
    assert work.runs == 1


def test_a_rest_ends_for_what_is_in_a_hurry(start):
    work = start(1000.0, 1000.0)
    work.worker.hurry()
    work.worker.wake()
    assert work.wait(1)
    work.worker.hurry()
    assert work.wait(2)
    work.worker.hurry()
    assert work.wait(3)
    # Nothing is left to hurry.
    work.worker.stop()
    assert work.runs == 3


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_what_fails_is_logged_and_tried_again(start, monkeypatch, caplog, error):
    monkeypatch.setattr(workers, "AFTER_FAILURE", 0.0)
    work = start(error("x"))
    work.worker.wake()
    assert work.wait(2)
    assert "test-worker failed" in caplog.text


def test_where_no_thread_can_be_started_the_next_wake_tries_again(start, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    work = start()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            work.worker.wake()
    work.worker.wake()
    assert work.wait(1)


def test_after_the_end_it_can_be_started_again(start):
    work = start()
    work.worker.stop()
    work.worker.wake()
    assert work.wait(1)
    work.worker.stop()
    work.worker.wake()
    assert work.wait(2)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rest", [None, 1000.0], ids=["idle", "resting"])
def test_no_connection_to_the_database_is_held_meanwhile(rest, settings):
    held, closed = [], threading.Event()

    def work():
        connection.ensure_connection()
        held.append(connection.connection)
        original = connection.close

        def close():
            original()
            closed.set()

        connection.close = close
        return rest

    worker = Worker("test-worker", work)
    worker.wake()
    assert closed.wait(TIMEOUT)
    worker.stop()
    assert len(held) == 1

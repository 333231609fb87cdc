"""The sign of life of a worker."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import Error as DatabaseError

from mcp_django.tasks import heartbeats
from mcp_django.tasks.heartbeats import Heartbeat


class Stored:
    """A stored task that notes what is done to it."""

    HEARTBEAT = 0.0

    def __init__(self, *, has_it: bool = True, timeout: float = 60) -> None:
        self.row = SimpleNamespace(timeout=timeout)
        self.has_it = has_it
        self.renewed: list[dict[str, Any]] = []
        self.ends: list[str] = []
        self.beaten = threading.Event()

    def renew(self, **columns: Any) -> bool:
        self.renewed.append(columns)
        self.beaten.set()
        return self.has_it

    def refuse(self, told: str) -> None:
        self.ends.append(told)

    def stop_late(self) -> None:
        self.ends.append("late")


@pytest.fixture(autouse=True)
def quick(monkeypatch: Any) -> None:
    monkeypatch.setattr(heartbeats, "LOOK_EVERY", 0.01)


def stopped_by(task: Any, refusal: str = "") -> bool:
    """Return whether the heartbeat of a task stops its work."""
    stopped = threading.Event()
    with Heartbeat(task, lambda: refusal, stopped.set):
        return stopped.wait(1.0)


def test_the_lease_is_renewed_with_the_progress_while_the_work_goes_on() -> None:
    task: Any = Stored()
    with Heartbeat(task, str, lambda: None) as heartbeat:
        heartbeat.tell(1, 2, "half")
        assert task.beaten.wait(5)
        task.beaten.clear()
        assert task.beaten.wait(5)
    assert {"progress": 1, "total": 2, "message": "half"} in task.renewed
    assert task.renewed.count({"progress": 1, "total": 2, "message": "half"}) == 1


def test_work_is_stopped_whose_task_is_no_longer_the_workers() -> None:
    task = Stored(has_it=False)
    assert stopped_by(task)
    assert task.ends == []


def test_work_is_stopped_that_its_caller_may_no_longer_do() -> None:
    task = Stored()
    assert stopped_by(task, "No longer.")
    assert task.ends == ["No longer."]


def test_work_is_stopped_that_takes_too_long() -> None:
    task = Stored(timeout=0)
    assert stopped_by(task)
    assert task.ends == ["late"]


def test_a_database_that_does_not_answer_stops_no_work(monkeypatch: Any) -> None:
    task = Stored()

    def fail(**columns: Any) -> bool:
        task.beaten.set()
        raise DatabaseError("locked")

    monkeypatch.setattr(task, "renew", fail)
    stopped = threading.Event()
    with Heartbeat(task, str, stopped.set):  # type: ignore[arg-type]
        assert task.beaten.wait(5)
        assert not stopped.wait(0.1)


def test_work_whose_end_is_being_stored_is_not_stopped() -> None:
    task = Stored()
    stopped = threading.Event()
    heartbeat: Any = None

    def renew(**columns: Any) -> bool:
        # The end is stored while this sign of life waits for the row.
        heartbeat.rest()
        task.beaten.set()
        return False

    task.renew = renew  # type: ignore[method-assign]
    heartbeat = Heartbeat(task, str, stopped.set)  # type: ignore[arg-type]
    with heartbeat:
        assert task.beaten.wait(5)
        assert not stopped.wait(0.1)


def test_a_caller_that_cannot_be_asked_about_stops_no_work(caplog: Any) -> None:
    task = Stored()

    def fail() -> str:
        task.asked += 1
        raise KeyError("a backend of the project")

    task.asked = 0  # type: ignore[attr-defined]
    stopped = threading.Event()
    with Heartbeat(task, fail, stopped.set):  # type: ignore[arg-type]
        while task.asked < 3:  # type: ignore[attr-defined]
            assert not stopped.wait(0.01)
    assert "could not be asked" in caplog.text


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400, "half", None])
def test_progress_that_no_database_stores_does_not_end_the_sign_of_life(number: Any) -> None:
    task: Any = Stored()
    with Heartbeat(task, str, lambda: None) as heartbeat:
        heartbeat.tell(number, number, "half")
        for _ in range(3):
            task.beaten.clear()
            assert task.beaten.wait(5)
    assert {"progress": None, "total": None, "message": "half"} in task.renewed

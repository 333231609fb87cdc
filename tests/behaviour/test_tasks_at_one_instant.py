"""What happens to one task at the same instant: of several workers, clients and ends one wins, and nobody waits."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections, transaction

from mcp_django.models import Task
from mcp_django.tasks.stored_tasks import StoredTask
from tests.configured import configured
from tests.task_calls import make_task, row_of

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="threads share a database in memory"),
]

MANY = 20
TIMES = 10
DONE = {"result": {"content": []}}
PATIENCE = 30


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    with configured(TASK_BACKEND="tests.task_calls.put_aside"):
        yield


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Do things at the same instant, each by a connection of its own, and return what they give."""
    ready = threading.Barrier(len(acts))
    given: dict[int, Any] = {}

    def do(number: int, act: Callable[[], Any]) -> None:
        try:
            connection.ensure_connection()
            ready.wait(PATIENCE)
            given[number] = act()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=do, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(given) == len(acts), "one of them has failed"
    return [given[number] for number in range(len(acts))]


def claimed(**columns: Any) -> StoredTask:
    task = StoredTask.claim(make_task(**columns).row.pk)
    assert task is not None
    return task


def test_of_many_workers_that_claim_at_once_one_has_the_task() -> None:
    task_id = make_task().row.pk
    found = at_once(*[lambda: StoredTask.claim(task_id)] * MANY)
    assert len([task for task in found if task is not None]) == 1
    assert row_of(task_id).attempt == 1


def test_cancelling_and_the_end_of_the_work_at_once_agree_on_one() -> None:
    for _ in range(TIMES):
        task = claimed()
        wins = at_once(partial(task.cancel, "why"), partial(task.finish, DONE))
        assert sorted(wins) == [False, True]
        assert row_of(task.row.pk).state == ("cancelled" if wins[0] else "completed")


def test_a_lost_lease_that_many_polls_find_at_once_is_handed_on_once(monkeypatch: Any) -> None:
    handed: list[str] = []
    monkeypatch.setattr(StoredTask, "hand_on", lambda task: handed.append(task.row.pk))
    task = claimed(atomic=True)
    Task.objects.update(lease=1)
    handed.clear()

    def poll() -> str:
        found = StoredTask.find(StoredTask.by_id(task.row.pk))
        assert found is not None
        return found.look_after().row.state

    assert at_once(*[poll] * MANY) == ["working"] * MANY
    assert handed == [task.row.pk]
    assert row_of(task.row.pk).lapses == 1


def test_a_sign_of_life_and_a_poll_at_once_leave_the_task_to_its_worker_or_not() -> None:
    for _ in range(TIMES):
        task = claimed()
        Task.objects.filter(pk=task.row.pk).update(lease=1)
        found = StoredTask.find(StoredTask.by_id(task.row.pk))
        assert found is not None
        has_it, after = at_once(task.renew, found.look_after)
        assert after.row.state == ("working" if has_it else "failed")
        assert task.finish(DONE) is has_it


def test_answers_of_two_clients_at_once_are_both_taken_and_hand_the_task_on_once(monkeypatch: Any) -> None:
    for _ in range(TIMES):
        handed: list[str] = []
        task = claimed()
        keys = {"a": {"key": "a"}, "b": {"key": "b"}}
        assert task.ask({"questions": keys, "given": {}, "state": None, "used": [*keys]})
        monkeypatch.setattr(StoredTask, "hand_on", lambda task, handed=handed: handed.append(task.row.pk))
        one, two = {"a": {"action": "accept"}}, {"a": {"action": "decline"}, "b": {"action": "accept"}}
        at_once(partial(task.answer, one), partial(task.answer, two))
        row = row_of(task.row.pk)
        assert row.state == "working"
        given = StoredTask(row, 0).asked["given"]
        assert given["b"] == {"action": "accept"}
        assert given["a"] in (one["a"], two["a"])
        assert handed == [task.row.pk]


def test_answers_and_cancelling_at_once_never_bring_a_cancelled_task_back() -> None:
    for _ in range(TIMES):
        task = claimed()
        assert task.ask({"questions": {"a": {"key": "a"}}, "given": {}, "state": None, "used": ["a"]})
        at_once(partial(task.answer, {"a": {"action": "accept"}}), partial(task.cancel, "why"))
        assert row_of(task.row.pk).state == "cancelled"
        assert StoredTask.claim(task.row.pk) is None


def test_calls_with_one_idempotency_key_at_once_are_one_task() -> None:
    found = at_once(*[lambda: make_task(key="k").row.pk] * MANY)
    assert len(set(found)) == 1
    assert Task.objects.count() == 1


def test_no_poll_waits_for_a_worker_that_stores_the_end_of_its_task() -> None:
    task = claimed(atomic=True)
    Task.objects.update(lease=1)
    is_ending, may_end = threading.Event(), threading.Event()

    def end() -> None:
        with transaction.atomic():
            task.finish(DONE)
            is_ending.set()
            may_end.wait(PATIENCE)

    def poll() -> Any:
        is_ending.wait(PATIENCE)
        began = time.monotonic()
        try:
            found = StoredTask.find(StoredTask.by_id(task.row.pk))
            assert found is not None
            return found.look_after().row.state, found.cancel("why"), time.monotonic() - began
        finally:
            may_end.set()

    _, (state, is_cancelled, seconds) = at_once(end, poll)
    assert (state, is_cancelled) == ("working", False)
    assert seconds < 5
    assert row_of(task.row.pk).state == "completed"

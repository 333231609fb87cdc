"""Tasks as they are stored: of several changes at a time one wins."""

from typing import Any

import pytest
from django.db import connection

from mcp_django.models import Task
from mcp_django.tasks.stored_tasks import MAX_LAPSES, StoredTask
from tests.task_calls import later, make_task, row_of

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided, pytest.mark.django_db]

DONE = {"result": {"content": []}}


def claimed(**columns: Any) -> StoredTask:
    task = StoredTask.claim(make_task(**columns).row.pk)
    assert task is not None
    return task


def looked_after(task: StoredTask) -> StoredTask:
    found = StoredTask.find(StoredTask.by_id(task.row.pk))
    assert found is not None
    return found.look_after()


def test_a_task_is_claimed_once() -> None:
    task = make_task()
    assert StoredTask.claim(task.row.pk) is not None
    assert StoredTask.claim(task.row.pk) is None
    assert row_of(task.row.pk).attempt == 1


def test_a_worker_that_was_frozen_while_it_claimed_does_not_take_the_attempt_of_the_next_one() -> None:
    task_id = make_task(atomic=True).row.pk

    def freeze(execute: Any, sql: str, *rest: Any) -> Any:
        given = execute(sql, *rest)
        if sql.startswith("UPDATE"):
            # Meanwhile its lease has ended, and another worker has the task.
            with connection.cursor() as cursor:
                cursor.cursor.execute("UPDATE mcp_django_task SET attempt = 2")
        return given

    with connection.execute_wrapper(freeze):
        late = StoredTask.claim(task_id)
    assert late is not None
    assert row_of(task_id).attempt == 2
    assert not late.finish(DONE)


def test_what_nobody_takes_is_handed_on_ever_more_rarely(monkeypatch: Any) -> None:
    handed: list[str] = []
    task_id = make_task().row.pk
    monkeypatch.setattr(StoredTask, "hand_on", lambda task: handed.append(task.row.pk))
    row = row_of(task_id)
    minutes = []
    for second in range(0, 3_600, 5):
        polled = StoredTask(row_of(task_id), row.created + second * 1_000)
        before = len(handed)
        polled.look_after()
        if len(handed) > before:
            Task.objects.update(handed=polled.now)
            minutes.append(second)
    assert minutes[:6] == [10, 20, 40, 80, 160, 320]
    assert minutes[-1] - minutes[-2] == 300


def test_the_lease_is_renewed_by_the_clock_of_the_database() -> None:
    task = claimed()
    later(task.row.pk, lease=14_000)
    before = row_of(task.row.pk).lease
    assert task.renew()
    assert (row_of(task.row.pk).lease or 0) > (before or 0) + 10_000


def test_a_worker_that_lost_its_task_can_neither_renew_nor_end_it() -> None:
    task = claimed()
    Task.objects.filter(pk=task.row.pk).update(attempt=2)
    assert not task.renew()
    assert not task.finish(DONE)
    assert not task.ask({"questions": {}})
    assert not task.stop_late()
    assert row_of(task.row.pk).state == "working"


def test_of_the_end_and_cancelling_one_wins() -> None:
    task = claimed()
    assert task.cancel("why")
    assert not task.finish(DONE)
    ended = claimed()
    assert ended.finish(DONE)
    assert not ended.cancel("why")


def test_what_an_ended_task_was_asked_for_is_forgotten() -> None:
    task = claimed()
    task.finish(DONE)
    row = row_of(task.row.pk)
    assert not row.kept
    assert b"content" not in bytes(row.result)
    assert StoredTask(row, 0).result == DONE


def test_work_that_leaves_nothing_behind_is_begun_anew_after_its_worker_was_lost() -> None:
    task = make_task(atomic=True)
    for lapse in range(1, MAX_LAPSES + 1):
        assert StoredTask.claim(task.row.pk) is not None
        later(task.row.pk, lease=20_000)
        assert looked_after(task).row.state == "working"
        row = row_of(task.row.pk)
        assert (row.lapses, row.lease) == (lapse, None)
    assert StoredTask.claim(task.row.pk) is not None
    later(task.row.pk, lease=20_000)
    assert looked_after(task).row.state == "failed"
    assert "Nothing was changed" in row_of(task.row.pk).outcome


def test_other_work_is_not_begun_anew() -> None:
    task = claimed()
    later(task.row.pk, lease=20_000)
    assert looked_after(task).row.state == "failed"
    assert StoredTask.claim(task.row.pk) is None
    assert "may have been done" in row_of(task.row.pk).outcome


def test_a_lease_that_has_not_ended_is_left_alone() -> None:
    task = claimed()
    later(task.row.pk, lease=10_000)
    assert looked_after(task).row.state == "working"


def test_answers_are_taken_in_parts_and_keys_that_nobody_asked_are_ignored() -> None:
    task = claimed()
    asked = {"questions": {"a": {"key": "a"}, "b": {"key": "b"}}, "given": {}, "state": None, "used": ["a", "b"]}
    assert task.ask(asked)
    task.answer({"a": {"action": "accept"}, "z": {"action": "accept"}})
    row = row_of(task.row.pk)
    assert row.state == "input_required"
    assert list(StoredTask(row, 0).asked["questions"]) == ["b"]
    task.answer({"a": {"action": "decline"}, "b": {"action": "cancel"}})
    row = row_of(task.row.pk)
    assert (row.state, row.lease) == ("working", None)
    assert StoredTask(row, 0).asked["given"] == {"a": {"action": "accept"}, "b": {"action": "cancel"}}


def test_a_task_that_has_expired_is_not_found_and_deleted_daily() -> None:
    task = make_task()
    kept = make_task()
    later(task.row.pk, expires=25 * 3600 * 1000)
    assert StoredTask.find(StoredTask.by_id(task.row.pk)) is None
    assert StoredTask.claim(task.row.pk) is None
    assert StoredTask.clear_expired() == 1
    assert list(Task.objects.values_list("pk", flat=True)) == [kept.row.pk]


@pytest.mark.parametrize("atomic", [False, True])
def test_the_daily_command_ends_what_nobody_asks_for(atomic: bool) -> None:
    task = claimed(atomic=atomic)
    later(task.row.pk, lease=20_000)
    StoredTask.clear_expired()
    assert row_of(task.row.pk).state == "failed"


def test_contents_of_one_task_are_not_those_of_another() -> None:
    one, two = make_task(), make_task()
    Task.objects.filter(pk=two.row.pk).update(kept=row_of(one.row.pk).kept)
    assert StoredTask(row_of(two.row.pk), 0).kept is None


def test_texts_are_cut_to_their_columns() -> None:
    task = claimed(tool="x" * 500)
    assert task.renew(message="m" * 500)
    assert len(row_of(task.row.pk).message) == 200


@pytest.mark.parametrize(("age", "expected"), [(0, 1_000), (30_000, 3_000), (3_600_000, 30_000)])
def test_polls_become_rarer(age: int, expected: int) -> None:
    row = make_task().row
    assert StoredTask(row, row.created + age).poll_interval == expected

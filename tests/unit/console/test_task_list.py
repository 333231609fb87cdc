"""Operators see how each task stands by the clock of the database, and those that need a look come first."""

from typing import Any

import pytest

from mcp_django.console.task_list import LISTS, SeenTask, TaskList, count_open, tasks
from mcp_django.models import Task
from tests.making_tasks import HOUR, MINUTE, SECOND, ended, make_task, running

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


def seen(task: Task) -> SeenTask:
    return SeenTask(tasks().get(pk=task.pk))


def ids(**given: str) -> list[str]:
    return [row.pk for row in TaskList(given).rows()]


def test_each_list_has_its_tasks() -> None:
    made = {
        "waiting": make_task(),
        "late": make_task(30 * SECOND),
        "very late": make_task(2 * MINUTE),
        "running": running(MINUTE),
        "slow": running(31 * MINUTE),
        "lost": running(MINUTE, lease=-SECOND),
        "asking": make_task(state="input_required"),
        "completed": ended("completed"),
        "failed": ended("failed"),
        "cancelled": ended("cancelled"),
    }
    expected = {
        "open": ["waiting", "asking", "late", "running", "lost", "very late", "slow"],
        "waiting": ["very late", "late", "waiting"],
        "late": ["very late", "late"],
        "running": ["slow", "running"],
        "slow": ["slow"],
        "lost": ["lost"],
        "asking": ["asking"],
        "completed": ["completed"],
        "failed": ["failed"],
        "cancelled": ["cancelled"],
    }
    names = {task.pk: name for name, task in made.items()}
    for name, wanted in expected.items():
        assert sorted(names[key] for key in ids(list=name)) == sorted(wanted)
        if name != "open":
            assert [names[key] for key in ids(list=name)] == wanted
    counts = TaskList({}).counts
    assert counts == {**{name: len(wanted) for name, wanted in expected.items()}, "all": 10, "very_late": 1}
    assert set(ids(list="all")) == set(names)


def test_a_task_stands_in_words_and_with_a_sign() -> None:
    shown = {
        "waits for a worker": (make_task(), "open"),
        "waits too long for a worker": (make_task(11 * SECOND), "refused"),
        "running": (running(), "open"),
        "runs for a long time": (running(31 * SECOND, timeout=60), "refused"),
        "its worker is gone": (running(lease=-1), "refused"),
        "waits for an answer": (make_task(HOUR, state="input_required"), "open"),
        "completed": (ended("completed"), "ok"),
        "failed": (ended("failed"), "failed"),
        "cancelled": (ended("cancelled"), "open"),
    }
    for word, (task, group) in shown.items():
        assert (seen(task).word, seen(task).group) == (word, group)


def test_a_wait_begins_anew_when_a_task_waits_again() -> None:
    again = make_task(HOUR, updated=-2 * SECOND, handed=-2 * SECOND, attempt=1)
    handed_on_by_polls = make_task(HOUR, handed=-SECOND)
    assert ids(list="late") == [handed_on_by_polls.pk]
    assert not seen(again).needs_look
    assert seen(handed_on_by_polls).length == "1\xa0hour"


def test_it_is_told_how_long_a_task_has_stood_so_or_took() -> None:
    assert seen(running(5 * MINUTE)).length == "5\xa0minutes"
    assert seen(ended("completed", HOUR)).length == "2 s"
    assert seen(make_task(3 * HOUR, state="cancelled", ended=-HOUR)).length == "2\xa0hours"


@pytest.mark.parametrize(
    ("progress", "total", "percent"),
    [(None, None, None), (3, None, None), (3, 0, None), (3, -1, None), (1, 4, 25), (9, 4, 100), (-1, 4, 0)],
)
def test_progress_is_a_part_of_what_is_to_be_done(progress: Any, total: Any, percent: Any) -> None:
    assert seen(running(progress=progress, total=total)).percent == percent


def test_a_list_is_narrowed_to_a_user_a_client_and_what_is_called() -> None:
    ada = make_task()
    bob = make_task(username="bob", client_name="Codex", client_id="codex-1", tool="export", model="", action="")
    for given in ({"user": "bob"}, {"client": "Codex"}, {"client": "codex-1"}, {"tool": "export"}):
        assert ids(**given) == [bob.pk]
        assert TaskList(given).counts["all"] == 1
    for text in ("run_action", "testapp.book", "reprice"):
        assert ids(tool=text) == [ada.pk]
    assert ids(user="ada", client="Codex") == []
    for odd in ("\0", "x" * 5000, "' OR 1=1 --"):
        ids(user=odd)


def test_what_is_open_is_shown_first_and_all_if_nothing_is() -> None:
    done = ended("completed")
    assert TaskList({}).name == "all"
    assert ids() == [done.pk]
    task = make_task()
    assert ids() == [task.pk]
    assert TaskList({"list": "no such list"}).name == "open"


def test_counts_take_one_query(django_assert_num_queries: Any) -> None:
    make_task()
    with django_assert_num_queries(1):
        assert count_open(open=LISTS["open"][1], late=LISTS["late"][1]) == {"open": 1, "late": 0}


def test_what_is_sealed_is_not_read() -> None:
    make_task(kept=b"sealed")
    assert {"kept", "asked", "result"} <= tasks().get().get_deferred_fields()


def test_texts_of_clients_and_tools_are_cleaned() -> None:
    task = seen(running(message="so\u202e far", username="a\nb", client_name="", client_id="\u200bid"))
    sign = "\N{REPLACEMENT CHARACTER}"
    assert (task.message, task.user, task.client) == (f"so{sign} far", f"a{sign}b", f"{sign}id")
    assert seen(make_task(action="")).what == "testapp.book"
    assert seen(make_task()).what == "testapp.book.reprice"

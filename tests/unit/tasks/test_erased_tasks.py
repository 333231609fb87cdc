"""Of a record that is erased, nothing is left in the tasks that name it."""

import json
from typing import Any

import pytest

from mcp_django.context.signing import StoredSeal
from mcp_django.differences.erased_values import Record
from mcp_django.models import Task
from mcp_django.tasks import erased_tasks
from mcp_django.tasks.erased_tasks import TaskErasure
from tests.factories import make_author
from tests.making_tasks import ended, make_task, running
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
LABEL = "testapp.author"


def holding(task: Task, **values: Any) -> Task:
    """Seal values in columns of a task."""
    for name, value in values.items():
        setattr(task, name, StoredSeal("mcp_django.tasks", name, task.pk).seal(json.dumps(value).encode()))
    task.save()
    return task


def erasure(key: Any, *texts: str) -> TaskErasure:
    return TaskErasure(Record(Author, key, texts))


def test_a_task_is_found_by_its_arguments_answers_and_result() -> None:
    key = make_author("Ada").pk
    made = [
        holding(make_task(model=LABEL), kept={"arguments": {"pk": str(key)}}),
        holding(make_task(model=LABEL), kept={"arguments": {"filters": {"id__in": [key, key + 1]}}}),
        holding(make_task(model=LABEL), kept={"answers": {"who": {"pk": key}}}),
        holding(make_task(model="testapp.book"), kept={"arguments": {"values": {"author": key}}}),
        holding(make_task(model=LABEL, state="input_required"), asked={"given": {"a": {"pk": key}}}),
        holding(ended("completed", model=LABEL), result={"result": {"rows": [{"id": key}]}}),
    ]
    others = [
        holding(make_task(model=LABEL), kept={"arguments": {"pk": str(key + 1)}}),
        holding(make_task(model="testapp.tag"), kept={"arguments": {"pk": str(key)}}),
        # What a tool of the project is given may be the key of anything.
        holding(make_task(model=""), kept={"arguments": {"number": key}}),
        ended("completed", model=LABEL),
    ]
    assert list(erasure(key).found()) == [task.pk for task in made]
    assert erasure(key).run() == len(made)
    assert set(Task.objects.all()) == set(others)


def test_a_task_is_found_by_a_text_wherever_it_is() -> None:
    key = make_author("Ada Ibarra").pk
    made = [
        holding(make_task(tool="export", model=""), kept={"arguments": {"name": "of ADA IBARRA"}}),
        running(model="", message="Ada Ibarra, 3 of 4"),
        ended("failed", model="", outcome="There is no ada ibarra."),
        holding(ended("completed", model=""), result={"result": {"Ada Ibarra": 1}}),
    ]
    other = make_task(message="Ada")
    assert erasure(key, "Ada Ibarra").run() == len(made)
    assert Task.objects.get() == other


def test_all_are_looked_through_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erased_tasks, "READ_AT_ONCE", 2)
    for number in range(7):
        make_task(message="Ada" if number % 2 else "Ben")
    assert erasure(1, "Ada").run() == 3


def test_what_no_known_key_opens_is_left() -> None:
    make_task(model=LABEL, kept=b"sealed with a key that is gone", result=b"x")
    assert erasure(make_author("Ada").pk, "Ada").run() == 0

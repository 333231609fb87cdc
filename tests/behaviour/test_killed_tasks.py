"""Processes that are killed or frozen while they make, run or look after a task: its work is done once."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from mcp_django import site, task
from mcp_django.models import Task
from mcp_django.tasks import run_task, stored_tasks
from mcp_django.tasks.stored_tasks import StoredTask
from tests.cases import SOME
from tests.configured import configured
from tests.factories import make_superuser
from tests.killing import frozen_at, killed_at
from tests.task_calls import ASKS, TaskClient, text_of
from tests.testapp.models import Author

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="a killed process leaves a database file in use"),
]
STEP = 7 if SOME else 1
# Seconds that nobody may wait for a process that is frozen.
PATIENCE = 5.0
handed: list[str] = []


def enqueue(task_id: str) -> None:
    """Note what a worker would be given."""
    handed.append(task_id)


def write_down(request: Any, name: str) -> str:
    """Write a name down."""
    Author.objects.create(name=name)
    return f"{name} is written down"


def ask_first(request: Any, name: str) -> str:
    """Write a name down, for a person who says so."""
    if request.mcp.task is not None:
        request.mcp.ask("Really?", bool, key="really")
    return write_down(request, name)


TOOLS = {
    "atomic": (write_down, {"task": task(atomic=True)}),
    "plain": (write_down, {"task": True}),
    "repeatable": (write_down, {"task": True, "idempotent": True}),
    "asking": (ask_first, {"task": task(atomic=True)}),
}


@pytest.fixture(autouse=True)
def tools(monkeypatch: Any) -> Iterator[None]:
    """Tools whose calls become tasks; each lease has ended, and each poll hands on, a millisecond later."""
    monkeypatch.setattr(stored_tasks, "LEASE", 1)
    monkeypatch.setattr(stored_tasks, "HAND_ON_AFTER", 0)
    monkeypatch.setattr(stored_tasks, "LONGEST_HAND_ON", 0)
    for name, (function, options) in TOOLS.items():
        site.add_tool(function, name=name, destructive=False, **options)
    handed.clear()
    with configured(TASK_BACKEND=f"{__name__}.enqueue"):
        yield
    for name in TOOLS:
        site.remove_tool(name)


@pytest.fixture
def client() -> TaskClient:
    return TaskClient(make_superuser(), capabilities=ASKS)


def written(name: str) -> int:
    return Author.objects.filter(name=name).count()


def poll(client: TaskClient, task_id: str) -> dict[str, Any]:
    """How a task stands after its lease has ended; nobody waits for a process that is frozen."""
    time.sleep(0.01)
    handed.clear()
    began = time.monotonic()
    found = client.poll(task_id)
    assert time.monotonic() - began < PATIENCE
    return found


def go_on(client: TaskClient, task_id: str) -> dict[str, Any]:
    """What becomes of a task whose worker is gone: another one takes it, if a poll hands it on."""
    found = poll(client, task_id)
    if handed:
        assert (found["status"], handed) == ("working", [task_id])
        run_task(task_id)
        found = client.poll(task_id)
    return found


def each_statement(act: Callable[[int], bool]) -> int:
    """Do something that is interrupted at one statement after the other, until it is not; return how often it was."""
    for number in range(1, 1_000, STEP):
        if not act(number):
            return number
    raise AssertionError("it never ends")


# A worker


@pytest.mark.parametrize("tool", ["atomic", "plain", "repeatable"])
def test_what_a_killed_worker_had_is_done_once_or_may_have_been_done(tool: str, client: TaskClient) -> None:
    ends = set()

    def kill(number: int) -> bool:
        name = f"name {number}"
        task_id = client.begin(tool, name=name)
        was_killed = killed_at(number, lambda: run_task(task_id))
        found = go_on(client, task_id)
        ends.add(found["status"])
        if tool == "repeatable":
            assert written(name) in (1, 2)
        if tool == "plain" and found["status"] == "failed":
            assert was_killed
            assert "may have been done" in found["error"]["message"]
            run_task(task_id)
            assert written(name) <= 1
        else:
            assert found["status"] == "completed"
            assert text_of(found["result"]) == f"{name} is written down"
            assert written(name) == 1 or tool == "repeatable"
        return was_killed

    assert each_statement(kill) > 10
    assert ends == ({"completed", "failed"} if tool == "plain" else {"completed"})


@pytest.mark.parametrize("tool", ["atomic", "plain"])
def test_a_frozen_worker_that_comes_back_changes_nothing(tool: str, client: TaskClient) -> None:
    def freeze(number: int) -> bool:
        name = f"name {number}"
        task_id = client.begin(tool, name=name)
        with frozen_at(number, lambda: run_task(task_id)) as is_frozen:
            found = go_on(client, task_id)
        after = client.poll(task_id)
        if found["status"] == "working":
            # It was about to store the end of the task, and nobody else could.
            assert is_frozen
        else:
            assert after == found
        if after["status"] == "failed":
            assert tool == "plain"
            assert "may have been done" in after["error"]["message"]
            assert written(name) <= 1
        else:
            assert after["status"] == "completed"
            assert text_of(after["result"]) == f"{name} is written down"
            assert written(name) == 1
        return is_frozen

    assert each_statement(freeze) > 10


def test_a_task_is_cancelled_although_its_worker_is_frozen(client: TaskClient) -> None:
    def freeze(number: int) -> bool:
        name = f"name {number}"
        task_id = client.begin("atomic", name=name)
        with frozen_at(number, lambda: run_task(task_id)) as is_frozen:
            began = time.monotonic()
            client.request("tasks/cancel", taskId=task_id)
            assert time.monotonic() - began < PATIENCE
        found = client.poll(task_id)
        # Who was about to store the end wins.
        assert written(name) == {"cancelled": 0, "completed": 1}[found["status"]]
        return is_frozen

    assert each_statement(freeze) > 10


# A web worker


def test_a_call_whose_web_worker_is_killed_is_one_task_for_who_repeats_it(client: TaskClient) -> None:
    def kill(number: int) -> bool:
        name = f"name {number}"
        arguments = {"name": name, "idempotency_key": name}
        was_killed = killed_at(number, lambda: client.begin("atomic", **arguments))
        task_id = client.begin("atomic", **arguments)
        assert Task.objects.filter(state="working").count() == 1
        assert go_on(client, task_id)["status"] == "completed"
        assert client.begin("atomic", **arguments) == task_id
        assert written(name) == 1
        return was_killed

    assert each_statement(kill) > 10


def test_a_web_worker_that_was_frozen_before_it_handed_a_task_on_comes_too_late(client: TaskClient) -> None:
    """Who looks after the task meanwhile is another web worker."""

    def freeze(number: int) -> bool:
        name = f"name {number}"
        with frozen_at(number, lambda: client.begin("atomic", name=name)) as is_frozen:
            for task_id in Task.objects.filter(state="working").values_list("pk", flat=True):
                assert go_on(client, task_id)["status"] == "completed"
        # It answers with a task in any case, which the worker that it is handed to does not do again.
        for task_id in Task.objects.values_list("pk", flat=True):
            run_task(task_id)
        assert Task.objects.filter(state="completed").count() == number_of_tasks(number)
        assert written(name) == 1
        return is_frozen

    assert each_statement(freeze) > 10


def number_of_tasks(number: int) -> int:
    """How many tasks have been made, one at each statement before this one and at this one."""
    return (number - 1) // STEP + 1


def test_a_poll_that_is_killed_leaves_the_task_to_the_next_one(client: TaskClient) -> None:
    def kill(number: int) -> bool:
        name = f"name {number}"
        task_id = client.begin("atomic", name=name)
        assert StoredTask.claim(task_id) is not None
        was_killed = killed_at(number, lambda: poll(client, task_id))
        assert go_on(client, task_id)["status"] == "completed"
        assert written(name) == 1
        return was_killed

    assert each_statement(kill) > 5


def test_answers_whose_web_worker_is_killed_are_taken_or_not(client: TaskClient) -> None:
    def kill(number: int) -> bool:
        name = f"name {number}"
        task_id = client.begin("asking", name=name)
        run_task(task_id)
        found = client.poll(task_id)
        assert found["status"] == "input_required"
        answers = {key: {"action": "accept", "content": {"really": True}} for key in found["inputRequests"]}
        answer = {"taskId": task_id, "inputResponses": answers}
        was_killed = killed_at(number, lambda: client.request("tasks/update", **answer))
        assert written(name) == 0
        client.request("tasks/update", **answer)
        assert go_on(client, task_id)["status"] == "completed"
        assert written(name) == 1
        return was_killed

    assert each_statement(kill) > 5

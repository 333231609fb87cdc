"""Calls that become tasks, for the caller whose they are."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import task
from mcp_django.models import Task
from mcp_django.signals import call_finished
from mcp_django.tasks import run_task
from mcp_django.tasks.caller_tasks import MAX_OPEN
from mcp_django.tasks.stored_tasks import StoredTask
from mcp_django.testing import MCPError
from tests.confirming import tool_of
from tests.factories import make_superuser
from tests.task_calls import ASKS, TaskClient, WaitingClient, later, row_of, text_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def client(root: Any) -> TaskClient:
    return TaskClient(root)


class Work:
    """A tool that counts how often it ran."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __call__(self, request: Any, label: str = "") -> str:
        self.done.append(label)
        request.mcp.progress(1, 2, "half of it")
        return f"done {label}"


@pytest.fixture
def work() -> Any:
    work = Work()

    def long_work(request: Any, label: str = "") -> str:
        """Work for long."""
        return work(request, label)

    with tool_of(long_work, destructive=False, task=True):
        yield work


def test_a_call_becomes_a_task_and_its_result_comes_by_a_poll(client: TaskClient, work: Work) -> None:
    made = client.request("tools/call", name="long_work", arguments={"label": "a"})
    assert made["resultType"] == "task"
    assert made["status"] == "working"
    assert made["ttlMs"] == 24 * 3600 * 1000
    assert made["pollIntervalMs"] == 1_000
    assert work.done == []
    waiting = client.poll(made["taskId"])
    assert (waiting["resultType"], waiting["status"]) == ("complete", "working")

    run_task(made["taskId"])

    found = client.poll(made["taskId"])
    assert found["status"] == "completed"
    assert text_of(found["result"]) == "done a"
    assert work.done == ["a"]


def test_a_task_is_run_once(client: TaskClient, work: Work) -> None:
    task_id = client.begin("long_work")
    run_task(task_id)
    run_task(task_id)
    assert work.done == [""]


def test_an_id_that_nobody_knows_is_no_task(client: TaskClient) -> None:
    run_task("0" * 32)
    for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}})):
        with pytest.raises(MCPError) as refused:
            client.request(method, taskId="0" * 32, **more)
        assert refused.value.code == -32602


def test_a_cancelled_task_is_not_run(client: TaskClient, work: Work) -> None:
    task_id = client.begin("long_work")
    client.request("tasks/cancel", taskId=task_id)
    run_task(task_id)
    assert client.poll(task_id)["status"] == "cancelled"
    assert work.done == []


def test_the_same_key_gives_the_same_task(client: TaskClient, work: Work) -> None:
    first = client.begin("long_work", label="a", idempotency_key="k")
    assert client.begin("long_work", label="a", idempotency_key="k") == first
    client.end(first)
    assert client.begin("long_work", label="a", idempotency_key="k") == first
    assert work.done == ["a"]
    other = client.call("long_work", label="b", idempotency_key="k")
    assert other.is_error
    assert "other arguments" in other.text


def test_a_caller_has_only_so_many_tasks_at_a_time(client: TaskClient, work: Work) -> None:
    for _ in range(MAX_OPEN):
        last = client.begin("long_work")
    refused = client.call("long_work")
    assert refused.is_error
    assert "have not ended" in refused.text
    client.request("tasks/cancel", taskId=last)
    client.begin("long_work")


def test_a_client_without_tasks_waits_for_the_result(root: Any, work: Work, monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.tasks.stored_tasks.StoredTask.hand_on", lambda self: run_task(self.row.pk))
    assert WaitingClient(root).call("long_work", label="a").text == "done a"


def test_a_client_without_tasks_gets_an_id_to_ask_for(root: Any, work: Work, monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.tasks.caller_tasks.PATIENCE", 0)
    client = WaitingClient(root)
    waiting = client.call("long_work", label="a")
    assert not waiting.is_error
    assert waiting.structured["state"] == "working"
    again = client.call("get_task", task=waiting.structured["task"])
    assert again.structured["state"] == "working"
    run_task(waiting.structured["task"])
    assert client.call("get_task", task=waiting.structured["task"]).text == "done a"


def test_polls_that_bring_nothing_are_not_logged(client: TaskClient, work: Work) -> None:
    silent: list[bool] = []

    def note(record: Any, **kwargs: Any) -> None:
        if record.method == "tasks/get":
            silent.append(record.is_silent)

    call_finished.connect(note)
    try:
        task_id = client.begin("long_work")
        client.poll(task_id)
        client.end(task_id)
    finally:
        call_finished.disconnect(note)
    assert silent == [True, False]


def test_a_poll_costs_one_query_beside_the_check_of_the_token(client: TaskClient, work: Work) -> None:
    task_id = client.begin("long_work")
    client.poll(task_id)
    client.request("prompts/list")
    with CaptureQueriesContext(connection) as pinged:
        client.request("prompts/list")
    with CaptureQueriesContext(connection) as polled:
        client.poll(task_id)
    assert len(polled) <= len(pinged) + 1, [query["sql"] for query in polled]


def test_a_question_before_the_work_is_asked_by_the_call_itself(root: Any) -> None:
    done: list[int] = []

    def wipe(request: Any) -> str:
        """Wipe."""
        done.append(1)
        return "wiped"

    with tool_of(wipe, task=True):
        client = TaskClient(root, capabilities=ASKS, answers={"_confirm": True})
        task_id = client.begin("wipe")
        assert done == []
        assert text_of(client.end(task_id)) == "wiped"
    assert done == [1]


def test_a_question_in_the_middle_is_asked_by_the_task(root: Any) -> None:
    def name_it(request: Any) -> str:
        """Name."""
        name = request.mcp.ask("Which name?", str, key="name")
        return f"named {name}"

    with tool_of(name_it, destructive=False, task=True):
        client = TaskClient(root, capabilities=ASKS)
        task_id = client.begin("name_it")
        run_task(task_id)
        found = client.poll(task_id)
        assert found["status"] == "input_required"
        [(key, question)] = found["inputRequests"].items()
        assert question["params"]["message"] == "Which name?"
        [field] = question["params"]["requestedSchema"]["properties"]
        answers = {key: {"action": "accept", "content": {field: "Ann"}}}
        client.request("tasks/update", taskId=task_id, inputResponses=answers)
        assert client.poll(task_id)["status"] == "working"
        assert text_of(client.end(task_id)) == "named Ann"


def test_what_no_worker_has_taken_is_handed_on_again(client: TaskClient, work: Work, monkeypatch: Any) -> None:
    handed: list[str] = []
    monkeypatch.setattr("mcp_django.tasks.stored_tasks.StoredTask.hand_on", lambda self: handed.append(self.row.pk))
    task_id = client.begin("long_work")
    client.poll(task_id)
    assert handed == [task_id]
    later(task_id, handed=10_000)
    client.poll(task_id)
    client.poll(task_id)
    assert handed == [task_id, task_id]


def test_the_first_poll_after_a_lost_worker_says_so(client: TaskClient, work: Work) -> None:
    task_id = client.begin("long_work")
    assert StoredTask.claim(task_id) is not None
    assert client.poll(task_id)["status"] == "working"
    later(task_id, lease=20_000)
    found = client.poll(task_id)
    assert found["status"] == "failed"
    assert "may have been done" in found["error"]["message"]
    run_task(task_id)
    assert work.done == []


def test_a_worker_that_comes_back_late_changes_nothing(root: Any) -> None:
    def rename(request: Any) -> str:
        """Rename."""
        later_id = request.mcp.task.task.row.pk
        Task.objects.filter(pk=later_id).update(attempt=7)
        make_superuser("late")
        return "renamed"

    with tool_of(rename, destructive=False, task=task(atomic=True)):
        client = TaskClient(root)
        task_id = client.begin("rename")
        run_task(task_id)
        assert client.poll(task_id)["status"] == "working"
    assert not get_user_model().objects.filter(username="late").exists()


def test_a_result_is_not_shown_once_the_permission_is_lost(root: Any, work: Work) -> None:
    client = TaskClient(root)
    task_id = client.begin("long_work", label="a")
    client.end(task_id)
    root.is_superuser = False
    root.save()
    found = client.poll(task_id)
    assert found["result"]["isError"]
    assert "done a" not in str(found)


def test_others_have_no_part_in_a_task(client: TaskClient, work: Work) -> None:
    task_id = client.begin("long_work")
    other = TaskClient(make_superuser("other"))
    for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}})):
        with pytest.raises(MCPError) as refused:
            other.request(method, taskId=task_id, **more)
        assert refused.value.code == -32602
    assert row_of(task_id).state == "working"

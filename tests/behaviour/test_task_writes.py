"""Writes of many rows that go on as tasks: confirmed before, made once, with what is there by then."""

from typing import Any

import pytest

from mcp_django.models import Change
from mcp_django.tasks import run_task
from mcp_django.testing import MCPClient
from tests.approval_rules import make_rule
from tests.factories import make_author, make_superuser
from tests.task_calls import ASKS, TaskClient, text_of
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

ALL = {"model": "testapp.author", "filters": {"name__startswith": "A"}}
RENAME = {**ALL, "values": {"name": "Bob"}}


@pytest.fixture(autouse=True)
def from_two_rows(settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "TASK_ROWS": 1}


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def authors() -> list[Any]:
    return [make_author(f"Ann {number}") for number in range(3)]


def names() -> list[str]:
    return sorted(Author.objects.values_list("name", flat=True))


def test_a_confirmed_write_of_many_rows_becomes_a_task(root: Any, authors: list[Any]) -> None:
    client = TaskClient(root, capabilities=ASKS, answers={"_confirm": True})
    task_id = client.begin("update_record", **RENAME)
    assert names() == ["Ann 0", "Ann 1", "Ann 2"]
    result = client.end(task_id)
    assert names() == ["Bob"] * 3
    change = Change.objects.get()
    assert result["structuredContent"]["change"] == change.pk
    client.answers = None
    client.request("tools/call", name="undo_change", arguments={"change": change.pk})


def test_a_token_confirms_a_write_that_becomes_a_task(root: Any, authors: list[Any]) -> None:
    client = TaskClient(root)
    asked = client.call("update_record", **RENAME)
    token = asked.structured["confirm_token"]
    task_id = client.begin("update_record", **RENAME, confirm_token=token)
    client.end(task_id)
    assert names() == ["Bob"] * 3
    again = client.call("update_record", **RENAME, confirm_token=token)
    assert again.is_error


def test_rows_that_changed_since_are_asked_about_anew(root: Any, authors: list[Any]) -> None:
    client = TaskClient(root, capabilities=ASKS, answers={"_confirm": True})
    task_id = client.begin("update_record", **RENAME)
    make_author("Ann 3")
    run_task(task_id)
    found = client.poll(task_id)
    assert found["status"] == "input_required"
    assert names() == ["Ann 0", "Ann 1", "Ann 2", "Ann 3"]
    [key] = found["inputRequests"]
    answer = {"action": "accept", "content": {"_confirm": "yes"}}
    client.request("tasks/update", taskId=task_id, inputResponses={key: answer})
    client.end(task_id)
    assert names() == ["Bob"] * 4


def test_rows_that_changed_since_are_not_written_by_a_token(root: Any, authors: list[Any]) -> None:
    client = TaskClient(root)
    token = client.call("delete_record", **ALL).structured["confirm_token"]
    task_id = client.begin("delete_record", **ALL, confirm_token=token)
    make_author("Ann 3")
    result = client.end(task_id)
    assert result["isError"]
    assert len(names()) == 4


def test_a_client_without_tasks_has_the_write_made_in_its_request(root: Any, authors: list[Any]) -> None:
    client = MCPClient(root)
    token = client.call("update_record", **RENAME).structured["confirm_token"]
    assert not client.call("update_record", **RENAME, confirm_token=token).is_error
    assert names() == ["Bob"] * 3


def test_a_write_of_few_rows_is_no_task(root: Any, authors: list[Any], settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "TASK_ROWS": 3}
    client = TaskClient(root, capabilities=ASKS, answers={"_confirm": True})
    assert not client.call("update_record", **RENAME).is_error
    assert names() == ["Bob"] * 3


def test_a_dry_run_is_no_task(root: Any, authors: list[Any]) -> None:
    tried = TaskClient(root).call("update_record", **RENAME, dry_run=True)
    assert tried.structured["dry_run"] is True


def test_a_rule_that_applies_by_then_holds_the_write(root: Any, authors: list[Any]) -> None:
    client = TaskClient(root, capabilities=ASKS, answers={"_confirm": True})
    task_id = client.begin("update_record", **RENAME)
    make_rule(labels=["testapp.author"], effect="block")
    result = client.end(task_id)
    assert result["isError"], text_of(result)
    assert names() == ["Ann 0", "Ann 1", "Ann 2"]

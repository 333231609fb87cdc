"""One run of a task: with the rights of that moment, and in one transaction with its end."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError
from django.urls import get_script_prefix
from django.utils import timezone
from oauth2_provider.models import get_access_token_model

from mcp_django import ToolError, task
from mcp_django.models import Task
from mcp_django.operating.switches import set_switch
from mcp_django.tasks import run_task
from tests.confirming import tool_of
from tests.factories import make_superuser
from tests.task_calls import TaskClient, row_of, text_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def client(root: Any) -> TaskClient:
    return TaskClient(root)


@pytest.fixture
def done() -> Any:
    done: list[Any] = []

    def note(request: Any) -> str:
        """Note."""
        done.append(request)
        return "noted"

    with tool_of(note, destructive=False, task=True):
        yield done


def test_the_call_is_made_as_its_caller_made_it(client: TaskClient, done: list[Any]) -> None:
    client.end(client.begin("note"))
    [request] = done
    assert request.user.username == "root"
    assert request.path == "/mcp"
    assert request.get_host() == "testserver"
    assert request.mcp.client.name == "mcp_django.testing"
    assert get_script_prefix() == "/"


def test_a_user_who_is_no_longer_active_has_nothing_done(client: TaskClient, root: Any, done: list[Any]) -> None:
    task_id = client.begin("note")
    get_user_model().objects.update(is_active=False)
    run_task(task_id)
    assert done == []
    assert row_of(task_id).state == "completed"


def test_a_grant_that_was_given_back_ends_the_task(client: TaskClient, done: list[Any]) -> None:
    task_id = client.begin("note")
    get_access_token_model().objects.all().delete()
    run_task(task_id)
    assert done == []


def test_a_permission_that_was_lost_ends_the_task(
    client: TaskClient, root: Any, done: list[Any], settings: Any
) -> None:
    task_id = client.begin("note")
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    run_task(task_id)
    assert done == []


def test_a_switch_ends_the_task(client: TaskClient, done: list[Any]) -> None:
    task_id = client.begin("note")
    set_switch("tool", "note")
    run_task(task_id)
    assert done == []


def test_an_error_that_the_model_can_act_on_is_the_result(client: TaskClient) -> None:
    def refuse(request: Any) -> str:
        """Refuse."""
        raise ToolError("Not today.")

    with tool_of(refuse, destructive=False, task=True):
        result = client.end(client.begin("refuse"))
    assert result["isError"]
    assert text_of(result) == "Not today."


def test_an_error_of_the_project_is_a_result_with_an_id(client: TaskClient) -> None:
    def fail(request: Any) -> str:
        """Fail."""
        raise IntegrityError("secret")

    with tool_of(fail, destructive=False, task=True):
        result = client.end(client.begin("fail"))
    assert result["isError"]
    assert "secret" not in str(result)


def test_atomic_work_is_undone_where_it_fails(client: TaskClient) -> None:
    def half(request: Any) -> str:
        """Do half."""
        make_superuser("half")
        raise ToolError("Not the other half.")

    with tool_of(half, destructive=False, task=task(atomic=True)):
        client.end(client.begin("half"))
    assert not get_user_model().objects.filter(username="half").exists()


def test_an_async_tool_runs_as_a_task(client: TaskClient) -> None:
    async def slowly(request: Any) -> str:
        """Work."""
        return "done"

    with tool_of(slowly, destructive=False, task=True):
        assert text_of(client.end(client.begin("slowly"))) == "done"


def test_the_end_of_a_token_does_not_end_the_task(client: TaskClient, done: list[Any]) -> None:
    task_id = client.begin("note")
    get_access_token_model().objects.update(expires=timezone.now() - timedelta(hours=1))
    run_task(task_id)
    assert len(done) == 1
    assert Task.objects.get().state == "completed"


@pytest.mark.parametrize("hours", [2, -2])
def test_what_was_confirmed_holds_in_a_worker_whose_clock_is_wrong(
    hours: int, client: TaskClient, monkeypatch: Any
) -> None:
    def wipe(request: Any) -> str:
        """Wipe."""
        return "wiped"

    with tool_of(wipe, task=True):
        asked = client.call("wipe").structured
        assert asked is not None
        task_id = client.begin("wipe", confirm_token=asked["confirm_token"])
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + hours * 3600)
        run_task(task_id)
        monkeypatch.undo()
        assert text_of(client.poll(task_id)["result"]) == "wiped"

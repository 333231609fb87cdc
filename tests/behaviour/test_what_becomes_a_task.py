"""What becomes a task, from the call to its result: actions and writes of many rows, in their worker."""

from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import include, path

import mcp_django as mcp
from mcp_django import MCPSite
from mcp_django.models import Change, Task
from mcp_django.tasks import run_task
from tests.configured import configure
from tests.factories import make_author, make_superuser
from tests.question_rounds import accept
from tests.task_calls import ASKS, TaskClient, WaitingClient, row_of
from tests.testapp.models import Author

PAGE = """<form method="post">{% for row in rows %}<input type="hidden" name="_selected_action" value="{{ row.pk }}">
{% endfor %}{{ form.as_p }}<input type="hidden" name="action" value="rename">
<input type="submit" name="apply" value="Rename"></form>"""


class NameForm(forms.Form):
    name = forms.CharField()


class AuthorAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    actions = ("shout", "remove", "rename", "half")
    exclude = ("agent",)

    def shout(self, request: HttpRequest, queryset: Any) -> None:
        for author in queryset:
            author.name = author.name.upper()
            author.save()
        self.message_user(request, "Shouted.")

    def remove(self, request: HttpRequest, queryset: Any) -> None:
        queryset.delete()

    def rename(self, request: HttpRequest, queryset: Any) -> TemplateResponse | None:
        form = NameForm(request.POST if "apply" in request.POST else None)
        if form.is_valid():
            queryset.update(name=form.cleaned_data["name"])
            return None
        context = {"form": form, "rows": queryset}
        return TemplateResponse(request, engines["django"].from_string(PAGE), context)

    def half(self, request: HttpRequest, queryset: Any) -> None:
        queryset.update(name="half")
        raise mcp.ToolError("No more.")

    shout.mcp_task = rename.mcp_task = remove.mcp_task = half.mcp_task = True  # type: ignore[attr-defined]
    shout.mcp_dry_run = True  # type: ignore[attr-defined]
    rename.mcp_form = NameForm  # type: ignore[attr-defined]
    remove.mcp_destructive = half.mcp_destructive = False  # type: ignore[attr-defined]


admin_site = admin.AdminSite(name="admin")
admin_site.register(Author, AuthorAdmin)
own_site = MCPSite("own", admin_site=admin_site)
urlpatterns = [path("mcp", own_site.urls), path("", include("mcp_django.oauth.urls"))]

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.urls(__name__)]


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def client(root: Any) -> TaskClient:
    return TaskClient(root)


@pytest.fixture
def three_rows(settings: Any) -> None:
    configure(settings, TASK_ROWS=3)


def authors(count: int) -> list[int]:
    return [make_author(f"a{number}").pk for number in range(1, count + 1)]


def names() -> list[str]:
    return list(Author.objects.order_by("pk").values_list("name", flat=True))


def confirmed(client: TaskClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call that asks first, with the token that confirms it."""
    shown = client.call(tool, **arguments)
    assert not Task.objects.exists()
    return {**arguments, "confirm_token": shown.structured["confirm_token"]}


def test_an_action_runs_as_a_task_once_it_is_confirmed(client: TaskClient) -> None:
    arguments = confirmed(client, "shout_testapp_author", pks=authors(2))
    task_id = client.begin("shout_testapp_author", **arguments)
    assert names() == ["a1", "a2"]
    assert row_of(task_id).atomic
    result = client.end(task_id)["structuredContent"]
    assert names() == ["A1", "A2"]
    assert result["done"]
    assert [message["text"] for message in result["messages"]] == ["Shouted."]
    assert LogEntry.objects.count() == 2
    assert client.call("undo_change", change=result["change"]).structured["undone"]
    assert names() == ["a1", "a2"]


def test_an_action_does_not_run_on_rows_that_were_changed_before_its_worker_came(client: TaskClient) -> None:
    arguments = confirmed(client, "shout_testapp_author", pks=authors(2))
    task_id = client.begin("shout_testapp_author", **arguments)
    Author.objects.filter(name="a1").update(name="other")
    result = client.end(task_id)
    assert result["isError"]
    assert names() == ["other", "a2"]


def test_the_page_of_an_action_is_asked_before_its_call_becomes_a_task(client: TaskClient) -> None:
    pks = authors(2)
    asked = client.call("rename_testapp_author", pks=pks).structured
    assert "name" in asked["form"]["properties"]
    assert not Task.objects.exists()
    answered = {"pks": pks, "form": {"name": "Bea"}, "confirm_token": asked["confirm_token"]}
    task_id = client.begin("rename_testapp_author", **answered)
    assert names() == ["a1", "a2"]
    client.end(task_id)
    assert names() == ["Bea", "Bea"]


def test_the_page_of_an_action_is_shown_to_the_user_before_its_call_becomes_a_task(root: Any) -> None:
    client = TaskClient(root, capabilities=ASKS)
    call = {"name": "rename_testapp_author", "arguments": {"pks": authors(2)}}
    asked = client.request("tools/call", **call)
    assert asked["resultType"] == "input_required"
    [key] = asked["inputRequests"]
    answers = {key: accept(name="Bea", _confirm="yes")}
    made = client.request("tools/call", **call, inputResponses=answers, requestState=asked["requestState"])
    assert made["resultType"] == "task"
    client.end(made["taskId"])
    assert names() == ["Bea", "Bea"]


def test_what_an_action_did_is_undone_if_it_fails(client: TaskClient) -> None:
    result = client.end(client.begin("run_action", model="testapp.author", action="half", pks=authors(2)))
    assert result["isError"]
    assert names() == ["a1", "a2"]


@pytest.mark.parametrize("kind", [TaskClient, WaitingClient])
def test_a_repeated_call_finds_its_task_also_where_its_rows_are_gone(root: Any, kind: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.tasks.caller_tasks.PATIENCE", 0)
    client = kind(root)
    arguments = {"model": "testapp.author", "action": "remove", "pks": authors(2), "idempotency_key": "k"}
    client.request("tools/call", name="run_action", arguments=arguments)
    run_task(Task.objects.get().pk)
    assert names() == []
    again = client.call("run_action", **arguments)
    assert not again.is_error
    assert again.structured["done"]
    assert Task.objects.count() == 1


def test_the_update_of_many_rows_is_a_task(client: TaskClient, three_rows: None) -> None:
    given = {"model": "testapp.author", "pks": authors(4), "values": {"name": "one"}}
    task_id = client.begin("update_record", **confirmed(client, "update_record", **given))
    assert names() == ["a1", "a2", "a3", "a4"]
    result = client.end(task_id)["structuredContent"]
    assert names() == ["one"] * 4
    assert result["changed_rows"] == 4
    assert Change.objects.get().pk == result["change"]


def test_the_deletion_of_many_rows_is_a_task(client: TaskClient, three_rows: None) -> None:
    authors(4)
    arguments = confirmed(client, "delete_record", model="testapp.author", filters={"name__startswith": "a"})
    task_id = client.begin("delete_record", **arguments)
    assert len(names()) == 4
    assert client.end(task_id)["structuredContent"]["deleted"]
    assert names() == []


def test_rows_with_values_of_their_own_are_a_task(client: TaskClient, three_rows: None) -> None:
    rows = [{"pk": pk, "name": f"b{pk}"} for pk in authors(4)]
    client.end(client.begin("update_record", model="testapp.author", rows=rows))
    assert names() == [row["name"] for row in rows]


def test_a_write_of_few_rows_is_answered_at_once(client: TaskClient, three_rows: None) -> None:
    given = {"model": "testapp.author", "pks": authors(3), "values": {"name": "one"}}
    assert client.call("update_record", **confirmed(client, "update_record", **given)).structured["updated"]
    assert not Task.objects.exists()


def test_clients_that_take_no_tasks_write_many_rows_at_once(root: Any, three_rows: None) -> None:
    client = WaitingClient(root)
    given = {"model": "testapp.author", "pks": authors(4), "values": {"name": "one"}}
    shown = client.call("update_record", **given).structured
    assert client.call("update_record", **given, confirm_token=shown["confirm_token"]).structured["updated"]
    assert not Task.objects.exists()


def test_no_write_is_a_task_where_the_setting_says_so(client: TaskClient, settings: Any) -> None:
    configure(settings, TASK_ROWS=None)
    rows = [{"pk": pk, "name": f"b{pk}"} for pk in authors(4)]
    assert client.call("update_record", model="testapp.author", rows=rows).structured["updated"]
    assert not Task.objects.exists()

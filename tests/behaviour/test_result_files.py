"""Results that are too long to be sent become files of their caller alone, as long as the caller could call again."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.files.storage import InMemoryStorage
from django.utils import timezone

from mcp_django import Image, MCPSite, ModelExposure, ToolResult, action, task
from mcp_django.exceptions import CallRefused, NotFound
from mcp_django.exports.kept_exports import KeptExport
from mcp_django.exports.result_files import HOW
from mcp_django.models import Export
from mcp_django.operating.switches import set_switch
from mcp_django.protocol.content import ResourceLink, Text
from mcp_django.tasks import run_task
from mcp_django.tasks.stored_tasks import StoredTask
from mcp_django.testing import MCPClient, MCPError
from mcp_django.tools.function_tools import FunctionTool
from tests.configured import configured
from tests.confirming import path_of, signed_in, tool_of
from tests.exporting import with_storage
from tests.factories import make_superuser, make_user
from tests.task_calls import TaskClient
from tests.testapp.models import Tag
from tests.tool_calls import refusal, request_of, result_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

LINES = [f"line {number}" for number in range(10_000)]
WHOLE = "\n".join(LINES)


@pytest.fixture
def storage(settings: Any) -> Any:
    return with_storage(settings)


@pytest.fixture
def reader() -> User:
    return make_user("reader", "testapp.view_tag", "testapp.view_book")


def tell(request: Any) -> str:
    """Tell a lot."""
    return WHOLE


@pytest.fixture
def long_tool() -> Iterator[None]:
    with tool_of(tell, read_only=True, permissions=["testapp.view_tag"]):
        yield


def told_to(user: Any, **options: Any) -> dict[str, Any]:
    """Call the tool as a user, and return what is said of the file."""
    result = MCPClient(user, **options).call("tell")
    assert not result.is_error, result.text
    told: dict[str, Any] = result.structured["result_file"]
    return told


def downloaded(user: Any, told: Any) -> Any:
    return signed_in(user).get(path_of(told["url"]))


def body_of(response: Any) -> str:
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode()


def test_the_caller_gets_the_beginning_and_its_user_all_of_it(storage: Any, long_tool: None, reader: User) -> None:
    client = MCPClient(reader)
    result = client.call("tell")
    told = result.structured["result_file"]
    assert (told["chars"], told["lines"]) == (len(WHOLE), len(LINES))
    assert told["first_lines"].splitlines() == LINES[:20]
    assert len(result.text) < 2_000
    (link,) = (block for block in result.content if block["type"] == "resource_link")
    assert (link["uri"], link["mimeType"]) == (told["uri"], "text/plain")
    assert client.read(told["uri"])[0]["text"] == WHOLE
    response = downloaded(reader, told)
    assert body_of(response) == WHOLE
    assert response["Content-Disposition"] == f'attachment; filename="{told["file"]}"'
    assert told["file"].startswith("tell-")


def test_without_the_storage_the_error_says_how_to_get_the_file(long_tool: None, reader: User) -> None:
    result = MCPClient(reader).call("tell")
    assert result.is_error
    assert result.text.endswith(f"at most 40000 are sent: ask for less.{HOW}")
    assert not Export.objects.exists()


def test_a_task_ends_with_the_file(storage: Any) -> None:
    client = TaskClient(make_superuser())
    with tool_of(tell, destructive=False, task=True):
        result = client.end(client.begin("tell"))
        told = result["structuredContent"]["result_file"]
        assert client.read(told["uri"])[0]["text"] == WHOLE


@pytest.mark.parametrize("is_async", [False, True])
def test_a_structured_result_is_a_file_of_json_and_keeps_its_short_members(storage: Any, is_async: bool) -> None:
    value = {"done": True, "items": LINES, "undo": "by undo_change"}

    def listed(request: Any):  # type: ignore[no-untyped-def]
        """List."""
        return value

    async def listed_async(request: Any) -> str:
        """List."""
        return json.dumps(value, separators=(",", ":"))

    function = listed_async if is_async else listed
    with tool_of(function, read_only=True, name="listed", structured=None if is_async else False):
        told = MCPClient(make_superuser()).call("listed").structured
    assert told["result_file"]["format"] == "txt"
    assert told["result_file"]["first_lines"].startswith('{"done":')

    result = ToolResult(structured=value, content=[Image(b"x" * 50_000)])
    request = request_of(make_superuser("other"), resource="http://testserver/mcp")
    kept = result_of(FunctionTool(lambda request: result, name="listed", read_only=True), request)
    assert kept.structured["done"] is True
    assert kept.structured["undo"] == "by undo_change"
    assert "items" not in kept.structured
    assert kept.structured["result_file"]["format"] == "json"
    assert [type(block) for block in kept.content] == [Image, ResourceLink]
    with KeptExport(Export.objects.get(pk=kept.structured["result_file"]["uri"][7:39])).open() as file:
        assert json.load(file) == value


def test_what_clients_compare_with_a_schema_is_an_error_that_leads_to_the_file(storage: Any) -> None:
    def listed(request: Any) -> list[str]:
        """List."""
        return LINES

    client = MCPClient(make_superuser())
    with tool_of(listed, read_only=True):
        result = client.call("listed")
        assert result.is_error
        assert json.loads(client.read(result.structured["result_file"]["uri"])[0]["text"]) == {"result": LINES}


class Told(ModelExposure):
    fields = ("name",)
    actions = ("tell",)

    @action(destructive=False)
    def tell(self, request: Any, queryset: Any) -> list[str]:
        """Tell a lot."""
        queryset.update(name="told")
        return LINES


def test_an_action_ends_with_a_file_that_needs_the_right_to_run_it(storage: Any) -> None:
    site = MCPSite()
    site.register(Tag, Told)
    tag = Tag.objects.create(name="tag")
    user = make_user("clerk", "testapp.view_tag", "testapp.change_tag")
    scopes = frozenset({"mcp:read", "mcp:write"})
    asking = {"resource": "http://testserver/mcp", "scopes": scopes}
    tool = site.get_tool(request_of(user, site, **asking), "tell_testapp_tag")
    assert tool is not None
    result = result_of(tool, request_of(user, site, **asking), pks=[tag.pk])
    assert result.structured["done"] is True
    assert Tag.objects.get().name == "told"
    uri = result.structured["result_file"]["uri"]
    with KeptExport.of_uri(request_of(user, site, **asking), uri).open() as file:
        assert json.load(file)["result"] == LINES
    assert Export.objects.get().model == "testapp.tag"

    set_switch("action", "testapp.tag.tell")
    with pytest.raises(CallRefused):
        KeptExport.of_uri(request_of(user, site, **asking), uri)


@pytest.mark.parametrize("called", ["run_action", "tell_testapp_tag"])
def test_G_a_file_of_an_action_is_switched_off_with_the_tool_that_ran_it(storage: Any, called: str) -> None:
    site = MCPSite()
    site.register(Tag, Told)
    tag = Tag.objects.create(name="tag")
    user = make_user("clerk", "testapp.view_tag", "testapp.change_tag")
    asking = {"resource": "http://testserver/mcp", "scopes": frozenset({"mcp:read", "mcp:write"})}
    request = request_of(user, site, **asking)
    request.mcp.record.tool = called
    own = {"model": "testapp.tag", "action": "tell"} if called == "run_action" else {}
    tool = site.get_tool(request, called)
    assert tool is not None
    uri = result_of(tool, request, pks=[tag.pk], **own).structured["result_file"]["uri"]
    KeptExport.of_uri(request_of(user, site, **asking), uri)
    set_switch("tool", called)
    with pytest.raises(CallRefused):
        KeptExport.of_uri(request_of(user, site, **asking), uri)


def draw_picture(request: Any) -> str:
    """Draw a picture that runs a script."""
    return '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(document.domain)"></svg>\ud800\0' * 2_000


def test_G_no_browser_runs_what_a_tool_has_said(storage: Any, reader: User) -> None:
    with tool_of(draw_picture, read_only=True):
        told = MCPClient(reader).call("draw_picture").structured["result_file"]
        response = downloaded(reader, told)
    assert response["Content-Type"] == "text/plain"
    assert response["Content-Disposition"].startswith('attachment; filename="draw_picture-')
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response["Content-Security-Policy"]
    assert body_of(response).startswith("<svg")


# Whose it is


def test_G_it_is_its_users_and_its_clients_alone(storage: Any, long_tool: None, reader: User) -> None:
    told = told_to(reader)
    other = make_superuser("other")
    assert downloaded(other, told).status_code == 404
    with pytest.raises(MCPError):
        MCPClient(other).read(told["uri"])
    with pytest.raises(NotFound):
        KeptExport.of_uri(request_of(reader, client_id="another"), told["uri"])


def test_G_it_is_gone_with_the_permission_that_its_tool_needs(storage: Any, long_tool: None, reader: User) -> None:
    told = told_to(reader)
    reader.user_permissions.remove(Permission.objects.get(codename="view_tag"))
    assert downloaded(User.objects.get(pk=reader.pk), told).status_code == 404
    with pytest.raises(MCPError):
        MCPClient(User.objects.get(pk=reader.pk)).read(told["uri"])


def test_G_it_is_gone_with_any_other_permission(storage: Any, long_tool: None, reader: User) -> None:
    """Functions may ask for any of them."""
    told = told_to(reader)
    reader.user_permissions.remove(Permission.objects.get(codename="view_book"))
    assert downloaded(User.objects.get(pk=reader.pk), told).status_code == 404


def test_G_it_is_gone_with_the_scopes_of_the_client(storage: Any, long_tool: None, reader: User) -> None:
    told = told_to(reader)
    with pytest.raises(MCPError):
        MCPClient(reader, scopes=["mcp:read"]).read(told["uri"])
    assert MCPClient(reader).read(told["uri"])


@pytest.mark.parametrize(("kind", "target"), [("tool", "tell"), ("everything", "")])
def test_G_it_is_switched_off_with_its_tool(
    storage: Any, long_tool: None, reader: User, kind: str, target: str
) -> None:
    told = told_to(reader)
    set_switch(kind, target)
    assert downloaded(reader, told).status_code == 403
    with pytest.raises(MCPError, match="switched off"):
        MCPClient(reader).read(told["uri"])


def test_G_it_is_gone_with_its_tool(storage: Any, reader: User) -> None:
    with tool_of(tell, read_only=True):
        told = told_to(reader)
    assert downloaded(reader, told).status_code == 404


def test_G_what_a_writing_tool_has_said_is_not_read_where_nothing_is_written(storage: Any, reader: User) -> None:
    with tool_of(tell, destructive=False):
        told = told_to(reader)
        with configured(READ_ONLY=True):
            assert downloaded(reader, told).status_code == 404
            with pytest.raises(MCPError):
                MCPClient(reader).read(told["uri"])
        assert body_of(downloaded(reader, told)) == WHOLE


def test_G_it_expires_after_a_day(storage: Any, long_tool: None, reader: User) -> None:
    told = told_to(reader)
    Export.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert downloaded(reader, told).status_code == 404
    assert KeptExport.purge() == 1
    assert not storage.listdir("mcp_exports")[1]


def test_G_sealed_rights_of_another_file_open_nothing(storage: Any, long_tool: None, reader: User) -> None:
    told = told_to(reader)
    with tool_of(tell, read_only=True, name="free"):
        free = MCPClient(reader).call("free").structured["result_file"]
        rows = {row.name.partition("-")[0]: row for row in Export.objects.all()}
        Export.objects.filter(pk=rows["tell"].pk).update(question=rows["free"].question)
        assert downloaded(reader, told).status_code == 404
        assert body_of(downloaded(reader, free)) == WHOLE


# What fails


def test_E_a_storage_that_fails_gives_the_error_and_leaves_nothing(
    storage: Any, long_tool: None, reader: User, monkeypatch: Any
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr(InMemoryStorage, "_save", fail)
    result = MCPClient(reader).call("tell")
    assert result.is_error
    assert result.text.endswith("at most 40000 are sent: ask for less.")
    assert not Export.objects.exists()


def test_E_work_that_is_rolled_back_leaves_no_file(storage: Any, monkeypatch: Any) -> None:
    client = TaskClient(make_superuser())
    with tool_of(tell, destructive=False, task=task(atomic=True)):
        task_id = client.begin("tell")
        monkeypatch.setattr(StoredTask, "finish", lambda self, end, **more: False)
        run_task(task_id)
    assert not Export.objects.exists()
    assert not storage.listdir("mcp_exports")[1]


def test_nobody_has_no_file(storage: Any) -> None:
    tool = FunctionTool(tell, read_only=True)
    assert "at most 40000 are sent" in refusal(tool, request_of(AnonymousUser()))
    assert not Export.objects.exists()


def test_what_is_rolled_back_to_be_tried_says_so(storage: Any) -> None:
    with tool_of(tell, destructive=False, dry_run=True):
        tried = MCPClient(make_superuser()).call("tell", dry_run=True).structured
    assert tried["dry_run"] is True
    assert "result_file" in tried


def test_several_texts_are_one_file(storage: Any) -> None:
    texts = ToolResult(content=[Text("a" * 30_000), Text("b" * 30_000)])
    request = request_of(make_superuser(), resource="stdio:")
    found = result_of(FunctionTool(lambda request: texts, name="texts", read_only=True), request)
    told = found.structured["result_file"]
    assert "url" not in told
    with KeptExport(Export.objects.get()).open() as file:
        assert file.read().decode() == f"{'a' * 30_000}\n\n{'b' * 30_000}"

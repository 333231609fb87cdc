"""A call under an ``idempotency_key`` is done once."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import orjson
import pytest
from asgiref.sync import async_to_sync
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AnonymousUser, Permission
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from mcp_django import MCPSite, ToolError, ToolResult, site
from mcp_django.exceptions import Cancelled, InputRequired
from mcp_django.models import KeyedCall
from mcp_django.orm.own_tables import OwnTable
from mcp_django.server import idempotency_keys
from mcp_django.server.idempotency_keys import OTHER, TOO_LONG, TRIES, UNKNOWN, Once, take_key
from mcp_django.testing import MCPClient
from mcp_django.tools.action_tools import RunAction
from mcp_django.tools.base import Tool
from mcp_django.tools.function_tools import FunctionTool
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

TAG = {"model": "testapp.tag", "values": {"name": "new"}}
BOOK = {"model": "testapp.book"}
VERSIONS = ["2025-06-18", "2026-07-28"]


def keyed(request: Any, tool: Any, work: Any, key: str = "k", **arguments: Any) -> Any:
    return Once(request, tool, arguments, key).run(work)


def counting(result: Any = None, error: Any = None) -> Any:
    calls: list[int] = []

    def work() -> ToolResult:
        calls.append(1)
        Tag.objects.create(name=f"tag {Tag.objects.count()}")
        if error is not None:
            raise error
        return result or ToolResult(structured={"call": len(calls)})

    work.calls = calls  # type: ignore[attr-defined]
    return work


@pytest.fixture
def root() -> Any:
    return request_of(make_superuser())


def plain(read_only: bool = False) -> FunctionTool:
    def count(request: Any) -> dict[str, int]:
        """Count."""
        Tag.objects.create(name="counted")
        return {"count": Tag.objects.count()}

    return FunctionTool(count, read_only=read_only, destructive=False)


# Keys


@pytest.mark.parametrize("version", VERSIONS)
def test_H156_a_repeated_call_is_answered_and_not_run_again(version: str) -> None:
    client = MCPClient(make_superuser(), version=version)
    first = client.call("create_record", **TAG, idempotency_key="a")
    again = client.call("create_record", **TAG, idempotency_key="a")
    assert (again.structured, again.text, again.is_error) == (first.structured, first.text, False)
    assert Tag.objects.count() == 1
    assert LogEntry.objects.count() == 1
    # Without the key it is a call of its own.
    assert client.call("create_record", **TAG).is_error


@pytest.mark.parametrize("version", VERSIONS)
def test_H156_a_key_stands_for_one_set_of_arguments(version: str) -> None:
    client = MCPClient(make_superuser(), version=version)
    client.call("create_record", **TAG, idempotency_key="a")
    other = client.call("create_record", model="testapp.tag", values={"name": "other"}, idempotency_key="a")
    assert (other.is_error, other.text) == (True, OTHER)
    assert Tag.objects.count() == 1


def test_H121_a_key_belongs_to_one_user_and_one_tool() -> None:
    one, two = MCPClient(make_superuser()), MCPClient(make_superuser("two"))
    pk = Tag.objects.create(name="x").pk
    values = {"model": "testapp.tag", "values": {"name": "y"}}
    one.call("create_record", **values, idempotency_key="a")
    assert "already exists" in two.call("create_record", **values, idempotency_key="a").text
    assert not one.call("update_record", model="testapp.tag", pk=pk, values={"name": "z"}, idempotency_key="a").is_error
    assert KeyedCall.objects.count() == 2


def test_the_endpoint_is_part_of_the_key(root: Any) -> None:
    tool, work = CreateRecord(), counting()
    keyed(root, tool, work)
    root.mcp.resource = "https://other.example/mcp"
    keyed(root, tool, work)
    root.mcp.site = MCPSite("other")
    keyed(root, tool, work)
    assert len(work.calls) == 3


@pytest.mark.parametrize("key", [5, ["x"], {"x": 1}, "x" * 101, "a\nb", "a\0"], ids=repr)
def test_a_key_is_a_short_text(key: Any) -> None:
    result = MCPClient(make_superuser()).call("create_record", **TAG, idempotency_key=key)
    assert result.is_error
    assert "idempotency_key must be a text" in result.text
    assert not Tag.objects.exists()


def test_a_key_that_is_left_empty_is_none() -> None:
    client = MCPClient(make_superuser())
    assert not client.call("create_record", **TAG, idempotency_key=None).is_error
    for empty in ("", [], {}):
        assert "already exists" in client.call("create_record", **TAG, idempotency_key=empty).text
    assert not KeyedCall.objects.exists()


def test_tools_that_write_take_a_key_and_those_that_read_do_not() -> None:
    writing: list[Tool] = [CreateRecord(), UpdateRecord(), DeleteRecord(), RunAction(), plain()]
    assert all(tool.takes_key for tool in writing)
    assert all("idempotency_key" in tool.input_schema["properties"] for tool in writing[:-1])
    assert not QueryRecords().takes_key
    assert not plain(read_only=True).takes_key
    assert take_key(QueryRecords(), {"idempotency_key": "a"}) == ""

    def own(request: Any, idempotency_key: str) -> str:
        return idempotency_key

    arguments = {"idempotency_key": "a"}
    assert take_key(FunctionTool(own, destructive=False), arguments) == ""
    assert arguments == {"idempotency_key": "a"}


# What is kept


def test_H156_a_call_that_was_refused_may_be_made_again(root: Any) -> None:
    tool = CreateRecord()
    with pytest.raises(ToolError, match="no"):
        keyed(root, tool, counting(error=ToolError("no")))
    assert not Tag.objects.exists()
    assert not KeyedCall.objects.exists()
    assert keyed(root, tool, counting())["content"]


@pytest.mark.parametrize("error", [RuntimeError("x"), Cancelled(), InputRequired([])], ids=["failure", "gone", "asked"])
def test_H143_a_failure_forgets_the_key_with_all_the_rest(root: Any, error: BaseException) -> None:
    with pytest.raises(type(error)):
        keyed(root, CreateRecord(), counting(error=error))
    assert not Tag.objects.exists()
    assert not KeyedCall.objects.exists()


def test_H154_a_call_whose_time_is_over_is_forgotten_with_all_the_rest(root: Any) -> None:
    def work() -> ToolResult:
        Tag.objects.create(name="x")
        root.mcp.cancelled = True
        return ToolResult(structured={})

    with pytest.raises(Cancelled):
        keyed(root, CreateRecord(), work)
    assert not Tag.objects.exists()
    assert not KeyedCall.objects.exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_H156_a_preview_is_no_result(version: str) -> None:
    make_book("One")
    client = MCPClient(make_superuser(), version=version)
    arguments = {**BOOK, "search": "One", "idempotency_key": "a"}
    preview = client.call("delete_record", **arguments).structured
    assert preview["confirmation_required"]
    assert not KeyedCall.objects.exists()
    done = client.call("delete_record", **arguments, confirm_token=preview["confirm_token"])
    assert done.structured["deleted"]
    # The answer was lost: the same call, with its token or without, is the one that was done.
    assert (
        client.call("delete_record", **arguments, confirm_token=preview["confirm_token"]).structured == done.structured
    )
    assert client.call("delete_record", **arguments).structured == done.structured


def test_H156_a_call_that_asks_its_user_is_done_once() -> None:
    make_book("One")
    client = MCPClient(make_superuser(), answers={"_confirm": True})
    done = client.call("delete_record", **BOOK, search="One", idempotency_key="a")
    assert done.structured["deleted"]
    make_book("One")
    assert client.call("delete_record", **BOOK, search="One", idempotency_key="a").structured == done.structured
    assert Book.objects.count() == 1


def test_an_action_is_run_once(root: Any) -> None:
    book = make_book("One")
    client = MCPClient(root.user)
    for _ in range(2):
        arguments = {"pks": [book.pk], "idempotency_key": "a"}
        result = client.call("publish_testapp_book", **arguments)
        assert result.structured["messages"] == [{"level": "success", "text": "1 published."}]
    assert LogEntry.objects.count() == 1


def test_without_users_a_key_is_everybodys() -> None:
    anonymous, work = request_of(AnonymousUser()), counting()
    for _ in range(2):
        keyed(anonymous, CreateRecord(), work)
    assert len(work.calls) == 1
    assert KeyedCall.objects.get().user is None


@pytest.mark.parametrize("tool", [CreateRecord(), plain()], ids=["atomic", "function"])
def test_H133_a_database_that_is_busy_is_told_without_sql(
    root: Any, monkeypatch: pytest.MonkeyPatch, tool: Any
) -> None:
    def insert(*args: Any) -> None:
        raise OperationalError("SELECT secret")

    monkeypatch.setattr(OwnTable, "insert", insert)
    work = counting()
    with pytest.raises(ToolError, match="the database is busy"):
        keyed(root, tool, work)
    assert work.calls == []


def test_H156_an_async_function_is_done_once() -> None:
    calls: list[int] = []

    async def count(request: Any, fails: bool = False) -> dict[str, int]:
        """Count."""
        calls.append(1)
        if fails:
            raise ToolError("no")
        return {"count": len(calls)}

    request, tool = request_of(make_superuser()), FunctionTool(count, destructive=False)

    def run(key: str, **arguments: Any) -> Any:
        made = Once(request, tool, arguments, key)
        return async_to_sync(made.run_async)(lambda: tool.call(request, arguments))

    assert run("a")["content"] == run("a")["content"]
    assert len(calls) == 1
    for _ in range(2):
        with pytest.raises(ToolError, match="no"):
            run("b", fails=True)
    assert len(calls) == 3


def test_a_long_result_is_not_kept_but_told_of(root: Any) -> None:
    tool, work = CreateRecord(), counting(ToolResult(structured={"text": "x" * 70_000}))
    assert len(keyed(root, tool, work)["content"][0]["text"]) > 70_000
    again = keyed(root, tool, work)
    assert again["structuredContent"] == {"repeated": True, "note": TOO_LONG}
    assert len(work.calls) == 1


def test_a_result_that_says_that_it_failed_is_a_result(root: Any) -> None:
    tool, work = CreateRecord(), counting(ToolResult(structured={"done": True}, is_error=True))
    assert keyed(root, tool, work)["isError"]
    assert keyed(root, tool, work)["isError"]
    assert len(work.calls) == 1


# Expiry


def test_a_key_is_good_for_as_long_as_the_setting_says(root: Any) -> None:
    tool, work = CreateRecord(), counting()
    keyed(root, tool, work)
    keyed(root, tool, work, "other")
    KeyedCall.objects.update(created=timezone.now() - timedelta(hours=23))
    keyed(root, tool, work)
    assert len(work.calls) == 2
    KeyedCall.objects.update(created=timezone.now() - timedelta(hours=25))
    assert keyed(root, tool, work)["structuredContent"]
    assert len(work.calls) == 3
    # What else was over went with it.
    assert KeyedCall.objects.count() == 1


def test_expired_calls_are_cleared(root: Any) -> None:
    keyed(root, CreateRecord(), counting())
    assert Once.clear_expired() == 0
    KeyedCall.objects.update(created=timezone.now() - timedelta(hours=25))
    assert Once.clear_expired() == 1


def test_what_one_user_may_keep_is_bounded(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency_keys, "MAX_CALLS", 2)
    tool, work = CreateRecord(), counting()
    for key in "ab":
        keyed(root, tool, work, key)
    with pytest.raises(ToolError, match="make this one without"):
        keyed(root, tool, work, "c")
    assert len(work.calls) == KeyedCall.objects.count() == 2
    keyed(request_of(make_superuser("other")), tool, work, "c")


def test_a_user_who_is_deleted_takes_the_calls_along(root: Any) -> None:
    keyed(root, CreateRecord(), counting())
    root.user.delete()
    assert not KeyedCall.objects.exists()


# Tools without a transaction of their own


def test_H156_a_function_tool_is_done_once_and_runs_in_no_transaction_of_ours(root: Any) -> None:
    depth = len(connection.savepoint_ids)
    tool = plain()

    def work() -> ToolResult:
        assert len(connection.savepoint_ids) == depth
        return ToolResult(structured={"at": depth})

    assert keyed(root, tool, work)["content"] == keyed(root, tool, work)["content"]
    assert KeyedCall.objects.get().tool == "count"


def test_H156_a_function_that_failed_half_way_is_not_done_again(root: Any) -> None:
    tool = plain()
    with pytest.raises(RuntimeError):
        keyed(root, tool, counting(error=RuntimeError("x")))
    with pytest.raises(ToolError) as error:
        keyed(root, tool, counting())
    assert error.value.message == UNKNOWN
    assert Tag.objects.count() == 1


@pytest.mark.parametrize("error", [ToolError("no"), InputRequired([])], ids=["refused", "asked"])
def test_a_function_that_refused_or_asked_may_be_called_again(root: Any, error: BaseException) -> None:
    tool = plain()
    with pytest.raises(type(error)):
        keyed(root, tool, counting(error=error))
    assert keyed(root, tool, counting())["content"]


def test_H156_a_key_whose_call_still_runs_is_refused(root: Any) -> None:
    tool = plain()

    def work() -> ToolResult:
        with pytest.raises(ToolError) as error:
            keyed(root, tool, counting())
        assert error.value.message == UNKNOWN
        return ToolResult(structured={})

    keyed(root, tool, work)
    assert not Tag.objects.exists()


def test_an_action_that_manages_its_own_transactions_runs_in_none_of_ours() -> None:
    class AuthorAdmin(admin.ModelAdmin):
        actions = ["stop"]

        def stop(self, request: Any, queryset: Any) -> None:
            pass

        stop.mcp_atomic = False  # type: ignore[attr-defined]

    admin_site = admin.AdminSite(name="admin")
    admin_site.register(Author, AuthorAdmin)
    request = request_of(make_superuser(), MCPSite("own", admin_site=admin_site))
    arguments = {"model": "testapp.author", "action": "stop"}
    assert not RunAction().is_atomic(request, arguments)
    assert RunAction().is_atomic(request, {**arguments, "action": "nothing"})


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not connection.features.has_select_for_update, reason="the database runs one writer at a time")
def test_H156_of_two_calls_at_the_same_time_one_is_run(root: Any) -> None:
    started, go = threading.Event(), threading.Event()
    calls: list[int] = []

    def work() -> ToolResult:
        calls.append(1)
        started.set()
        assert go.wait(30)
        return ToolResult(structured={"call": len(calls)})

    def call() -> Any:
        try:
            return keyed(root, CreateRecord(), work)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(call)
        assert started.wait(30)
        second = pool.submit(call)
        go.set()
        assert first.result(60)["structuredContent"] is not None
        assert second.result(60)["structuredContent"] == {"call": 1}
    assert calls == [1]


@pytest.fixture(params=["read committed", "repeatable read"])
def isolation(request: Any) -> Any:
    """Have connections begin transactions at this level; what it was before is put back."""
    options = connection.settings_dict["OPTIONS"]
    before = dict(options)
    if connection.vendor == "mysql":
        options["isolation_level"] = request.param
    elif connection.vendor == "postgresql" and request.param != "read committed":
        pytest.skip("PostgreSQL refuses all but one of the transactions at this level")
    connection.close()
    yield
    options.clear()
    options.update(before)
    connection.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not connection.features.has_select_for_update, reason="the database runs one writer at a time")
@pytest.mark.parametrize("tool", [CreateRecord(), plain()], ids=["atomic", "function"])
def test_of_many_calls_at_the_same_time_one_is_run(root: Any, isolation: Any, tool: Any) -> None:
    """The others get its result, or are told that it still runs; none is told that the database is busy."""
    together = threading.Barrier(10)
    work = counting(ToolResult(structured={"call": 1}))

    def call() -> Any:
        try:
            together.wait(30)
            return orjson.loads(orjson.dumps(keyed(root, tool, work)["structuredContent"]))
        except ToolError as error:
            return error.message
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        answers = [future.result(60) for future in [pool.submit(call) for _ in range(10)]]
    assert work.calls == [1]
    assert Tag.objects.count() == 1
    expected = [{"call": 1}] if tool.is_atomic(root, {}) else [{"call": 1}, UNKNOWN]
    assert [answer for answer in answers if answer not in expected] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not connection.features.has_select_for_update, reason="the database runs one writer at a time")
def test_of_calls_that_wait_for_one_that_is_refused_one_is_run(root: Any, isolation: Any) -> None:
    together = threading.Barrier(8)
    calls: list[int] = []

    def work() -> ToolResult:
        calls.append(1)
        if len(calls) == 1:
            # Meanwhile the others begin to wait.
            time.sleep(0.3)
            raise ToolError("no")
        return ToolResult(structured={"call": len(calls)})

    def call() -> Any:
        try:
            together.wait(30)
            return orjson.loads(orjson.dumps(keyed(root, CreateRecord(), work)["structuredContent"]))
        except ToolError as error:
            return error.message
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        answers = [future.result(60) for future in [pool.submit(call) for _ in range(8)]]
    assert len(calls) == 2
    assert (answers.count("no"), answers.count({"call": 2})) == (1, 7)


def test_a_deadlock_of_others_is_tried_again_where_nothing_is_outside(
    root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def insert(*args: Any) -> None:
        asked.append(1)
        raise OperationalError(1213, "Deadlock found")

    monkeypatch.setattr(OwnTable, "insert", insert)
    # The test's own transaction is outside.
    with pytest.raises(ToolError, match="the database is busy"):
        keyed(root, CreateRecord(), counting())
    assert len(asked) == 1


@pytest.mark.django_db(transaction=True)
def test_a_deadlock_that_stays_is_told_as_a_busy_database(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = OwnTable.insert
    asked: list[int] = []

    def insert(*args: Any) -> None:
        asked.append(1)
        if len(asked) != TRIES + 2:
            raise OperationalError(1213, "Deadlock found")
        real(*args)

    monkeypatch.setattr(OwnTable, "insert", insert)
    work = counting()
    with pytest.raises(ToolError, match="the database is busy"):
        keyed(root, CreateRecord(), work)
    assert (len(asked), work.calls) == (TRIES, [])
    keyed(root, CreateRecord(), work)
    assert work.calls == [1]


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not connection.features.has_select_for_update, reason="the database runs one writer at a time")
def test_a_call_in_a_transaction_that_has_read_before_sees_what_was_claimed_since(root: Any, isolation: Any) -> None:
    work = counting()

    def first() -> None:
        keyed(root, CreateRecord(), work)
        connection.close()

    with transaction.atomic():
        assert not KeyedCall.objects.exists()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(first).result(60)
        assert keyed(root, CreateRecord(), work)["structuredContent"] == {"call": 1}
    assert work.calls == [1]


def test_the_key_and_the_write_are_kept_together(root: Any) -> None:
    with transaction.atomic():
        keyed(root, CreateRecord(), counting())
        transaction.set_rollback(True)
    assert not Tag.objects.exists()
    assert not KeyedCall.objects.exists()


# Whose key it is, and who may see the result


def test_a_key_belongs_to_the_client(settings: Any) -> None:
    user = make_superuser()
    one, other = request_of(user, client_id="one"), request_of(user, client_id="other")
    work = counting()
    for request, calls in ((one, 1), (one, 1), (other, 2), (other, 2), (one, 2)):
        keyed(request, CreateRecord(), work, model="testapp.tag")
        assert len(work.calls) == calls


# A tool for writing is there as long as there is something to write.
AUTHOR = ["testapp.view_author", "testapp.change_author"]
WRITER = ["testapp.view_tag", "testapp.change_tag", "testapp.view_book", *AUTHOR]


def rename(client: MCPClient, tag: Tag) -> Any:
    return client.call("update_record", model="testapp.tag", pk=tag.pk, values={"name": "once"}, idempotency_key="a")


@pytest.mark.parametrize("lost", ["change_tag", "view_book"])
def test_the_result_is_not_shown_when_a_permission_is_lost(lost: str) -> None:
    user, tag = make_user("writer", *WRITER), Tag.objects.create(name="new")
    client = MCPClient(user)
    assert "once" in rename(client, tag).text
    assert "once" in rename(client, tag).text
    Tag.objects.update(name="twice")
    user.user_permissions.remove(Permission.objects.get(codename=lost))
    again = rename(client, tag)
    assert again.is_error
    assert "not done again" in again.text
    assert '"once"' not in again.text
    assert Tag.objects.get().name == "twice"


def test_the_result_is_not_shown_when_the_row_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    client, tag = MCPClient(make_superuser()), Tag.objects.create(name="new")
    assert not rename(client, tag).is_error
    monkeypatch.setattr(site.exposures[Tag], "get_queryset", lambda request: Tag.objects.none())
    again = rename(client, tag)
    assert again.is_error
    assert '"once"' not in again.text


def test_the_result_is_not_shown_to_a_token_with_fewer_scopes() -> None:
    user = make_superuser()
    first = request_of(user, scopes=frozenset({"mcp:read", "mcp:write", "mcp:admin"}))
    fewer = request_of(user, scopes=frozenset({"mcp:read", "mcp:write"}))
    keyed(first, plain(), counting())
    with pytest.raises(ToolError, match="not done again"):
        keyed(fewer, plain(), counting())


def test_a_row_that_was_deleted_under_a_key_is_told_again() -> None:
    book = make_book()
    request = request_of(make_superuser())
    arguments = {"model": "testapp.book", "pk": book.pk}
    keyed(request, DeleteRecord(), counting(), **arguments)
    book.delete()
    work = counting()
    assert keyed(request, DeleteRecord(), work, **arguments)["structuredContent"] == {"call": 1}
    assert work.calls == []

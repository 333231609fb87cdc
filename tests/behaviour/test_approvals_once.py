"""A yes makes a call once, whatever happens at the same time, and it is told who said it."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.admin.models import LogEntry
from django.db import connection, connections
from django.test import Client

from mcp_django import approval
from mcp_django.models import ApprovalRequest, Change
from mcp_django.testing import MCPClient, ToolCall
from tests.approval_rules import AUTHOR, DECIDES, ON_BOOKS, approve, make_manager, make_rule, rename, waits
from tests.confirming import path_of, signed_in, tool_of
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Book

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def caller(root: Any) -> MCPClient:
    return MCPClient(root)


@pytest.fixture
def manager() -> Any:
    return make_manager()


# Once


@contextlib.contextmanager
def approving(manager: Any, waiting: ToolCall) -> Iterator[Callable[[Any], int]]:
    """Give a function with which a browser says yes on the page."""
    number = waits(waiting)
    page = path_of(waiting.structured["url"]).partition("?")[0]
    yield lambda browser: browser.post(page, {"request": number, "yes": "1"}).status_code


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("tool", ["update_record", "function"])
def test_twenty_yeses_at_once_make_the_call_once(caller: MCPClient, manager: Any, tool: str) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("the threads of a test share SQLite's memory")
    paid: list[int] = []

    def pay(request: Any) -> str:
        paid.append(1)
        return "paid"

    make_rule(labels=["testapp.author"])
    author = make_author("Ann")
    seen: list[int] = []
    with tool_of(pay, destructive=False, approval=approval(permission=DECIDES)):
        if tool == "function":
            waiting = caller.call("pay")
        else:
            waiting = caller.call("update_record", **AUTHOR, pk=author.pk, values={"name": "Bob"})
        browsers = [signed_in(manager) for _ in range(20)]
        together = threading.Barrier(20)
        with approving(manager, waiting) as press:

            def click(browser: Client) -> None:
                together.wait()
                try:
                    seen.append(press(browser))
                finally:
                    connections.close_all()

            threads = [threading.Thread(target=click, args=[browser]) for browser in browsers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert set(seen) == {302}
    change = Change.objects.get()
    assert change.state == "done", change.outcome
    assert Change.objects.get().state == "done"
    assert paid == ([1] if tool == "function" else [])
    assert LogEntry.objects.count() == (0 if tool == "function" else 1)


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_at_any_statement_leaves_an_atomic_write_open_or_done(caller: MCPClient, manager: Any) -> None:
    class Killed(BaseException):
        pass

    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    waiting = rename(caller, book, "Emma")
    browser = signed_in(manager)
    number = 0
    with approving(manager, waiting) as press:
        while Book.objects.filter(title="Dune").exists():
            assert Change.objects.get().state == "waiting"
            number += 1
            left = number

            def kill(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
                nonlocal left
                left -= 1
                if not left:
                    raise Killed
                return execute(sql, params, many, context)

            with connection.execute_wrapper(kill), contextlib.suppress(Killed):
                press(browser)
    assert Change.objects.get().state == "done"
    assert LogEntry.objects.count() == 1
    assert number > 10


@pytest.mark.parametrize("is_async", [False, True])
def test_a_late_yes_leaves_the_call_alone_that_runs(caller: MCPClient, manager: Any, is_async: bool) -> None:
    paid: list[int] = []

    def pay(request: Any) -> str:
        paid.append(1)
        assert approve(manager, number).state == "running"
        return "paid"

    async def pay_async(request: Any) -> str:
        return str(await sync_to_async(pay)(request))

    function = pay_async if is_async else pay
    with tool_of(function, name="pay", destructive=False, approval=approval(permission=DECIDES)):
        number = waits(caller.call("pay"))
        change = approve(manager, number)
        assert change.state == "done", change.outcome
        assert caller.call("pay").text == "paid"
    assert paid == [1]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_whose_worker_is_killed_never_runs_again(caller: MCPClient, manager: Any, is_async: bool) -> None:
    class Killed(BaseException):
        pass

    paid: list[int] = []

    def pay(request: Any) -> str:
        paid.append(1)
        raise Killed

    async def pay_async(request: Any) -> str:
        return pay(request)

    function = pay_async if is_async else pay
    with tool_of(function, name="pay", destructive=False, approval=approval(permission=DECIDES)):
        number = waits(caller.call("pay"))
        with contextlib.suppress(Killed):
            approve(manager, number)
        assert Change.objects.get().state == "unknown"
        # So too where the worker could not even note that it was killed.
        Change.objects.update(state="running")
        assert approve(manager, number).state == "running"
        again = caller.call("pay")
        assert again.is_error is False
        assert "Repeat the same call" in again.text or again.structured["state"] == "running"
    assert paid == [1]


@pytest.mark.django_db(transaction=True)
def test_the_same_call_twice_at_once_is_made_once(caller: MCPClient, manager: Any) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(rename(caller, book))
    # The other call came at the same time, and saw no request.
    approval_row = ApprovalRequest.objects.get()
    twin = Change.objects.get()
    twin.pk = None
    twin.save()
    approval_row.pk = twin.pk
    approval_row.save(force_insert=True)
    assert approve(manager, number).state == "done"
    change = approve(manager, twin.pk)
    assert change.state == "failed"
    assert LogEntry.objects.count() == 1


# What is left of it


def test_history_and_log_name_both_people_and_the_client(
    caller: MCPClient, manager: Any, root: Any, call_log: Any
) -> None:
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    waiting = rename(caller, book)
    with approving(manager, waiting) as press:
        assert press(signed_in(manager)) == 302
    entry = LogEntry.objects.get()
    message = entry.get_change_message()
    assert entry.user == root
    assert "mcp_django.testing" in message
    assert "approved by manager" in message
    rows = [(row.method, row.tool, row.outcome, row.username, row.rows_changed) for row in reversed(call_log())]
    assert sorted(rows) == sorted(
        [
            ("tools/call", "update_record", "asked", "root", 0),
            ("tools/call", "update_record", "ok", "root", 1),
            ("console/approve", "update_record", "ok", "manager", 0),
        ]
    )


def test_a_no_is_in_the_log(caller: MCPClient, manager: Any, call_log: Any) -> None:
    make_rule(**ON_BOOKS)
    waiting = rename(caller, make_book("Dune"))
    page = path_of(waiting.structured["url"]).partition("?")[0]
    sent = {"request": waits(waiting), "no": "1", "word": "Never."}
    assert signed_in(manager).post(page, sent).status_code == 302
    decided = [row for row in call_log() if row.method.startswith("console/")]
    assert [(row.method, row.outcome, row.username) for row in decided] == [("console/refuse", "ok", "manager")]


def test_a_call_that_a_rule_blocks_is_in_the_log(caller: MCPClient, call_log: Any) -> None:
    make_rule(**ON_BOOKS, effect="block")
    assert rename(caller, make_book("Dune")).is_error
    assert [row.outcome for row in call_log()] == ["refused:approval"]

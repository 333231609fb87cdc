"""What a call may cost: its queries' time, its wait for locks; nothing of it stays behind."""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest
from django.contrib.admin.models import LogEntry
from django.db import DatabaseError, connection, transaction
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from mcp_django import ModelExposure, ToolError
from mcp_django.context.databases import stop_query
from mcp_django.context.request import MCPRequest
from mcp_django.orm import query_limits
from mcp_django.orm.aggregates.functions import _Collected
from mcp_django.orm.pagination import PageQuery
from mcp_django.orm.query_limits import TOO_SLOW, read_limits
from mcp_django.server.methods.resources_and_prompts import complete, read_resource
from mcp_django.server.methods.tools import call_tool
from mcp_django.testing import MCPClient
from tests.configured import configure, configured
from tests.documentation import DOCS, blocks_of
from tests.factories import make_book, make_superuser
from tests.library import reader, site_with
from tests.sqlite_file import noting_transactions
from tests.testapp.models import Book, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided]

# Counts until somebody stops it. MySQL limits recursion, and so it computes until then.
COUNTING: Final = "(WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n)"
COMPUTING: Final = "BENCHMARK(1000000000000, SHA2('x', 512))"
ENDLESS: Final = RawSQL(COMPUTING if connection.vendor == "mysql" else COUNTING, [])


class Endless(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(pk__lt=ENDLESS)


def limited(**limits: Any) -> Any:
    return configured(**limits)


@pytest.fixture
def in_a_hurry(transactional_db: None) -> Iterator[None]:
    with limited(STATEMENT_TIMEOUT=0.3):
        yield


@pytest.fixture
def request_(transactional_db: None) -> MCPRequest:
    site = site_with()
    site.register(Tag, Endless)
    for number in range(3):
        Tag.objects.create(name=f"tag {number}")
    return reader(make_superuser(), site)


def text_of(result: Any) -> str:
    assert result["isError"] is True
    return str(result["content"][0]["text"])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("query_records", {}),
        ("query_records", {"ordering": ["-name"], "count": True}),
        ("get_record", {"pk": None}),
        ("aggregate_records", {"group_by": ["name"]}),
    ],
    ids=["page", "order", "row", "groups"],
)
def test_row_118_a_read_that_takes_too_long_is_stopped_and_says_how_to_narrow_it(
    request_: MCPRequest, in_a_hurry: None, tool: str, arguments: Mapping[str, Any]
) -> None:
    given = {name: Tag.objects.earliest("pk").pk if name == "pk" else value for name, value in arguments.items()}
    result = call_tool(request_, {"name": tool, "arguments": {"model": "testapp.tag", **given}})
    assert text_of(result) == TOO_SLOW
    assert not query_limits._watched
    # The same connection goes on.
    assert Tag.objects.count() == 3


def test_row_118_resources_and_completions_are_stopped_too(request_: MCPRequest, in_a_hurry: None) -> None:
    with pytest.raises(Exception, match="The database took too long"):
        read_resource(request_, {"uri": "django://testapp/tag"})
    reference = {"type": "ref/resource", "uri": "django://{app_label}/{model_name}/{pk}"}
    given = {"arguments": {"app_label": "testapp", "model_name": "tag"}}
    with pytest.raises(ToolError) as error:
        complete(request_, {"ref": reference, "argument": {"name": "pk", "value": ""}, "context": given})
    assert error.value.message == TOO_SLOW
    assert Tag.objects.count() == 3


def test_row_118_a_count_that_takes_too_long_costs_no_page(in_a_hurry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Tag.objects.create(name="tag")
    request = reader(make_superuser(), site_with(Tag))
    monkeypatch.setattr(PageQuery, "total", lambda query: Tag.objects.filter(pk__lt=ENDLESS).count())
    arguments = {"model": "testapp.tag", "count": True, "fields": ["name"]}
    found: Any = call_tool(request, {"name": "query_records", "arguments": arguments})
    assert "isError" not in found
    text = found["content"][0]["text"]
    assert '"count":"unknown"' in text
    assert "counting took too long" in text
    assert '"tag"' in text


def stopped_twice() -> None:
    for _ in range(2):
        try:
            list(Tag.objects.filter(pk__lt=ENDLESS))
        except DatabaseError as error:
            raised = error
    raise raised


def test_a_query_that_begins_after_the_time_is_over_is_stopped(in_a_hurry: None) -> None:
    Tag.objects.create(name="tag")
    with pytest.raises(ToolError) as error, read_limits():
        stopped_twice()
    assert error.value.message == TOO_SLOW


@pytest.mark.skipif(connection.vendor != "sqlite", reason="other databases compute these themselves")
@pytest.mark.parametrize("function", ["median", "percentile", "stddev", "variance"])
def test_what_this_process_computes_for_sqlite_ends_with_the_time(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """The database interrupts only what it does itself, and then asks for the result of what it has read."""
    for pages in (1, 2):
        make_book(pages=pages)
    request = reader(make_superuser(), site_with(Book))
    measure = {"function": function, "field": "pages", "share": 0.5}
    given = {"name": "aggregate_records", "arguments": {"model": "testapp.book", "aggregates": [measure]}}
    read = _Collected.step

    def read_late(self: Any, *values: Any) -> None:
        read(self, *values)
        for watched in query_limits._watched.values():
            watched.is_over = True

    with limited(STATEMENT_TIMEOUT=600):
        assert "isError" not in call_tool(request, given)
        monkeypatch.setattr(_Collected, "step", read_late)
        assert text_of(call_tool(request, given)) == TOO_SLOW


def test_other_errors_of_the_database_stay_what_they_are(in_a_hurry: None) -> None:
    with pytest.raises(DatabaseError), read_limits():
        Tag.objects.extra(where=["no_such_column = 1"]).first()


@limited(STATEMENT_TIMEOUT=None)
def test_without_a_limit_nothing_watches() -> None:
    with read_limits():
        assert not query_limits._watched


def test_a_limit_sends_no_statement_of_its_own(db: None, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1), read_limits():
        assert query_limits._watched
        Tag.objects.count()


def test_the_watching_thread_ends_and_begins_again(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with read_limits():
        first = query_limits._threads[0]
    monkeypatch.setattr(query_limits, "IDLE", -1)
    first.join(timeout=30)
    assert not first.is_alive()
    monkeypatch.undo()
    with read_limits():
        assert query_limits._threads[0].is_alive()


def test_a_forked_process_begins_anew(db: None) -> None:
    with read_limits():
        before = list(query_limits._threads)
        query_limits._forget()
        assert not query_limits._watched
        assert not query_limits._threads
    query_limits._threads.extend(before)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL estimates costs")
def test_row_118_the_middleware_of_the_documentation_refuses_costly_queries(
    transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = [block for block in blocks_of(DOCS / "deployment.md") if block.file == "shop/costs.py"]
    names = ModuleType("shop_costs")
    exec(block.text, vars(names))
    monkeypatch.setitem(sys.modules, "shop_costs", names)
    configure(settings, CALL_MIDDLEWARE=["shop_costs.costs"])
    Tag.objects.create(name="tag")
    client = MCPClient(make_superuser())
    assert not client.call("query_records", model="testapp.tag").is_error
    names.MOST = 0.01
    assert "too much for the database" in client.call("query_records", model="testapp.tag").text
    # The project's own queries are not asked about.
    assert Tag.objects.count() == 1


# Locks


@contextmanager
def held(book: Book) -> Iterator[None]:
    """Have another connection write the row as it is, and not commit while the block runs."""
    holds, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Book.objects.filter(pk=book.pk).update(pages=book.pages)
            holds.set()
            let_go.wait(30)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(10)
    try:
        yield
    finally:
        let_go.set()
        thread.join()


@pytest.fixture
def impatient(transactional_db: None) -> Iterator[None]:
    """Writes wait for a lock for a moment only."""
    if connection.vendor == "sqlite":
        connection.cursor().execute("PRAGMA busy_timeout = 200")
    with limited(LOCK_TIMEOUT=0.2):
        yield
    connection.close()


@pytest.mark.parametrize("key", ["", "a-key"])
def test_a_write_that_meets_a_lock_says_that_it_is_busy_and_can_be_repeated(impatient: None, key: str) -> None:
    client, book = MCPClient(make_superuser()), make_book("Dune")
    arguments = {"model": "testapp.book", "pk": book.pk, "values": {"title": "Dune II"}, "idempotency_key": key}
    with held(book):
        refused = client.call("update_record", **arguments)
    assert (refused.is_error, refused.text) == (True, "Nothing was changed: the database is busy. Repeat the call.")
    assert (Book.objects.get().title, LogEntry.objects.count()) == ("Dune", 0)
    assert not client.call("update_record", **arguments).is_error
    assert (Book.objects.get().title, LogEntry.objects.count()) == ("Dune II", 1)


@pytest.mark.parametrize("arguments", [{"action": "publish"}, {"action": "withdraw"}])
def test_an_action_that_meets_a_lock_is_busy(impatient: None, arguments: dict[str, str]) -> None:
    client, book = MCPClient(make_superuser()), make_book("Dune")
    with held(book):
        refused = client.call("run_action", model="testapp.book", pks=[book.pk], **arguments)
        assert (refused.is_error, "busy" in refused.text) == (True, True), refused.text


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite has one writer at a time")
@pytest.mark.parametrize(
    ("tool", "arguments", "mode"),
    [
        ("create_record", {"values": {"title": "Emma"}}, " IMMEDIATE"),
        ("update_record", {"values": {"pages": 7}}, " IMMEDIATE"),
        ("update_record", {"values": {"pages": 7}, "idempotency_key": "a-key"}, " IMMEDIATE"),
        ("delete_record", {}, " IMMEDIATE"),
        ("run_action", {"action": "publish"}, " IMMEDIATE"),
        ("run_action", {"action": "export"}, ""),
    ],
)
def test_a_write_has_its_turn_before_it_reads(
    transactional_db: None, tool: str, arguments: dict[str, Any], mode: str
) -> None:
    """SQLite refuses the first write of a transaction that has read where the log was written in between."""
    client, book = MCPClient(make_superuser()), make_book("Dune")
    picked = {"create_record": {}, "run_action": {"pks": [book.pk]}}.get(tool, {"pk": book.pk})
    with noting_transactions() as begun:
        client.call(tool, model="testapp.book", **picked, **arguments)
    assert begun == [f"BEGIN{mode}"]


@pytest.mark.parametrize("tool", ["delete_record", "run_action", "update_record"])
def test_a_confirmation_stays_good_where_the_database_was_busy(impatient: None, tool: str) -> None:
    client, book = MCPClient(make_superuser()), make_book("Dune")
    picked: dict[str, dict[str, Any]] = {
        "delete_record": {"pk": book.pk},
        "run_action": {"action": "publish", "all": True},
        "update_record": {"pks": [book.pk], "values": {"pages": 7}},
    }
    arguments = {"model": "testapp.book", **picked[tool]}
    asked = client.call(tool, **arguments).structured
    assert asked is not None
    arguments["confirm_token"] = asked["confirm_token"]
    with held(book):
        busy = client.call(tool, **arguments)
        assert (busy.is_error, "busy" in busy.text) == (True, True), busy.text
    done = client.call(tool, **arguments)
    assert not done.is_error, done.text
    # Once it has served it is used up.
    assert client.call(tool, **arguments).is_error


# How a database is asked for its lock timeout, and what it says of a quarter of a second: MySQL counts in seconds.
LOCK_TIMEOUTS = {"postgresql": ("SHOW lock_timeout", "250ms"), "mysql": ("SELECT @@innodb_lock_wait_timeout", 1)}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite's timeout is the connection's own")
@pytest.mark.parametrize("pages", [3, "many"])
def test_the_time_for_locks_ends_with_the_write(transactional_db: None, pages: Any) -> None:
    client, book = MCPClient(make_superuser()), make_book("Dune")
    question, expected = LOCK_TIMEOUTS[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(question)
        before = cursor.fetchone()
    seen = []
    with limited(LOCK_TIMEOUT=0.25), connection.execute_wrapper(noting_lock_timeouts(question, seen)):
        result = client.call("update_record", model="testapp.book", pk=book.pk, values={"pages": pages})
    assert result.is_error is (pages == "many")
    assert set(seen) == (set() if result.is_error else {expected})
    with connection.cursor() as cursor:
        cursor.execute(question)
        assert cursor.fetchone() == before


def noting_lock_timeouts(question: str, seen: list[Any]) -> Any:
    def note(execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if sql.startswith(("UPDATE", "INSERT")) and "testapp" in sql:
            context["cursor"].cursor.execute(question)
            seen.append(context["cursor"].cursor.fetchone()[0])
        return execute(sql, params, many, context)

    return note


class Session:
    """A connection to MySQL by mysqlclient, which answers no other thread; it notes what it runs."""

    vendor = "mysql"
    mcp_session = 7

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.connection = SimpleNamespace(thread_id=self.refuse)

    def refuse(self) -> int:
        raise DatabaseError("This connection is already in use from another thread.")

    def copy(self) -> Any:
        return SimpleNamespace(cursor=lambda: nullcontext(self), close=lambda: self.ran.append("closed"))

    def execute(self, *statement: Any) -> None:
        self.ran.append(statement)


def test_a_query_on_mysql_is_stopped_by_the_session_that_its_connection_began() -> None:
    session = Session()
    stop_query(session, 1)
    assert session.ran == [("KILL QUERY %s", [7]), "closed"]


def test_a_result_of_mysql_that_was_stopped_is_refused_although_there_is_no_error(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_limits, "stops_in_silence", lambda connection: True)
    limit = query_limits._TimeLimit(100)
    with pytest.raises(ToolError, match="took too long"), limit:
        limit.is_over = True

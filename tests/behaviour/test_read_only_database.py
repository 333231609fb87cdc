"""What says that it only reads writes nothing: it runs where the database itself refuses every write.

This is how ``READ_ONLY`` is run with a role that may not write: nothing fails but what should.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Profile, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

# What is said before the transaction, first in it and after it.
STATEMENTS = {
    "sqlite": ("SELECT 1", "PRAGMA query_only = ON", "PRAGMA query_only = OFF"),
    "postgresql": ("SELECT 1", "SET LOCAL transaction_read_only = on", "SELECT 1"),
    "mysql": ("SET SESSION TRANSACTION READ ONLY", "SELECT 1", "SET SESSION TRANSACTION READ WRITE"),
}
BOOKS: dict[str, Any] = {"model": "testapp.book"}


@contextmanager
def read_only_database() -> Iterator[None]:
    """Let the database refuse whatever is written meanwhile."""
    before, first, after = STATEMENTS[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(before)
        try:
            with transaction.atomic():
                cursor.execute(first)
                yield
                # PostgreSQL takes it back at the end alone.
                transaction.set_rollback(True)
        finally:
            cursor.execute(after)


def run_everything(client: MCPClient, pk: Any) -> dict[str, Any]:
    """Call every tool that says that it only reads, and every method beside tools; return the results of the tools."""
    calls: dict[str, dict[str, Any]] = {
        "list_models": {},
        "describe_model": {**BOOKS, "detail": True},
        "query_records": {**BOOKS, "search": "a", "count": True, "ordering": ["-author__name"], "limit": 1},
        "get_record": {**BOOKS, "pk": pk, "history": True},
        "aggregate_records": {**BOOKS, "aggregates": ["count", "sum:price"], "group_by": ["author"], "top": 1},
    }
    reading = {tool["name"] for tool in client.tools() if tool["annotations"]["readOnlyHint"]}
    assert reading == set(calls)
    assert client.request("resources/list")["resources"]
    assert client.request("resources/templates/list")["resourceTemplates"]
    assert client.request("server/discover")
    for uri in ("django://testapp/book", "django://testapp/book/schema", f"django://testapp/book/{pk}"):
        assert client.read(uri)
    completed = client.request(
        "completion/complete",
        ref={"type": "ref/resource", "uri": "django://testapp/book/{pk}"},
        argument={"name": "pk", "value": ""},
    )
    assert completed["completion"]["values"]
    return {name: client.call(name, **arguments) for name, arguments in calls.items()}


@pytest.mark.parametrize("read_only", [False, True], ids=["setting-off", "setting-on"])
def test_H151_H152_every_tool_that_only_reads_runs_where_nothing_can_be_written(read_only: bool, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": read_only}
    author = make_author("Ada")
    Profile.objects.create(author=author)
    books = [make_book(title, author=author) for title in ("a", "ab")]
    books[0].tags.add(Tag.objects.create(name="t"))
    client = MCPClient(make_superuser())
    with read_only_database():
        results = run_everything(client, books[0].pk)
        assert not [name for name, result in results.items() if result.is_error]
        assert results["query_records"].structured["next_cursor"]


def test_H152_the_read_only_switch_refuses_before_the_database_does(settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    book = make_book("a")
    client = MCPClient(make_superuser())
    with read_only_database():
        for name in ("create_record", "update_record", "delete_record", "run_action", "publish_testapp_book"):
            with pytest.raises(MCPError, match=f"Unknown tool: {name}"):
                client.call(name, **BOOKS, pk=book.pk, values={}, idempotency_key="k")


def test_the_database_of_these_tests_refuses_writes() -> None:
    book = make_book("a")
    with read_only_database(), pytest.raises(DatabaseError), transaction.atomic():
        book.save()

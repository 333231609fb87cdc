"""What a caller is told of a write whose COMMIT fails: never that nothing was changed where something may have been."""

import logging
import time
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.signals import post_save

from mcp_django.models import KeyedCall
from mcp_django.orm.query_limits import AFTERWARDS, IN_DOUBT, TOO_SLOW
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_book, make_superuser
from tests.postgres_proxy import behind_a_proxy
from tests.testapp.models import Author, Book, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]
on_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="the proxy reads PostgreSQL's protocol")


@pytest.fixture
def client():
    return MCPClient(make_superuser())


def confirmed(client: MCPClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the arguments with which the call runs, asked or not."""
    asked = client.call(tool, **arguments)
    assert not asked.is_error, asked.text
    return {**arguments, "confirm_token": asked.structured["confirm_token"]}


CREATE = {"model": "testapp.tag", "values": {"name": "new"}}
WRITES = ["create", "update", "delete", "bulk update", "bulk delete"]


def prepared(client: MCPClient, write: str) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments of a write that needs no more questions."""
    authors = [make_author(f"author {number}") for number in range(2)]
    one, many = {"pk": authors[0].pk}, {"pks": [author.pk for author in authors]}
    values, model = {"values": {"name": "other"}}, {"model": "testapp.author"}
    if write == "create":
        return "create_record", CREATE
    if write == "update":
        return "update_record", {**model, **one, **values}
    if write == "bulk update":
        return "update_record", confirmed(client, "update_record", **model, **many, **values)
    arguments = one if write == "delete" else many
    return "delete_record", confirmed(client, "delete_record", **model, **arguments)


def stored() -> list[Any]:
    return [*Author.objects.values_list("pk", "name"), *Tag.objects.values_list("pk", "name")]


@on_postgresql
@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("write", WRITES)
def test_a_commit_without_an_answer_may_have_been_done(client, write, cut, caplog):
    tool, arguments = prepared(client, write)
    before = stored()
    with behind_a_proxy() as proxy, caplog.at_level(logging.ERROR, "mcp_django.tools"):
        proxy.cut = cut
        result = client.call(tool, **arguments)
    assert result.is_error
    assert result.text == IN_DOUBT
    assert "It may have been done" in caplog.text
    assert (stored() == before) is (cut == "before")


@on_postgresql
def test_an_action_whose_commit_had_no_answer_is_not_told_to_be_repeated(client):
    book = make_book(status=Book.Status.DRAFT)
    arguments = {"model": "testapp.book", "action": "publish", "pks": [book.pk]}
    with behind_a_proxy() as proxy:
        asked = client.call("run_action", **arguments, confirm_token=None)
        if not asked.is_error and "confirm_token" in asked.structured:
            arguments["confirm_token"] = asked.structured["confirm_token"]
        proxy.cut = "after"
        result = client.call("run_action", **arguments)
    book.refresh_from_db()
    assert book.status == Book.Status.PUBLISHED
    assert result.text == IN_DOUBT


@on_postgresql
def test_an_idempotency_key_finds_out_what_the_commit_has_done(client):
    for cut in ("before", "after"):
        name = f"keyed {cut}"
        given = {"model": "testapp.tag", "values": {"name": name}, "idempotency_key": name}
        with behind_a_proxy() as proxy:
            proxy.cut = cut
            result = client.call("create_record", **given)
        assert Tag.objects.filter(name=name).count() == (cut == "after")
        if cut == "after":
            assert result.structured["created"] is True
        else:
            assert result.text == IN_DOUBT
        # Nothing is done twice.
        client.call("create_record", **given)
        assert Tag.objects.filter(name=name).count() == (cut == "after")
        assert KeyedCall.objects.count() == (1 if cut == "before" else 2)


@on_postgresql
def test_a_connection_that_breaks_before_the_commit_has_changed_nothing(client):
    def lose(sender: Any, **_: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    post_save.connect(lose, Tag)
    try:
        result = client.call("create_record", **CREATE)
    finally:
        post_save.disconnect(lose, Tag)
        connection.close()
    assert result.text == "Nothing was changed: the connection to the database was lost. Repeat the call."
    assert not Tag.objects.exists()


@on_postgresql
@pytest.mark.parametrize(
    ("limit", "cause"),
    [
        ("statement_timeout", "it took longer than the database allows a statement to take"),
        ("idle_in_transaction_session_timeout", "the transaction was longer idle, or took longer, than the database"),
    ],
)
def test_a_limit_of_the_database_is_named(client, limit, cause):
    def wait(sender: Any, **_: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL {limit} = 100")
            if limit == "statement_timeout":
                cursor.execute("SELECT pg_sleep(2)")
        time.sleep(0.5)
        Tag.objects.count()

    post_save.connect(wait, Tag)
    try:
        result = client.call("create_record", **CREATE)
    finally:
        post_save.disconnect(wait, Tag)
        connection.close()
    assert result.text.startswith(f"Nothing was changed: {cause}")
    assert not Tag.objects.exists()


@on_postgresql
def test_a_read_over_the_limit_of_the_database_is_told_as_over_our_own(client, monkeypatch):
    slow = Tag.objects.extra(where=["pg_sleep(1) IS NOT NULL"])
    monkeypatch.setattr("tests.testapp.admin.NamedAdmin.get_queryset", lambda admin, request: slow.all())
    Tag.objects.create(name="slow")
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 200")
    try:
        result = client.call("query_records", model="testapp.tag")
    finally:
        connection.close()
    assert result.text == TOO_SLOW


@pytest.mark.parametrize("error", [RuntimeError("x"), transaction.TransactionManagementError("x")])
def test_what_fails_after_the_commit_is_not_told_as_undone(client, error):
    """The next of its kind: a hook of the project that runs after the commit."""

    def fail(sender: Any, **_: Any) -> None:
        def later() -> None:
            raise error

        transaction.on_commit(later)

    post_save.connect(fail, Tag)
    try:
        result = client.call("create_record", **CREATE)
    finally:
        post_save.disconnect(fail, Tag)
    assert result.text == AFTERWARDS
    assert Tag.objects.count() == 1


@on_postgresql
def test_a_connection_that_the_project_closes_stores_nothing(client):
    def close(sender: Any, **_: Any) -> None:
        connection.close()

    post_save.connect(close, Tag)
    try:
        result = client.call("create_record", model="testapp.tag", values={"name": "lost"})
    finally:
        post_save.disconnect(close, Tag)
    assert result.is_error
    assert "Nothing was" in result.text or "may have been" in result.text
    assert not Tag.objects.exists()


@on_postgresql
def test_a_database_without_free_connections_is_named(client):
    with connection.cursor() as cursor:
        cursor.execute("DROP ROLE IF EXISTS mcp_crowded")
        cursor.execute("CREATE ROLE mcp_crowded LOGIN CONNECTION LIMIT 0")
    known = connection.settings_dict
    connection.close()
    connection.settings_dict = {**known, "USER": "mcp_crowded"}
    try:
        response = client.send("tools/list", {})
    finally:
        connection.close()
        connection.settings_dict = known
        with connection.cursor() as cursor:
            cursor.execute("DROP ROLE mcp_crowded")
    assert response.status_code == 503
    assert "the database takes no more connections" in response.json()["error"]["message"]

"""Hooks that report an error and return, without saving or deleting: the caller is not told that it was done."""

from typing import Any

import pytest
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry

from mcp_django.testing import MCPClient
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]
TEXT = "The period is closed."
SAID = f"“{TEXT}”"


@pytest.fixture
def client():
    return MCPClient(make_superuser())


def refuse(monkeypatch: pytest.MonkeyPatch, model: Any, *hooks: str, level: int = messages.ERROR) -> None:
    def hook(self: Any, request: Any, *rest: Any) -> None:
        self.message_user(request, TEXT, level)

    for name in hooks:
        monkeypatch.setattr(type(admin.site.get_model_admin(model)), name, hook)


def untouched(client: MCPClient, before: Any) -> None:
    assert not LogEntry.objects.exists()
    assert before == state()


def state() -> list[Any]:
    return [*Author.objects.values_list(), *Book.objects.values_list(), *Tag.objects.values_list()]


SAVES = [
    ("create_record", {"model": "testapp.tag", "values": {"name": "new"}}),
    (
        "create_record",
        {"model": "testapp.author", "values": {"name": "new", "profile": [{"website": "https://a.example"}]}},
    ),
    ("update_record", {"model": "testapp.author", "values": {"name": "new"}}),
    ("update_record", {"model": "testapp.author", "values": {"born": "2001-01-01", "email": "a@example.com"}}),
    ("update_record", {"model": "testapp.author", "values": {}}),
    (
        "update_record",
        {"model": "testapp.author", "values": {"name": "new", "profile": [{"website": "https://a.example"}]}},
    ),
    ("update_record", {"model": "testapp.book", "values": {"status": "published", "price": "1.50"}}),
]


@pytest.mark.parametrize(("tool", "arguments"), SAVES)
def test_a_save_that_reports_an_error_and_stores_nothing_is_not_told_as_saved(client, monkeypatch, tool, arguments):
    models = {"testapp.tag": Tag, "testapp.author": Author, "testapp.book": Book}
    row = make_author() if arguments["model"] == "testapp.author" else make_book()
    before = state()
    refuse(monkeypatch, models[arguments["model"]], "save_model")
    key = {"pk": row.pk} if tool == "update_record" else {}
    result = client.call(tool, **arguments, **key)
    assert result.is_error
    assert result.text == f"Nothing was saved: {SAID}"
    untouched(client, before)


def test_relations_that_are_not_saved_are_not_told_as_saved(client, monkeypatch):
    book, tag = make_book(), Tag.objects.create(name="a")
    refuse(monkeypatch, Book, "save_related")
    result = client.call("update_record", model="testapp.book", pk=book.pk, values={"tags": [tag.pk]})
    assert result.text == f"Nothing was saved: {SAID}"
    assert not book.tags.exists()


def test_rows_of_a_bulk_write_that_are_not_saved_are_named(client, monkeypatch):
    authors = [make_author(name) for name in "ab"]
    given = {"model": "testapp.author", "pks": [author.pk for author in authors], "values": {"email": "a@b.example"}}
    token = client.call("update_record", **given).structured["confirm_token"]
    refuse(monkeypatch, Author, "save_model")
    # The write is tried before it asks, and may be refused only then.
    for confirmed in ({}, {"confirm_token": token}):
        result = client.call("update_record", **given, **confirmed)
        assert result.is_error
        assert SAID in result.text
        assert "a, b" in result.text
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_deletion_that_reports_an_error_and_leaves_rows_is_not_told_as_done(client, monkeypatch, many):
    authors = [make_author(name) for name in "ab"]
    picked: dict[str, Any] = {"pks": [author.pk for author in authors]} if many else {"pk": authors[0].pk}
    token = client.call("delete_record", model="testapp.author", **picked).structured["confirm_token"]
    refuse(monkeypatch, Author, "delete_model", "delete_queryset")
    # The deletion is tried before it asks, and may be refused only then.
    for confirmed in ({}, {"confirm_token": token}):
        result = client.call("delete_record", model="testapp.author", **picked, **confirmed)
        assert result.is_error
        assert result.text.startswith("Nothing was deleted, because ")
        assert SAID in result.text
    assert Author.objects.count() == 2
    assert not LogEntry.objects.exists()


def test_an_error_beside_a_save_is_a_message(client, monkeypatch):
    author = make_author()

    def save(self: Any, request: Any, obj: Any, *rest: Any) -> None:
        obj.save()
        self.message_user(request, TEXT, messages.ERROR)

    monkeypatch.setattr(type(admin.site.get_model_admin(Author)), "save_model", save)
    result = client.call("update_record", model="testapp.author", pk=author.pk, values={"name": "new"})
    assert result.structured["updated"] is True
    assert result.structured["messages"] == [{"level": "error", "text": TEXT}]
    created = client.call("create_record", model="testapp.author", values={"name": "other"})
    assert created.structured["created"] is True
    assert LogEntry.objects.count() == 2


def test_what_is_stored_elsewhere_is_not_told_as_a_new_row(client, monkeypatch):
    def ask(self: Any, request: Any, obj: Any, *rest: Any) -> None:
        make_author(f"Approve {obj.name}?")
        self.message_user(request, "Sent for approval.", messages.WARNING)

    monkeypatch.setattr(type(admin.site.get_model_admin(Tag)), "save_model", ask)
    result = client.call("create_record", model="testapp.tag", values={"name": "new"})
    assert not result.is_error
    assert result.structured["created"] is False
    assert result.structured["messages"][0]["text"] == "Sent for approval."
    assert Author.objects.count() == 1
    assert not LogEntry.objects.exists()

"""A key is taken as it is shown, ``[key, label]`` too, by every tool and wherever hooks of the admin read it."""

from typing import Any

import pytest
from django.contrib import admin
from django.urls import path

from mcp_django import MCPSite
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_superuser
from tests.testapp.models import AudioBook, Book

SEEN: list[str] = []


class AudioBookAdmin(admin.ModelAdmin):
    list_display = ["book_ptr", "title", "narrator"]
    actions = ["hush"]

    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        # As many admins do: what the page shows depends on its row, found by the page's address.
        key = request.resolver_match.kwargs.get("object_id")
        if key is not None:
            SEEN.append(key)
            assert self.model.objects.filter(pk=int(key)).exists()
        return [(None, {"fields": ["title", "narrator", "pages"]})]

    def hush(self, request: Any, queryset: Any) -> None:
        queryset.update(narrator="nobody")

    hush.mcp_destructive = False


pages = admin.AdminSite(name="of children")
pages.register(AudioBook, AudioBookAdmin)
pages.register(Book, AudioBookAdmin)
site = MCPSite("of children", admin_site=pages, history=False)
urlpatterns = [path("mcp", site.urls), path("pages/", pages.urls)]
pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@pytest.fixture
def client() -> MCPClient:
    return MCPClient(make_superuser(), path="/mcp")


@pytest.fixture
def row(client: MCPClient) -> Any:
    """The key of a row as a page shows it."""
    values = {"title": "a", "author": make_author("Ann"), "price": 1, "isbn": "1"}
    pk = AudioBook.objects.create(narrator="b", **values).pk
    page = client.call("query_records", model="testapp.audiobook").structured
    shown = page["rows"][0][0]
    assert shown == [pk, "a"]
    return shown


def asked(key: Any) -> dict[str, tuple[str, dict[str, Any]]]:
    model = {"model": "testapp.audiobook"}
    return {
        "read": ("get_record", {**model, "pk": key}),
        "read one field": ("get_record", {**model, "pk": key, "fields": ["narrator"]}),
        "read with history": ("get_record", {**model, "pk": key, "history": True}),
        "update": ("update_record", {**model, "pk": key, "values": {"narrator": "c"}}),
        "update many": ("update_record", {**model, "pks": [key], "values": {"narrator": "c"}}),
        "act": ("run_action", {**model, "action": "hush", "pks": [key]}),
        "delete": ("delete_record", {**model, "pk": key}),
        "delete many": ("delete_record", {**model, "pks": [key]}),
    }


@pytest.mark.parametrize("name", asked([1, "x"]))
def test_a_key_as_it_is_shown_is_taken_as_the_key_alone(client: MCPClient, row: Any, name: str) -> None:
    answers = []
    for key in (row, row[0]):
        SEEN.clear()
        tool, arguments = asked(key)[name]
        told = client.call(tool, **arguments)
        assert not told.is_error, told.text
        if "confirm_token" in told.structured:
            told = client.call(tool, **arguments, confirm_token=told.structured["confirm_token"])
            assert not told.is_error, told.text
        assert {*SEEN} <= {str(row[0])}
        answers.append(told.structured)
        if name.startswith("delete"):
            assert not AudioBook.objects.exists()
            return
    # A read shows the whole row, not its key alone.
    if name == "read":
        assert answers[0] == answers[1]
        assert answers[0]["fields"]["narrator"] == "b"
    if name.startswith("update"):
        assert AudioBook.objects.get().narrator == "c"


def test_a_pair_of_any_model_is_its_key(client: MCPClient) -> None:
    """As a foreign key shows a row of the other model."""
    book = Book.objects.create(title="a", author=make_author("Ann"), price=1, isbn="1")
    found = client.call("get_record", model="testapp.book", pk=[book.pk, "a"])
    assert not found.is_error, found.text
    assert found.structured["pk"] == book.pk


@pytest.mark.parametrize("name", ["pk", "book_ptr"])
def test_a_shown_key_filters_as_the_key_alone(client: MCPClient, row: Any, name: str) -> None:
    for filters in ({name: row}, {f"{name}__in": [row]}, {name: {"in": [row]}}, {name: row[0]}):
        found = client.call("query_records", model="testapp.audiobook", filters=filters)
        assert not found.is_error, found.text
        assert [shown[0] for shown in found.structured["rows"]] == [row], filters

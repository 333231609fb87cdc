"""``list_models``: what it lists, and for whom."""

from typing import Any

import pytest
from django.test import override_settings

from mcp_django.tools.list_models import ListModels
from tests.factories import make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

LIST = ListModels()


def test_row_125_the_list_holds_the_models_of_the_caller() -> None:
    site = site_with(Book, Author, Tag)
    request = reader(make_user("u", "testapp.view_book", "testapp.change_tag", "testapp.add_tag"), site)
    found = call(LIST, request)
    assert found["columns"] == ["model", "title", "may", "description"]
    assert found["rows"] == [
        # The docstring's first sentence; the other model has none of its own.
        ["testapp.book", "books", "view", "Nearly every type of field."],
        ["testapp.tag", "tags", "view add change", ""],
    ]


def test_what_the_caller_may_do_follows_the_token_and_the_site() -> None:
    site = site_with(Book, description="Every book.\nSecond line.")
    user = make_superuser()
    assert call(LIST, reader(user, site))["rows"] == [
        ["testapp.book", "books", "view add change delete", "Every book."]
    ]
    assert call(LIST, request_of(user, site, scopes=frozenset({"mcp:read"})))["rows"][0][2] == "view"
    with override_settings(MCP_DJANGO={"READ_ONLY": True}):
        assert call(LIST, reader(user, site))["rows"][0][2] == "view"


def test_the_list_is_searched_and_bounded() -> None:
    request = reader(make_superuser(), site_with(Book, Author, Tag))
    assert call(LIST, request, query="AUTH")["rows"][0][0] == "testapp.author"
    assert "these are all" in call(LIST, request, query="nothing")["hint"]
    with override_settings(MCP_DJANGO={"RESULT_CHARS": 100}):
        found = call(LIST, request)
    assert 0 < found["returned"] < 3
    assert "There are more" in found["hint"]
    assert "view any model" in call(LIST, reader(make_user("nobody"), site_with(Book)))["hint"]


def test_row_81_the_list_depends_on_nothing_but_the_callers_authority() -> None:
    first: Any = site_with(Book, Author, Tag)
    second: Any = site_with(Tag, Author, Book)
    user = make_superuser()
    assert call(LIST, reader(user, first)) == call(LIST, reader(user, second))

"""A search that finds nothing looks for other spellings where the database can, and says what it did."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import QuerySet
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm import trigram_search
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book
from tests.tool_calls import call

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided, pytest.mark.django_db]
QUERY = QueryRecords()
CAN = connection.vendor == "postgresql"


@pytest.fixture(autouse=True)
def trigrams() -> Iterator[None]:
    """PostgreSQL has its extension in this test alone."""
    trigram_search.can_compare.cache_clear()
    if CAN:
        with connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    yield
    trigram_search.can_compare.cache_clear()


@pytest.fixture
def request_of_root() -> MCPRequest:
    site = site_with(Author, search_fields=["name"])
    site.register(Book, ModelExposure, fields=["title", "author", "status"], search_fields=["title", "author__name"])
    return reader(make_superuser(), site)


def titles(request: MCPRequest, search: str, **arguments: Any) -> list[str]:
    found = call(QUERY, request, model="testapp.book", search=search, fields=["title"], **arguments)
    said = "nearest in spelling" in found.get("hint", "")
    assert said or "nothing matches" in found.get("hint", "") or found["rows"]
    assert said <= CAN
    return sorted(title for _, title in found["rows"])


def test_what_is_spelt_alike_is_found_where_nothing_else_is(request_of_root: MCPRequest) -> None:
    make_book("Left Hand of Darkness", author=make_author("Ursula Le Guin"))
    make_book("The Dispossessed", author=make_author("Somebody"))
    make_book("Cooking", author=make_author("Julia Child"))
    for search, title in [
        ("Dispossesed", "The Dispossessed"),
        ("dispossesed the", "The Dispossessed"),
        ("Ursulla", "Left Hand of Darkness"),
        ("Darknes Ursulla", "Left Hand of Darkness"),
    ]:
        assert titles(request_of_root, search) == ([title] if CAN else []), search
    assert titles(request_of_root, "Zzyzx") == []
    assert titles(request_of_root, "Ursulla Cooking") == []


def test_the_exact_search_comes_first(request_of_root: MCPRequest) -> None:
    make_book("Gardens")
    make_book("Garden")
    make_book("Warden")
    assert titles(request_of_root, "garden") == ["Garden", "Gardens"]
    found = call(QUERY, request_of_root, model="testapp.book", search="garden")
    assert "hint" not in found


def test_filters_hold_and_the_count_is_of_exact_matches(request_of_root: MCPRequest) -> None:
    make_book("Gardens", status="draft")
    make_book("Gardening", status="published")
    found = call(
        QUERY, request_of_root, model="testapp.book", search="Gardn", filters={"status": "draft"}, count=True, limit=1
    )
    assert [row[1] for row in found["rows"]] == (["Gardens"] if CAN else [])
    assert found["count"] == 0
    assert "next_cursor" not in found


def test_no_more_than_a_page_is_found_the_nearest_of_all(request_of_root: MCPRequest) -> None:
    for number in range(5):
        make_book(f"Gardens {number}")
    assert len(titles(request_of_root, "Gardenns", limit=2)) == (2 if CAN else 0)
    with override_settings(MCP_DJANGO={"RESULT_CHARS": 60}):
        found = call(QUERY, request_of_root, model="testapp.book", search="Gardenns")
    assert found["returned"] == (1 if CAN else 0)
    assert "next_cursor" not in found


def test_rows_and_fields_that_the_caller_may_not_see_change_nothing() -> None:
    class Own(ModelExposure):
        fields = ["title", "author"]
        search_fields = ["title", "author__name", "isbn"]

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).exclude(title__startswith="Hidden")

    class Authors(ModelExposure):
        fields = ["name"]

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).exclude(name__startswith="Secret")

    def answers(word: str) -> list[Any]:
        Book.objects.all().delete()
        site = MCPSite()
        site.register(Book, Own)
        site.register(Author, Authors)
        make_book("Plain", author=make_author(f"Secret {word}"), isbn=word, pk=1)
        make_book(f"Hidden {word}", pk=2)
        request = reader(make_user(f"u{word}", "testapp.view_book", "testapp.view_author"), site)
        return [
            call(QUERY, request, model="testapp.book", search=text) for text in ("aardvarc", "zyzzyvva", "aardwark")
        ]

    def without_keys(found: list[Any]) -> list[Any]:
        return [{**answer, "rows": [row[1] for row in answer["rows"]]} for answer in found]

    assert without_keys(answers("aardvark")) == without_keys(answers("zyzzyva"))


def test_fields_that_are_to_be_found_exactly_are_not_guessed(request_of_root: MCPRequest) -> None:
    class Exact(admin.ModelAdmin):
        search_fields = ["=title"]

    admin_site = admin.AdminSite("own")
    admin_site.register(Book, Exact)
    make_book("Gardens")
    assert titles(reader(make_superuser("r"), MCPSite(admin_site=admin_site)), "Gardnes") == []


def test_a_search_of_the_projects_own_stays_its_own() -> None:
    class Own(admin.ModelAdmin):
        search_fields = ["title"]

        def get_search_results(self, request: Any, queryset: Any, search_term: str) -> Any:
            return queryset.filter(title=search_term), False

    admin_site = admin.AdminSite("own")
    admin_site.register(Book, Own)
    make_book("Gardens")
    assert titles(reader(make_superuser("r"), MCPSite(admin_site=admin_site)), "Garden") == []


@pytest.mark.skipif(not CAN, reason="only PostgreSQL has extensions")
def test_without_the_extension_nothing_is_asked_of_it(request_of_root: MCPRequest) -> None:
    make_book("Gardens")
    with connection.cursor() as cursor:
        cursor.execute("DROP EXTENSION pg_trgm")
    trigram_search.can_compare.cache_clear()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        found = call(QUERY, request_of_root, model="testapp.book", search="Gardnes")
    assert found["rows"] == []
    assert "nothing matches" in found["hint"]
    assert not [query for query in queries if "WORD_SIMILARITY" in query["sql"]]


@pytest.mark.parametrize("search", ['"', "''", '" "', "%", "\\", "Gardn%s", "Gardn'; --", "(Gardn", "Gardn " * 10])
def test_odd_terms_are_answered(request_of_root: MCPRequest, search: str) -> None:
    make_book("Gardens")
    assert "rows" in call(QUERY, request_of_root, model="testapp.book", search=search)


def test_what_is_not_found_is_said_on_every_database(request_of_root: MCPRequest) -> None:
    found = call(QUERY, request_of_root, model="testapp.book", search="Zzyzx")
    assert found["hint"] == "nothing matches the search; try a part of the word, or filters"

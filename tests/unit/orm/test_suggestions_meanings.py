"""Names that are none, and what they may mean: among what the caller sees, and nothing else."""

from typing import Any

import pytest

from mcp_django.exceptions import ToolError
from mcp_django.orm.access import access_of
from mcp_django.orm.suggestions import Suggestions, nearest_models
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Tag

pytestmark = pytest.mark.postgresql


@pytest.fixture
def request_(db: None) -> Any:
    return reader(make_superuser(), site_with(Book, Author, Loan, Tag))


@pytest.mark.parametrize("text", ["book", "Books", "testapp.books", "testapp/book", "Testapp Book", "boook", "BOOK"])
def test_a_model_is_known_by_its_names_in_any_number(request_: Any, text: str) -> None:
    assert nearest_models(access_of(request_), text) == ["testapp.book"]


@pytest.mark.parametrize("text", ["", "?", None, 5, "zzzzzz", "x" * 10_000])
def test_what_is_like_no_model_means_none(request_: Any, text: Any) -> None:
    assert nearest_models(access_of(request_), text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Title", "title"),
        ("readingTime", "reading_time"),
        ("reading time", "reading_time"),
        ("titel", "title"),
        ("author->name", "author__name"),
        ("authorName", "author__name"),
        ("author_name", "author__name"),
        ("autor.nam", "author__name"),
        ("bookTitle", "title"),
        ("pages_gte", "pages__gte"),
        ("pagesGte", "pages__gte"),
        ("pags__gte", "pages__gte"),
        ("loans__borower", "loans__borrower"),
        ("total_loans", "loans__count"),
        ("number_of_loans", "loans__count"),
        ("zzzz", None),
        ("", None),
        ("x" * 10_000, None),
        ("title__" * 100, None),
    ],
)
def test_a_path_is_corrected_hop_by_hop(request_: Any, text: str, found: str | None) -> None:
    model = access_of(request_)[request_.mcp.site.exposures[Book]]
    assert Suggestions(model).paths(text, lambda path: True)[:1] == ([] if found is None else [found])


def test_a_path_that_is_of_no_use_is_not_offered(request_: Any) -> None:
    model = access_of(request_)[request_.mcp.site.exposures[Book]]
    assert Suggestions(model).paths("titel", lambda path: False) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        (QueryRecords, {"fields": ["title", "author.name"]}, "testapp.book"),
        (QueryRecords, {"filters": {"or": [{"borrower": "x"}, {"due__gte": "today"}]}}, "testapp.loan"),
        (AggregateRecords, {"aggregates": ["sum:pages*price"]}, "testapp.book"),
        (AggregateRecords, {"aggregates": [{"function": "sum", "field": "pages"}]}, "testapp.book"),
        (QueryRecords, {"fields": ["name"]}, "testapp.author, testapp.tag"),
        (QueryRecords, {"filters": {"books": {"none": {}}}, "fields": ["born"]}, "testapp.author"),
        (QueryRecords, {"limit": 5}, ""),
        (QueryRecords, {"fields": ["nowhere"]}, ""),
    ],
)
def test_a_call_without_model_fits_those_that_have_its_fields(
    request_: Any, tool: Any, arguments: Any, found: str
) -> None:
    with pytest.raises(ToolError) as error:
        tool().check(request_, arguments)
    repair, message = error.value.repair, error.value.message
    assert ("Models with all these names" in message) == ("," in found)
    if "," in found:
        assert f": {found}." in message
    else:
        assert (repair.mend(arguments)["model"] if repair is not None else "") == found


def test_what_the_caller_may_not_view_is_never_meant(db: None) -> None:
    site = site_with(Book, Author, Loan, Tag)
    viewer = reader(make_user("viewer", "testapp.view_book"), site)
    assert nearest_models(access_of(viewer), "loans") == nearest_models(access_of(viewer), "author") == []
    with pytest.raises(ToolError) as error:
        QueryRecords().check(viewer, {"fields": ["borrower"]})
    assert error.value.repair is None
    assert "loan" not in error.value.message
    model = access_of(viewer)[site.exposures[Book]]
    for text in ("author.nam", "loan.borrower", "loansBorrower", "authorSecretToken"):
        assert not any(
            "__" in path
            for path in Suggestions(model).paths(text, lambda path: True)
            if not path.startswith("author__nam")
        )

"""Conditions on groups: what an aggregate is compared with, in whatever spelling, and what it cannot be."""

from typing import Any

import pytest

from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate import AggregateRecords
from tests.factories import make_author, make_book, make_superuser
from tests.reading import reader, site_with
from tests.testapp.models import Author, Book
from tests.writing import call, refusal

pytestmark = pytest.mark.django_db
AGGREGATE = AggregateRecords()
ASKED = {
    "model": "testapp.book",
    "aggregates": ["sum:pages", "max:published", "count", "max:pages"],
    "group_by": ["author.name"],
}


@pytest.fixture
def shelf() -> MCPRequest:
    for name, pages in (("ann", [1, 2]), ("bob", [9])):
        author = make_author(name)
        for number in pages:
            make_book(author=author, pages=number, price=number)
    return reader(make_superuser(), site_with(Author, Book))


@pytest.mark.parametrize(
    "having",
    [
        {"sum_pages__gt": {"field": "max_pages"}},
        {"sum_pages": {"gt": {"field": "max:pages"}}},
        {"sum(pages)__gt": {"field": "max(pages)"}},
        '{"sum_pages": {">": {"field": "max_pages"}}}',
        {"count": 2},
        {"count__gte": "2"},
        {"sum_pages__range": [2, 8]},
    ],
)
def test_values_and_other_aggregates_of_the_call_are_compared(shelf: MCPRequest, having: Any) -> None:
    assert [row[0] for row in call(AGGREGATE, shelf, **ASKED, having=having)["rows"]] == ["ann"]


@pytest.mark.parametrize(
    "having",
    [
        {"sum_pages__gt": {"field": "nope"}},
        {"sum_pages__gt": {"field": "max_published"}},
        {"sum_pages__range": {"field": "count"}},
        {"sum_pages__gt": {"field": 3}},
        {"sum_pages__gt": {"field": None}},
        {"sum_pages__gt": {"field": "pages"}},
        {"max_published__gt": {"field": "author__secret_token"}},
        {"max_published__gt": "some day"},
        {"max_published__range": ["2024"]},
        {"sum_pages__near": 3},
        {"sum_pages": None},
        {"sum_pages__gt": {"field": "count", "plus": 3}},
    ],
)
def test_other_values_are_refused(shelf: MCPRequest, having: Any) -> None:
    assert "having" in refusal(AGGREGATE, shelf, **ASKED, having=having)

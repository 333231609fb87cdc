"""A page that asks about related rows is compiled once, and then served by its plan whatever the values are."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.db.models.sql.compiler import SQLCompiler

from mcp_django.context.request import MCPRequest
from mcp_django.orm import compiled_queries
from mcp_django.tools.query_records import QueryRecords
from tests.behaviour.test_drawn_questions import Zoo
from tests.factories import make_superuser
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
QUERY = QueryRecords()
PLAIN: dict[str, Any] = {"fields": ["title", "pages"]}
# Two calls of one form each, which differ in their values alone.
FORMS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "related column": (
        {"fields": ["title", "author.name"], "filters": {"pages__gte": 1}},
        {"fields": ["title", "author.name"], "filters": {"pages__gte": 7}},
    ),
    "several related columns": (
        {"fields": ["author.name", "author.born", "author"], "limit": 2},
        {"fields": ["author.name", "author.born", "author"], "limit": 2},
    ),
    "order by a related column": (
        {**PLAIN, "ordering": ["-author.name"], "filters": {"pages": 1}},
        {**PLAIN, "ordering": ["-author.name"], "filters": {"pages": 7}},
    ),
    "path": ({**PLAIN, "filters": {"author.name": "ann"}}, {**PLAIN, "filters": {"author.name": "bob"}}),
    "some": (
        {**PLAIN, "filters": {"tags": {"some": {"name": "ann"}}}},
        {**PLAIN, "filters": {"tags": {"some": {"name": "bob"}}}},
    ),
    "none": (
        {**PLAIN, "filters": {"tags": {"none": {"name": "ann"}}}},
        {**PLAIN, "filters": {"tags": {"none": {"name": "bob"}}}},
    ),
    "every": (
        {**PLAIN, "filters": {"tags": {"every": {"name": "ann"}}}},
        {**PLAIN, "filters": {"tags": {"every": {"name": "bob"}}}},
    ),
    "count": (
        {**PLAIN, "filters": {"tags": {"count__gte": 1, "where": {"name": "ann"}}}},
        {**PLAIN, "filters": {"tags": {"count__gte": 2, "where": {"name": "bob"}}}},
    ),
    "nested": (
        {**PLAIN, "filters": {"author": {"some": {"books": {"some": {"tags": {"none": {"name": "ann"}}}}}}}},
        {**PLAIN, "filters": {"author": {"some": {"books": {"some": {"tags": {"none": {"name": "cid"}}}}}}}},
    ),
    "or, not": (
        {**PLAIN, "filters": {"or": [{"tags": {"some": {"name": "ann"}}}, {"not": {"author.name": "bob"}}]}},
        {**PLAIN, "filters": {"or": [{"tags": {"some": {"name": "bob"}}}, {"not": {"author.name": "cid"}}]}},
    ),
}


@pytest.fixture
def library() -> MCPRequest:
    Zoo(hides=False)
    compiled_queries.clear()
    return reader(make_superuser(), site_with(Author, Book, Loan, Tag))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is compiled from now on."""
    found: list[Any] = []
    plain = SQLCompiler.as_sql

    def as_sql(compiler: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(compiler.query.model)
        return plain(compiler, *args, **kwargs)

    monkeypatch.setattr(SQLCompiler, "as_sql", as_sql)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_compiled_once_for_all_values(
    library: MCPRequest, compiled: list[Any], form: str, django_assert_num_queries: Any
) -> None:
    first, second = ({"model": "testapp.book", **arguments} for arguments in FORMS[form])
    before = call(QUERY, library, **first)["rows"]
    assert Book in compiled
    compiled.clear()
    with django_assert_num_queries(1):
        found = call(QUERY, library, **second)["rows"]
    assert compiled == []
    compiled_queries.clear()
    # The plan of other values gives the rows that a plan of its own gives.
    assert call(QUERY, library, **second)["rows"] == found
    assert call(QUERY, library, **first)["rows"] == before


def test_the_next_page_has_a_plan_too(library: MCPRequest, compiled: list[Any]) -> None:
    asked = {"model": "testapp.book", "ordering": ["author.name"], "fields": ["author.name"], "limit": 5}
    cursors = [call(QUERY, library, **asked)["next_cursor"]]
    for _ in range(2):
        cursors.append(call(QUERY, library, cursor=cursors[-1], **asked)["next_cursor"])
    compiled.clear()
    for cursor in cursors[:2]:
        call(QUERY, library, cursor=cursor, **asked)
    assert compiled == []

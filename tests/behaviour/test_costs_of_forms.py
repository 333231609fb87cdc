"""What one call may cost: each form of a question is bounded, in time, in estimated cost and in its parts."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.db.models import QuerySet

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm import query_limits
from mcp_django.orm.query_limits import TOO_SLOW
from mcp_django.server.methods.tools import call_tool
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.base import Tool
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from tests.behaviour.test_drawn_questions import Zoo
from tests.factories import make_superuser
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Section, Tag
from tests.tool_calls import call, refusal
from tests.unit.orm.test_query_limits import ENDLESS, limited, text_of

pytestmark = [pytest.mark.walk, pytest.mark.postgresql]

QUERY, TOTALS, GET = QueryRecords(), AggregateRecords(), GetRecord()
TOTAL: Mapping[str, Any] = {"function": "count", "where": {"loans": {"some": {}}}, "as": "lent"}
# Each form of a question about books that asks their rows, or those behind them.
FORMS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "related column": ("query_records", {"fields": ["title", "author.name"]}),
    "order by a related column": ("query_records", {"ordering": ["-author.name"]}),
    "filter through a relation": ("query_records", {"filters": {"author.name": "ann"}}),
    "some": ("query_records", {"filters": {"loans": {"some": {"borrower": "ann"}}}}),
    "none": ("query_records", {"filters": {"tags": {"none": {"name": "ann"}}}}),
    "every": ("query_records", {"filters": {"loans": {"every": {"borrower": "ann"}}}}),
    "count where": ("query_records", {"filters": {"loans": {"count__gte": 0, "where": {"borrower": "ann"}}}}),
    "field against field": ("query_records", {"filters": {"pages__gt": {"field": "rating", "plus": 1}}}),
    "search": ("query_records", {"search": "a"}),
    "count of rows": ("query_records", {"count": True}),
    "record with related rows": ("get_record", {"pk": None, "related": ["loans", "tags"]}),
    "total": ("aggregate_records", {"aggregates": ["sum:pages*price"]}),
    "condition": ("aggregate_records", {"aggregates": [TOTAL, "count", "ratio:lent/count"]}),
    "share": ("aggregate_records", {"aggregates": ["count", "percent_of_total:count"], "group_by": ["status"]}),
    "change": ("aggregate_records", {"aggregates": ["count", "change:count"], "group_by": ["published:month"]}),
    "related rows added up": ("aggregate_records", {"aggregates": ["count:loans", "max:tags.id"]}),
    "median": ("aggregate_records", {"aggregates": ["median:pages", "percentile:pages:0.9", "stddev:pages"]}),
    "steps": ("aggregate_records", {"group_by": ["pages:100"]}),
    "periods": ("aggregate_records", {"group_by": ["published:month"], "fill": True}),
    "parts of dates": ("aggregate_records", {"group_by": ["published:weekday"]}),
    "having": ("aggregate_records", {"group_by": ["author.name"], "having": {"count__gte": 1}}),
    "top": ("aggregate_records", {"group_by": ["author.name", "status"], "top": 2}),
    "first of each": ("aggregate_records", {"group_by": ["status"], "per": "author.name", "top": 1}),
}


class Endless(ModelExposure):
    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(pk__lt=ENDLESS)


def site_of(exposure: type[ModelExposure]) -> MCPSite:
    site = site_with(Author, Loan, Tag)
    site.register(Section, ModelExposure, fields=["name", "parent", "children"])
    fields = ["title", "author", "pages", "price", "rating", "published", "status", "tags"]
    site.register(Book, exposure, fields=fields, search_fields=["title"])
    return site


@pytest.fixture
def root(db: None) -> MCPRequest:
    Zoo(hides=False)
    return reader(make_superuser(), site_of(ModelExposure))


def answered(request: MCPRequest, form: str) -> Any:
    tool, arguments = FORMS[form]
    given = {name: Book.objects.earliest("pk").pk if name == "pk" else value for name, value in arguments.items()}
    return call_tool(request, {"name": tool, "arguments": {"model": "testapp.book", **given}})


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_answered(root: MCPRequest, form: str) -> None:
    assert "isError" not in answered(root, form)


@pytest.fixture
def endless(transactional_db: None) -> Iterator[MCPRequest]:
    Zoo(hides=False)
    with limited(STATEMENT_TIMEOUT=0.1):
        yield reader(make_superuser(), site_of(Endless))


def test_each_form_ends_in_time(endless: MCPRequest) -> None:
    for form in FORMS:
        assert text_of(answered(endless, form)) == TOO_SLOW, form
        assert not query_limits._watched


def nested(number: int, *, word: str = "some") -> dict[str, Any]:
    found: dict[str, Any] = {"name": "x"}
    for _ in range(number):
        found = {"not": found} if word == "not" else {"children": {word: found}}
    return found


def path(hops: int) -> str:
    return ".".join(["parent"] * hops + ["name"])


def added(number: int) -> str:
    return "+".join(["pages"] * number)


def conditions(number: int) -> dict[str, Any]:
    return {"or": [{"children": {"some": {}}} for _ in range(number)]}


def section(tool: Tool, **arguments: Any) -> tuple[Tool, dict[str, Any]]:
    return tool, {"model": "testapp.section", **arguments}


def book(tool: Tool, **arguments: Any) -> tuple[Tool, dict[str, Any]]:
    return tool, {"model": "testapp.book", **arguments}


SHIFTED = {"pages__gt": {"field": added(20)}}
# What a call may have most of, what is one more than that, and how the refusal names the bound.
BOUNDS: Mapping[str, tuple[tuple[Tool, dict[str, Any]], tuple[Tool, dict[str, Any]], str]] = {
    "column": (section(QUERY, fields=[path(4)]), section(QUERY, fields=[path(5)]), "at most 4 relations"),
    "order": (section(QUERY, ordering=[path(4)]), section(QUERY, ordering=[path(5)]), "at most 4 relations"),
    "group": (section(TOTALS, group_by=[path(4)]), section(TOTALS, group_by=[path(5)]), "at most 4 relations"),
    "measured path": (
        section(TOTALS, aggregates=[f"count_distinct:{path(4)}"]),
        section(TOTALS, aggregates=[f"count_distinct:{path(5)}"]),
        "at most 4 relations",
    ),
    "compared path": (
        section(QUERY, filters={"name": {"field": path(4)}}),
        section(QUERY, filters={"name": {"field": path(5)}}),
        "at most 4 relations",
    ),
    "filtered path": (
        section(QUERY, filters={"children." * 4 + "name": "x"}),
        section(QUERY, filters={"children." * 5 + "name": "x"}),
        "nested 4 deep",
    ),
    "some": (section(QUERY, filters=nested(4)), section(QUERY, filters=nested(5)), "nested 4 deep"),
    "every": (
        section(QUERY, filters=nested(4, word="every")),
        section(QUERY, filters=nested(5, word="every")),
        "nested 4 deep",
    ),
    "not": (section(QUERY, filters=nested(4, word="not")), section(QUERY, filters=nested(5, word="not")), "nested 4"),
    "where": (
        section(TOTALS, aggregates=[{"function": "count", "where": nested(4)}]),
        section(TOTALS, aggregates=[{"function": "count", "where": nested(5)}]),
        "nested 4 deep",
    ),
    "conditions": (section(QUERY, filters=conditions(20)), section(QUERY, filters=conditions(21)), "20 conditions"),
    "conditions of a measure": (
        section(TOTALS, aggregates=[{"function": "count", "where": conditions(20)}]),
        section(TOTALS, aggregates=[{"function": "count", "where": conditions(21)}]),
        "20 conditions",
    ),
    "parts": (
        book(TOTALS, aggregates=[f"sum:{added(20)}"]),
        book(TOTALS, aggregates=[f"sum:{added(21)}"]),
        "at most 40 parts",
    ),
    "compared parts": (
        book(QUERY, filters=SHIFTED),
        book(QUERY, filters={"pages__gt": {"field": added(21)}}),
        "at most 40 parts",
    ),
    "characters": (
        book(TOTALS, aggregates=[f"sum:pages+{' ' * 189}pages"]),
        book(TOTALS, aggregates=[f"sum:pages+{' ' * 190}pages"]),
        "at most 200 characters",
    ),
    "brackets": (
        book(TOTALS, aggregates=[f"sum:{'(' * 8}pages{')' * 8}"]),
        book(TOTALS, aggregates=[f"sum:{'(' * 9}pages{')' * 9}"]),
        "nested 8 deep",
    ),
    "measures": (
        book(TOTALS, aggregates=[f"sum:pages*{number}" for number in range(10)]),
        book(TOTALS, aggregates=[f"sum:pages*{number}" for number in range(11)]),
        "at most 10",
    ),
    "groups": (
        book(TOTALS, group_by=[f"published:{word}" for word in "year quarter month week day weekday".split()]),
        book(TOTALS, group_by=["status"] * 11),
        "at most 10",
    ),
    "having": (
        book(TOTALS, group_by=["status"], having={"count": {"gte": 1}}),
        book(TOTALS, group_by=["status"], having={f"count__gt{' ' * number}": 1 for number in range(11)}),
        "at most 10",
    ),
    "orders": (
        book(QUERY, ordering=["pages", "price", "rating", "status", "title"]),
        book(QUERY, ordering=["pages", "price", "rating", "status", "title", "author"]),
        "at most 5",
    ),
    "columns": (book(QUERY, fields=["pages"] * 200), book(QUERY, fields=["pages"] * 201), "at most 200"),
    "values": (
        book(QUERY, filters={"pages__in": [*range(100)]}),
        book(QUERY, filters={"pages__in": [*range(101)]}),
        "1 to 100 values",
    ),
    "related": (
        book(GET, pk=None, related=["loans:20"] * 10),
        book(GET, pk=None, related=["loans"] * 11),
        "at most 10",
    ),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_each_bound_is_kept_and_named(root: MCPRequest, name: str) -> None:
    (tool, most), (_, more), told = BOUNDS[name]
    known = {"pk": Book.objects.earliest("pk").pk} if "pk" in most else {}
    call(tool, root, **{**most, **known})
    assert told in refusal(tool, root, **{**more, **known})


def test_periods_are_filled_up_to_a_bound_that_is_named(root: MCPRequest) -> None:
    asked = {"model": "testapp.loan", "group_by": ["due:hour"], "fill": True}
    assert "more than 1000 periods" in refusal(TOTALS, root, **asked)

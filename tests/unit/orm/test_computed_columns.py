"""Columns that the admin computes are measured as plain Python has them, of nothing that the caller could not read."""

import re
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import Avg, Case, Count, F, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Length, Lower

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import ToolError
from mcp_django.orm.columns import Column
from mcp_django.orm.computed_columns import order_source, parts_of
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
AGGREGATE, QUERY = AggregateRecords(), QueryRecords()
COLUMNS = ("many", "cheap", "mean", "initial", "letters", "later", "token", "truth", "told", "most")


class AuthorAdmin(admin.ModelAdmin):
    list_display = ["name", "number", *COLUMNS]

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        most = Book.objects.filter(author=OuterRef("pk")).order_by("-pages").values("pages")[:1]
        rows = super().get_queryset(request).exclude(name="nobody").alias(size=Length("name"))
        rows = rows.annotate(number=Count("books"), costs=Sum("books__price"), most_pages=Subquery(most))
        return rows.annotate(average=Avg("books__price"))

    def number(self, author: Any) -> int:
        return author.number

    @admin.display(ordering="-number")
    def many(self, author: Any) -> int:
        return author.number

    @admin.display(ordering=F("costs").asc(nulls_last=True))
    def cheap(self, author: Any) -> Any:
        return author.costs

    @admin.display(ordering="average")
    def mean(self, author: Any) -> Any:
        return author.average

    @admin.display(ordering=Lower("name").desc())
    def initial(self, author: Author) -> str:
        return author.name.lower()

    @admin.display(ordering="size")
    def letters(self, author: Author) -> int:
        return len(author.name)

    @admin.display(ordering="email")
    def later(self, author: Author) -> str:
        return "*"

    @admin.display(ordering=Case(When(secret_token="x", then=Value(1)), default=Value(0)))
    def token(self, author: Author) -> str:
        return "*"

    @admin.display(boolean=True, ordering="number")
    def truth(self, author: Any) -> bool:
        return author.number > 1

    @admin.display(ordering=Count("books", filter=Q(books__owner__isnull=False)))
    def told(self, author: Any) -> int:
        return 0

    @admin.display(ordering="most_pages")
    def most(self, author: Any) -> Any:
        return author.most_pages


class BookAdmin(admin.ModelAdmin):
    list_display = ["title", "price", "by", "labels", "pages", "author", "rating", "status"]
    exclude = ["owner"]

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        return super().get_queryset(request).annotate(labels=Count("tags"))

    @admin.display(ordering="-author__name")
    def by(self, book: Book) -> str:
        return book.author.name

    def labels(self, book: Any) -> int:
        return book.labels


class LoanAdmin(admin.ModelAdmin):
    list_display = ["borrower", "book"]


class TagAdmin(admin.ModelAdmin):
    list_display = ["name"]


PRICES = {"Ann": ["1.10", "2.30", "3.00"], "bob": ["10.00"], "Cid": [], "dan": ["0.05", "7.70"], "nobody": ["99.00"]}


@pytest.fixture
def admin_site() -> admin.AdminSite:
    found = admin.AdminSite("computed")
    found.register(Author, AuthorAdmin)
    found.register(Book, BookAdmin)
    found.register(Loan, LoanAdmin)
    found.register(Tag, TagAdmin)
    return found


@pytest.fixture
def asked(admin_site: admin.AdminSite) -> MCPRequest:
    tags = [Tag.objects.create(name=name) for name in "xyz"]
    for name, prices in PRICES.items():
        author = make_author(name)
        for number, price in enumerate(prices):
            book = make_book(f"{name} {number}", author=author, price=price, pages=number)
            book.tags.set(tags[:number])
            Loan.objects.create(book=book, borrower=name, due="2024-05-06T07:08:09Z")
    return request_of(make_superuser(), MCPSite(admin_site=admin_site))


SHOWN = {name: [Decimal(price) for price in prices] for name, prices in PRICES.items() if name != "nobody"}


def totals(request: MCPRequest, *aggregates: Any, model: str = "testapp.author", **arguments: Any) -> Any:
    return call(AGGREGATE, request, model=model, aggregates=list(aggregates), **arguments)["rows"]


def test_the_description_says_which_can_be_asked_for(asked: MCPRequest) -> None:
    told = call(DescribeModel(), asked, model="testapp.author")["fields"]
    types = dict(re.findall(r"\b(\w+) computed\b(?: (decimal|integer|number|text))?", told))
    assert {name for name, word in types.items() if not word} == {"truth", "told", "most"}
    lines = call(DescribeModel(), asked, model="testapp.author", detail=True)["fields"]
    said = {line.partition(":")[0]: line for line in lines if "computed" in line}
    assert said.keys() == types.keys()
    for name, word in types.items():
        is_filter = refusal_or_none(QUERY, asked, filters={f"{name}__isnull": True}) is None
        is_measure = refusal_or_none(AGGREGATE, asked, aggregates=["count"], group_by=[name]) is None
        assert is_measure is bool(word), name
        assert ("used in aggregates" in said[name]) is is_measure
        assert ("filtered" in said[name]) is is_filter


def refusal_or_none(tool: Any, request: MCPRequest, **arguments: Any) -> str | None:
    try:
        tool.call(request, {"model": "testapp.author", **arguments})
    except ToolError as error:
        return error.message
    return None


def test_annotations_and_expressions_are_measured(asked: MCPRequest) -> None:
    counts = [len(prices) for prices in SHOWN.values()]
    found = totals(asked, "sum:number", "avg:many", "max:letters", "sum:cheap", "median:many", "count:cheap")
    total = sum((price for prices in SHOWN.values() for price in prices), Decimal(0))
    assert found == [[sum(counts), sum(counts) / 4, 3, str(total), 1.5, 3]]
    means = [sum(prices) / len(prices) for prices in SHOWN.values() if prices]
    (shown,) = totals(asked, "max:mean", "sum:mean")
    assert [Decimal(value) for value in shown] == [max(means), pytest.approx(sum(means), abs=Decimal("0.000001"))]


def test_they_are_parts_of_arithmetic_and_of_conditions(asked: MCPRequest) -> None:
    assert totals(asked, "sum:number*2", {"function": "count", "where": {"number__gte": 2}}) == [[12, 2]]
    assert totals(asked, {"function": "last", "field": "initial", "order": "number"}) == [["ann"]]


def test_they_are_groups_and_groups_are_narrowed_by_them(asked: MCPRequest) -> None:
    counts = Counter(len(prices) for prices in SHOWN.values())
    assert totals(asked, "count", group_by=["number"]) == [[key, counts[key]] for key in sorted(counts)]
    assert totals(asked, "sum:number", group_by=["initial"], having={"sum_number__gt": 1}, ordering=["initial"]) == [
        ["ann", 3],
        ["dan", 2],
    ]
    assert totals(asked, "count", group_by=["number:2"]) == [[0.0, 2], [2.0, 2]]
    assert totals(asked, "count", group_by=["number"], top=1, ordering=["-count", "number"])[0][1] == 1


def test_a_column_sorted_by_a_path_stands_for_what_is_there(asked: MCPRequest) -> None:
    sums = [[name, str(sum(map(Decimal, prices)))] for name, prices in PRICES.items() if prices]
    found = totals(asked, "sum:price", model="testapp.book", group_by=["by"], ordering=["by"])
    # The rows of an author that the caller does not see have none.
    expected = [[None if name == "nobody" else name, total] for name, total in sums]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_they_can_be_behind_a_foreign_key(asked: MCPRequest) -> None:
    books = [(number, name) for name, prices in SHOWN.items() for number in range(len(prices))]
    assert totals(asked, "sum:labels", model="testapp.book") == [[sum(number for number, _ in books)]]
    assert totals(asked, "sum:book.labels", "sum:book__author__number", model="testapp.loan") == [
        [sum(number for number, _ in books), sum(len(prices) ** 2 for prices in SHOWN.values())]
    ]
    assert totals(asked, "sum:books.labels") == [[sum(number for number, _ in books)]]


def shown_names(request: MCPRequest, **filters: Any) -> list[str]:
    found = call(QUERY, request, model="testapp.author", filters=filters, fields=["name"], ordering=["id"])
    return [row[1] for row in found["rows"]]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"number": 1}, ["bob"]),
        ({"number__gte": "2"}, ["Ann", "dan"]),
        ({"many": {"lt": 2}}, ["bob", "Cid"]),
        ({"number": [0, 3]}, ["Ann", "Cid"]),
        ({"number__range": [1, 2]}, ["bob", "dan"]),
        ({"cheap__isnull": True}, ["Cid"]),
        ({"cheap": None}, ["Cid"]),
        ({"cheap__isnull": False, "number__gt": 1}, ["Ann", "dan"]),
        ({"not": {"cheap__gte": 7}}, ["Ann", "Cid"]),
        ({"number": {"gt": {"field": "letters"}}}, []),
        ({"letters__gte": {"field": "number"}}, ["Ann", "bob", "Cid", "dan"]),
        ({"books": {"some": {"labels__gte": 2}}}, ["Ann"]),
    ],
    ids=str,
)
def test_rows_are_found_by_them(asked: MCPRequest, filters: Any, names: list[str]) -> None:
    assert shown_names(asked, **filters) == names


def test_a_text_is_not_found_by_what_only_its_order_is(asked: MCPRequest) -> None:
    assert "has no filter 'initial'" in refusal(QUERY, asked, model="testapp.author", filters={"initial": "ann"})


@pytest.mark.parametrize("text", ["many", "x", {}, [], [[1]], None, True, "9" * 40, {"gt": "y"}, {"contains": "1"}])
def test_bad_values_are_told(asked: MCPRequest, text: Any) -> None:
    refused = "" if text is None else refusal(QUERY, asked, model="testapp.author", filters={"number": text})
    assert text is None or "number" in refused


@pytest.mark.parametrize("name", ["token", "truth", "told", "later", "most"])
def test_what_the_caller_could_not_read_is_not_measured(asked: MCPRequest, name: str) -> None:
    asked.mcp.site.register(Author, AdminExposure, fields=["name", *COLUMNS])
    request = request_of(asked.user, asked.mcp.site)
    for arguments in ({"aggregates": [f"max:{name}"]}, {"group_by": [name]}):
        assert f"has no field {name!r}" in refusal(AGGREGATE, request, model="testapp.author", **arguments)
    assert f"has no filter {name!r}" in refusal(QUERY, request, model="testapp.author", filters={name: 1})
    assert "number" not in refusal(AGGREGATE, request, model="testapp.author", aggregates=["max:nonsense"])
    told = f"{call(DescribeModel(), request, model='testapp.author')['fields']}, "
    assert f"{name} computed, " in told


class FewBooks(ModelExposure):
    fields = ("title", "price", "author")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(title="Ann 0")


class Untitled(ModelExposure):
    fields = ("title", "author")


@pytest.mark.parametrize(
    ("exposure", "refused"),
    [(FewBooks, ["number", "many", "cheap", "mean"]), (Untitled, ["cheap", "mean"]), (None, ["number", "cheap"])],
    ids=["hidden rows", "a hidden field", "a hidden model"],
)
def test_totals_of_what_is_hidden_are_not_measured(asked: MCPRequest, exposure: Any, refused: list[str]) -> None:
    site = asked.mcp.site
    if exposure is None:
        site.unregister(Book)
    else:
        site.register(Book, exposure)
    request = request_of(asked.user, site)
    for name in refused:
        assert f"has no field {name!r}" in refusal(
            AGGREGATE, request, model="testapp.author", aggregates=[f"sum:{name}"]
        )
        assert f"has no filter {name!r}" in refusal(QUERY, request, model="testapp.author", filters={name: 1})
    assert totals(request, "max:letters") == [[3]]


def test_the_source_of_an_order_has_no_direction() -> None:
    name = Lower("name")
    assert order_source(resolve_column_of(ordering="-number")) == "number"
    assert order_source(resolve_column_of(ordering=F("costs").desc())) == "costs"
    assert order_source(resolve_column_of(ordering=name.asc())) is name


def resolve_column_of(ordering: Any) -> Any:
    class Exposure(ModelExposure):
        fields = ("name", "made")

        @admin.display(ordering=ordering)
        def made(self, author: Author) -> str:
            return ""

    return Column.of(Exposure(Author, MCPSite()), "made")


def test_conditions_are_parts_of_an_expression_too() -> None:
    expression = Case(When(secret_token="x", then=Value(1)), default=Value(0))
    found = parts_of(Author.objects.annotate(mcp_x=expression).query.annotations["mcp_x"])
    assert "secret_token" in [part.target.name for part in found if hasattr(part, "target")]

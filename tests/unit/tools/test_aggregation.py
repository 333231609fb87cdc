"""Paths to columns: followed by nobody further than they can read, and blind to rows that they may not see."""

from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import Count, QuerySet
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure, ToolError
from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate import AggregateRecords
from mcp_django.tools.aggregation import is_comparable, is_groupable, is_period, is_summable, target_of
from mcp_django.tools.query import QueryRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.reading import reader, site_with
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Section, Shelf
from tests.writing import call, refusal

pytestmark = pytest.mark.django_db
AGGREGATE = AggregateRecords()


class Cheap(ModelExposure):
    """Only books below ten are the caller's."""

    fields = ("title", "author", "price", "pages")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(price__lt=10)


@pytest.fixture
def narrowed_request() -> MCPRequest:
    site = site_with(Author, Loan)
    site.register(Book, Cheap)
    for name, price in (("a", 1), ("b", 5), ("hidden", 99)):
        book = make_book(name, price=price, pages=price, author=make_author(f"author of {name}"))
        Loan.objects.create(book=book, borrower=name, due="2024-05-06T07:08:09Z")
    return reader(make_superuser(), site)


@pytest.mark.parametrize(
    ("group", "rows"),
    [
        ("book__title", [["a", 1], ["b", 1], [None, 1]]),
        ("book__price", [["1.00", 1], ["5.00", 1], [None, 1]]),
        ("book__author__name", [["author of a", 1], ["author of b", 1], [None, 1]]),
    ],
)
def test_row_121_what_is_behind_a_row_of_others_is_null(narrowed_request: MCPRequest, group: str, rows: Any) -> None:
    found = call(AGGREGATE, narrowed_request, model="testapp.loan", group_by=[group])
    assert found["rows"] == rows
    assert "testapp.book that you may not see" in found["hint"]
    assert "hidden" not in str(found)


class Counted(ModelExposure):
    """Decides for each caller: some see all rows, with something counted."""

    fields = ("title", "price")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).annotate(copies=Count("loans"))
        return rows if request.user.is_superuser else rows.filter(price__lt=10)


def test_row_121_who_sees_all_rows_is_not_told_of_hidden_ones_and_others_are(narrowed_request: MCPRequest) -> None:
    site = site_with(Author, Loan)
    site.register(Book, Counted)
    by_price: dict[str, Any] = {"model": "testapp.loan", "group_by": ["book__price"]}
    found = call(AGGREGATE, reader(narrowed_request.user, site), **by_price)
    assert (found["rows"], "hint" in found) == ([["1.00", 1], ["5.00", 1], ["99.00", 1]], False)
    other = make_user("u", "testapp.view_loan", "testapp.view_book", "testapp.view_author")
    found = call(AGGREGATE, reader(other, site), **by_price)
    assert found["rows"] == [["1.00", 1], ["5.00", 1], [None, 1]]
    sorted_by_price = {"model": "testapp.loan", "ordering": ["book__price"]}
    assert call(QueryRecords(), reader(narrowed_request.user, site), **sorted_by_price)["returned"] == 3
    assert "cannot be ordered" in refusal(QueryRecords(), reader(other, site), **sorted_by_price)


def test_row_121_measures_leave_out_the_rows_of_others(narrowed_request: MCPRequest) -> None:
    asked = ["count", "count:book__price", "count_distinct:book__author", "sum:book__price", "max:book__pages"]
    found = call(AGGREGATE, narrowed_request, model="testapp.loan", aggregates=asked)
    assert found["rows"] == [[3, 2, 2, "6.00", 5]]


def test_row_121_conditions_and_order_learn_nothing_of_the_rows_of_others(narrowed_request: MCPRequest) -> None:
    asked: dict[str, Any] = {"group_by": ["borrower"], "aggregates": ["max:book__price"]}
    found = call(AGGREGATE, narrowed_request, model="testapp.loan", **asked, ordering=["-max_book__price"])
    assert found["rows"] == [["b", "5.00"], ["a", "1.00"], ["hidden", None]]
    found = call(AGGREGATE, narrowed_request, model="testapp.loan", **asked, having={"max_book__price__gt": 5})
    assert found["rows"] == []
    found = call(AGGREGATE, narrowed_request, model="testapp.loan", **asked, top=2)
    assert found["rest"] == {"groups": 1, "max_book__price": None}


def test_row_121_each_record_on_the_way_has_to_be_visible() -> None:
    class Known(ModelExposure):
        fields = ("name",)

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).exclude(name="secret")

    site = site_with(Loan)
    site.register(Book, Cheap)
    site.register(Author, Known)
    for name, price in (("open", 1), ("secret", 1), ("dear", 99)):
        book = make_book(price=price, author=make_author(name))
        Loan.objects.create(book=book, borrower="x", due="2024-05-06T07:08:09Z")
    found = call(AGGREGATE, reader(make_superuser(), site), model="testapp.loan", group_by=["book__author__name"])
    assert found["rows"] == [["open", 1], [None, 2]]
    assert "testapp.book, testapp.author" in found["hint"]


def test_row_121_the_admins_own_rows_narrow_as_well() -> None:
    user = make_user("u", "testapp.view_book", "testapp.view_loan")
    for title, owner in (("mine", user), ("theirs", make_superuser("other"))):
        Loan.objects.create(book=make_book(title, owner=owner), borrower="x", due="2024-05-06T07:08:09Z")
    request = reader(user, MCPSite(admin_site=admin.site))
    assert call(AGGREGATE, request, model="testapp.loan", group_by=["book__title"])["rows"] == [["mine", 1], [None, 1]]


def test_where_every_row_is_the_callers_the_join_is_plain() -> None:
    make_book("a", author=make_author("Ann"))
    request = reader(make_superuser(), site_with(Book, Author))
    with CaptureQueriesContext(connection) as captured:
        found = call(AGGREGATE, request, model="testapp.book", group_by=["author__name"])
    assert found["rows"] == [["Ann", 1]]
    assert "hint" not in found
    assert "CASE" not in captured[-1]["sql"]


@pytest.mark.parametrize("spelt", ["group_by", "aggregates"])
def test_row_112_a_hidden_field_behind_a_relation_is_refused_like_a_missing_one(spelt: str) -> None:
    prefix = "count:" if spelt == "aggregates" else ""
    request = reader(make_superuser(), MCPSite(admin_site=admin.site))
    with CaptureQueriesContext(connection) as captured:
        hidden = refusal(AGGREGATE, request, model="testapp.book", **{spelt: [f"{prefix}author__secret_token"]})
        missing = refusal(AGGREGATE, request, model="testapp.book", **{spelt: [f"{prefix}author__nonononono_"]})
    assert hidden.replace("secret_token", "nonononono_") == missing
    assert "author__name" in missing
    assert not any("testapp_book" in query["sql"] for query in captured)


def test_row_125_a_path_into_an_invisible_model_is_refused_like_a_missing_one() -> None:
    request = reader(make_user("u", "testapp.view_book"), MCPSite(admin_site=admin.site))
    hidden = refusal(AGGREGATE, request, model="testapp.book", group_by=["author__name"])
    assert hidden.replace("author__name", "author__nono") == refusal(
        AGGREGATE, request, model="testapp.book", group_by=["author__nono"]
    )
    missing = refusal(AGGREGATE, request, model="testapp.book", group_by=["nonono__nono"])
    assert hidden.partition("Valid:")[2] == missing.partition("Valid:")[2]


def test_row_126_what_the_parent_hides_is_hidden_in_the_child_and_behind_relations() -> None:
    site = site_with(Author, Placement, Shelf)
    site.register(Book, ModelExposure, fields=["title"])
    site.register(AudioBook, ModelExposure, fields="__all__")
    request = reader(make_superuser(), site)
    for model, text in (("audiobook", "price"), ("audiobook", "author__name"), ("placement", "book__price")):
        message = refusal(AGGREGATE, request, model=f"testapp.{model}", aggregates=[f"count:{text}"])
        assert "has no field" in message
    assert call(AGGREGATE, request, model="testapp.placement", group_by=["book__title"])["rows"] == []
    assert call(AGGREGATE, request, model="testapp.audiobook", group_by=["title"])["rows"] == []


def test_row_128_hidden_columns_are_not_in_the_query(narrowed_request: MCPRequest) -> None:
    with CaptureQueriesContext(connection) as captured:
        call(AGGREGATE, narrowed_request, model="testapp.loan", group_by=["book__author__name", "book"], top=1)
    read = [query["sql"] for query in captured if "testapp_loan" in query["sql"]]
    assert read
    assert not any(name in sql for sql in read for name in ("secret_token", "isbn", "biography", "email"))


@pytest.mark.parametrize(
    "text",
    ["tags__name", "shelf__code", "loans__borrower", "author__profile__biography", "author__", "__author", "__", ""],
)
def test_relations_to_many_rows_are_not_followed_as_they_would_multiply_sums(text: str) -> None:
    request = reader(make_superuser(), site_with(Book, Author, Loan, Shelf))
    assert "has no field" in refusal(AGGREGATE, request, model="testapp.book", group_by=[text])


def test_row_118_a_path_has_a_bounded_number_of_joins() -> None:
    parent = Section.objects.create(name="top")
    Section.objects.create(name="below", parent=parent)
    request = reader(make_superuser(), site_with(Section))
    near = "parent__" * 4 + "name"
    assert call(AGGREGATE, request, model="testapp.section", group_by=[near])["rows"] == [[None, 2]]
    assert "has no field" in refusal(AGGREGATE, request, model="testapp.section", group_by=["parent__" + near])
    assert "has no field" in refusal(AGGREGATE, request, model="testapp.section", group_by=["parent__" * 50_000])


def test_a_path_that_the_exposure_lists_as_a_field_needs_no_other_permission() -> None:
    make_book("a", author=make_author("Ann"))
    request = reader(make_superuser(), site_with(Book, fields=["title", "author__name"]))
    assert call(AGGREGATE, request, model="testapp.book", group_by=["author__name"])["rows"] == [["Ann", 1]]


def test_a_path_ends_in_a_relation_or_a_key_too() -> None:
    author = make_author("Ann")
    Loan.objects.create(book=make_book("a", author=author), borrower="x", due="2024-05-06T07:08:09Z")
    request = reader(make_superuser(), site_with(Book, Author, Loan))
    for text, shown in (("book__author", [author.pk, "Ann"]), ("book__author_id", [author.pk, "Ann"])):
        assert call(AGGREGATE, request, model="testapp.loan", group_by=[text])["rows"] == [[shown, 1]]
    assert call(AGGREGATE, request, model="testapp.loan", group_by=["book__author__pk"])["rows"] == [[author.pk, 1]]


def test_columns_are_usable_for_what_their_type_can() -> None:
    site = site_with(Book, Author)
    request, exposure = reader(make_superuser(), site), site.exposures[Book]
    usable = {
        is_summable: {"pages", "price", "rating", "reading_time", "id"},
        is_period: {"published", "created"},
    }
    for test, names in usable.items():
        found = set()
        for field in Book._meta.concrete_fields:
            try:
                found.add(target_of(request, exposure, field.name, test).name)
            except ToolError:
                continue
        assert found == names
    assert target_of(request, exposure, "opens", is_comparable).name == "opens"
    assert target_of(request, exposure, "author", is_groupable).column.kind == "relation"

"""Paths to columns: followed by nobody further than they can read, and blind to rows that they may not see."""

from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import Count, QuerySet
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure, ToolError, site
from mcp_django.context.request import MCPRequest
from mcp_django.orm.access import access_of
from mcp_django.orm.path import guards_on, target_of
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.fileapp.models import Manual, Page
from tests.library import make_library, reader, site_with
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf
from tests.tool_calls import call, refusal

QUERY, RECORD = QueryRecords(), GetRecord()

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
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
    found = call(QueryRecords(), reader(other, site), **sorted_by_price, fields=["book.price"])
    assert sorted(str(price) for _, price in found["rows"]) == ["1.00", "5.00", "None"]


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
    told = "leads to several rows" if text.startswith(("shelf", "loans")) else "has no field"
    assert told in refusal(AGGREGATE, request, model="testapp.book", group_by=[text])


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


def test_a_name_that_is_wrong_is_told_a_path_that_can_be_shown_and_no_other() -> None:
    request = reader(make_superuser(), site_with(Page, Manual))
    told = [refusal(QUERY, request, model="fileapp.page", fields=[f"manual__{name}"]) for name in ("titl", "pictur")]
    assert "manual__title" in told[0]
    assert "manual__picture" not in told[1]


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
        lambda column: column.is_summable(): {"pages", "price", "rating", "reading_time", "id"},
        lambda column: column.is_period(): {"published", "created"},
    }
    for test, names in usable.items():
        found = set()
        for field in Book._meta.concrete_fields:
            try:
                found.add(target_of(access_of(request)[exposure], field.name, test).name)
            except ToolError:
                continue
        assert found == names
    opens = target_of(access_of(request)[exposure], "opens", lambda column: column.is_comparable())
    assert opens.name == "opens"
    author = target_of(access_of(request)[exposure], "author", lambda column: column.is_groupable())
    assert author.column.kind == "relation"


class TestColumnsOfRelatedRows:
    @pytest.fixture
    def request_of_all(self) -> MCPRequest:
        make_library(4)
        return reader(make_superuser(), site_with(Author, Book, Loan))

    @pytest.mark.parametrize("spelt", ["book.author.name", "book__author__name"])
    def test_they_are_read_with_the_page(self, request_of_all: MCPRequest, spelt: str) -> None:
        asked = {"model": "testapp.loan", "ordering": ["borrower"]}
        call(QUERY, request_of_all, **asked, fields=["borrower"])
        call(QUERY, request_of_all, **asked, fields=["borrower", spelt, "book.price", "book.published"])
        with CaptureQueriesContext(connection) as plain:
            call(QUERY, request_of_all, **asked, fields=["borrower"])
        with CaptureQueriesContext(connection) as joined:
            found = call(QUERY, request_of_all, **asked, fields=["borrower", spelt, "book.price", "book.published"])
        assert len(joined) == len(plain)
        assert found["columns"] == ["id", "borrower", "book__author__name", "book__price", "book__published"]
        books = [loan.book for loan in Loan.objects.select_related("book__author").order_by("borrower")]
        days = [None if book.published is None else book.published.isoformat() for book in books]
        expected = [[book.author.name, f"{book.price:.2f}", day] for book, day in zip(books, days, strict=True)]
        assert [row[2:] for row in found["rows"]] == expected

    def test_a_relation_behind_a_relation_is_shown_with_its_label(self, request_of_all: MCPRequest) -> None:
        found = call(QUERY, request_of_all, model="testapp.loan", fields=["book.author"], ordering=["id"])
        authors = [loan.book.author for loan in Loan.objects.order_by("id")]
        assert [row[1] for row in found["rows"]] == [[author.pk, author.name] for author in authors]

    def test_they_are_the_same_beside_a_computed_column(self, request_of_all: MCPRequest) -> None:
        site = site_with(Author, Loan)
        site.register(Book, ComputedBook)
        request = reader(request_of_all.user, site)
        found = call(
            QUERY, request, model="testapp.book", fields=["shout", "author.name", "author.born"], ordering=["id"]
        )
        assert found["rows"] == [
            [book.pk, book.title.upper(), book.author.name, book.author.born and book.author.born.isoformat()]
            for book in Book.objects.select_related("author").order_by("pk")
        ]

    def test_one_record_has_them_too(self, request_of_all: MCPRequest) -> None:
        loan = Loan.objects.latest("pk")
        found = call(RECORD, request_of_all, model="testapp.loan", pk=str(loan.pk), fields=["book.author.name"])
        assert found["fields"] == {"id": loan.pk, "book__author__name": loan.book.author.name}

    def test_a_row_whose_key_leads_nowhere_stays(self, request_of_all: MCPRequest) -> None:
        with connection.constraint_checks_disabled(), connection.cursor() as cursor:
            cursor.execute("UPDATE testapp_loan SET book_id = 99999 WHERE borrower = 'Reader 1'")
            asked = {"model": "testapp.loan", "ordering": ["borrower"], "fields": ["borrower", "book.author.name"]}
            found = call(QUERY, request_of_all, **asked)
            cursor.execute("DELETE FROM testapp_loan WHERE borrower = 'Reader 1'")
        assert [row[1:] for row in found["rows"]][1] == ["Reader 1", None]
        assert found["returned"] == 4

    @pytest.mark.parametrize("spelt", ["book.cover", "book.tags", "book.author.secret_token", "tags.name", "book.x.y"])
    def test_row_112_what_is_no_column_of_theirs_is_not_found(self, request_of_all: MCPRequest, spelt: str) -> None:
        text = refusal(QUERY, request_of_all, model="testapp.loan", fields=[spelt])
        assert "testapp.loan has no field" in text

    def test_row_112_a_hidden_field_reads_as_one_that_is_missing(self, request_of_all: MCPRequest) -> None:
        hidden, missing = (
            refusal(QUERY, request_of_all, model="testapp.book", fields=[f"author.{name}"]).replace(name, "name")
            for name in ("secret_token", "secret_nothing")
        )
        assert hidden == missing


class ComputedBook(ModelExposure):
    fields = ("title", "author", "shout")

    def shout(self, obj: Book) -> str:
        return obj.title.upper()


class TestRowsThatAreHidden:
    """What is behind a hidden row is null, in columns, filters and orders alike, and cursors go on through it."""

    def test_row_121_columns_and_orders(self, narrowed_request: MCPRequest) -> None:
        asked = {"model": "testapp.loan", "fields": ["book.title", "book.author.name"], "ordering": ["-book.price"]}
        pages, cursor = [], None
        for _ in range(3):
            found = call(QUERY, narrowed_request, **asked, limit=1, **({"cursor": cursor} if cursor else {}))
            pages += [row[1:] for row in found["rows"]]
            cursor = found.get("next_cursor")
        # The one without a price is last in both directions, whatever the database thinks of NULL.
        assert pages == [["b", "author of b"], ["a", "author of a"], [None, None]]
        assert cursor is None

    def test_row_121_filters(self, narrowed_request: MCPRequest) -> None:
        def borrowers(**filters: Any) -> list[str]:
            found = call(QUERY, narrowed_request, model="testapp.loan", filters=filters, fields=["borrower"])
            return sorted(row[1] for row in found["rows"])

        assert borrowers(book__title="hidden") == []
        assert borrowers(book__title__in=["a", "hidden"]) == ["a"]
        assert borrowers(**{"book.author.name__contains": "author of"}) == ["a", "b"]
        assert borrowers(**{"not": {"book__title": "a"}}) == ["b", "hidden"]

    def test_row_121_one_record(self, narrowed_request: MCPRequest) -> None:
        loan = Loan.objects.get(borrower="hidden")
        found = call(RECORD, narrowed_request, model="testapp.loan", pk=str(loan.pk), fields=["book.title"])
        assert found["fields"]["book__title"] is None


# The other end of a one-to-one field


class Ours(ModelExposure):
    """Only profiles on our own site are the caller's."""

    fields = ("author", "website")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(website__contains="ours")


def make_profiles() -> None:
    for name, website in (("Ada", "https://ours.example/"), ("Bob", "https://theirs.example/"), ("Cyd", "")):
        author = make_author(name)
        make_book(f"of {name}", author=author)
        if website:
            Profile.objects.create(author=author, website=website)


ASKED_OF_PROFILES: list[tuple[Any, dict[str, Any], Any, Any]] = [
    (
        QUERY,
        {"model": "testapp.author", "fields": ["name", "profile.website"], "ordering": ["name"]},
        [["Ada", "https://ours.example/"], ["Bob", "https://theirs.example/"], ["Cyd", None]],
        [["Ada", "https://ours.example/"], ["Bob", None], ["Cyd", None]],
    ),
    (
        QUERY,
        {"model": "testapp.book", "fields": ["title", "author.profile.website"], "ordering": ["title"]},
        [["of Ada", "https://ours.example/"], ["of Bob", "https://theirs.example/"], ["of Cyd", None]],
        [["of Ada", "https://ours.example/"], ["of Bob", None], ["of Cyd", None]],
    ),
    (
        QUERY,
        {"model": "testapp.author", "fields": ["name"], "filters": {"profile.website__contains": "theirs"}},
        [["Bob"]],
        [],
    ),
    (
        QUERY,
        # Where a null goes is the database's business.
        {
            "model": "testapp.author",
            "fields": ["name"],
            "filters": {"profile.website__isnull": False},
            "ordering": ["-profile.website"],
        },
        [["Bob"], ["Ada"]],
        [["Ada"]],
    ),
    (
        AGGREGATE,
        {"model": "testapp.book", "group_by": ["author.profile.website"], "ordering": ["-count"]},
        [["https://ours.example/", 1], ["https://theirs.example/", 1], [None, 1]],
        [[None, 2], ["https://ours.example/", 1]],
    ),
]


@pytest.mark.parametrize(("tool", "asked", "seen", "narrowed"), ASKED_OF_PROFILES)
def test_the_other_end_of_a_one_to_one_field_is_a_hop(
    tool: Any, asked: dict[str, Any], seen: Any, narrowed: Any
) -> None:
    make_profiles()
    user, some = make_superuser(), site_with(Author, Book)
    some.register(Profile, Ours)
    for each, rows in ((site_with(Author, Book, Profile), seen), (some, narrowed)):
        found = call(tool, reader(user, each), **asked)["rows"]
        assert [row[-len(rows[0]) :] for row in found] == rows if rows else found == []


def test_rows_without_the_other_end_cost_no_query_each(django_assert_max_num_queries: Any) -> None:
    make_profiles()
    request = reader(make_superuser(), site)
    # A column that is computed takes the instances.
    asked: dict[str, Any] = {"model": "testapp.book", "fields": ["is_long", "author.profile.website"]}
    call(QUERY, request, **asked)
    with django_assert_max_num_queries(2):
        assert len(call(QUERY, request, **asked)["rows"]) == 3


def test_the_other_end_is_no_hop_for_who_may_not_read_the_field_or_its_model() -> None:
    make_profiles()
    asked = {"model": "testapp.author", "fields": ["name", "profile.website"]}
    without = site_with(Author)
    without.register(Profile, ModelExposure, fields=["website"])
    assert "no field" in str(refusal(QUERY, reader(make_superuser(), without), **asked))
    some = make_user("u", "testapp.view_author")
    assert "no field" in str(refusal(QUERY, reader(some, site_with(Author, Profile)), **asked))


def test_a_model_whose_rows_cannot_be_read_leaves_its_neighbours_readable(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(ModelExposure):
        fields = "__all__"

        def get_queryset(self, request: Any) -> Any:
            return super().get_queryset(request).filter(name=request.user.team)

    site = MCPSite()
    site.register(Author, Failing)
    site.register(Book, ModelExposure, fields="__all__")
    request = reader(make_superuser(), site)
    book = make_book("Emma", author=make_author("Ada"))
    described = call(DescribeModel(), request, model="testapp.book")
    assert "title" in str(described)
    assert "author__" not in str(described)
    assert call(QueryRecords(), request, model="testapp.book", fields=["title"])["rows"] == [[book.pk, "Emma"]]
    assert call(GetRecord(), request, model="testapp.book", pk=str(book.pk))["fields"]["title"] == "Emma"
    assert "get_queryset of testapp.author failed" in caplog.text


def test_a_declared_path_ends_where_rows_cannot_be_joined_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(ModelExposure):
        fields = "__all__"

        def get_queryset(self, request: Any) -> Any:
            raise RuntimeError

    root = make_superuser()
    access = access_of(reader(root, site_with(Book, Loan)))
    assert guards_on(access, Loan, "book__title") == ()
    monkeypatch.setattr("mcp_django.orm.path.is_joinable", lambda relation: False)
    assert guards_on(access, Loan, "book__title") is None
    monkeypatch.undo()
    own = site_with(Loan)
    own.register(Book, Failing)
    assert guards_on(access_of(reader(root, own)), Loan, "book__title") is None

from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import ModelExposure
from mcp_django.differences.named_rows import NamedRows
from mcp_django.testing import MCPClient
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Placement, Shelf
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = pytest.mark.django_db

UPDATE = UpdateRecord()
BOOK = {"model": "testapp.book"}


@pytest.fixture
def root():
    return request_of(make_superuser())


def prices():
    return {book.isbn: book.price for book in Book.objects.all()}


def books(*isbns):
    author = make_author()
    return [make_book(f"Book {isbn}", author=author, isbn=isbn, price="5.00") for isbn in isbns]


def test_rows_get_values_of_their_own_by_a_unique_field(root):
    first, second, _ = books("A1", "A2", "A3")
    rows = [{"isbn": "A1", "price": "1.50"}, {"isbn": "A2", "price": 2, "title": "Second"}]
    done = call(UPDATE, root, **BOOK, by=["isbn"], rows=rows)
    assert prices() == {"A1": Decimal("1.50"), "A2": Decimal("2.00"), "A3": Decimal("5.00")}
    assert done["updated"] is True
    assert done["changed_rows"] == 2
    assert [row["pk"] for row in done["rows"]] == [first.pk, second.pk]
    assert done["rows"][1]["label"] == "Second"
    assert done["rows"][1]["fields"] == {"title": "Second", "price": "2.00"}
    assert {"uri", "version"} <= done["rows"][0].keys()
    # Each row has an entry in the history.
    assert {entry.object_id for entry in LogEntry.objects.all()} == {str(first.pk), str(second.pk)}


def test_rows_are_named_by_their_keys_unless_by_says_otherwise(root):
    first, second = books("A1", "A2")
    rows = [{"pk": first.pk, "price": "1.00"}, {"pk": str(second.pk), "price": "2.00"}]
    call(UPDATE, root, **BOOK, rows=rows)
    assert prices() == {"A1": Decimal("1.00"), "A2": Decimal("2.00")}


def test_rows_are_named_by_the_fields_of_a_constraint(root):
    shelf = Shelf.objects.create(code="S/1")
    first, second = books("A1", "A2")
    for position in (1, 2):
        Placement.objects.create(shelf=shelf, book=first, position=position)
    request = request_of(root.user, site_with(Placement, Shelf, Book))
    rows = [{"shelf": shelf.pk, "position": 2, "book": second.pk}]
    call(UPDATE, request, model="testapp.placement", by=["shelf", "position"], rows=rows)
    assert list(Placement.objects.order_by("position").values_list("book", flat=True)) == [first.pk, second.pk]


@pytest.mark.parametrize("by", [["title"], ["status"], ["isbn", "title"], ["nonsense"], ["author__name"], ["tags"]])
def test_only_unique_fields_name_rows(root, by):
    books("A1")
    text = refusal(UPDATE, root, **BOOK, by=by, rows=[{**dict.fromkeys(by, "A1"), "price": "1"}])
    assert text == (
        "by must name a unique field of testapp.book that you can filter by: pk; isbn; uuid. Nothing was changed."
    )


def test_a_unique_field_that_is_hidden_names_no_rows_and_is_told_as_one_that_does_not_exist(root):
    books("A1")
    request = request_of(root.user, site_with(Book, fields=["id", "title", "price"]))
    texts = {
        refusal(UPDATE, request, **BOOK, by=[name], rows=[{name: "A1", "price": "1"}]) for name in ("isbn", "nonsense")
    }
    assert len(texts) == 1
    assert prices() == {"A1": Decimal("5.00")}


def test_a_hidden_row_answers_exactly_as_one_that_is_not_there(root):
    class Exposure(ModelExposure):
        fields = "__all__"

        def get_queryset(self, request):
            return super().get_queryset(request).exclude(isbn="A1")

    books("A1", "A2")
    site = site_with()
    site.register(Book, Exposure)
    request = request_of(root.user, site)
    texts = []
    for isbn in ("A1", "A9"):
        rows = [{"isbn": isbn, "price": "1"}, {"isbn": "A2", "price": "1"}]
        texts.append(refusal(UPDATE, request, **BOOK, by="isbn", rows=rows).replace(isbn, "ISBN"))
    assert texts == ["No row of testapp.book has isbn “ISBN”. Nothing was changed. Set create_missing to add them."] * 2
    assert prices() == {"A1": Decimal("5.00"), "A2": Decimal("5.00")}


def test_missing_rows_are_created_where_the_caller_says_so(root):
    [book] = books("A1")
    rows = [
        {"isbn": "A1", "price": "1"},
        {"isbn": "A2", "price": "2", "title": "New", "author": book.author_id},
    ]
    done = call(UPDATE, root, **BOOK, by="isbn", rows=rows, create_missing=True)
    assert prices() == {"A1": Decimal("1.00"), "A2": Decimal("2.00")}
    assert (done["changed_rows"], done["created_rows"]) == (1, 1)
    assert Book.objects.get(isbn="A2").title == "New"


def test_creating_missing_rows_takes_the_right_to_add():
    books("A1")
    user = make_user("clerk", "testapp.view_book", "testapp.change_book", "testapp.view_author")
    rows = [{"isbn": "A2", "price": "2", "title": "New", "author": 1}]
    text = refusal(UPDATE, request_of(user), **BOOK, by="isbn", rows=rows, create_missing=True)
    assert text == "No row of testapp.book has isbn “A2”. You may not add rows. Nothing was changed."
    assert "create_missing" not in refusal(UPDATE, request_of(user), **BOOK, by="isbn", rows=rows)
    assert Book.objects.count() == 1


@pytest.mark.parametrize("keys", [("A1", "A1"), ("pk", "pk")])
def test_a_row_that_is_named_twice_is_refused(root, keys):
    [book] = books("A1")
    by = "isbn" if "A1" in keys else "pk"
    told = "A1" if by == "isbn" else str(book.pk)
    rows = [{by: told, "price": "1"}, {by: told, "price": "2"}]
    assert refusal(UPDATE, root, **BOOK, by=by, rows=rows) == f"{told} is named twice in rows. Nothing was changed."


def test_all_rows_are_written_or_none_and_each_refused_one_is_told(root):
    books("A1", "A2", "A3")
    rows = [{"isbn": "A1", "price": "1"}, {"isbn": "A2", "price": "x"}, {"isbn": "A3", "status": "sold"}]
    text = refusal(UPDATE, root, **BOOK, by="isbn", rows=rows)
    assert text.splitlines()[:2] == [
        "Nothing was saved, because rows of testapp.book are refused.",
        "A2: price: Enter a number.",
    ]
    assert text.splitlines()[2].startswith("A3: status: Select a valid choice.")
    assert set(prices().values()) == {Decimal("5.00")}
    assert not LogEntry.objects.exists()


def test_a_row_that_the_caller_may_not_change_refuses_all():
    class Exposure(ModelExposure):
        fields = "__all__"

        def has_change_permission(self, request, obj=None):
            return obj is None or obj.isbn != "A2"

    books("A1", "A2")
    site = site_with(Author)
    site.register(Book, Exposure)
    rows = [{"isbn": "A1", "price": "1"}, {"isbn": "A2", "price": "1"}]
    text = refusal(UPDATE, request_of(make_superuser(), site), **BOOK, by="isbn", rows=rows)
    assert text == "You may not change Book A2 of testapp.book. Nothing was changed."
    assert set(prices().values()) == {Decimal("5.00")}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rows": []}, "Missing argument: pk for one row"),
        ({"rows": {"isbn": "A1"}}, "rows must be a list of 1 to "),
        ({"rows": ["A1"]}, "Row 1 of rows must be an object"),
        ({"rows": [{"price": "1"}]}, "Row 1 of rows has no isbn: each is named by isbn."),
        ({"rows": [{"isbn": "A1"}]}, "Row 1 of rows has no values to save."),
        ({"rows": [{"isbn": "", "price": "1"}]}, "isbn is empty in a row"),
        (
            {"rows": [{"isbn": "A1", "price": 1}], "values": {"price": 2}},
            "rows hold the keys and values: leave out values",
        ),
        ({"rows": [{"isbn": "A1", "price": 1}], "pk": 1}, "Give either pk or rows, not both."),
        ({"rows": [{"isbn": "A1", "price": 1}], "filters": {"isbn": "A1"}}, "rows hold the keys and values"),
        ({"values": {"price": 2}, "pk": 1}, "by belongs to rows."),
    ],
)
def test_wrong_rows_are_refused_with_what_is_right(root, arguments, text):
    books("A1")
    assert refusal(UPDATE, root, **BOOK, by="isbn", **arguments).startswith(text)
    assert prices() == {"A1": Decimal("5.00")}


def test_more_rows_than_one_call_takes_are_refused_before_any_is_read(root, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 3}
    with CaptureQueriesContext(connection) as queries:
        text = refusal(UPDATE, root, **BOOK, by="isbn", rows=[{"isbn": str(n), "price": 1} for n in range(4)])
    assert text.startswith("rows must be a list of 1 to 3 objects")
    assert not any("testapp_book" in query["sql"] for query in queries.captured_queries)


def test_more_rows_than_may_go_unasked_are_shown_first():
    author = make_author()
    Book.objects.bulk_create(
        Book(title=f"T{n}", author=author, isbn=str(n), price=5) for n in range(NamedRows.MAX_UNASKED + 1)
    )
    client = MCPClient(make_superuser(), capabilities={})
    rows = [{"isbn": str(n), "price": 1} for n in range(NamedRows.MAX_UNASKED + 1)]
    arguments = {**BOOK, "by": ["isbn"], "rows": rows}
    asked = client.call("update_record", **arguments).structured
    assert asked["confirmation_required"] is True
    assert set(prices().values()) == {Decimal("5.00")}
    dearer = [{**row, "price": 9} for row in rows]
    changed = {**arguments, "rows": dearer, "confirm_token": asked["confirm_token"]}
    assert client.call("update_record", **changed).structured["confirmation_required"] is True
    done = client.call("update_record", **arguments, confirm_token=asked["confirm_token"]).structured
    assert done["changed_rows"] == len(rows)
    assert len(done["rows"]) == NamedRows.MAX_UNASKED
    assert set(prices().values()) == {Decimal("1.00")}


def test_the_rows_are_found_by_one_query_whatever_their_number(root):
    books(*map(str, range(12)))

    def reads(number):
        rows = [{"isbn": str(n), "price": 7} for n in range(number)]
        with CaptureQueriesContext(connection) as queries:
            call(UPDATE, root, **BOOK, by="isbn", rows=rows)
        found = [query["sql"] for query in queries.captured_queries if query["sql"].startswith("SELECT")]
        return sum('"isbn" IN' in sql or "`isbn` IN" in sql for sql in found)

    assert reads(2) == reads(12)


def test_rows_hold_expressions_over_themselves(root):
    books("A1", "A2")
    rows = [
        {"isbn": "A1", "price": {"field": "price*1.10", "round": "0.10"}},
        {"isbn": "A2", "pages": {"field": "pages+3"}},
    ]
    root.mcp.record.is_keyed = True
    call(UPDATE, root, **BOOK, by="isbn", rows=rows)
    assert prices() == {"A1": Decimal("5.50"), "A2": Decimal("5.00")}
    assert Book.objects.get(isbn="A2").pages == 3


def test_an_expression_that_reads_what_it_writes_asks_without_an_idempotency_key():
    [book] = books("A1")
    client = MCPClient(make_superuser(), capabilities={})
    rise = {"price": {"field": "price*2"}}
    calls = [{**BOOK, "pk": book.pk, "values": rise}, {**BOOK, "rows": [{"pk": book.pk, **rise}]}]
    for number, arguments in enumerate(calls, 1):
        asked = client.call("update_record", **arguments).structured
        assert asked["confirmation_required"] is True
        book.refresh_from_db()
        assert book.price == Decimal("5.00") * 2 ** (2 * number - 2)
        client.call("update_record", **arguments, confirm_token=asked["confirm_token"])
        # The key makes a repeated call write once.
        for _ in range(2):
            done = client.call("update_record", **arguments, idempotency_key=f"rise {number}").structured
            assert done["updated"] is True
        book.refresh_from_db()
        assert book.price == Decimal("5.00") * 2 ** (2 * number)
    # An expression over another field gives the same however often it is called.
    client.call("update_record", **BOOK, pk=book.pk, values={"pages": {"field": "price*1", "round": "1"}})
    book.refresh_from_db()
    assert book.pages == 80


def test_a_misspelt_by_is_told_before_what_the_rows_lack(root):
    books("A1")
    told = refusal(UPDATE, root, **BOOK, by=["isbnn"], rows=[{"isbn": "A1", "price": "1"}])
    assert told.startswith("by must name a unique field of testapp.book")
    assert "isbn" in told.partition(":")[2]


def test_rows_without_their_key_are_told_by_what_rows_can_be_named(root):
    books("A1")
    told = refusal(UPDATE, root, **BOOK, rows=[{"isbn": "A1", "price": "1"}])
    assert told.startswith("Row 1 of rows has no pk")
    assert "named in by: pk; isbn" in told

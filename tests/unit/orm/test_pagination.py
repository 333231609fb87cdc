"""Cursors that nobody can forge, and pages that neither skip nor repeat a row."""

import base64
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.expressions import OrderBy
from django.test import override_settings

from mcp_django import MCPSite
from mcp_django.exceptions import ToolError
from mcp_django.orm.compiled_queries import Bind
from mcp_django.orm.fields import resolve_path
from mcp_django.orm.ordering import OrderKey
from mcp_django.orm.pagination import CURSOR_ERROR, Cursor, Segment, segments
from mcp_django.protocol.errors import InvalidParams
from tests.cases import whole
from tests.factories import make_author, make_book, make_user
from tests.testapp.models import Book
from tests.tool_calls import request_of

pytestmark = pytest.mark.postgresql


class Someone:
    """A user as far as a cursor asks."""

    def __init__(self, pk: int = 1) -> None:
        self.pk = pk


def key(name: str, descending: bool = False, model: Any = Book) -> OrderKey:
    field = model._meta.get_field(name)
    return OrderKey(field.attname, field, descending, field.null)


ALICE = request_of(Someone(1), MCPSite())


@pytest.mark.parametrize(
    "value",
    [None, 2**62, -1, True, 0.1, float("inf"), "Ünder\nstood", "", b"\x00\xff", Decimal("1.50")],
    ids=repr,
)
def test_row_79_a_cursor_gives_back_what_a_database_stores(value: Any) -> None:
    (found,) = Cursor(ALICE, "p").read(Cursor(ALICE, "p").write([value]), 1)
    assert (found, type(found)) == (value, type(value))


def test_a_cursor_by_a_key_is_short() -> None:
    assert len(Cursor(ALICE, "p").write(["12345"])) <= 40


def forged() -> list[Any]:
    good = Cursor(ALICE, "p").write(["a", 1])
    flipped = [good[:i] + ("A" if good[i] != "A" else "B") + good[i + 1 :] for i in range(len(good))]
    return [*flipped, "", "x", good + "a", good[:-1], good * 99, "a:b:c", "é", None, 5, [], {}, good.encode()]


FORGED = forged()


# Numbered, as a cursor holds the time: the names of tests must not.
@pytest.mark.parametrize("cursor", FORGED, ids=range(len(FORGED)))
def test_row_68_a_damaged_cursor_is_one_fixed_error(cursor: Any) -> None:
    with pytest.raises(ToolError) as error:
        Cursor(ALICE, "p").read(cursor, 2)
    assert error.value.message == CURSOR_ERROR


@pytest.mark.parametrize(
    ("request_", "purpose", "number"),
    [
        (request_of(Someone(2), MCPSite()), "p", 2),
        (request_of(Someone(1), MCPSite("other")), "p", 2),
        (ALICE, "another query", 2),
        (ALICE, "p", 1),
    ],
    ids=["user", "site", "query", "order"],
)
def test_row_68_a_cursor_of_another_is_the_same_error(request_: Any, purpose: str, number: int) -> None:
    cursor = Cursor(ALICE, "p").write(["a", 1])
    with pytest.raises(ToolError) as error:
        Cursor(request_, purpose).read(cursor, number)
    assert error.value.message == CURSOR_ERROR


def test_row_68_an_expired_cursor_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = Cursor(ALICE, "p").write(["a", 1])
    now = datetime.now().timestamp()
    monkeypatch.setattr("mcp_django.context.signing.time.time", lambda: now + 24 * 3600 + 5)
    with pytest.raises(ToolError) as error:
        Cursor(ALICE, "p").read(cursor, 2)
    assert error.value.message == CURSOR_ERROR


def test_row_205_a_cursor_survives_the_rotation_of_keys_and_dies_with_its_key() -> None:
    with override_settings(SECRET_KEY="old" * 20):
        cursor = Cursor(ALICE, "p").write(["a", 1])
    with override_settings(SECRET_KEY="new" * 20, SECRET_KEY_FALLBACKS=["old" * 20]):
        assert Cursor(ALICE, "p").read(cursor, 2) == ("a", 1)
    with override_settings(SECRET_KEY="new" * 20), pytest.raises(ToolError):
        Cursor(ALICE, "p").read(cursor, 2)


def test_a_cursor_does_not_show_the_values_it_holds() -> None:
    cursor = Cursor(ALICE, "p").write(["a hidden value", 1])
    assert b"hidden" not in base64.urlsafe_b64decode(cursor + "===")


def test_a_sort_value_too_long_for_a_cursor_is_refused() -> None:
    with pytest.raises(ToolError, match="Choose another ordering"):
        Cursor(ALICE, "p").write(["x" * 5000, 1])


def test_row_68_list_cursors_are_bound_to_their_list() -> None:
    assert (
        Cursor(ALICE, "resources/list").read_name(Cursor(ALICE, "resources/list").write_name("shop.order"))
        == "shop.order"
    )
    with pytest.raises(InvalidParams, match="not valid"):
        Cursor(ALICE, "tools/list").read_name(Cursor(ALICE, "resources/list").write_name("shop.order"))


# Segments

SORTED: tuple[tuple[str, bool], ...] = (
    ("title", False),
    ("pages", False),
    ("rating", True),
    ("published", True),
    ("author__name", False),
    ("author__born", True),
    ("owner__username", True),
    ("author_id", False),
)


def order_key(path: str, descending: bool = False, nulls_last: bool | None = None) -> OrderKey:
    found = resolve_path(Book, path)
    assert found is not None
    return OrderKey(path, found.field, descending, found.nullable, nulls_last if found.nullable else None)


def some_orders(number: int) -> list[tuple[OrderKey, ...]]:
    """Return orders of one to three columns and the primary key, the same ones each time."""
    chance = Random(70)
    found = []
    for _ in range(number):
        columns = chance.sample(SORTED, chance.randint(1, 3))
        keys = [order_key(path, chance.random() < 0.5, chance.choice([None, True, False])) for path, _ in columns]
        found.append((*keys, order_key("id", chance.random() < 0.5)))
    return found


ORDERS = some_orders(120)


def named(keys: Sequence[OrderKey]) -> str:
    places = {None: "", True: ":last", False: ":first"}
    return ",".join(("-" if k.descending else "") + k.path + places[k.nulls_last] for k in keys)


def whole_order(keys: Sequence[OrderKey]) -> list[int]:
    """Return the pks of all books in the order that Django itself writes for the keys."""
    order = [
        OrderBy(
            F(k.path),
            descending=k.descending,
            nulls_last=k.nulls_last or None,
            nulls_first=k.nulls_last is False or None,
        )
        for k in keys
    ]
    return list(Book.objects.order_by(*order).values_list("pk", flat=True))


def page(keys: Sequence[OrderKey], after: Any, size: int, row_values: bool = True) -> list[Any]:
    largest = connection.features.nulls_order_largest
    nulls = None if after is None else [value is None for value in after]
    found: list[Any] = []
    for segment in segments(keys, nulls, nulls_largest=largest, row_values=row_values):
        condition = segment.condition(keys, lambda index: Bind(after[index]))
        rows = Book.objects.filter(condition).order_by(*segment.order(keys, nulls_largest=largest))
        found += rows.values_list("pk", *[k.path for k in keys])[: size - len(found)]
    return found


def walk(keys: Sequence[OrderKey], size: int, row_values: bool = True) -> list[int]:
    """Return the pks of all books, read by pages of ``size``."""
    found: list[int] = []
    after: Any = None
    while rows := page(keys, after, size, row_values):
        found += [row[0] for row in rows]
        after = rows[-1][1:]
    return found


@pytest.fixture
def equal_books(db: None) -> list[Book]:
    """Books that are equal in most columns, with many NULLs."""
    chance = Random(7)
    authors = [make_author(f"Author {i // 2}", born=date(1900 + i, 1, 1) if i % 3 else None) for i in range(4)]
    owners = [None, make_user("one"), make_user("two")]
    return [
        make_book(
            title=chance.choice("ab"),
            author=chance.choice(authors),
            owner=chance.choice(owners),
            pages=chance.randint(1, 3),
            rating=chance.choice([None, 1.5, 2.5]),
            published=chance.choice([None, date(2024, 1, 1), date(2024, 1, 2)]),
        )
        for _ in range(24)
    ]


@pytest.mark.parametrize("keys", [*ORDERS[:30], *whole(ORDERS[30:])], ids=named)
def test_row_70_the_pages_of_any_order_are_the_whole_order(equal_books: Any, keys: tuple[OrderKey, ...]) -> None:
    whole = whole_order(keys)
    assert len(whole) == len(equal_books)
    assert walk(keys, 5) == whole
    assert walk(keys, 1) == whole
    assert walk(keys, 3, row_values=False) == whole


@pytest.mark.parametrize("keys", some_orders(12), ids=named)
def test_row_70_rows_that_stay_are_read_once_whatever_comes_and_goes(
    equal_books: list[Book], keys: tuple[OrderKey, ...]
) -> None:
    chance = Random(1)
    gone: set[int] = set()
    found: list[int] = []
    after: Any = None
    while rows := page(keys, after, 3):
        found += [row[0] for row in rows]
        after = rows[-1][1:]
        # The row that the cursor is at, and another one, go; a copy of a third one comes.
        for book in (*equal_books[len(gone) : len(gone) + 1], Book(pk=found[-1])):
            gone.add(book.pk)
            Book.objects.filter(pk=book.pk).delete()
        if len(found) < 20:
            copied = chance.choice(equal_books)
            make_book(title=copied.title, author=copied.author, pages=copied.pages, rating=copied.rating)
    stayed = {book.pk for book in equal_books} - gone
    assert stayed <= set(found)
    assert len(found) == len(set(found))


def shapes(*names: str, nulls: list[bool] | None = None, largest: bool = True) -> list[Segment]:
    keys = [order_key(name.lstrip("-"), name.startswith("-")) for name in names]
    return list(segments(keys, nulls, nulls_largest=largest, row_values=True))


def test_row_70_a_page_in_one_direction_is_one_range_of_an_index() -> None:
    assert shapes("-title", "-id", nulls=[False, False]) == [Segment(beyond=2)]
    assert shapes("title", "pages", "id", nulls=[False, False, False]) == [Segment(beyond=3)]
    assert shapes("title", "id") == [Segment()]
    condition = Segment(beyond=2).condition([order_key("title"), order_key("id")], Bind)
    sql = str(Book.objects.filter(condition).query)
    assert f"{connection.ops.quote_name('id')}) > (" in sql
    assert " OR " not in sql


def test_row_70_a_page_in_two_directions_is_a_range_within_the_equal_rows_and_one_beyond() -> None:
    assert shapes("-title", "id", nulls=[False, False]) == [Segment(nulls=(False,), beyond=1), Segment(beyond=1)]


def test_row_70_null_is_a_range_of_its_own() -> None:
    assert shapes("rating", "id") == [Segment(null=False), Segment(null=True)]
    assert shapes("-rating", "-id") == [Segment(null=True), Segment(null=False)]
    assert shapes("rating", "id", largest=False) == [Segment(null=True), Segment(null=False)]
    assert shapes("rating", "id", nulls=[False, False]) == [Segment(beyond=2), Segment(null=True)]
    assert shapes("rating", "id", nulls=[True, False]) == [Segment(nulls=(True,), beyond=1)]
    assert shapes("-rating", "-id", nulls=[True, False]) == [Segment(nulls=(True,), beyond=1), Segment(null=False)]


def test_the_place_of_null_is_written_only_where_an_index_would_not_have_it() -> None:
    keys = [order_key("rating", nulls_last=False), order_key("published", nulls_last=False), order_key("id")]
    first = Segment(null=False).order(keys, nulls_largest=True)
    assert (first[0], first[2]) == ("rating", "id")
    assert isinstance(first[1], OrderBy)
    assert Segment(null=False).order(keys, nulls_largest=False) == ["rating", "published", "id"]
    assert Segment(nulls=(True, False), beyond=1).order(keys, nulls_largest=True) == ["id"]

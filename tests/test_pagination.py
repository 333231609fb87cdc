"""Cursors that nobody can forge, and pages that neither skip nor repeat a row."""

import base64
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q
from django.test import override_settings

from mcp_django import MCPSite
from mcp_django.exceptions import ToolError
from mcp_django.pagination import (
    CURSOR_ERROR,
    OrderKey,
    keyset,
    list_cursor,
    read_cursor,
    read_list_cursor,
    write_cursor,
)
from mcp_django.plans import Bind
from mcp_django.protocol.errors import InvalidParams
from tests.factories import make_author, make_book
from tests.testapp.models import Author, Book
from tests.writing import request_of


class Someone:
    """A user as far as a cursor asks."""

    def __init__(self, pk: int = 1) -> None:
        self.pk = pk


def key(name: str, descending: bool = False, model: Any = Book) -> OrderKey:
    field = model._meta.get_field(name)
    return OrderKey(field.attname, field, descending, field.null)


KEYS = (key("title"), key("id"))
ALICE = request_of(Someone(1), MCPSite())


def test_row_79_a_cursor_gives_back_the_values_of_each_type() -> None:
    keys = [
        key(name) for name in ("created", "price", "uuid", "published", "active", "rating", "reading_time", "title")
    ]
    row = Book(price=Decimal("1.50"), published=datetime(2024, 2, 3).date(), rating=0.1, title="Ünder\nstood")
    row.created = datetime(2024, 1, 1, 1, 2, 3, 4, tzinfo=UTC)
    row.reading_time = timedelta(days=1, microseconds=5)
    values = [getattr(row, k.path) for k in keys]
    assert list(read_cursor(ALICE, "p", keys, write_cursor(ALICE, "p", keys, values))) == values


def test_null_and_long_integers_survive() -> None:
    keys = [key("rating"), key("id")]
    assert read_cursor(ALICE, "p", keys, write_cursor(ALICE, "p", keys, [None, 2**62])) == (None, 2**62)


def forged() -> list[Any]:
    good = write_cursor(ALICE, "p", KEYS, ["a", 1])
    flipped = [good[:i] + ("A" if good[i] != "A" else "B") + good[i + 1 :] for i in range(len(good))]
    return [*flipped, "", "x", good + "a", good[:-1], good * 99, "a:b:c", "é", None, 5, [], {}, good.encode()]


FORGED = forged()


# Numbered, as a cursor holds the time: the names of tests must not.
@pytest.mark.parametrize("cursor", FORGED, ids=range(len(FORGED)))
def test_row_68_a_damaged_cursor_is_one_fixed_error(cursor: Any) -> None:
    with pytest.raises(ToolError) as error:
        read_cursor(ALICE, "p", KEYS, cursor)
    assert error.value.message == CURSOR_ERROR


@pytest.mark.parametrize(
    ("request_", "purpose", "keys"),
    [
        (request_of(Someone(2), MCPSite()), "p", KEYS),
        (request_of(Someone(1), MCPSite("other")), "p", KEYS),
        (ALICE, "another query", KEYS),
        (ALICE, "p", KEYS[:1]),
    ],
    ids=["user", "site", "query", "order"],
)
def test_row_68_a_cursor_of_another_is_the_same_error(request_: Any, purpose: str, keys: Any) -> None:
    cursor = write_cursor(ALICE, "p", KEYS, ["a", 1])
    with pytest.raises(ToolError) as error:
        read_cursor(request_, purpose, keys, cursor)
    assert error.value.message == CURSOR_ERROR


def test_row_68_an_expired_cursor_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = write_cursor(ALICE, "p", KEYS, ["a", 1])
    now = datetime.now().timestamp()
    monkeypatch.setattr("django.core.signing.time.time", lambda: now + 24 * 3600 + 5)
    with pytest.raises(ToolError) as error:
        read_cursor(ALICE, "p", KEYS, cursor)
    assert error.value.message == CURSOR_ERROR


def test_row_205_a_cursor_survives_the_rotation_of_keys_and_dies_with_its_key() -> None:
    with override_settings(SECRET_KEY="old" * 20):
        cursor = write_cursor(ALICE, "p", KEYS, ["a", 1])
    with override_settings(SECRET_KEY="new" * 20, SECRET_KEY_FALLBACKS=["old" * 20]):
        assert read_cursor(ALICE, "p", KEYS, cursor) == ("a", 1)
    with override_settings(SECRET_KEY="new" * 20), pytest.raises(ToolError):
        read_cursor(ALICE, "p", KEYS, cursor)


def test_a_cursor_does_not_show_the_values_it_holds() -> None:
    body = write_cursor(ALICE, "p", KEYS, ["a hidden value", 1]).split(":")[0]
    assert b"hidden" not in base64.urlsafe_b64decode(body + "===")


def test_a_sort_value_too_long_for_a_cursor_is_refused() -> None:
    with pytest.raises(ToolError, match="Choose another ordering"):
        write_cursor(ALICE, "p", KEYS, ["x" * 5000, 1])


def test_row_68_list_cursors_are_bound_to_their_list() -> None:
    assert read_list_cursor(ALICE, "resources/list", list_cursor(ALICE, "resources/list", "shop.order")) == "shop.order"
    with pytest.raises(InvalidParams, match="not valid"):
        read_list_cursor(ALICE, "tools/list", list_cursor(ALICE, "resources/list", "shop.order"))


def walk(keys: list[OrderKey], size: int) -> list[int]:
    """Return the pks of all books, read by pages of ``size``."""
    names = [("-" if k.descending else "") + k.path for k in keys]
    found: list[int] = []
    after: Any = None
    while True:
        rows = Book.objects.order_by(*names)
        if after is not None:
            nulls = [value is None for value in after]
            binds = [Bind(value) for value in after]
            largest = connection.features.nulls_order_largest
            rows = rows.filter(keyset(keys, nulls, binds.__getitem__, nulls_largest=largest))
        page = list(rows.values_list("pk", *[k.path for k in keys])[:size])
        if not page:
            return found
        found += [row[0] for row in page]
        after = page[-1][1:]


@pytest.mark.django_db
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_row_70_pages_of_nullable_columns_hold_each_row_once(descending: bool, second: bool, size: int) -> None:
    author = make_author()
    ratings = [None, 1.0, None, 2.0, 2.0, None, 3.0]
    for rating in ratings:
        make_book(author=author, rating=rating)
    keys = [key("rating", descending), key("id", second)]
    order = [("-" if k.descending else "") + k.path for k in keys]
    whole = list(Book.objects.order_by(*order).values_list("pk", flat=True))
    assert walk(keys, size) == whole
    assert len(whole) == len(ratings)


@pytest.mark.django_db
def test_row_70_the_condition_bounds_the_leading_column_by_itself() -> None:
    condition = keyset([key("name", True, Author), key("id", True, Author)], [False, False], Bind, nulls_largest=False)
    sql = str(Author.objects.filter(Q(condition)).query)
    assert '"name" <= ' in sql
    assert sql.count(" OR ") == 1

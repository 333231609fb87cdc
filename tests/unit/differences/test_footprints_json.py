"""A stored difference comes back from JSON as it was, or says what is no longer there."""

import json
import math
from typing import Any

import pytest
from django.db import connection

from mcp_django.differences.footprints import Footprint, StoredDifference, UnreadableDifference
from mcp_django.differences.stored_rows import stored_table
from tests.factories import make_book
from tests.fieldapp.models import Seat
from tests.testapp.models import Book, Tag

pytestmark = pytest.mark.django_db


def written() -> StoredDifference:
    """Change a row, delete another one with its links, and add one with a key of two columns."""
    changed, deleted = make_book("Old"), make_book("Gone", blob=b"\x00\xff", rating=0.1, data={"a": ["ü", None]})
    deleted.tags.add(Tag.objects.get_or_create(name="T")[0])
    footprint = Footprint("default")
    footprint.add_row(changed)
    footprint.add_deletion([deleted])
    footprint.before()
    Book.objects.filter(pk=changed.pk).update(title="New \U0001f600", rating=1e300, blob=b"\x80")
    Book.objects.filter(pk=deleted.pk).delete()
    footprint.created(Seat.objects.create(hall="A", number=Seat.objects.count()))
    return footprint.after()


def test_a_difference_comes_back_as_it_was() -> None:
    difference = written()
    stored = difference.to_json()
    back = StoredDifference.from_json(stored)
    assert back.using == difference.using
    assert repr(back.changes) == repr(difference.changes)
    assert back.counts() == difference.counts()
    assert back.counts()[Book.tags.through]["deleted"] == 1
    assert back.to_json() == stored
    assert repr(back.reversed().reversed().changes) == repr(difference.changes)


def test_a_changed_row_is_stored_with_its_key_and_what_differs() -> None:
    [[_, cells]] = json.loads(written().to_json())["models"]["testapp.book"]["changed"]
    assert cells.keys() == {"title", "rating", "blob"}


@pytest.mark.parametrize(
    "cell",
    [
        *(0.1, -0.0, 1e300, math.inf, -math.inf, 5e-324, 1.0, 1, 2**63 - 1, -(2**63), 10**40, 2**53 + 1),
        *("", "ü\x00\n", "\udcff", "{}", '{"float": "1"}', b"", b"\xff\x00", None),
    ],
    ids=repr,
)
def test_each_cell_is_stored_without_loss(cell: Any) -> None:
    names = stored_table(Tag, "default").names
    row = tuple(1 if name == "id" else cell for name in names)
    other = tuple(1 if name == "id" else "other" for name in names)
    for change in ((row, None), (None, row), (row, other), (other, row)):
        difference = StoredDifference("default", {Tag: {(1,): change}})
        back = StoredDifference.from_json(difference.to_json())
        assert repr(back.changes) == repr(difference.changes)


def test_a_number_that_is_none_is_stored() -> None:
    difference = StoredDifference("default", {Tag: {(1,): ((1, math.nan), None)}})
    back = StoredDifference.from_json(difference.to_json())
    assert repr(back.changes) == repr(difference.changes)


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="other databases store no such text")
def test_a_text_that_nobody_can_decode_is_stored() -> None:
    tag = Tag.objects.create(name="T")
    footprint = Footprint("default")
    footprint.add_row(tag)
    footprint.before()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_tag SET name = CAST(x'41ff42' AS TEXT)")
    difference = footprint.after()
    assert difference.counts()[Tag]["changed"] == 1
    assert StoredDifference.from_json(difference.to_json()).changes == difference.changes


def stored() -> Any:
    """Return the stored form of a difference, with what it has of books."""
    data = json.loads(written().to_json())
    return data, data["models"]["testapp.book"]


def from_data(data: Any) -> StoredDifference:
    return StoredDifference.from_json(json.dumps(data).encode())


def test_what_is_no_longer_there_is_named() -> None:
    data, _ = stored()
    data["models"]["shop.order"] = data["models"].pop("testapp.book")
    with pytest.raises(UnreadableDifference, match=r"model shop\.order is no longer there"):
        from_data(data)
    with pytest.raises(UnreadableDifference, match="database 'archive' is no longer"):
        from_data({**data, "using": "archive"})


def test_columns_that_went_or_came_since() -> None:
    data, book = stored()
    book["deleted"] = []
    [[_, cells]] = book["changed"]

    # Only columns that a changed row has recorded have to be there.
    book["columns"] = ["id", "title", "old"]
    assert from_data(data).counts()[Book]["changed"] == 1
    cells["old"] = ["1", "2"]
    with pytest.raises(UnreadableDifference, match=r"column old of testapp\.book is no longer there"):
        from_data(data)


def test_a_whole_row_needs_all_columns() -> None:
    data, book = stored()
    book["columns"] = [f"{name}_old" if name == "title" else name for name in book["columns"]]
    with pytest.raises(UnreadableDifference, match=r"table of testapp\.book has a new column title"):
        from_data(data)
    data, book = stored()
    book["columns"].append("old")
    for row in book["deleted"]:
        row.append(1)
    with pytest.raises(UnreadableDifference, match="column old"):
        from_data(data)


def test_another_primary_key() -> None:
    data, book = stored()
    book["key"] = ["isbn"]
    with pytest.raises(UnreadableDifference, match=r"primary key of testapp\.book is no longer isbn"):
        from_data(data)


def test_the_order_of_columns_does_not_matter() -> None:
    difference = written()
    data = json.loads(difference.to_json())
    for kinds in data["models"].values():
        kinds["columns"].reverse()
        for kind in ("added", "deleted"):
            for row in kinds[kind]:
                row.reverse()
    assert repr(from_data(data).changes) == repr(difference.changes)

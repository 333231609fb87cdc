"""Which orders an index serves, by what the model declares."""

from typing import Any

import pytest
from django.contrib.postgres.indexes import GinIndex
from django.db import connection, models
from django.db.models.functions import Lower
from django.test.utils import isolate_apps

from mcp_django.orm.fields import resolve_path
from mcp_django.orm.ordering import OrderKey, is_served
from tests.testapp.models import AudioBook, Author, Book, Placement, PublishedBook


def served(model: Any, *names: str) -> bool:
    keys = []
    for name in names:
        path = resolve_path(model, name.lstrip("-"))
        assert path is not None
        keys.append(OrderKey(path.column, path.field, name.startswith("-"), path.nullable))
    return is_served(model, keys)


@pytest.mark.parametrize(
    ("model", "names", "expected"),
    [
        (Book, ["id"], True),
        (Book, ["-id"], True),
        (Book, ["-isbn", "id"], True),
        (Book, ["author", "-title"], True),
        (Book, ["title", "id"], False),
        (Book, ["author__name", "id"], False),
        (PublishedBook, ["isbn", "id"], True),
        (AudioBook, ["book_ptr"], True),
        (AudioBook, ["isbn", "book_ptr"], False),
        (Placement, ["-shelf", "-position", "id"], True),
        (Placement, ["position", "id"], False),
        (Author, ["name", "id"], False),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else getattr(value, "__name__", str(value)),
)
def test_an_order_is_served_by_what_the_models_own_table_has_an_index_for(
    model: Any, names: list[str], expected: bool
) -> None:
    assert served(model, *names) is expected


@isolate_apps("tests.testapp")
def test_an_index_serves_what_it_begins_with_in_either_direction() -> None:
    class Event(models.Model):
        day = models.DateField()
        number = models.IntegerField()
        code = models.CharField(max_length=5)
        word = models.CharField(max_length=5)
        text = models.CharField(max_length=5)
        done = models.BooleanField(db_index=True)
        kind = models.CharField(max_length=1, choices=[("a", "A")])
        low = models.CharField(max_length=5)

        class Meta:
            app_label = "testapp"
            indexes = (
                models.Index(fields=["-day", "number"], name="a"),
                models.Index(models.F("kind"), models.F("number").desc(), name="b"),
                models.Index(fields=["code"], condition=models.Q(number=1), name="c"),
                GinIndex(fields=["word"], name="d"),
                models.Index(fields=["text"], opclasses=["text_pattern_ops"], name="e"),
                models.Index(Lower("low"), name="f"),
            )

    assert served(Event, "-day", "number", "id")
    assert served(Event, "day", "-number", "id")
    # The rows of one day are sorted, which are few.
    assert served(Event, "day", "number")
    assert served(Event, "kind", "-number", "id")
    # The rows of one kind are not.
    assert not served(Event, "kind", "id")
    assert not served(Event, "done", "id")
    assert served(Event, "done")
    assert not any(served(Event, name, "id") for name in ("number", "code", "word", "text", "low"))


@isolate_apps("tests.testapp")
def test_an_index_has_null_where_the_database_puts_it() -> None:
    class Visit(models.Model):
        kind = models.CharField(max_length=1, choices=[("a", "A")])
        height = models.IntegerField(null=True)

        class Meta:
            app_label = "testapp"
            indexes = (models.Index(fields=["kind", "height"], name="g"), models.Index(fields=["height"], name="h"))

    def key(name: str, descending: bool, nulls_last: bool | None) -> OrderKey:
        field = Visit._meta.get_field(name)
        return OrderKey(name, field, descending, field.null, nulls_last)

    largest = connection.features.nulls_order_largest
    for descending in (False, True):
        for nulls_last in (None, False, True):
            first, second = key("kind", descending, None), key("height", descending, nulls_last)
            # The first column is read without its NULLs, which come as a range of their own.
            assert is_served(Visit, [second])
            assert is_served(Visit, [first, second]) is (nulls_last in (None, descending is not largest))

"""Undecodable values: read a page although the database driver or a converter cannot decode some values of it.

SQLite keeps what a column cannot hold (``0000-00-00`` as a date, bytes that are no UTF-8 as a text), PostgreSQL what
Python cannot (``infinity`` as a time), and a field of the project's own may fail as it likes. Where a driver or a
converter fails, the whole result is gone; so what failed is read again in halves, until the one value that fails stands
alone. That costs queries only where such a value is.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, DataError, connections, router
from django.db.models import Model, QuerySet

from ..exceptions import Unreadable


class Undecodable:
    """Stand-in for a value that cannot be decoded. It has no text, no number and no truth value."""

    def __str__(self) -> str:
        raise ValueError("the value cannot be read")

    def __bool__(self) -> bool:
        raise ValueError("the value cannot be read")


UNDECODABLE: Final = Undecodable()
# RecursionError is JSON's, which may be nested deeper than Python reads where it stands.
VALUE_ERRORS: Final = (
    *(ValueError, TypeError, ArithmeticError, LookupError, AttributeError, ValidationError),
    RecursionError,
)
# Levels of JSON from which on Python may fail to write it.
DEEP: Final = 200


def is_undecodable(error: Exception) -> bool:
    """Return whether the error may come from an undecodable value, not from the database or the query."""
    if isinstance(error, DatabaseError):
        # SQLite's driver has no class of its own for this one.
        return isinstance(error, DataError) or "Could not decode to UTF-8" in str(error)
    return isinstance(error, VALUE_ERRORS)


def is_out_of_range(error: Exception) -> bool:
    """Return whether the database computed a number too large for it: an error like that of an undecodable value."""
    if not isinstance(error, DatabaseError):
        return False
    # The code of SQL's standard; SQLite has a message only.
    return getattr(error.__cause__, "sqlstate", None) == "22003" or str(error) == "integer overflow"


@contextmanager
def all_readable() -> Iterator[None]:
    """Refuse work that needs whole rows where one of them holds an undecodable value."""
    try:
        yield
    except Exception as error:
        if is_undecodable(error):
            raise Unreadable from error
        raise


def salvaged(read: Callable[[Any], list[Any]], parts: Any) -> list[Any]:
    """Read the parts despite undecodable values: return what ``read`` does, :data:`UNDECODABLE` for what fails."""
    try:
        return read(parts)
    except Exception as error:
        if not is_undecodable(error):
            raise
    if len(parts) == 1:
        return [UNDECODABLE]
    middle = len(parts) // 2
    first = salvaged(read, parts[:middle])
    # A page that ends in its first half has no second one.
    return first + salvaged(read, parts[middle:]) if len(first) == middle else first


def salvaged_first(rows: QuerySet[Any], limit: int) -> list[Any]:
    """Read the first results of a query despite undecodable values, with :data:`UNDECODABLE` for each that fails."""
    return salvaged(lambda part: list(rows[part.start : part.stop]), range(limit))


def salvaged_tuples(rows: QuerySet[Any], names: Sequence[str], limit: int) -> list[tuple[Any, ...]]:
    """Read the first rows of a query as tuples despite undecodable values, with None for each of them."""
    columns = [salvaged_first(rows.values_list(name, flat=True), limit) for name in names]
    return [tuple(None if value is UNDECODABLE else value for value in row) for row in zip(*columns, strict=True)]


def salvaged_rows(
    segments: Iterable[QuerySet[Any]], rows: QuerySet[Any], limit: int, computed: Collection[str] = ()
) -> list[Any]:
    """Read the first rows as instances despite undecodable values; ``rows`` are all that may be read.

    One with a value that cannot be read is made of its columns alone, without what the queryset adds to it, but for
    the ``computed`` values.
    """
    names = [field.attname for field in rows.model._meta.concrete_fields]
    found: list[Any] = []
    failure: Exception | None = None
    for segment in segments:
        for position, row in enumerate(salvaged_first(segment, limit - len(found))):
            if row is not UNDECODABLE:
                found.append(row)
                continue
            try:
                key = segment.values_list("pk")[position][0]
            except IndexError:
                continue
            except Exception as error:
                failure = error
                continue
            one = rows.order_by().filter(pk=key)
            values = {name: salvaged_first(one.values_list(name, flat=True), 1) for name in (*names, *computed)}
            row = rows.model.from_db(rows.db, names, [(values[name] or [UNDECODABLE])[0] for name in names])
            row.__dict__.update((name, (values[name] or [UNDECODABLE])[0]) for name in computed)
            found.append(row)
        if len(found) >= limit:
            break
    if failure is not None and (not found or not is_undecodable(failure)):
        # It is not the values: what the query itself raises is told.
        raise failure
    return found


def keep_stored(row: Model, written: Collection[str]) -> None:
    """Keep undecodable values of a row that is saved: their columns are deferred, so Django does not write them.

    That is what was lost, and what the column cannot hold. ``written`` are the names of fields with a new value.
    """
    connection = connections[row._state.db or router.db_for_write(type(row))]
    for field in row._meta.concrete_fields:
        loaded = field.attname in row.__dict__ and not field.primary_key and not field.generated
        if loaded and field.name not in written and not _is_writable(field, row.__dict__[field.attname], connection):
            del row.__dict__[field.attname]


def _is_writable(field: Any, value: Any, connection: Any) -> bool:
    if value is UNDECODABLE or _is_deep(value):
        return False
    try:
        field.get_db_prep_save(value, connection)
    except VALUE_ERRORS:
        return False
    return True


def _is_deep(value: Any) -> bool:
    """Return whether a JSON value counts as undecodable: nested deeper than Python can write it."""
    inner, levels = [value] if isinstance(value, (dict, list)) else [], DEEP
    while inner and levels:
        parts = chain.from_iterable(item.values() if isinstance(item, dict) else item for item in inner)
        inner, levels = [part for part in parts if isinstance(part, (dict, list))], levels - 1
    return bool(inner)

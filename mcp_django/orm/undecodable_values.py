"""Undecodable values: read a page although the database driver or a converter cannot decode some values of it.

SQLite stores values that a column cannot hold (``0000-00-00`` as a date, text that is not UTF-8), PostgreSQL values
that Python cannot hold (``infinity`` as a time), and a custom field can fail in any way. If a driver or converter
fails, the whole result is lost. It is then read again in halves until the value that fails stands alone, which costs
queries only where there is such a value.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, DataError
from django.db.models import QuerySet

from ..context.database_errors import OUT_OF_RANGE, code_of
from ..context.databases import LostDatesAsText
from ..exceptions import Unreadable


class Undecodable:
    """Stand-in for a value that cannot be decoded. It has no text, no number and no truth value."""

    def __str__(self) -> str:
        raise ValueError("the value cannot be read")

    def __bool__(self) -> bool:
        raise ValueError("the value cannot be read")


UNDECODABLE: Final = Undecodable()
# RecursionError comes from JSON that is nested deeper than Python can read at this depth of the stack.
VALUE_ERRORS: Final = (
    *(ValueError, TypeError, ArithmeticError, LookupError, AttributeError, ValidationError),
    RecursionError,
)


def is_undecodable(error: Exception) -> bool:
    """Return whether an error may come from a value that was read, not from the database or the query."""
    if isinstance(error, DatabaseError):
        # SQLite's driver has no class of its own for this error.
        return isinstance(error, DataError) or "Could not decode to UTF-8" in str(error)
    return isinstance(error, VALUE_ERRORS)


def is_out_of_range(error: Exception) -> bool:
    """Return whether an error says that the database has computed a number that is too large for it."""
    if not isinstance(error, DatabaseError):
        return False
    # SQLite only has a message.
    return code_of(error) in OUT_OF_RANGE or str(error) == "integer overflow"


@contextmanager
def all_readable() -> Iterator[None]:
    """Raise ``Unreadable`` where one of the rows that are read in the block holds a value that cannot be decoded."""
    try:
        with LostDatesAsText():
            yield
    except Exception as error:
        if is_undecodable(error):
            raise Unreadable from error
        raise


def salvaged(read: Callable[[Any], list[Any]], parts: Any) -> list[Any]:
    """Return what ``read`` reads of the parts, with :data:`UNDECODABLE` for each part that fails."""
    try:
        with LostDatesAsText():
            return read(parts)
    except Exception as error:
        if not is_undecodable(error):
            raise
    if len(parts) == 1:
        return [UNDECODABLE]
    middle = len(parts) // 2
    first = salvaged(read, parts[:middle])
    # If the page ends in the first half, there is no second half.
    if len(first) == middle:
        return first + salvaged(read, parts[middle:])
    return first


def salvaged_first(rows: QuerySet[Any], limit: int) -> list[Any]:
    """Return the first results of a query, with :data:`UNDECODABLE` for each that fails."""
    return salvaged(lambda part: list(rows[part.start : part.stop]), range(limit))


def salvaged_tuples(rows: QuerySet[Any], names: Sequence[str], limit: int) -> list[tuple[Any, ...]]:
    """Return the first rows of a query as tuples, with :data:`UNDECODABLE` for each value that fails."""
    return list(zip(*[salvaged_first(rows.values_list(name, flat=True), limit) for name in names], strict=True))


def salvaged_rows(
    segments: Iterable[QuerySet[Any]], rows: QuerySet[Any], limit: int, computed: Collection[str] = ()
) -> list[Any]:
    """Return the first rows of the ``segments`` as instances; ``rows`` are all that the caller may read.

    A row with a value that cannot be decoded is made of its columns and the ``computed`` values, without anything else
    that the queryset adds.
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
        # The values are not the cause: raise the error of the query itself.
        raise failure
    return found

"""Work on the rows of a page, one after the other, whose queries do not grow with the rows.

A method of the project's own may follow a relation of its row, which is a query for each row. What the first rows were
seen to follow is loaded for all that come after them, by one query for each relation.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from django.db import connections
from django.db.models import Model, prefetch_related_objects

__all__ = ["each_row"]

T = TypeVar("T")
# Rows that are looked at: the first ones may have no value in a relation.
LOOKS: Final = 3
MAX_DEPTH: Final = 3
# Fewer rows than these say nothing about a query for each.
FEW: Final = 5


def each_row(rows: Sequence[Model], work: Callable[[Any], T]) -> tuple[list[T], bool]:
    """Return what the work gives for each row, and whether it made a query for each of them all the same."""
    found: list[T] = []
    counted = _Counter()
    if not rows:
        return found, False
    with connections[rows[0]._state.db or "default"].execute_wrapper(counted):
        for position, row in enumerate(rows):
            found.append(work(row))
            if position < LOOKS and position + 2 < len(rows):
                _load(rows[position + 1 :], _followed(row) - _followed(rows[position + 1]))
    return found, counted.queries >= len(rows) >= FEW


class _Counter:
    def __init__(self) -> None:
        self.queries = 0

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self.queries += 1
        return execute(*arguments)


def _followed(row: Model, depth: int = MAX_DEPTH) -> set[str]:
    """Return the paths of the relations whose rows are loaded."""
    return set(_paths(row, "", depth))


def _paths(row: Model, prefix: str, depth: int) -> Iterator[str]:
    for name, value in list(row._state.fields_cache.items()):
        yield prefix + name
        if isinstance(value, Model) and depth > 1:
            yield from _paths(value, f"{prefix}{name}__", depth - 1)


def _load(rows: Sequence[Model], paths: set[str]) -> None:
    for path in sorted(paths):
        try:
            prefetch_related_objects(rows, path)
        except (AttributeError, ValueError):
            # Something that cannot be loaded for many rows at once.
            continue

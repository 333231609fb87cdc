"""Prefetch what the project's per-row code follows, so that a page does not make one query for each row.

A method of the project may follow a relation of its row, which costs a query for each row. Relations that the first
rows followed are loaded for all later rows with one query each. Foreign keys are also remembered, and read together
with the rows of later pages.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from django.db import connections
from django.db.models import Model, prefetch_related_objects

from ..exposures.querysets import follows_every_row
from .fields import is_joinable

T = TypeVar("T")
# Number of first rows to watch: the very first may have no value in a relation.
LOOKS: Final = 3
MAX_DEPTH: Final = 3
# Number of rows below which the number of queries says nothing about queries for each row.
FEW: Final = 5


def each_row(rows: Sequence[Model], work: Callable[[Any], T], followed: set[str] | None = None) -> tuple[list[T], bool]:
    """Run ``work`` for each row and prefetch the relations that it follows; tell if each row still cost a query.

    The paths of the relations that were loaded are added to ``followed``.
    """
    found: list[T] = []
    queries = 0
    if not rows:
        return found, False

    def count(execute: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal queries
        queries += 1
        return execute(*arguments)

    with connections[rows[0]._state.db or "default"].execute_wrapper(count):
        for position, row in enumerate(rows):
            found.append(work(row))
            if position >= LOOKS or position + 2 >= len(rows):
                continue
            paths = {*_loaded(row)} - {*_loaded(rows[position + 1])}
            for path in sorted(paths):
                # Some attributes cannot be loaded for many rows at once.
                with suppress(AttributeError, ValueError):
                    prefetch_related_objects(rows[position + 1 :], path)
            if followed is not None:
                followed |= paths
    return found, queries >= len(rows) >= FEW


def _loaded(row: Model, prefix: str = "", depth: int = MAX_DEPTH) -> Iterator[str]:
    """Yield the paths of the relations that are already loaded on a row, including prefetched ones."""
    for name, value in list(row._state.fields_cache.items()):
        yield prefix + name
        if isinstance(value, Model) and depth > 1:
            yield from _loaded(value, f"{prefix}{name}__", depth - 1)


# The foreign keys that the code behind a column followed before, by exposure and column name.
_learned: WeakKeyDictionary[Any, dict[str, frozenset[str]]] = WeakKeyDictionary()


def learned(exposure: Any, columns: Collection[str]) -> set[str]:
    """Return the foreign keys to prefetch: those that the code of these columns followed before."""
    known = _learned.get(exposure)
    if known:
        return {path for name in columns for path in known.get(name, ())}
    return set()


def learn(exposure: Any, followed: Mapping[str, Collection[str]]) -> None:
    """Remember the foreign keys that the code of columns followed, to prefetch them with the rows of later pages."""
    for name, paths in followed.items():
        if keys := frozenset(path for path in paths if _is_read_with_rows(exposure.options.model_fields.get(path))):
            known = _learned.setdefault(exposure, {})
            known[name] = known.get(name, frozenset()) | keys


def _is_read_with_rows(field: Any) -> bool:
    """Return whether a foreign key can be prefetched by ``select_related``, with the row that following it gives."""
    if field is None or not field.concrete or not (field.many_to_one or field.one_to_one):
        return False
    return is_joinable(field) and follows_every_row(field.related_model)

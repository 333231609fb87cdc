"""Paths from a model to a column, and conditions on them: a closed list of lookups with values that were parsed.

A path is resolved to its fields before it is used, and a lookup is one of those that the field's kind or the exposure
allows: what a client writes never becomes an ORM keyword.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from django.core.exceptions import FieldDoesNotExist
from django.db import models

from .kinds import TEXTUAL, kind_of, parse_boolean, parse_integer, parse_text, parse_value

__all__ = ["MAX_VALUES", "Condition", "Path", "declared_lookups", "parse_condition", "resolve_path"]

MAX_VALUES: Final = 100
MAX_REGEX: Final = 100

# Lookups that no field has by itself; an exposure may declare them in ``filter_fields``.
DECLARED_TEXT: Final = ("iexact", "endswith", "iendswith", "regex", "iregex")
DECLARED_PARTS: Final = ("year", "quarter", "month", "week", "week_day", "day", "hour", "minute")


@dataclass(frozen=True, slots=True)
class Path:
    """A field reached from a model: the ORM path of its column, and whether that is one value, and may be NULL."""

    column: str
    field: Any
    many: bool
    nullable: bool


@dataclass(frozen=True, slots=True)
class Condition:
    """One resolved filter: ``path`` compared by ``lookup`` with ``values``, parsed and in the order of the lookup."""

    path: Path
    lookup: str
    values: tuple[Any, ...]


@lru_cache(maxsize=4096)
def resolve_path(model: type[models.Model], text: str) -> Path | None:
    """Return the concrete column that a path of field names leads to, or None: no such field, or a generic relation."""
    opts, names, many, nullable = model._meta, text.split("__"), False, False
    column: list[str] = []
    for position, name in enumerate(names):
        try:
            field: Any = opts.pk if name == "pk" else opts.get_field(name)
        except FieldDoesNotExist:
            return None
        if not isinstance(field, (models.Field, models.ForeignObjectRel)):
            return None
        last = position == len(names) - 1
        if last:
            if not isinstance(field, models.Field) or not (field.concrete or field.many_to_many):
                return None
            column.append(field.name if field.many_to_many else field.attname)
            return Path("__".join(column), field, many or bool(field.many_to_many), nullable or bool(field.null))
        if not field.is_relation or field.related_model is None:
            return None
        column.append(field.name)
        many = many or bool(field.many_to_many or field.one_to_many)
        nullable = nullable or not isinstance(field, models.Field) or bool(field.null)
        opts = field.related_model._meta
    return None


def _values(value: Any) -> Sequence[Any]:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MAX_VALUES:
        raise ValueError(f"a list of 1 to {MAX_VALUES} values")
    return value


def _parse_text_lookup(field: Any, lookup: str, value: Any) -> str:
    text = parse_text(field, value)
    if lookup.endswith("regex"):
        if len(text) > MAX_REGEX:
            raise ValueError(f"an expression of at most {MAX_REGEX} characters")
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            raise ValueError("a regular expression") from None
    return text


def _is_day(field: Any, value: Any) -> bool:
    return kind_of(field).word == "datetime" and isinstance(value, str) and len(value) <= 10


def _end_of_day(value: datetime) -> datetime:
    return value + (timedelta(days=1) - timedelta(microseconds=1))


def parse_condition(path: Path, lookup: str, value: Any) -> Condition:
    """Return the condition for a lookup that is allowed on the field.

    ``null`` means isnull, a list means in; a bare date compared with a datetime means the whole day.

    Raises:
        ValueError: the value does not fit; the text says what is expected.
    """
    field = path.field
    if value is None and lookup in ("exact", "isnull"):
        return Condition(path, "isnull", (True,))
    if lookup == "isnull":
        return Condition(path, lookup, (parse_boolean(field, value),))
    if lookup == "in" or (lookup == "exact" and isinstance(value, list)):
        return Condition(path, "in", tuple(dict.fromkeys(parse_value(field, item) for item in _values(value))))
    if lookup == "range":
        first, last = _two(value)
        end = parse_value(field, last)
        return Condition(path, lookup, (parse_value(field, first), _end_of_day(end) if _is_day(field, last) else end))
    if lookup in TEXTUAL or lookup in DECLARED_TEXT:
        return Condition(path, lookup, (_parse_text_lookup(field, lookup, value),))
    if lookup in DECLARED_PARTS:
        return Condition(path, lookup, (parse_integer(models.IntegerField(), value),))
    found = parse_value(field, value)
    if _is_day(field, value):
        if lookup == "exact":
            return Condition(path, "range", (found, _end_of_day(found)))
        if lookup in ("gt", "lte"):
            found = _end_of_day(found)
    return Condition(path, lookup, (found,))


def _two(value: Any) -> Sequence[Any]:
    values = _values(value)
    if len(values) != 2:
        raise ValueError("a list of two values: the first and the last")
    return values


def declared_lookups(path: Path, lookups: Sequence[str]) -> tuple[str, ...]:
    """Return those of the declared lookups that the field can take; what this app does not know is left out."""
    kind = kind_of(path.field)
    known = set(kind.lookups)
    if kind.word == "text":
        known |= set(DECLARED_TEXT)
    if kind.word in ("date", "datetime", "time"):
        known |= set(DECLARED_PARTS)
    return tuple(lookup for lookup in lookups if lookup in known)

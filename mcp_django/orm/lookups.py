"""Conditions: paths from a model to a column, lookups with parsed values, named filters, ``and``, ``or`` and ``not``.

A path is resolved to its fields before it is used, and a lookup is one of those that the field's kind or the exposure
allows: what a client writes never becomes an ORM keyword. Filters that a project wrote itself, such as those of the
admin's sidebar, are known by their names and run as they are.
"""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import Any, Final, Literal

from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models, router
from django.db.models import QuerySet
from django.db.models.lookups import Regex
from django.db.models.sql import Query
from django.utils.tree import Node

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.base import ModelExposure
from .kinds import (
    TEXTUAL,
    choice_of,
    is_joinable,
    key_field,
    kind_of,
    parse_boolean,
    parse_integer,
    parse_operand,
    parse_text,
    parse_value,
    stored_field,
)
from .relative_dates import EXAMPLES, PERIODS, Span, just_before, local_now, midnight, read_period, read_span

MAX_VALUES: Final = 100
MAX_REGEX: Final = 100
# What a backtracking matcher can need ages for: a repeated group, and many repetitions one after the other.
MAX_REPEATS: Final = 3
_REPEAT: Final = re.compile(r"[*+{]|(?<![(*+?}])\?")
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")

# Lookups of texts beside those of their kind; a regular expression is only for an exposure that declares it.
MORE_TEXT: Final = ("iexact", "endswith", "iendswith")
DECLARED_TEXT: Final = ("regex", "iregex")
# How a number is rounded that has more decimals than the column: more than 3.4 is more than 3, and at least 4.
ROUNDINGS: Final = {"gt": ROUND_FLOOR, "lte": ROUND_FLOOR, "gte": ROUND_CEILING, "lt": ROUND_CEILING}
_FRACTION: Final = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,20}")
_EXACT: Final = Context(prec=60)
# Parts of dates and times, and the numbers that each can be. The bounds of a year leave room for every time zone.
PARTS: Final[Mapping[str, tuple[int, int]]] = {
    "year": (2, 9998),
    "quarter": (1, 4),
    "month": (1, 12),
    "week": (1, 53),
    "week_day": (1, 7),
    "day": (1, 31),
    "hour": (0, 23),
    "minute": (0, 59),
}
# How a part is compared, after its name: ``year__gte``.
OF_PARTS: Final = ("exact", "gt", "gte", "lt", "lte", "in", "range")
_PARTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "date": ("year", "quarter", "month", "week", "week_day", "day"),
    "datetime": ("date", *PARTS),
    "time": ("hour", "minute"),
}
_DAYS: Final = ("date", "datetime")


@dataclass(frozen=True, slots=True)
class Path:
    """A field reached from a model: the ORM path of its column, and whether that is one value, and may be NULL.

    ``guards`` are conditions that rows on the way have to meet to be the caller's: where one does not, there is no
    value. Of a path that begins with a relation to many rows they are seen from these. A value that the database
    computes has an ``expression``, and a name in place of the column.
    """

    column: str
    field: Any
    many: bool
    nullable: bool
    guards: tuple[models.Q, ...] = ()
    expression: Any = None


@dataclass(frozen=True, slots=True)
class Condition:
    """One resolved filter: ``path`` compared by ``lookup`` with ``values``, parsed and in the order of the lookup.

    ``given`` is what the client wrote where that is a relative date, whose values change with the clock.
    """

    path: Path
    lookup: str
    values: tuple[Any, ...]
    given: Any = None


def resolve_path(model: type[models.Model], text: str) -> Path | None:
    """Return the concrete column that a path of field names leads to.

    None stands for no such field, a generic relation, or a path into another database, which no query can follow.
    """
    path, followed = _resolved(model, text)
    return path if all(map(is_joinable, followed)) else None


@lru_cache(maxsize=4096)
def _resolved(model: type[models.Model], text: str) -> tuple[Path | None, tuple[Any, ...]]:
    """Return the path and the relations that it follows."""
    opts, names, many, nullable = model._meta, text.split("__"), False, False
    column: list[str] = []
    followed: list[Any] = []
    for position, name in enumerate(names):
        try:
            field: Any = opts.pk if name == "pk" else opts.get_field(name)
        except FieldDoesNotExist:
            return None, ()
        if not isinstance(field, (models.Field, models.ForeignObjectRel)):
            return None, ()
        last = position == len(names) - 1
        if last:
            if not isinstance(field, models.Field) or not (field.concrete or field.many_to_many):
                return None, ()
            column += _key_names(field)
            followed += [field] if len(column) > position + 1 else []
            many, nullable = many or bool(field.many_to_many), nullable or bool(field.null)
            return Path("__".join(column), field, many, nullable), tuple(followed)
        if not field.is_relation or field.related_model is None:
            return None, ()
        column.append(field.name)
        followed.append(field)
        many = many or bool(field.many_to_many or field.one_to_many)
        nullable = nullable or not isinstance(field, models.Field) or bool(field.null)
        opts = field.related_model._meta
    return None, ()


def _key_names(field: Any) -> tuple[str, ...]:
    """Return the names that lead to what a field shows: its column, or the primary key of the row that it points to."""
    if field.many_to_many:
        return (field.name,)
    if field.is_relation and key_field(field) is not field.target_field:
        return field.name, key_field(field).attname
    return (field.attname,)


def _values(value: Any) -> Sequence[Any]:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MAX_VALUES:
        raise ValueError(f"a list of 1 to {MAX_VALUES} values")
    return value


def _parse_text_lookup(field: Any, lookup: str, value: Any) -> str:
    text = parse_text(field, value)
    if is_pattern_lookup(lookup):
        if len(text) > MAX_REGEX:
            raise ValueError(f"an expression of at most {MAX_REGEX} characters")
        if _REPEATED_GROUP.search(text) or len(_REPEAT.findall(text)) > MAX_REPEATS:
            raise ValueError(f"an expression without repeated groups and with at most {MAX_REPEATS} repetitions")
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            raise ValueError("a regular expression") from None
    return text


def parse_condition(path: Path, lookup: str, value: Any, now: datetime | None = None) -> Condition:
    """Return the condition for a lookup that is allowed on the field.

    ``null`` means isnull, a list means in; a bare date compared with a datetime means the whole day, and a relative
    date, which is seen from ``now``, the whole time that it names.
    """
    field = path.field
    if value is None and lookup in ("exact", "isnull"):
        return Condition(path, "isnull", (True,))
    if lookup == "isnull":
        return Condition(path, lookup, (parse_boolean(field, value),))
    operand = kind_of(field).operand
    if operand is not None:
        return Condition(path, lookup, (operand(field, lookup, value),))
    part, _, word = lookup.partition("__")
    if part in PARTS:
        if not word and isinstance(value, list):
            lookup, word = f"{part}__in", "in"
        items = _two(value) if word == "range" else _values(value) if word == "in" else [value]
        return Condition(path, lookup, tuple(_part(part, item) for item in items))
    if is_dated(field):
        return _temporal(path, lookup, value, now)
    if lookup == "in" or (lookup == "exact" and isinstance(value, list)):
        return Condition(path, "in", tuple(dict.fromkeys(parse_value(field, item) for item in _values(value))))
    if lookup == "range":
        first, last = _two(value)
        first, last = _as_stored(field, "gte", first), _as_stored(field, "lte", last)
        return Condition(path, lookup, (parse_operand(field, first), parse_operand(field, last)))
    if lookup in ROUNDINGS:
        return Condition(path, lookup, (parse_operand(field, _as_stored(field, lookup, value)),))
    if lookup in TEXTUAL or lookup in MORE_TEXT or lookup in DECLARED_TEXT:
        return Condition(path, lookup, (_parse_text_lookup(field, lookup, value),))
    return Condition(path, lookup, ((parse_value if lookup == "exact" else parse_operand)(field, value),))


def _as_stored(field: Any, lookup: str, value: Any) -> Any:
    """Return a number with as many decimals as the column has, to which the column compares as to the one given."""
    text = str(value) if isinstance(value, (str, float)) else ""
    if _FRACTION.fullmatch(text) is None:
        return value
    word, stored = kind_of(field).word, stored_field(field)
    bounded = word == "decimal" and stored.max_digits is not None
    places = 0 if word == "integer" else stored.decimal_places if bounded else None
    if places is None or len(text.partition(".")[2]) <= places:
        return value
    rounded = Decimal(text).quantize(Decimal(1).scaleb(-places), ROUNDINGS[lookup], _EXACT)
    return int(rounded) if word == "integer" else str(rounded)


def _part(lookup: str, value: Any) -> int:
    low, high = PARTS[lookup]
    number = parse_integer(models.IntegerField(), value)
    if not low <= number <= high:
        first = " (Sunday)" if lookup == "week_day" else ""
        raise ValueError(f"a whole number from {low}{first} to {high}")
    return number


def is_dated(field: Any) -> bool:
    """Return whether values of the field may be relative dates."""
    return not field.is_relation and kind_of(field).word in _DAYS


def _temporal(path: Path, lookup: str, value: Any, now: datetime | None) -> Condition:
    """Return the condition on a date or datetime, of which a value may name a stretch."""
    now = now or local_now()
    given = value if _is_relative(value, now) else None
    if lookup == "in" or (lookup == "exact" and isinstance(value, list)):
        spans = [_bounds(path.field, item, now) for item in _values(value)]
        if any(first != last for first, last in spans):
            raise ValueError('single points in time; name several stretches of time with "or"')
        return Condition(path, "in", tuple(dict.fromkeys(first for first, _ in spans)), given)
    if lookup == "range" and (not isinstance(value, str) or (given is None and "," in value)):
        one, other = _two(value)
        values = _bounds(path.field, one, now)[0], _bounds(path.field, other, now)[1]
        return Condition(path, lookup, values, given)
    first, last = _bounds(path.field, value, now)
    if lookup == "range" or (lookup in ("exact", "date") and first != last):
        return Condition(path, "range", (first, last), given)
    found = last if lookup in ("gt", "lte") else first
    return Condition(path, "exact" if lookup == "date" else lookup, (found,), given)


def _is_relative(value: Any, now: datetime) -> bool:
    items = value if isinstance(value, list) else [value]
    return any(isinstance(item, str) and read_span(item, now) is not None for item in items[:MAX_VALUES])


def _bounds(field: Any, value: Any, now: datetime) -> tuple[Any, Any]:
    """Return the first and the last value that is meant: of the whole day where a datetime gets a bare date."""
    is_date = kind_of(field).word == "date"
    span = read_span(value, now) if isinstance(value, str) else None
    if span is None:
        try:
            found = _point(field, value)
            return (found, found if is_date or len(value) > 10 else _end_of_day(found))
        except ValueError as error:
            span = _period(value)
            if span is None:
                raise ValueError(f"{error}, {PERIODS}, {EXAMPLES}") from None
    return (span.start.date(), span.last.date()) if is_date else (span.start, span.last)


def _point(field: Any, value: Any) -> Any:
    if isinstance(value, str) and value[4:6].upper() == "-W" and len(value) < 10:
        # Python reads a week of ISO 8601 as its Monday.
        raise ValueError("a date")
    return parse_operand(field, value)


def _period(value: Any) -> Span | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return read_period(value) if isinstance(value, str) else None


def _end_of_day(value: datetime) -> datetime:
    try:
        return just_before(midnight(value.date() + timedelta(days=1)))
    except OverflowError:
        raise ValueError("a date within the years 1 to 9999") from None


def _two(value: Any) -> Sequence[Any]:
    values = _values(value)
    if len(values) != 2:
        raise ValueError("a list of two values: the first and the last")
    return values


@lru_cache(maxsize=4096)
def usual_lookups(field: Any) -> tuple[str, ...]:
    """Return the lookups that the field takes where the exposure says nothing."""
    kind = kind_of(field)
    if field.is_relation:
        return kind.lookups
    if kind.word == "text" and "icontains" in kind.lookups:
        return kind.lookups + MORE_TEXT
    return kind.lookups + _PARTS_OF.get(kind.word, ())


def declared_lookups(path: Path, lookups: Sequence[str]) -> tuple[str, ...]:
    """Return those of the declared lookups that the field can take; what this app does not know is left out.

    So are regular expressions where this process would have to match them.
    """
    known = set(usual_lookups(path.field))
    if set(MORE_TEXT) <= known and not set(DECLARED_TEXT).isdisjoint(lookups):
        known |= set() if matches_here(router.db_for_read(path.field.model)) else set(DECLARED_TEXT)
    return tuple(lookup for lookup in lookups if lookup in known)


logger = logging.getLogger("mcp_django")

MAX_CHOICES: Final = 200


@dataclass(frozen=True, slots=True)
class Offer:
    """A name to filter by: its title, and the values with their labels; without choices any text may be tried."""

    name: str
    title: str
    choices: tuple[tuple[str, str], ...] = ()

    def value_of(self, text: str) -> str | None:
        """Return the value that a client means by it or by its label, None if it is none of the choices."""
        if not self.choices:
            return text
        found: str | None = choice_of(self.choices, text)
        return found


class NamedFilter(ABC):
    """A filter that the project wrote: some names, each of which takes values, and what it makes of a queryset."""

    # Whether a name takes more than one value.
    takes_lists = True

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names that the filter may have, without asking the database."""

    def comes_first(self, name: str, value: Any) -> bool:
        """Return whether this filter is meant by the name with the value, though a field may have the name too."""
        return False

    @abstractmethod
    def offers(self) -> Sequence[Offer]:
        """Return what the caller may use of it now; nothing where the filter itself would not be shown."""

    def told(self) -> Sequence[Offer]:
        """Return what the caller is told of it: the same, with choices made of rows as far as they may see those."""
        return self.offers()

    def value_of(self, offer: Offer, text: str) -> str | None:
        """Return the value of an offer that a client means, None if the caller may know of no such choice."""
        return offer.value_of(text)

    @abstractmethod
    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        """Return the rows that pass."""


class Narrowed(NamedFilter):
    """Rows that this app narrows by a function of its own; no client can name it."""

    def __init__(self, function: Callable[[QuerySet[Any]], QuerySet[Any]]) -> None:
        self.function = function

    def names(self) -> Sequence[str]:
        return ()

    def offers(self) -> Sequence[Offer]:
        return ()

    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        return self.function(queryset)


def named_filters_of(request: MCPRequest, exposure: ModelExposure, *, told: bool = False) -> list[Offer]:
    """Return every named filter that the caller may use. One that fails is left out: it is the project's code.

    With ``told`` they have the choices that the caller is told.
    """
    found: dict[str, Offer] = {}
    for item in exposure.get_named_filters(request):
        try:
            for offer in item.told() if told else item.offers():
                found.setdefault(offer.name, offer)
        except Exception:
            logger.warning("A filter of %s failed: %s", exposure.label, ", ".join(item.names()), exc_info=True)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Junction:
    """All of the parts (``and``), any of them (``or``), or not all of them (``not``)."""

    connector: Literal["and", "or", "not"]
    parts: "tuple[Filter, ...]"


@dataclass(frozen=True, slots=True)
class Applied:
    """A filter of the project's own with the values that the client gave, by their names."""

    source: NamedFilter
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Quantified:
    """How many related rows pass all of ``parts``: some, none, every one, or a number that is compared (``count``).

    ``link`` is the relation (:class:`~mcp_django.orm.path.Link`), ``lookup`` with ``values`` what the number has to be.
    """

    link: Any
    quantifier: Literal["some", "none", "every", "count"]
    parts: "tuple[Filter, ...]"
    lookup: str = ""
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values of a row compared with each other: each a :class:`~mcp_django.orm.path.Target`.

    ``parts`` are the filters on the rows that the right one is an aggregate of.
    """

    left: Any
    lookup: str
    right: Any
    parts: "tuple[Filter, ...]" = ()


Filter = Condition | Applied | Junction | Quantified | Comparison


def conditions_of(filters: Sequence[Filter], *, related: bool = True) -> Iterator[Condition | Applied]:
    """Yield what stands at the ends of the expression, in conditions on ``related`` rows too."""
    for item in filters:
        if isinstance(item, Junction) or (isinstance(item, (Quantified, Comparison)) and related):
            yield from conditions_of(item.parts, related=related)
        elif not isinstance(item, (Quantified, Comparison)):
            yield item


def left_open(found: Sequence[Filter], opening: Sequence[NamedFilter]) -> Iterator[Applied]:
    """Yield the filters that narrow the list when it is opened and of which nothing is chosen."""
    chosen = {name for item in conditions_of(found, related=False) if isinstance(item, Applied) for name in item.values}
    for source in opening:
        if chosen.isdisjoint(source.names()):
            yield Applied(source, {})


def opening_hint(filters: Sequence[Filter]) -> Iterator[str]:
    """Yield what to say of filters that narrow though the caller has not named them."""
    names = [name for item in filters if isinstance(item, Applied) and not item.values for name in item.source.names()]
    if names:
        yield f"As in the admin, the filter {', '.join(names)} applies by itself: describe_model tells its choices."


def is_moving(filters: Sequence[Filter]) -> bool:
    """Return whether the filters mean something else at another time, as "last 30 days" does."""
    return any(isinstance(item, Condition) and item.given is not None for item in conditions_of(filters))


def wording(item: Filter) -> list[Any]:
    """Return the filter as JSON, equal for equal filters, with relative dates as the client wrote them."""
    if isinstance(item, Junction):
        return [item.connector, [wording(part) for part in item.parts]]
    if isinstance(item, Comparison):
        return [item.left.name, item.lookup, item.right.name, *([wording(part) for part in item.parts])]
    if isinstance(item, Quantified):
        number = [item.lookup, *item.values]
        return [item.link.name, item.quantifier, number, [wording(part) for part in item.parts]]
    if isinstance(item, Applied):
        return ["", sorted([name, *values] for name, values in item.values.items())]
    values = [str(value) for value in item.values] if item.given is None else [item.given]
    return [item.path.column, item.lookup, values]


def in_fixed_order(filters: Sequence[Filter]) -> "tuple[Filter, ...]":
    """Return the filters in an order that does not depend on how the client wrote them."""
    return tuple(sorted(filters, key=_sort_key)) if len(filters) > 1 else tuple(filters)


def _sort_key(item: Filter) -> tuple[str, ...]:
    if isinstance(item, Condition):
        return item.path.column, item.lookup, repr(item.values if item.given is None else item.given)
    return "", repr(wording(item))


# Regular expressions that clients write. SQLite has no matcher of its own: Django lends it Python's, which backtracks,
# holds the interpreter and obeys no timeout. Without these an expression has one way to match, and takes linear time.
_BRANCHING: Final = re.compile(r"[*+?{|]")


def is_pattern_lookup(lookup: str) -> bool:
    """Return whether a lookup, or a path that ends with one, takes a regular expression."""
    return lookup.rpartition("__")[2] in ("regex", "iregex")


def matches_here(using: str) -> bool:
    """Return whether the database of the alias has this process match regular expressions."""
    return connections[using].vendor == "sqlite"


def check_patterns(queryset: QuerySet[Any], texts: Iterable[str]) -> None:
    """Pass unless this process would have to match an expression that a client's text made costly."""
    costly = [text.casefold() for text in texts if _BRANCHING.search(text)]
    if costly and matches_here(queryset.db):
        for pattern in _patterns(queryset.query):
            if any(text in pattern.casefold() for text in costly):
                raise ToolError("This database takes no regular expressions: leave out * + ? { and |.")


def _patterns(node: Any) -> Iterator[str]:
    if isinstance(node, Regex) and isinstance(node.rhs, str):
        yield node.rhs
    if isinstance(node, Query):
        inner: Iterable[Any] = (node.where, *node.annotations.values(), *node.combined_queries)
    elif isinstance(node, Node):
        inner = node.children
    else:
        inner = node.get_source_expressions() if hasattr(node, "get_source_expressions") else ()
    for item in inner:
        yield from _patterns(item)

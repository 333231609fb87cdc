"""Kinds of fields: their name for callers, the lookups that fit them, and how a client's JSON becomes a value.

Everything here is decided by the field, never by the client: a lookup is one of a closed list, and a value is parsed to
the Python type of its field before any query is built.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.conf import settings as django_settings
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import connection, models
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_duration, parse_time

__all__ = [
    "MAX_TEXT",
    "MAX_VALUES",
    "Condition",
    "Kind",
    "Path",
    "kind_of",
    "parse_condition",
    "parse_value",
    "resolve_path",
]

MAX_VALUES: Final = 100
MAX_TEXT: Final = 1000
MAX_REGEX: Final = 100
MAX_EXPONENT: Final = 300

EQUAL: Final = ("exact", "in", "isnull")
ORDERED: Final = ("gt", "gte", "lt", "lte", "range")
TEXTUAL: Final = ("contains", "icontains", "startswith", "istartswith")
# Lookups that no field has by itself; an exposure may declare them in ``filter_fields``.
DECLARED_TEXT: Final = ("iexact", "endswith", "iendswith", "regex", "iregex")
DECLARED_PARTS: Final = ("year", "quarter", "month", "week", "week_day", "day", "hour", "minute")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field holds. ``word`` is its name for callers; ``lookups`` are those it has by itself.

    ``parse`` turns a JSON value into the Python value and raises ValueError, whose text says what is expected.
    """

    word: str
    lookups: tuple[str, ...]
    parse: Callable[[Any, Any], Any]
    sortable: bool = True
    summable: bool = False


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


def _integer(field: Any, value: Any) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("an integer")
    low, high = connection.ops.integer_field_range(field.get_internal_type())
    low, high = -(2**63) if low is None else low, 2**63 - 1 if high is None else high
    if not low <= value <= high:
        raise ValueError(f"an integer from {low} to {high}")
    return value


def _float(field: Any, value: Any) -> float:
    return float(_number(value))


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)) or len(str(value)) > 60:
        raise ValueError("a number")
    try:
        number = Decimal(str(value)) if str(value).isascii() else Decimal("NaN")
    except InvalidOperation:
        raise ValueError("a number") from None
    if not number.is_finite() or abs(number.adjusted()) > MAX_EXPONENT:
        raise ValueError("a number")
    return number


def _decimal(field: Any, value: Any) -> Decimal:
    number = _number(value)
    places = field.decimal_places or 0
    if field.max_digits is not None:
        if abs(number) >= Decimal(10) ** (field.max_digits - places):
            raise ValueError(f"a number of at most {field.max_digits - places} digits before the point")
        if number != round(number, places):
            raise ValueError(f"a number with at most {places} decimals")
    return number


def _boolean(field: Any, value: Any) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    if value in (0, 1) and isinstance(value, int):
        return bool(value)
    raise ValueError("true or false")


def _text(field: Any, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or "\0" in value or len(value) > MAX_TEXT:
        raise ValueError(f"text of at most {MAX_TEXT} characters")
    return value


def _temporal(parse: Callable[[str], Any], expected: str) -> Callable[[Any, Any], Any]:
    def read(field: Any, value: Any) -> Any:
        try:
            found = parse(value) if isinstance(value, str) and len(value) < 64 and value.isascii() else None
        except (ValueError, OverflowError):
            found = None
        if found is None:
            raise ValueError(expected)
        return found

    return read


def _datetime(text: str) -> datetime | None:
    day = parse_date(text) if len(text) <= 10 else None
    found = datetime.combine(day, time()) if day else parse_datetime(text)
    if found is None:
        return None
    if django_settings.USE_TZ:
        found = found if timezone.is_aware(found) else timezone.make_aware(found)
        # Fails here, not in the database, for the hours around the years 1 and 9999.
        found.astimezone(UTC)
    elif timezone.is_aware(found):
        found = timezone.make_naive(found)
    return found


def _uuid(field: Any, value: Any) -> UUID:
    try:
        return UUID(value) if isinstance(value, str) and len(value) in (32, 36) else UUID("")
    except ValueError:
        raise ValueError("a UUID") from None


def _address(field: Any, value: Any) -> str:
    try:
        return str(field.clean(_text(field, value), None))
    except ValidationError:
        raise ValueError("an IP address") from None


def _nothing(field: Any, value: Any) -> Any:
    raise ValueError("no value")


_date = _temporal(parse_date, "a date such as 2026-01-31")
_moment = _temporal(_datetime, "a date or time such as 2026-01-31 or 2026-01-31T12:00:00Z")

# The first class that a field is an instance of decides; subclasses stand before their parents.
_KINDS: Final[tuple[tuple[type[Any], Kind], ...]] = (
    (models.BooleanField, Kind("boolean", EQUAL, _boolean)),
    (models.IntegerField, Kind("integer", EQUAL + ORDERED, _integer, summable=True)),
    (models.DecimalField, Kind("decimal", EQUAL + ORDERED, _decimal, summable=True)),
    (models.FloatField, Kind("number", EQUAL + ORDERED, _float, summable=True)),
    (models.DateTimeField, Kind("datetime", EQUAL + ORDERED, _moment)),
    (models.DateField, Kind("date", EQUAL + ORDERED, _date)),
    (models.TimeField, Kind("time", EQUAL + ORDERED, _temporal(parse_time, "a time such as 14:30"))),
    (
        models.DurationField,
        Kind("duration", EQUAL + ORDERED, _temporal(parse_duration, "a duration such as 1 02:30:00"), summable=True),
    ),
    (models.UUIDField, Kind("uuid", EQUAL, _uuid)),
    (models.GenericIPAddressField, Kind("ip", EQUAL, _address)),
    (models.ImageField, Kind("image", (), _nothing, sortable=False)),
    (models.FileField, Kind("file", (), _nothing, sortable=False)),
    (models.CharField, Kind("text", EQUAL + TEXTUAL, _text)),
    (models.TextField, Kind("text", EQUAL + TEXTUAL, _text)),
    (models.FilePathField, Kind("text", EQUAL, _text)),
    (models.JSONField, Kind("json", ("isnull",), _nothing, sortable=False)),
    (models.BinaryField, Kind("bytes", ("isnull",), _nothing, sortable=False)),
)
_OTHER: Final = Kind("value", ("isnull",), _nothing, sortable=False)


def stored_field(field: Any) -> Any:
    """Return the field whose type the column has: the target of a relation, what a generated field gives."""
    while True:
        if field.is_relation and field.concrete and not field.many_to_many:
            field = field.target_field
        elif isinstance(field, models.GeneratedField):
            field = field.output_field
        else:
            return field


@lru_cache(maxsize=4096)
def kind_of(field: Any) -> Kind:
    """Return the kind of a concrete field, a relation counting as what its column holds."""
    if field.many_to_many:
        target = kind_of(field.related_model._meta.pk)
        return Kind(target.word, ("exact", "in"), target.parse, sortable=False)
    stored = stored_field(field)
    kind = next((kind for base, kind in _KINDS if isinstance(stored, base)), _OTHER)
    if field.is_relation:
        return Kind(kind.word, EQUAL, kind.parse, kind.sortable)
    return kind


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


def _choice(field: Any, value: Any) -> Any:
    """Return the stored value of a choice given by it or by its label."""
    by_text = {str(label).lower(): stored for stored, label in reversed(field.flatchoices)}
    by_text.update({str(stored).lower(): stored for stored, _ in reversed(field.flatchoices)})
    found = by_text.get(str(value).lower())
    if found is None or isinstance(value, (dict, list)):
        stored = [str(stored) for stored, _ in field.flatchoices if stored is not None]
        raise ValueError("one of " + ", ".join(stored[:20]) + (" …" if len(stored) > 20 else ""))
    return found


def parse_value(field: Any, value: Any) -> Any:
    """Return the Python value of the field that the JSON value stands for.

    Raises:
        ValueError: it stands for none; the text says what is expected.
    """
    if field.many_to_many:
        field = field.related_model._meta.pk
    stored = stored_field(field)
    if not field.is_relation and getattr(stored, "choices", None) and value not in ("", None):
        value = _choice(stored, value)
    return kind_of(field).parse(stored, value)


def _values(value: Any) -> Sequence[Any]:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MAX_VALUES:
        raise ValueError(f"a list of 1 to {MAX_VALUES} values")
    return value


def _parse_text_lookup(field: Any, lookup: str, value: Any) -> str:
    text = _text(field, value)
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
        return Condition(path, lookup, (_boolean(field, value),))
    if lookup == "in" or (lookup == "exact" and isinstance(value, list)):
        return Condition(path, "in", tuple(dict.fromkeys(parse_value(field, item) for item in _values(value))))
    if lookup == "range":
        first, last = _two(value)
        end = parse_value(field, last)
        return Condition(path, lookup, (parse_value(field, first), _end_of_day(end) if _is_day(field, last) else end))
    if lookup in TEXTUAL or lookup in DECLARED_TEXT:
        return Condition(path, lookup, (_parse_text_lookup(field, lookup, value),))
    if lookup in DECLARED_PARTS:
        return Condition(path, lookup, (_integer(models.IntegerField(), value),))
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

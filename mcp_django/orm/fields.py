"""Model fields: found by a path, the kind of value that each holds, and how a client's JSON becomes such a value.

The field decides everything here, never the client: a value is parsed to the Python type of its field before any query
is built.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache, partial
from typing import Any, Final
from uuid import UUID

from django.conf import settings as django_settings
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import connection, connections, models, router
from django.forms import MultipleChoiceField
from django.utils import timezone
from django.utils.choices import flatten_choices
from django.utils.dateparse import parse_date, parse_datetime, parse_duration, parse_time

from ..context.databases import PRIMARY
from ..schema.value_types import choice_of

MAX_TEXT: Final = 1000
INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
MAX_EXPONENT: Final = 300
# Units of durations, by name. Names of results use the first name of each unit.
UNITS: Final[dict[str, timedelta]] = {
    **dict.fromkeys(("days", "day", "d"), timedelta(days=1)),
    **dict.fromkeys(("weeks", "week", "w"), timedelta(weeks=1)),
    **dict.fromkeys(("hours", "hour", "h"), timedelta(hours=1)),
    **dict.fromkeys(("minutes", "minute", "min"), timedelta(minutes=1)),
    **dict.fromkeys(("seconds", "second", "s"), timedelta(seconds=1)),
}
# Maximum number of items that an array is compared with.
MAX_ITEMS: Final = 20

EQUAL: Final = ("exact", "in", "isnull")
ORDERED: Final = ("gt", "gte", "lt", "lte", "range")
TEXTUAL: Final = ("contains", "icontains", "startswith", "istartswith")


# Lookups of text beside those of its kind.
MORE_TEXT: Final = ("iexact", "endswith", "iendswith")
# Parts of dates and times, each with its range. The range of years leaves room for every time zone.
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
_PARTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "date": ("year", "quarter", "month", "week", "week_day", "day"),
    "datetime": ("date", *PARTS),
    "time": ("hour", "minute"),
}


@dataclass(frozen=True)
class Kind:
    """The kind of value that a model ``field`` holds: its ``word`` for callers, and its ``lookups``.

    ``parse`` turns a JSON value into the Python value, and raises ValueError with a text that says what is expected.
    The lookups of containers take values of other types, which ``operand`` parses by field, lookup and value.
    """

    word: str
    lookups: tuple[str, ...]
    parse: Callable[[Any, Any], Any]
    sortable: bool = True
    summable: bool = False
    operand: Callable[[Any, str, Any], Any] | None = None
    field: Any = None

    @cached_property
    def usual_lookups(self) -> tuple[str, ...]:
        """The lookups, such as ``exact`` and ``gte``, that the field takes if the exposure declares none."""
        if self.field.is_relation:
            return self.lookups
        if self.word == "text" and "icontains" in self.lookups:
            return self.lookups + MORE_TEXT
        return self.lookups + _PARTS_OF.get(self.word, ())

    @property
    def choices(self) -> list[tuple[Any, Any]]:
        """The field's choices as pairs of stored value and displayed name, including those of groups."""
        found = getattr(self.field, "flatchoices", None)
        # Custom fields that hold several choices replace Django's ``flatchoices``, some without a list.
        if isinstance(found, list):
            return list(found)
        return list(flatten_choices(self.field.choices))

    @cached_property
    def holds_many(self) -> bool:
        """Whether a value of the field is several of the field's choices, as its form field takes them."""
        try:
            return bool(self.field.choices) and isinstance(self.field.formfield(), MultipleChoiceField)
        except Exception:
            # The field cannot make a form field by itself.
            return False

    @property
    def is_custom(self) -> bool:
        """Whether the field makes its values itself of what the database has: they may be of any class."""
        return hasattr(stored_field(self.field), "from_db_value")


def parse_integer(field: Any, value: Any) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, str) and INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("an integer")
    try:
        low, high = connection.ops.integer_field_range(field.get_internal_type())
    except KeyError:
        # A custom field whose column has another type.
        low = None
        high = None
    low = -(2**63) if low is None else low
    high = 2**63 - 1 if high is None else high
    if not low <= value <= high:
        raise ValueError(f"an integer from {low} to {high}")
    return value


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


def parse_boolean(field: Any, value: Any) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    if value in (0, 1) and isinstance(value, int):
        return bool(value)
    raise ValueError("true or false")


def parse_text(field: Any, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError(f"text of at most {MAX_TEXT} characters")
    if "\0" in value or not _is_unicode(value):
        raise ValueError("text without the character NUL and without half of a surrogate pair")
    return value


def _is_unicode(text: str) -> bool:
    """Return whether text can be stored in a model field: no database takes an unpaired surrogate."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


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
        # Near the years 1 and 9999, fail here rather than in the database.
        found.astimezone(UTC)
    elif timezone.is_aware(found):
        found = timezone.make_naive(found)
    return found


def _duration(text: str) -> timedelta | None:
    """Parse the text for a ``DurationField``, such as ``5d``, ``2 hours`` or ``1 02:30:00``; None for any other."""
    found = re.fullmatch(r"([0-9]{1,6})\s?([a-z]+)", text.strip().lower())
    if found is not None and found[2] in UNITS:
        return int(found[1]) * UNITS[found[2]]
    # Django would parse an empty text as a duration of zero.
    return parse_duration(text) if text else None


def _address(field: Any, value: Any) -> str:
    try:
        return str(field.clean(parse_text(field, value), None))
    except ValidationError:
        raise ValueError("an IP address") from None


def _nothing(field: Any, value: Any) -> Any:
    raise ValueError("no value")


def _parse_uuid(text: str) -> UUID | None:
    if len(text) in (32, 36):
        return UUID(text)
    return None


_date = _temporal(parse_date, "a date such as 2026-01-31")
_moment = _temporal(_datetime, "a date or time such as 2026-01-31 or 2026-01-31T12:00:00Z")
_uuid = _temporal(_parse_uuid, "a UUID")
_length = _temporal(_duration, "a duration such as 3h, 30min or 1 02:30:00")

# A field has the kind of the first class that it is an instance of: subclasses come before their parents.
_KINDS: Final[tuple[tuple[type[Any], Kind], ...]] = (
    (models.BooleanField, Kind("boolean", EQUAL, parse_boolean)),
    (models.IntegerField, Kind("integer", EQUAL + ORDERED, parse_integer, summable=True)),
    (models.DecimalField, Kind("decimal", EQUAL + ORDERED, _decimal, summable=True)),
    (models.FloatField, Kind("number", EQUAL + ORDERED, lambda _, value: float(_number(value)), summable=True)),
    (models.DateTimeField, Kind("datetime", EQUAL + ORDERED, _moment)),
    (models.DateField, Kind("date", EQUAL + ORDERED, _date)),
    (models.TimeField, Kind("time", EQUAL + ORDERED, _temporal(parse_time, "a time such as 14:30"))),
    (models.DurationField, Kind("duration", EQUAL + ORDERED, _length, summable=True)),
    (models.UUIDField, Kind("uuid", EQUAL, _uuid)),
    (models.GenericIPAddressField, Kind("ip", EQUAL, _address)),
    (models.ImageField, Kind("image", ("isnull",), _nothing, sortable=False)),
    (models.FileField, Kind("file", ("isnull",), _nothing, sortable=False)),
    (models.CharField, Kind("text", EQUAL + TEXTUAL, parse_text)),
    (models.TextField, Kind("text", EQUAL + TEXTUAL, parse_text)),
    (models.FilePathField, Kind("text", EQUAL, parse_text)),
    (models.JSONField, Kind("json", ("isnull",), _nothing, sortable=False)),
    (models.BinaryField, Kind("bytes", ("isnull",), _nothing, sortable=False)),
)
_OTHER: Final = Kind("value", ("isnull",), _nothing, sortable=False)
_GEOMETRY: Final = Kind("geometry", ("isnull",), _nothing, sortable=False)
# A composite primary key: its parts are fields of their own, with their own lookups.
_COMPOSITE: Final = Kind("key", (), _nothing, sortable=False)


# PostgreSQL


def _items(value: Any) -> list[Any]:
    items = value if isinstance(value, list) else [value]
    if not 0 < len(items) <= MAX_ITEMS:
        raise ValueError(f"a list of 1 to {MAX_ITEMS} values")
    return items


def _array_operand(field: Any, lookup: str, value: Any) -> Any:
    if lookup == "len":
        return parse_integer(models.IntegerField(), value)
    # The items of an array of arrays are those of the innermost array, as the database takes them.
    base = field.base_field
    while hasattr(base, "base_field"):
        base = base.base_field
    found = [parse_value(base, item) for item in _items(value)]
    while hasattr(field.base_field, "base_field"):
        found = [found]
        field = field.base_field
    return found


def _range_operand(field: Any, lookup: str, value: Any) -> Any:
    if lookup == "overlap":
        ends = _items(value)
        if len(ends) != 2:
            raise ValueError("a list of two values: from, and the first after it")
        lower, upper = ends
        if lower is not None:
            lower = parse_value(field.base_field, lower)
        if upper is not None:
            upper = parse_value(field.base_field, upper)
        if lower is not None and upper is not None and lower > upper:
            raise ValueError("a list of two values: the smaller one first")
        return field.range_type(lower, upper)
    inside = parse_value(field.base_field, value)
    return field.range_type(inside, inside, "[]")


def _key(field: Any, lookup: str, value: Any) -> Any:
    return parse_text(field, value)


# By class name, because importing the module needs the driver of PostgreSQL.
_POSTGRES: Final[tuple[tuple[str, Kind], ...]] = (
    ("ArrayField", Kind("list", ("contains", "overlap", "len", "isnull"), _nothing, False, operand=_array_operand)),
    ("RangeField", Kind("range", ("contains", "overlap", "isnull"), _nothing, False, operand=_range_operand)),
    ("HStoreField", Kind("mapping", ("has_key", "isnull"), _nothing, False, operand=_key)),
)


# Fields


def is_joinable(field: Any) -> bool:
    """Return whether a model field that is a relation can be joined: both of its models are in the same database.

    A replica counts as its primary, as in any join of Django's.
    """
    alone = len(connections.settings) == 1
    return alone or PRIMARY.home_of(field.model) == PRIMARY.home_of(field.related_model)


def key_field(relation: Any) -> Any:
    """Return the field by which callers know the row that a foreign key points to: its primary key.

    With ``to_field`` the column holds another value: that is the key only if one query cannot read the primary key too.
    """
    target = relation.target_field
    pk = relation.related_model._meta.pk
    other = target.primary_key or isinstance(pk, models.CompositePrimaryKey) or not is_joinable(relation)
    return target if other else pk


def stored_field(field: Any) -> Any:
    """Return the model field whose type the values have: a relation's key, the output of a generated field."""
    while True:
        if field.is_relation and field.concrete and not field.many_to_many:
            field = key_field(field)
        elif isinstance(field, models.GeneratedField):
            field = field.output_field
        else:
            return field


def is_json_field(field: Any) -> bool:
    """Return whether the model field is one whose values have no text form of their own, such as a ``JSONField``."""
    return kind_of(field).word in ("json", "bytes", "file", "image", "value", "key", "list", "range", "mapping")


def is_file_field(field: Any) -> bool:
    """Return whether the model field holds a file; without a file its name is an empty text."""
    return isinstance(field, models.FileField)


@lru_cache(maxsize=4096)
def kind_of(field: Any) -> Kind:
    """Return the kind of a model field; a relation field has the kind of its key, and without a key no ``lookups``."""
    return replace(_kind_of(field), field=field)


def _kind_of(field: Any) -> Kind:
    if field.many_to_many:
        target = kind_of(field.related_model._meta.pk)
        return Kind(target.word, ("exact", "in"), target.parse, sortable=False)
    if field.is_relation and not field.concrete:
        if field.related_model is None:
            return _COMPOSITE
        # A reverse relation shows the primary key of the other model.
        return Kind(kind_of(field.related_model._meta.pk).word, (), _nothing, sortable=False)
    stored = stored_field(field)
    if isinstance(stored, models.CompositePrimaryKey):
        return _COMPOSITE
    postgres = sys.modules.get("django.contrib.postgres.fields")
    kinds = (*_KINDS, *((getattr(postgres, name), kind) for name, kind in _POSTGRES if postgres))
    # Recognised by attributes: GeoDjango cannot be imported without its libraries.
    other = _GEOMETRY if hasattr(stored, "geom_type") and hasattr(stored, "srid") else _OTHER
    kind = next((kind for base, kind in kinds if isinstance(stored, base)), other)
    if field.is_relation:
        return Kind(kind.word, EQUAL, kind.parse, kind.sortable)
    known = _comparable(stored, kind)
    if known is kind.lookups:
        return kind
    return replace(kind, lookups=known, sortable=False, summable=False)


def is_stored_as_text(field: Any) -> bool:
    """Return whether a custom field stores its values, which may be numbers, in a text column."""
    stored = stored_field(field)
    if type(stored).db_type is models.Field.db_type or not hasattr(stored, "model"):
        return False
    kind = stored.db_type(connections[router.db_for_read(stored.model)]) or ""
    return "char" in kind.lower() or "text" in kind.lower()


# Methods with which a custom field may change what it stores, and a sample value of each kind to test them.
_STORING: Final = ("from_db_value", "get_db_prep_save", "get_db_prep_value", "get_prep_value")
_TRIED: Final[Mapping[str, Any]] = {
    "text": "Probe of a field",
    "integer": 12,
    "number": 1.5,
    "decimal": Decimal("1.5"),
    "date": date(2000, 2, 3),
    "datetime": datetime(2000, 2, 3, 4, 5, tzinfo=UTC),
}


def _comparable(field: Any, kind: Kind) -> tuple[str, ...]:
    """Return the ``lookups`` that work on this model field: a custom field may store its values encrypted."""
    ways = (getattr(type(field), name, None) for name in _STORING)
    own = any(way is not None and not way.__module__.startswith("django.") for way in ways)
    if kind.word not in _TRIED or not own:
        return kind.lookups
    value = _TRIED[kind.word]
    try:
        stored, again = (field.get_db_prep_save(value, connection) for _ in range(2))
        compared = field.get_db_prep_value(field.get_prep_value(value), connection, prepared=True)
        read = field.from_db_value(stored, None, connection) if hasattr(field, "from_db_value") else stored
    except Exception:
        # The field does not take the sample value, so nothing is known about it.
        return kind.lookups
    if not stored == again == compared:
        return tuple(lookup for lookup in kind.lookups if lookup == "isnull")
    if kind.word == "text":
        is_encoded = read == value and str(stored).casefold() != value.casefold()
    else:
        is_encoded = field.get_internal_type() in ("BinaryField", "CharField", "TextField")
    return EQUAL if is_encoded else kind.lookups


def _choice(field: Any, value: Any) -> Any:
    """Parse one of a model field's ``choices``, given by value or by displayed name."""
    choices = kind_of(field).choices
    found = choice_of(choices, value)
    if found is None or isinstance(value, (dict, list)):
        stored = [str(stored) for stored, _ in choices if stored is not None]
        raise ValueError("one of " + ", ".join(stored[:20]) + (" …" if len(stored) > 20 else ""))
    return found


def parse_value(field: Any, value: Any) -> Any:
    """Parse a client's JSON value to the Python type of the model field."""
    if field.many_to_many:
        field = field.related_model._meta.pk
    stored = stored_field(field)
    if not field.is_relation and getattr(stored, "choices", None) and value not in ("", None):
        value = _choice(stored, value)
    return kind_of(field).parse(stored, value)


def parse_operand(field: Any, value: Any) -> Any:
    """Parse what a model field is compared with: anything of the field's type, or one of its ``choices``."""
    try:
        return kind_of(field).parse(stored_field(field), value)
    except ValueError:
        if field.many_to_many or not getattr(stored_field(field), "choices", None):
            raise
        return parse_value(field, value)


def link_table(field: Any) -> tuple[type[models.Model], str, str]:
    """Return the model of a many-to-many field's table, and its columns for this row and for the related one."""
    forward = isinstance(field, models.Field)
    own = field if forward else field.field
    through = field.remote_field.through if forward else field.through
    source = through._meta.get_field(own.m2m_field_name()).attname
    target = through._meta.get_field(own.m2m_reverse_field_name()).attname
    if forward:
        return through, source, target
    return through, target, source


def linked_reader(field: Any) -> Callable[[Any], Any] | None:
    """Return the reader that an exposure's many-to-many column needs if its class is custom; None if it is Django's.

    A custom class stores its links in its own way, so they can be read only through its manager.
    """
    if isinstance(field, models.ManyToManyField):
        return None
    return partial(_linked, field.name)


def _linked(name: str, row: Any) -> list[Any]:
    return [[linked.pk, str(linked)] for linked in getattr(row, name).all()]


# Recognised by attributes: the module of their classes cannot be imported before the apps are loaded


def is_generic_key(field: Any) -> bool:
    """Return whether the field is a ``GenericForeignKey``."""
    return hasattr(field, "ct_field") and hasattr(field, "fk_field")


def is_generic_relation(field: Any) -> bool:
    """Return whether the field is a ``GenericRelation``."""
    return hasattr(field, "object_id_field_name") and hasattr(field, "content_type_field_name")


# Paths from a model


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A model field as queries know it: its place in the ORM, whether it is one value, and may be NULL.

    ``guards`` are conditions that make the rows on the path visible to the caller; behind a hidden row there is no
    value. If the path begins with a relation to many rows, the guards start from the related model. A value that the
    database computes has an ``expression``, and ``column`` is then its name.
    """

    column: str
    field: Any
    many: bool
    nullable: bool
    guards: tuple[models.Q, ...] = ()
    expression: Any = None


def resolve_path(model: type[models.Model], text: str) -> FieldPath | None:
    """Return the field of a model that field names joined by ``__`` mean, or None if there is no such field.

    Also returns None for a generic relation, and for a field in another database, which no query can join.
    """
    path, followed = _resolved(model, text)
    return path if all(map(is_joinable, followed)) else None


@lru_cache(maxsize=4096)
def _resolved(model: type[models.Model], text: str) -> tuple[FieldPath | None, tuple[Any, ...]]:
    """Return the model field that field names joined by ``__`` lead to, and the relation fields on the way."""
    opts = model._meta
    names = text.split("__")
    many = False
    nullable = False
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
            many = many or bool(field.many_to_many)
            nullable = nullable or bool(field.null)
            return FieldPath("__".join(column), field, many, nullable), tuple(followed)
        if not field.is_relation or field.related_model is None:
            return None, ()
        column.append(field.name)
        followed.append(field)
        many = many or bool(field.many_to_many or field.one_to_many)
        nullable = nullable or not isinstance(field, models.Field) or bool(field.null)
        opts = field.related_model._meta
    return None, ()


def _key_names(field: Any) -> tuple[str, ...]:
    """Return the attribute names of a relation field's key: its own, or the primary key of the related row."""
    if field.many_to_many:
        return (field.name,)
    if field.is_relation and key_field(field) is not field.target_field:
        return field.name, key_field(field).attname
    return (field.attname,)


def relations_on(model: Any, path: str) -> Iterator[tuple[list[str], Any]]:
    """Yield the relation fields among ``__``-joined field names, each after the names that lead there."""
    names = path.split("__")
    for position, name in enumerate(names[:-1], 1):
        try:
            relation: Any = model._meta.get_field(model._meta.pk.name if name == "pk" else name)
        except FieldDoesNotExist:
            return
        model = relation.related_model
        if model is None:
            return
        yield names[:position], relation

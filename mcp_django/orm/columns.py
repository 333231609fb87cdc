"""The columns of an exposure, those of its DRF serializer too, and how their values become JSON.

A value never fails a page: not a number becomes null, text is made valid Unicode, and what has no JSON form becomes
text. Integers beyond what every client reads exactly (RFC 8259, section 6) are sent as text.
"""

import inspect
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import lru_cache, partial
from html import unescape
from typing import Any, Final, Literal
from uuid import UUID

import orjson
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models import ManyToManyField, Model, QuerySet
from django.db.models.fields.files import FieldFile
from django.db.models.query_utils import DeferredAttribute
from django.forms import MultiValueField
from django.utils.html import strip_tags
from django.utils.safestring import SafeString

from ..context.request import MCPRequest
from ..exposures.base import ModelExposure
from ..schema.values import MAX_SAFE_INTEGER, clean_text, may_hold_secrets, members
from . import rendering
from .kinds import is_stored_as_text, key_field, kind_of, resolve_path, stored_field
from .prefetch import each_row
from .rendering import iso_text
from .unreadable import LOST

logger = logging.getLogger("mcp_django")

MAX_DEPTH: Final = 40
MAX_ITEMS: Final = 1000
# Of a decimal that is computed.
MAX_DIGITS: Final = 100

Kind = Literal["field", "relation", "many", "reverse", "generic", "computed", "serialized"]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One thing that can be read of a row; there is one object for each, so that a look-up by columns is quick.

    ``kind`` says where the value comes from: a column of the database (``field``, with its ``path`` from the model), a
    foreign key (``relation``), a many-to-many relation (``many``), rows that point here (``reverse``, with the ``path``
    of what they point to), a generic foreign key (``generic``), a function of the instance (``computed``), or the
    exposure's serializer (``serialized``). ``field`` is the model's field, where there is one; ``order_field`` is what
    a computed column is sorted by. ``is_plain`` says that a filter on the name means what the caller reads there, and
    ``by_instance`` that the value is had from an instance alone, although there is a column. ``through`` are the
    relations that lead to a column of a related row.
    """

    name: str
    kind: Kind
    path: str = ""
    field: Any = None
    compute: Callable[[Any], Any] | None = None
    order_field: Any = None
    is_plain: bool = True
    by_instance: bool = False
    through: tuple[str, ...] = ()

    @property
    def is_guarded(self) -> bool:
        """Whether the value is that of a related row which the caller may see, and null otherwise."""
        return bool(self.through) and "__" not in self.path

    def is_countable(self) -> bool:
        """Return whether it is a column of the database, whose values are shown as they are stored."""
        # What the attribute in place of a column hides is not told by a total of it.
        return self.is_plain and not self.by_instance and self.kind in ("field", "relation")

    def is_summable(self) -> bool:
        """Return whether values can be added."""
        is_number = self.is_countable() and self.kind == "field" and kind_of(self.field).summable
        return is_number and not is_stored_as_text(self.field)

    def is_comparable(self) -> bool:
        """Return whether one value can be the least."""
        return self.is_countable() and self.kind == "field" and "gt" in kind_of(self.field).lookups

    def is_groupable(self) -> bool:
        """Return whether the database can group by the column."""
        return self.is_countable() and kind_of(self.field).sortable

    def is_period(self) -> bool:
        """Return whether the column holds dates."""
        return self.is_countable() and kind_of(self.field).word in ("date", "datetime")

    def is_ordering(self) -> bool:
        """Return whether all databases sort values alike: numbers, dates and durations."""
        return self.is_summable() or self.is_period()

    @property
    def shows_truth(self) -> bool:
        """Whether a computed value is shown as true or false, whatever it is made of."""
        return isinstance(self.compute, partial) and self.compute.func is _as_boolean


# Columns


@lru_cache(maxsize=8192)
def resolve_column(exposure: ModelExposure, name: str) -> Column | None:
    """Return the column of a name, or None: a path that is no column of one value."""
    plain = _model_column(exposure, name)
    if exposure.serializer_class is not None and name != exposure.opts.pk.name:
        same = plain is not None and name in unchanged_fields(exposure)
        field = plain.field if plain is not None else None
        return Column(name, "serialized", path=name, field=field, is_plain=same)
    compute = exposure.get_computed(name)
    if compute is not None and name != exposure.opts.pk.name:
        return _computed(name, compute)
    if plain is not None:
        return plain
    if _is_relation(exposure, name):
        return None
    return _computed(name, partial(_attribute, name), getattr(exposure.model, name, None))


def _computed(name: str, compute: Callable[[Any], Any], source: Any = None) -> Column:
    source = source if source is not None else compute
    if isinstance(source, property):
        source = source.fget
    order = getattr(source, "admin_order_field", None)
    if getattr(source, "boolean", False):
        compute = partial(_as_boolean, compute)
    order_field = order if isinstance(order, str) or hasattr(order, "resolve_expression") else None
    return Column(name, "computed", compute=compute, order_field=order_field, is_plain=False)


def _as_boolean(compute: Callable[[Any], Any], row: Any) -> bool | None:
    value = compute(row)
    return None if value is None else bool(value)


def _attribute(name: str, row: Any) -> Any:
    value = getattr(row, name)
    return value() if callable(value) and not isinstance(value, models.Manager) else value


@lru_cache(maxsize=8192)
def is_file(exposure: ModelExposure, name: str) -> bool:
    """Return whether the column is a field of the model's own that holds files."""
    column = resolve_column(exposure, name) if "__" not in name else None
    return column is not None and column.kind == "field" and kind_of(column.field).word in ("file", "image")


def _is_relation(exposure: ModelExposure, name: str) -> bool:
    try:
        return bool(exposure.opts.get_field(name).is_relation)
    except FieldDoesNotExist:
        return "__" in name


def _model_column(exposure: ModelExposure, name: str) -> Column | None:
    pk = exposure.opts.pk
    if name == pk.name:
        # The key of a row is its own where the relation shows another column of what it points to.
        is_link = pk.is_relation and key_field(pk) is pk.target_field  # type: ignore[attr-defined]
        return Column(name, "relation" if is_link else "field", path=pk.attname, field=pk)
    path = resolve_path(exposure.model, name)
    if path is None:
        return _relation_column(exposure, name)
    if path.field.many_to_many:
        return None if "__" in name else _many_column(name, path.field)
    if path.many or isinstance(path.field, models.CompositePrimaryKey):
        return None
    if path.field.is_relation and name == path.field.name:
        return Column(name, "relation", path=path.column, field=path.field)
    # Filters and order go by the column, whatever the attribute makes of it.
    own = is_replaced(path.field.model, path.field)
    return Column(name, "field", path=path.column, field=path.field, by_instance=own)


def _many_column(name: str, field: Any) -> Column:
    reader = linked_reader(field)
    if reader is None:
        return Column(name, "many", path=name, field=field)
    return Column(name, "computed", field=field, compute=reader)


def _relation_column(exposure: ModelExposure, name: str) -> Column | None:
    """Return the column of a relation that the table itself has no column for, by its name or its accessor's."""
    opts = exposure.opts
    for rel in opts.related_objects:
        if name in (rel.name, rel.get_accessor_name()) and not rel.hidden:
            if rel.many_to_many:
                return (
                    Column(name, "many", path=name, field=rel, is_plain=False)
                    if linked_reader(rel.field) is None
                    else None
                )
            return Column(name, "reverse", path=rel.field.target_field.attname, field=rel, is_plain=False)
    field = next((field for field in opts.private_fields if field.name == name), None)
    if is_generic_key(field):
        return Column(name, "generic", field=field, is_plain=False)
    if is_generic_relation(field) and not opts.is_composite_pk:
        return Column(name, "reverse", path=opts.pk.attname, field=field, is_plain=False)
    return None


# By their attributes, as the module of the classes cannot be imported before the apps are loaded.


def is_generic_key(field: Any) -> bool:
    """Return whether the field is a ``GenericForeignKey``."""
    return hasattr(field, "ct_field") and hasattr(field, "fk_field")


def is_generic_relation(field: Any) -> bool:
    """Return whether the field is a ``GenericRelation``."""
    return hasattr(field, "object_id_field_name") and hasattr(field, "content_type_field_name")


# Values


def pk_text(value: Any) -> str:
    """Return the one spelling of a primary key; a composite one is a JSON array of the spellings of its parts."""
    if isinstance(value, tuple):
        return orjson.dumps([pk_text(part) for part in value]).decode()
    return iso_text(value) if hasattr(value, "isoformat") else str(value)


def plain_key(shown: Any) -> Any:
    """Return the key of a row as its column shows it: alone, or as ``[key, label]`` where the key is a relation."""
    return shown[0] if isinstance(shown, list) and len(shown) == 2 else shown


def _text(limit: int | None, hint: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (list, tuple, set, frozenset)):
        # Of a field of the project's own, which holds several.
        return _json(limit, hint, value)
    plain = type(value) is str and value.isascii() and not may_hold_secrets(value)
    return value if plain and (limit is None or len(value) <= limit) else clean_text(str(value), limit, hint)


def _integer(value: Any) -> Any:
    if type(value) is not int:
        return _plain(value)
    return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else str(value)


def _float(value: Any) -> Any:
    return value if value is None or math.isfinite(value) else None


def _decimal(value: Any) -> Any:
    return None if value is None or not value.is_finite() else format(value, "f")


def _iso(value: Any) -> Any:
    return None if value is None else iso_text(value)


def _str(value: Any) -> Any:
    return None if value is None else str(value)


def _bytes(value: Any) -> Any:
    return None if value is None else f"<{len(value)} bytes>"


def _range(value: Any) -> Any:
    """Return the two ends, of which the first is in the range and the second is not; any other range as a text."""
    if value is None:
        return None
    usual = (value.lower_inc or value.lower is None) and not value.upper_inc
    return [_leaf(value.lower), _leaf(value.upper)] if usual and not value.isempty else clean_text(str(value))


def _plain(value: Any) -> Any:
    # SQLite keeps anything in any column.
    return value if value is None or type(value) is bool else _leaf(value)


def _json(limit: int | None, hint: str, value: Any) -> Any:
    cleaned = _tree(value, MAX_DEPTH)
    if limit is not None and not isinstance(cleaned, (int, float, type(None))):
        text = cleaned if isinstance(cleaned, str) else orjson.dumps(cleaned).decode()
        if len(text) > limit:
            return clean_text(text, limit, hint)
    return cleaned


def _tree(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return {clean_text(k): _tree(v, depth - 1) for k, v in members(value)} if depth else "…"
    if isinstance(value, (list, tuple, set, frozenset, models.QuerySet)):
        if not depth:
            return "…"
        items = list(value[: MAX_ITEMS + 1]) if isinstance(value, models.QuerySet) else list(value)
        cut = ["…"] if len(items) > MAX_ITEMS else []
        return [_tree(item, depth - 1) for item in items[:MAX_ITEMS]] + cut
    return _leaf(value)


def _leaf(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case SafeString():
            # What is escaped may be JSON, in which secrets are looked for.
            return clean_text(unescape(strip_tags(value)).strip())
        case str():
            return clean_text(str(value))
        case int():
            return _integer(int(value))
        case float():
            return _float(value)
        case Decimal():
            return _decimal(value)
        case datetime() | date() | time():
            return iso_text(value)
        case bytes() | bytearray() | memoryview():
            return _bytes(value)
        case FieldFile():
            return clean_text(value.name or "") or None
        case timedelta() | UUID() | _:
            return clean_text(str(value))


def render(value: Any, limit: int | None = None, hint: str = "") -> Any:
    """Return any value as JSON; text is cut to ``limit`` characters, HTML of a display method loses its tags."""
    return _json(limit, hint, value)


def trimmed(value: Any, places: int | None) -> Any:
    """Return a decimal with the digits of its column."""
    if not isinstance(value, Decimal) or not value.is_finite() or places is None:
        return value
    return value.quantize(Decimal(1).scaleb(-places), context=Context(prec=MAX_DIGITS))


_BY_WORD: Final[Mapping[str, Callable[[Any], Any]]] = {
    "boolean": _plain,
    "integer": _integer,
    "number": _float,
    "decimal": _decimal,
    "datetime": _iso,
    "date": _iso,
    "time": _iso,
    "duration": _str,
    "uuid": _str,
    "ip": _plain,
    "bytes": _bytes,
    "range": _range,
}
# What renders a whole column, where its values allow that.
_BY_COLUMN: Final[Mapping[Any, Callable[[Sequence[Any]], list[Any] | None]]] = {
    _plain: rendering.plain,
    _integer: rendering.integers,
    _float: rendering.floats,
    _decimal: rendering.decimals,
    _iso: rendering.dates,
}


def field_renderer(field: Any, limit: int | None, hint: str) -> Callable[[Any], Any]:
    """Return what turns the values of a model field into JSON."""
    word = kind_of(field).word
    if word == "text":
        return partial(_text, limit, hint)
    if word in ("file", "image"):
        return _str
    if hasattr(stored_field(field), "from_db_value") and word != "json":
        # A field of the project's own may give any class.
        return partial(render, limit=limit, hint=hint)
    return _BY_WORD[word] if word in _BY_WORD else partial(_json, limit, hint)


def _any_column(values: Sequence[Any], limit: int | None) -> list[Any] | None:
    """Return a column of which nothing is known, where its values are all of one plain kind."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return rendering.texts(values, limit)
    return rendering.integers(values) or rendering.plain(values) or rendering.floats(values)


def render_column(name: str, renderer: Callable[[Any], Any], values: Sequence[Any]) -> tuple[list[Any], int]:
    """Return the values as JSON and how many could not be turned: those are null, and the others stay.

    A value of a class of its own, which the kind of its field does not know, becomes its text.
    """
    whole = _whole(renderer, values)
    if whole is not None:
        return whole, 0
    try:
        return [renderer(value) for value in values], 0
    except Exception as error:
        first = error
    found, failed = [], 0
    for value in values:
        try:
            found.append(_rendered(renderer, value))
        except Exception:
            found.append(None)
            failed += 1
    if failed:
        logger.warning("A value of column %r could not be shown", name, exc_info=first)
    return found, failed


def _rendered(renderer: Callable[[Any], Any], value: Any) -> Any:
    try:
        return renderer(value)
    except Exception:
        if not isinstance(value, list) and type(value).__str__ is object.__str__:
            raise
        return render(value)


def _whole(renderer: Callable[[Any], Any], values: Sequence[Any]) -> list[Any] | None:
    if isinstance(renderer, partial):
        if renderer.func is _text:
            return rendering.texts(values, renderer.args[0])
        return _any_column(values, renderer.keywords["limit"]) if renderer.func is render else None
    quick = _BY_COLUMN.get(renderer)
    return quick(values) if quick is not None else None


logger = logging.getLogger("mcp_django")


def _fields(serializer: Any) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(serializer, "fields", {})
    return fields


@lru_cache(maxsize=256)
def read_fields(exposure: ModelExposure) -> tuple[str, ...]:
    """Return the names that the exposure's serializer writes out, in its order."""
    assert exposure.serializer_class is not None
    fields = _fields(exposure.serializer_class())
    return tuple(name for name, field in fields.items() if not field.write_only)


@lru_cache(maxsize=256)
def unchanged_fields(exposure: ModelExposure) -> frozenset[str]:
    """Return the names whose values DRF writes as they are stored: a class of the project's own may mask its value."""
    from rest_framework import serializers

    assert exposure.serializer_class is not None
    known = {*serializers.ModelSerializer.serializer_field_mapping.values(), serializers.ChoiceField}
    known.add(serializers.PrimaryKeyRelatedField)
    fields = _fields(exposure.serializer_class())
    return frozenset(name for name, field in fields.items() if type(field) in known and field.source == name)


def represented(
    request: MCPRequest, exposure: ModelExposure, rows: Sequence[Any], followed: set[str] | None = None
) -> list[Mapping[str, Any]]:
    """Return what the serializer makes of each row, with ``LOST`` for what it fails to make.

    ``followed`` gets the relations that it follows (:func:`~mcp_django.orm.prefetch.each_row`).
    """
    assert exposure.serializer_class is not None
    serializer = exposure.serializer_class(context={"request": request})
    _name_files(serializer)
    return each_row(rows, partial(_represented, exposure, serializer), followed)[0]


def _name_files(field: Any) -> None:
    """Let files be written as their names: the URLs of a storage may carry its credentials.

    Not where a field was declared with ``use_url``.
    """
    from rest_framework.fields import FileField

    if isinstance(field, FileField) and not hasattr(field, "use_url"):
        field.use_url = False
    for inner in (*_fields(field).values(), getattr(field, "child", None)):
        if inner is not None:
            _name_files(inner)


def _represented(exposure: ModelExposure, serializer: Any, row: Any) -> Mapping[str, Any]:
    try:
        shown: Mapping[str, Any] = serializer.to_representation(row)
        return shown
    except Exception:
        logger.warning("A row of %s could not be serialized", exposure.label, exc_info=True)
    fields = _fields(serializer)
    return {name: _value(field, row) for name, field in fields.items() if not field.write_only}


def _value(field: Any, row: Any) -> Any:
    from rest_framework.fields import SkipField

    try:
        value = field.get_attribute(row)
        return None if value is None else field.to_representation(value)
    except SkipField:
        return None
    except Exception:
        return LOST


# Values that need no form to be read.
PLAIN: Final = (str, bytes, bool, int, float, Decimal, date, time, timedelta, UUID, list, tuple, set, frozenset, dict)


@lru_cache(maxsize=8192)
def is_replaced(model: type[Model] | None, field: Any) -> bool:
    """Return whether the attribute of a field is not the one that the field's class makes.

    What is read there is the attribute's, and need not be what the column holds. A tracker that wraps the attribute
    changes nothing.
    """
    if not getattr(field, "concrete", False) or field.is_relation:
        return False
    found = inspect.getattr_static(model, field.attname, None)
    own = (field.descriptor_class, DeferredAttribute)
    kept = (found, *getattr(found, "__dict__", {}).values())
    return found is not None and not any(isinstance(item, own) for item in kept)


def as_written(field: Any, row: Model) -> Any:
    """Return the value of a replaced attribute as forms and serializers take it, where it is of a class of its own.

    Its text is what people read, such as HTML made of the source that is stored. The parts of a value that a form has
    several controls for, such as an amount and its currency, are a list.
    """
    value = getattr(row, field.attname)
    if value is None or isinstance(value, PLAIN):
        return value
    widget = _split_widget(field)
    return field.value_to_string(row) if widget is None else list(map(_part, widget.decompress(value)))


@lru_cache(maxsize=8192)
def _split_widget(field: Any) -> Any:
    made = field.formfield()
    return made.widget if isinstance(made, MultiValueField) else None


def _part(value: Any) -> Any:
    return value if value is None or isinstance(value, PLAIN) else str(value)


def linked_reader(field: Any) -> Callable[[Any], Any] | None:
    """Return what lists the rows of a many-to-many relation as ``[key, label]``, None for a relation of Django's own.

    One of another class keeps its rows in its own way: they are had from its manager alone.
    """
    return None if isinstance(field, ManyToManyField) else partial(_linked, field.name)


def _linked(name: str, row: Any) -> list[Any]:
    return [[linked.pk, str(linked)] for linked in getattr(row, name).all()]


def plain_rows(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows as a queryset of Django's own class, which reads the columns that it is asked for."""
    return rows if type(rows) is QuerySet else QuerySet(rows.model, rows.query, rows._db)  # type: ignore[attr-defined]

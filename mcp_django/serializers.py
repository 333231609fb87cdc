"""The columns of an exposure, and how their values become JSON.

A value never fails a page: not a number becomes null, text is made valid Unicode, and what has no JSON form becomes
text. Integers beyond what every client reads exactly (RFC 8259, section 6) are sent as text.
"""

import dis
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import orjson
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models.fields.files import FieldFile
from django.utils.html import strip_tags
from django.utils.safestring import SafeString

from . import columns
from .columns import MAX_SAFE_INTEGER
from .kinds import kind_of, stored_field
from .lookups import resolve_path

if TYPE_CHECKING:
    from .exposures import ModelExposure

__all__ = [
    "Column",
    "clean_text",
    "field_renderer",
    "is_json_field",
    "label_of",
    "pk_text",
    "plain_label",
    "read_fields",
    "render",
    "resolve_column",
]

logger = logging.getLogger("mcp_django")

MAX_LABEL: Final = 200
MAX_DEPTH: Final = 40
MAX_ITEMS: Final = 1000
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Kind = Literal["field", "relation", "many", "computed", "serialized"]


@dataclass(frozen=True, slots=True)
class Column:
    """One thing that can be read of a row.

    ``kind`` says where the value comes from: a column of the database (``field``, with its ``path`` from the model), a
    foreign key (``relation``), a many-to-many relation (``many``), a function of the instance (``computed``), or the
    exposure's serializer (``serialized``). ``field`` is the model's field, where there is one; ``order_field`` is what
    a computed column is sorted by. ``is_plain`` says that a filter on the name means what the caller reads there.
    """

    name: str
    kind: Kind
    path: str = ""
    field: Any = None
    compute: Callable[[Any], Any] | None = None
    order_field: str | None = None
    is_plain: bool = True


# Columns


@lru_cache(maxsize=8192)
def resolve_column(exposure: "ModelExposure", name: str) -> Column | None:
    """Return the column of a name, or None: a generic relation, or a relation that has no column here."""
    plain = _model_column(exposure, name)
    if exposure.serializer_class is not None and name != exposure.opts.pk.name:
        same = plain is not None and name in _unchanged_fields(exposure)
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
    order_field = order if isinstance(order, str) else None
    return Column(name, "computed", compute=compute, order_field=order_field, is_plain=False)


def _as_boolean(compute: Callable[[Any], Any], row: Any) -> bool | None:
    value = compute(row)
    return None if value is None else bool(value)


def _attribute(name: str, row: Any) -> Any:
    value = getattr(row, name)
    return value() if callable(value) and not isinstance(value, models.Manager) else value


def _is_relation(exposure: "ModelExposure", name: str) -> bool:
    try:
        return bool(exposure.opts.get_field(name).is_relation)
    except FieldDoesNotExist:
        return "__" in name


def _model_column(exposure: "ModelExposure", name: str) -> Column | None:
    pk = exposure.opts.pk
    if name == pk.name:
        return Column(name, "field", path=pk.attname, field=pk)
    path = resolve_path(exposure.model, name)
    if path is None:
        return None
    if path.field.many_to_many:
        return None if "__" in name else Column(name, "many", path=name, field=path.field)
    if path.many or path.field.get_internal_type() == "CompositePrimaryKey":
        return None
    if path.field.is_relation and name == path.field.name:
        return Column(name, "relation", path=path.column, field=path.field)
    return Column(name, "field", path=path.column, field=path.field)


def is_json_field(field: Any) -> bool:
    """Return whether the field's values have no text form of their own."""
    return kind_of(field).word in ("json", "bytes", "file", "image", "value")


# DRF serializers


def _serializer_fields(exposure: "ModelExposure") -> Mapping[str, Any]:
    assert exposure.serializer_class is not None
    fields: Mapping[str, Any] = getattr(exposure.serializer_class(), "fields", {})
    return fields


@lru_cache(maxsize=256)
def read_fields(exposure: "ModelExposure") -> tuple[str, ...]:
    """Return the names that the exposure's serializer writes out, in its order."""
    fields = _serializer_fields(exposure)
    return tuple(name for name, field in fields.items() if not field.write_only)


@lru_cache(maxsize=256)
def _unchanged_fields(exposure: "ModelExposure") -> frozenset[str]:
    """Return the names whose values DRF writes as they are stored: a class of the project's own may mask its value."""
    from rest_framework import serializers

    known = {*serializers.ModelSerializer.serializer_field_mapping.values(), serializers.ChoiceField}
    known.add(serializers.PrimaryKeyRelatedField)
    fields = _serializer_fields(exposure)
    return frozenset(name for name, field in fields.items() if type(field) in known and field.source == name)


# Labels


@lru_cache(maxsize=1024)
def plain_label(exposure: "ModelExposure") -> str | None:
    """Return the name of the text field that is the label of a row, or None where a label takes the instance."""
    name = exposure.label_field or _returned_attribute(exposure.model.__str__)
    path = resolve_path(exposure.model, name) if name and "__" not in name else None
    if path is None or path.nullable or not isinstance(path.field, (models.CharField, models.TextField)):
        return None
    plain = type(path.field).descriptor_class is models.Field.descriptor_class
    return name if plain and not _has_own_text(path.field) else None


def _has_own_text(field: Any) -> bool:
    """Return whether values are of a class of the project's own, which may have a text of their own."""
    return hasattr(field, "from_db_value")


def _returned_attribute(method: Any) -> str | None:
    """Return the attribute when the method is exactly ``return self.<attribute>``."""
    try:
        found = [
            step
            for step in dis.get_instructions(method)
            if step.opname not in ("RESUME", "CACHE", "NOP", "NOT_TAKEN", "PUSH_NULL")
        ]
        names = [step.opname for step in found]
    except TypeError:
        return None
    if len(found) != 3 or not names[0].startswith("LOAD_FAST") or names[1:] != ["LOAD_ATTR", "RETURN_VALUE"]:
        return None
    own = method.__code__.co_varnames[:1] == (found[0].argval,) and method.__code__.co_argcount == 1
    return str(found[1].argval) if own else None


@lru_cache(maxsize=1024)
def label_relations(model: type[models.Model], depth: int = 3) -> tuple[str, ...]:
    """Return the relations that ``__str__`` follows, for ``select_related``: a label must not cost a query a row."""
    code = getattr(model.__str__, "__code__", None)
    found: list[str] = []
    for name in code.co_names if code is not None and depth else ():
        path = resolve_path(model, name) if "__" not in name else None
        if path is not None and path.field.is_relation and not path.many and path.field.name == name:
            inner = label_relations(path.field.related_model, depth - 1)
            found += [name, *(f"{name}__{rest}" for rest in inner)]
    return tuple(found)


def label_of(exposure: "ModelExposure", row: models.Model) -> str | None:
    """Return the label of a row, or None where the project's code fails to make one."""
    try:
        label = str(getattr(row, exposure.label_field)) if exposure.label_field else str(row)
    except Exception:
        logger.warning("The label of a %s could not be made", exposure.label, exc_info=True)
        return None
    return clean_text(label, MAX_LABEL)


# Values


def pk_text(value: Any) -> str:
    """Return the one spelling of a primary key; a composite one is a JSON array of the spellings of its parts."""
    if isinstance(value, tuple):
        return orjson.dumps([pk_text(part) for part in value]).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def clean_text(text: str, limit: int | None = None, hint: str = "") -> str:
    """Return text that UTF-8 can hold, cut to ``limit`` characters with a note of what is missing."""
    if limit is not None and len(text) > limit:
        note = f"; {hint}" if hint else ""
        text = f"{text[:limit]}…(+{len(text) - limit} chars{note})"
    return text if text.isascii() or not _SURROGATE.search(text) else _SURROGATE.sub("\ufffd", text)


def _text(limit: int | None, hint: str, value: Any) -> Any:
    if value is None or (type(value) is str and value.isascii() and (limit is None or len(value) <= limit)):
        return value
    return clean_text(str(value), limit, hint)


def _integer(value: Any) -> Any:
    return str(value) if type(value) is int and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else value


def _float(value: Any) -> Any:
    return value if value is None or math.isfinite(value) else None


def _decimal(value: Any) -> Any:
    return None if value is None or not value.is_finite() else format(value, "f")


def _iso(value: Any) -> Any:
    return None if value is None else value.isoformat()


def _str(value: Any) -> Any:
    return None if value is None else str(value)


def _bytes(value: Any) -> Any:
    return None if value is None else f"<{len(value)} bytes>"


def _json(limit: int | None, hint: str, value: Any) -> Any:
    cleaned = _tree(value, MAX_DEPTH)
    if limit is not None and not isinstance(cleaned, (int, float, type(None))):
        text = cleaned if isinstance(cleaned, str) else orjson.dumps(cleaned).decode()
        if len(text) > limit:
            return clean_text(text, limit, hint)
    return cleaned


def _tree(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return {clean_text(str(k)): _tree(v, depth - 1) for k, v in value.items()} if depth else "…"
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
            return clean_text(strip_tags(value).strip())
        case str():
            return clean_text(str(value))
        case int():
            return _integer(int(value))
        case float():
            return _float(value)
        case Decimal():
            return _decimal(value)
        case datetime() | date() | time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return _bytes(value)
        case FieldFile():
            return clean_text(value.name or "") or None
        case timedelta() | UUID() | _:
            return clean_text(str(value))


def render(value: Any, limit: int | None = None, hint: str = "") -> Any:
    """Return any value as JSON; text is cut to ``limit`` characters, HTML of a display method loses its tags."""
    return _json(limit, hint, value)


# Integers of 64 bits: others are always within MAX_SAFE_INTEGER.
_WIDE: Final = ("BigAutoField", "BigIntegerField", "PositiveBigIntegerField")
_BY_WORD: Final[Mapping[str, Callable[[Any], Any] | None]] = {
    "boolean": None,
    "integer": _integer,
    "number": _float,
    "decimal": _decimal,
    "datetime": _iso,
    "date": _iso,
    "time": _iso,
    "duration": _str,
    "uuid": _str,
    "ip": None,
    "bytes": _bytes,
}
# What renders a whole column, where its values allow that.
_BY_COLUMN: Final[Mapping[Any, Callable[[Sequence[Any]], list[Any] | None]]] = {
    _integer: columns.integers,
    _float: columns.floats,
    _decimal: columns.decimals,
    _iso: columns.dates,
}


def field_renderer(field: Any, limit: int | None, hint: str) -> Callable[[Any], Any] | None:
    """Return what turns the values of a model field into JSON, None where they are JSON already."""
    word = kind_of(field).word
    if word == "text":
        return partial(_text, limit, hint)
    if word in ("file", "image"):
        return _str
    if hasattr(stored_field(field), "from_db_value") and word != "json":
        # A field of the project's own may give any class.
        return partial(render, limit=limit, hint=hint)
    if word == "integer" and stored_field(field).get_internal_type() not in _WIDE:
        return None
    return _BY_WORD[word] if word in _BY_WORD else partial(_json, limit, hint)


def render_column(name: str, renderer: Callable[[Any], Any] | None, values: Sequence[Any]) -> tuple[list[Any], int]:
    """Return the values as JSON and how many could not be turned: those are null, and the others stay."""
    whole = list(values) if renderer is None else _whole(renderer, values)
    if whole is not None or renderer is None:
        return whole or [], 0
    try:
        return [renderer(value) for value in values], 0
    except Exception:
        logger.warning("A value of column %r could not be shown", name, exc_info=True)
    found, failed = [], 0
    for value in values:
        try:
            found.append(renderer(value))
        except Exception:
            found.append(None)
            failed += 1
    return found, failed


def _whole(renderer: Callable[[Any], Any], values: Sequence[Any]) -> list[Any] | None:
    if isinstance(renderer, partial):
        return columns.texts(values, renderer.args[0]) if renderer.func is _text else None
    quick = _BY_COLUMN.get(renderer)
    return quick(values) if quick is not None else None

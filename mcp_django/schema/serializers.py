"""Serializers of REST framework to JSON Schema: what their fields take.

A serializer validates what it is given itself; nothing here looks at values, and no row of a relation is read.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.db import models
from rest_framework import relations, serializers
from rest_framework.fields import empty

from .jsonable import to_jsonable
from .types import FREE_OBJECT, MAX_SAFE_INTEGER, NULL, any_of, between

# Beyond that the values are left to the serializer's own error message.
MAX_CHOICES: Final = 200
MAX_LABELS: Final = 50
# Levels of serializers within serializers.
MAX_DEPTH: Final = 4

Shape = tuple[dict[str, Any], list[str]]


def writable_fields(serializer: Any) -> dict[str, Any]:
    """Return the fields that a client may send in JSON, by name: files have no JSON form."""
    fields: Mapping[str, Any] = getattr(serializer, "fields", {})
    return {
        name: field
        for name, field in fields.items()
        if not field.read_only and not isinstance(field, serializers.HiddenField | serializers.FileField)
    }


def field_schema(field: Any, depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Return the JSON Schema of a serializer's field, its constraints in its description too."""
    schema, words = _shape(field, depth)
    if field.allow_null:
        schema = _nullable(schema)
    default = field.default
    if default is not empty and default is not None and default != "" and not callable(default):
        schema["default"] = to_jsonable(default)
        words = [*words, f"default {schema['default']}"]
    text = str(field.help_text or "").strip()
    label = "" if text or field.label is None else str(field.label)
    label = "" if label.lower().replace(" ", "_") == field.field_name else label
    note = ", ".join(filter(None, words))
    description = " ".join(filter(None, [label and f"{label.rstrip('.')}.", text, note and f"({note})"]))
    return {**schema, "description": description} if description else schema


def row_kind(field: Any) -> str:
    """Return the JSON type of a model field's values in a URL or as a key."""
    while field is not None and field.is_relation:
        field = field.target_field
    return "integer" if isinstance(field, models.IntegerField) else "string"


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return any_of(schema, NULL)


def _shape(field: Any, depth: int) -> Shape:
    for kinds, shape in _SHAPES:
        if isinstance(field, kinds):
            return shape(field)
    if isinstance(field, serializers.ListSerializer | serializers.ListField | relations.ManyRelatedField):
        return _many(field, depth)
    if isinstance(field, serializers.DictField):
        return {**FREE_OBJECT}, []
    if isinstance(field, serializers.Serializer):
        return _object(field, depth), []
    return {}, []


def _many(field: Any, depth: int) -> Shape:
    child = field.child_relation if isinstance(field, relations.ManyRelatedField) else field.child
    low, high = getattr(field, "min_length", None), getattr(field, "max_length", None)
    item = field_schema(child, depth)
    items = {name: value for name, value in item.items() if name != "description"}
    note = item.get("description", "")
    return {"type": "array", "items": items}, [f"each: {note.strip('()')}" if note else "", between(low, high, "items")]


def _object(serializer: Any, depth: int) -> dict[str, Any]:
    if not depth:
        return {**FREE_OBJECT}
    fields = writable_fields(serializer)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: field_schema(field, depth - 1) for name, field in fields.items()},
    }
    if required := [name for name, field in fields.items() if field.required]:
        schema["required"] = required
    return schema


def _text(field: Any, notation: str = "") -> Shape:
    low, high = getattr(field, "min_length", None), getattr(field, "max_length", None)
    limits = {"minLength": low, "maxLength": high}
    schema = {"type": "string", **{name: value for name, value in limits.items() if value is not None}}
    return schema, [notation, between(low, high, "characters")]


def _noted(notation: str) -> Callable[[Any], Shape]:
    return lambda field: _text(field, notation)


def _number(kind: str) -> Callable[[Any], Shape]:
    def shape(field: Any) -> Shape:
        # The widest integers of a database are no limit that a client had to know of.
        low, high = (
            bound if bound is not None and abs(bound) <= MAX_SAFE_INTEGER else None
            for bound in (field.min_value, field.max_value)
        )
        limits = {"minimum": low, "maximum": high}
        return {"type": kind, **{name: value for name, value in limits.items() if value is not None}}, [
            between(low, high)
        ]

    return shape


def _decimal(field: Any) -> Shape:
    digits = f"at most {field.max_digits} digits" if field.max_digits is not None else ""
    places = f"at most {field.decimal_places} decimal places" if field.decimal_places is not None else ""
    limits = between(field.min_value, field.max_value)
    return {"type": "string"}, ["decimal number as text, such as 12.50", digits, places, limits]


def _choice(field: Any) -> Shape:
    options = [(value, str(label)) for value, label in field.choices.items() if value not in ("", None)]
    if not options or len(options) > MAX_CHOICES:
        return {"type": "string"}, [f"one of {len(options)} values"]
    same = "integer" if all(type(value) is int for value, _ in options) else "string"
    values = [value if same == "integer" else str(value) for value, _ in options]
    named = [
        f"{value} = {label}"
        for value, (_, label) in zip(values, options, strict=True)
        if str(value).replace("_", " ").lower() != label.lower()
    ]
    blank = [""] if same == "string" and getattr(field, "allow_blank", False) else []
    return {"type": same, "enum": [*values, *blank]}, [", ".join(named) if len(named) <= MAX_LABELS else ""]


def _choices(field: Any) -> Shape:
    item, words = _choice(field)
    return {"type": "array", "items": item}, words


def _row(field: Any) -> Shape:
    model = getattr(field.queryset, "model", None)
    if model is None:
        return {"type": "string"}, []
    return {"type": row_kind(model._meta.pk)}, [f"primary key of {model._meta.label_lower}"]


def _slug(field: Any) -> Shape:
    model = getattr(field.queryset, "model", None)
    return {"type": "string"}, [f"{field.slug_field} of {model._meta.label_lower}" if model else field.slug_field]


# A field may be a subclass of another kind: the first that fits is the most special one.
_SHAPES: Final[tuple[tuple[Any, Callable[[Any], Shape]], ...]] = (
    (relations.PrimaryKeyRelatedField, _row),
    (relations.SlugRelatedField, _slug),
    (relations.HyperlinkedRelatedField, _noted("URL of the row, as the API shows it")),
    (serializers.MultipleChoiceField, _choices),
    # Its choices are files of the server.
    (serializers.FilePathField, _text),
    (serializers.ChoiceField, _choice),
    (serializers.BooleanField, lambda field: ({"type": "boolean"}, [])),
    (serializers.IntegerField, _number("integer")),
    (serializers.FloatField, _number("number")),
    (serializers.DecimalField, _decimal),
    (serializers.DateTimeField, _noted("ISO 8601 date and time, such as 2026-07-28T14:30:00Z")),
    (serializers.DateField, _noted("ISO 8601 date, such as 2026-07-28")),
    (serializers.TimeField, _noted("time of day, such as 14:30:00")),
    (serializers.DurationField, _noted("duration, such as 1 12:30:00")),
    (serializers.UUIDField, _noted("UUID")),
    (serializers.EmailField, _noted("email address")),
    (serializers.URLField, _noted("URL")),
    (serializers.IPAddressField, _noted("IP address")),
    (serializers.CharField, _text),
)

"""Serializers of REST framework to JSON Schema: what their fields take.

A serializer validates what it is given itself; nothing here looks at values, and no row of a relation is read.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rest_framework import relations, serializers

from .fields import Shape, bounds, choice, decimal, lengths, notation, number, text, with_default
from .jsonable import MAX_SAFE_INTEGER
from .types import FREE_OBJECT, NULL, any_of, between, key_type

# Levels of serializers within serializers.
MAX_DEPTH: Final = 4


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
        schema = any_of(schema, NULL)
    about = str(field.help_text or "").strip()
    label = "" if about or field.label is None else str(field.label)
    label = "" if label.lower().replace(" ", "_") == field.field_name else label
    return with_default((schema, words), field.default, [label and f"{label.rstrip('.')}.", about])


def _shape(field: Any, depth: int) -> Shape:
    for kind, shape in _KINDS:
        if isinstance(field, kind):
            return shape(field)
    words, _ = notation(field, serializers)
    if words or isinstance(field, serializers.CharField):
        return text(field, words)
    if isinstance(field, serializers.ListSerializer | serializers.ListField | relations.ManyRelatedField):
        return _many(field, depth)
    if isinstance(field, serializers.DictField):
        return {**FREE_OBJECT}, []
    if isinstance(field, serializers.Serializer):
        return _object(field, depth), []
    return {}, []


def _many(field: Any, depth: int) -> Shape:
    child = field.child_relation if isinstance(field, relations.ManyRelatedField) else field.child
    item = field_schema(child, depth)
    note = item.pop("description", "")
    words = [f"each: {note.strip('()')}" if note else "", between(*lengths(field), "items")]
    return {"type": "array", "items": item}, words


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


def _number(kind: str) -> Callable[[Any], Shape]:
    def shape(field: Any) -> Shape:
        # The widest integers of a database are no limit that a client had to know of.
        low, high = (bound if bound is not None and abs(bound) <= MAX_SAFE_INTEGER else None for bound in bounds(field))
        return number(kind, low, high)

    return shape


def _choice(field: Any) -> Shape:
    options = [(value, str(label)) for value, label in field.choices.items() if value not in ("", None)]
    return choice(options, *([""] if getattr(field, "allow_blank", False) else []))


def _choices(field: Any) -> Shape:
    item, words = _choice(field)
    return {"type": "array", "items": item}, words


def _row(field: Any) -> Shape:
    model = getattr(field.queryset, "model", None)
    if model is None:
        return {"type": "string"}, []
    return {"type": key_type(model._meta.pk)}, [f"primary key of {model._meta.label_lower}"]


def _slug(field: Any) -> Shape:
    model = getattr(field.queryset, "model", None)
    return {"type": "string"}, [f"{field.slug_field} of {model._meta.label_lower}" if model else field.slug_field]


# A field may be a subclass of another kind: the first that fits is the most special one.
_KINDS: Final[tuple[tuple[Any, Callable[[Any], Shape]], ...]] = (
    (relations.PrimaryKeyRelatedField, _row),
    (relations.SlugRelatedField, _slug),
    (relations.HyperlinkedRelatedField, lambda field: text(field, "URL of the row, as the API shows it")),
    (serializers.MultipleChoiceField, _choices),
    # Its choices are files of the server.
    (serializers.FilePathField, text),
    (serializers.ChoiceField, _choice),
    (serializers.BooleanField, lambda field: ({"type": "boolean"}, [])),
    (serializers.IntegerField, _number("integer")),
    (serializers.FloatField, _number("number")),
    (serializers.DecimalField, decimal),
)

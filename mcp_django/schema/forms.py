"""Forms to JSON Schema: what a form's fields take, for the tools that fill them in.

A form validates what it is given itself; nothing here looks at values, and no row of a relation is read.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from django import forms
from django.db import models

from .jsonable import to_jsonable
from .types import FREE_OBJECT, NULL, any_of, between

# Beyond that the values are left to the form's own error message.
MAX_CHOICES: Final = 200
MAX_LABELS: Final = 50
# An upload's own answer says how a record takes it: there are uploads on some sites only.
FILE: Final = 'a file, {"name": "a.pdf", "base64": "..."} or {"name": "a.txt", "text": "..."}'


def form_schema(form: forms.BaseForm | type[forms.BaseForm], *, exclude: Collection[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema of what the form takes; ``exclude`` names fields to leave out.

    Disabled fields are left out.
    """
    declared: Mapping[str, forms.Field] = getattr(form, "base_fields", {}) if isinstance(form, type) else form.fields
    fields = {name: field for name, field in declared.items() if name not in exclude and not field.disabled}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: field_schema(field) for name, field in fields.items()},
    }
    # A check box that must be ticked is required; any other that is left out is not ticked.
    if required := [name for name, field in fields.items() if field.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def field_schema(field: forms.Field) -> dict[str, Any]:
    """Return the JSON Schema of one form field, its constraints in its description too."""
    schema, words = _shape(field)
    initial = field.initial
    if initial is not None and initial != "" and not callable(initial) and not isinstance(initial, models.Model):
        schema["default"] = to_jsonable(initial)
        words = [*words, f"default {schema['default']}"]
    label = str(field.label or "").strip()
    text = str(field.help_text or "").strip()
    note = ", ".join(filter(None, words))
    description = " ".join(filter(None, [label and f"{label.rstrip('.')}.", text, note and f"({note})"]))
    return {**schema, "description": description} if description else schema


def _shape(field: forms.Field) -> tuple[dict[str, Any], list[str]]:
    postgres = sys.modules.get("django.contrib.postgres.forms")
    for name, shape in _POSTGRES if postgres is not None else ():
        if isinstance(field, getattr(postgres, name)):
            return shape(field)
    if is_geometry(field):
        return _geometry(field)
    # A field may be a subclass of another kind: the first that fits is the most special one.
    for kind, shape in _SHAPES:
        if isinstance(field, kind):
            return shape(field)
    return _text(field)


def _text(field: Any, notation: str = "") -> tuple[dict[str, Any], list[str]]:
    low, high = getattr(field, "min_length", None), getattr(field, "max_length", None)
    limits = {"minLength": low, "maxLength": high}
    schema = {"type": "string", **{key: value for key, value in limits.items() if value is not None}}
    return schema, [notation, between(low, high, "characters")]


def _noted(notation: str) -> Callable[[Any], tuple[dict[str, Any], list[str]]]:
    return lambda field: _text(field, notation)


def _number(field: Any, kind: str) -> tuple[dict[str, Any], list[str]]:
    low, high = (bound() if callable(bound) else bound for bound in (field.min_value, field.max_value))
    limits = {"minimum": low, "maximum": high} if kind != "string" else {}
    schema = {"type": kind, **{key: value for key, value in limits.items() if value is not None}}
    return schema, [between(low, high)]


def _decimal(field: Any) -> tuple[dict[str, Any], list[str]]:
    schema, words = _number(field, "string")
    digits = f"at most {field.max_digits} digits" if field.max_digits is not None else ""
    places = f"at most {field.decimal_places} decimal places" if field.decimal_places is not None else ""
    return schema, ["decimal number as text, such as 12.50", digits, places, *words]


def _boolean(field: Any) -> tuple[dict[str, Any], list[str]]:
    return {"type": "boolean"}, ["must be true" if field.required else ""]


def _choice(field: Any) -> tuple[dict[str, Any], list[str]]:
    options = list(_options(field.choices))
    if not options or len(options) > MAX_CHOICES:
        return {"type": "string"}, [f"one of {len(options)} values" if options else ""]
    values = [value for value, _ in options]
    # The form compares texts; a number stays one where all are numbers, as clients copy the values.
    same = "integer" if all(type(value) is int for value in values) else "string"
    values = values if same == "integer" else [str(value) for value in values]
    named = [
        f"{value} = {label}"
        for value, (_, label) in zip(values, options, strict=True)
        if str(value).replace("_", " ").lower() != label.lower()
    ]
    return {"type": same, "enum": values}, [", ".join(named) if len(named) <= MAX_LABELS else ""]


def _options(choices: Any) -> Iterator[tuple[Any, str]]:
    """Yield values and labels, those of groups too, without the blank one."""
    for value, label in choices:
        if isinstance(label, (list, tuple)):
            yield from _options(label)
        elif value not in (None, ""):
            yield getattr(value, "value", value), str(label)


def _many(item: tuple[dict[str, Any], list[str]]) -> tuple[dict[str, Any], list[str]]:
    schema, words = item
    return {"type": "array", "items": schema}, words


def _row(field: Any) -> tuple[dict[str, Any], list[str]]:
    model = field.queryset.model
    target: Any = model._meta.get_field(field.to_field_name) if field.to_field_name else model._meta.pk
    while target.is_relation:
        target = target.target_field
    kind = "integer" if isinstance(target, models.IntegerField) else "string"
    key = target.name if field.to_field_name else "primary key"
    return {"type": kind}, [f"{key} of {model._meta.label_lower}"]


def _array(field: Any) -> tuple[dict[str, Any], list[str]]:
    item, words = _shape(field.base_field)
    each = ", ".join(filter(None, words))
    most = field.size if hasattr(field, "size") else field.max_length
    limits = {"maxItems": most} if most is not None else {}
    return {"type": "array", "items": item, **limits}, [between(None, most, "items"), each and f"each: {each}"]


def _range(field: Any) -> tuple[dict[str, Any], list[str]]:
    item, words = _shape(field.fields[0])
    end = any_of({"type": item.get("type", "string")}, NULL)
    ends = {"type": "array", "items": end, "minItems": 2, "maxItems": 2}
    return ends, ["the first value of the range and the first after it, null for no bound", *words]


def _mapping(field: Any) -> tuple[dict[str, Any], list[str]]:
    return {"type": "object", "additionalProperties": any_of({"type": "string"}, NULL)}, ["texts by name"]


# By name, as importing the module takes the driver of PostgreSQL.
_POSTGRES: Final[tuple[tuple[str, Callable[[Any], tuple[dict[str, Any], list[str]]]], ...]] = (
    ("SimpleArrayField", _array),
    ("SplitArrayField", _array),
    ("BaseRangeField", _range),
    ("HStoreField", _mapping),
)


def is_geometry(field: Any) -> bool:
    """Return whether the field is one of GeoDjango's, whose libraries not every project has."""
    return hasattr(field, "geom_type") and hasattr(field, "srid")


def _geometry(field: Any) -> tuple[dict[str, Any], list[str]]:
    system = f"SRID {field.srid} unless it says another" if field.srid else ""
    return {"type": "string"}, [f"{field.geom_type.lower()} as WKT, EWKT or GeoJSON", system]


def _parts(field: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the schema of a field with several controls: a list of what each of them takes."""
    notes = []
    for part in field.fields:
        shape, words = _shape(part)
        notes.append(", ".join(filter(None, words)) or " or ".join(map(str, shape.get("enum", ["text"]))))
    number = len(field.fields)
    schema = {"type": "array", "items": {"type": "string"}, "minItems": number, "maxItems": number}
    return schema, [f"a list of {'; '.join(notes)}"]


def _null_boolean(field: Any) -> tuple[dict[str, Any], list[str]]:
    return any_of({"type": "boolean"}, NULL), []


_SHAPES: Final[tuple[tuple[type[forms.Field], Callable[[Any], tuple[dict[str, Any], list[str]]]], ...]] = (
    (forms.ModelMultipleChoiceField, lambda field: _many(_row(field))),
    (forms.ModelChoiceField, _row),
    (forms.MultipleChoiceField, lambda field: _many(_choice(field))),
    (forms.ChoiceField, _choice),
    (forms.NullBooleanField, _null_boolean),
    (forms.BooleanField, _boolean),
    (forms.DecimalField, _decimal),
    (forms.FloatField, lambda field: _number(field, "number")),
    (forms.IntegerField, lambda field: _number(field, "integer")),
    (forms.DateTimeField, _noted("ISO 8601 date and time, such as 2026-07-28T14:30:00Z")),
    (forms.SplitDateTimeField, _noted("ISO 8601 date and time, such as 2026-07-28T14:30:00Z")),
    (forms.DateField, _noted("ISO 8601 date, such as 2026-07-28")),
    (forms.TimeField, _noted("time of day, such as 14:30:00")),
    (forms.DurationField, _noted("duration, such as 1 12:30:00 or PT12H30M")),
    (forms.UUIDField, _noted("UUID")),
    (forms.EmailField, _noted("email address")),
    (forms.URLField, _noted("URL")),
    (forms.GenericIPAddressField, _noted("IP address")),
    (forms.JSONField, lambda field: ({}, ["any JSON value"])),
    (forms.FileField, lambda field: ({**FREE_OBJECT}, [FILE])),
    (forms.MultiValueField, _parts),
)

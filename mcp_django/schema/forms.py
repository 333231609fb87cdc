"""Django forms as JSON Schema: what a tool takes that fills one in, and the form that a person is shown for it.

A form validates what it is given itself. No row of a relation is read for a tool. A person is never asked for files,
which have no place in a client's form, nor for what is typed into a password field, which must not pass through a
client (client/elicitation, Form Mode Security).
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ImproperlyConfigured
from django.db.models import Model
from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from django.utils.dateparse import parse_date

from ..sensitive import is_sensitive
from .fields import Shape, bounds, choice, decimal, lengths, notation, number, plain_number, text, with_default
from .types import FREE_OBJECT, NULL, PARSED, Invalid, any_of, between, described, key_type, present

# Beyond that a person is not shown them all, and enters the value.
MAX_CHOICES: Final = 100
# An upload's own answer says how a record takes it: there are uploads on some sites only.
FILE: Final = 'a file, {"name": "a.pdf", "base64": "..."} or {"name": "a.txt", "text": "..."}'

Option = tuple[str, str]
# Gives the choices of a field as pairs of value and label, None where they are not to be shown.
Choices = Callable[[Any], list[Option] | None]


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
    label = str(field.label or "").strip()
    texts = [label and f"{label.rstrip('.')}.", str(field.help_text or "").strip()]
    return with_default(_shape(field), None if isinstance(field.initial, Model) else field.initial, texts)


def _shape(field: forms.Field) -> Shape:
    postgres = sys.modules.get("django.contrib.postgres.forms")
    for name, shape in _POSTGRES if postgres is not None else ():
        if isinstance(field, getattr(postgres, name)):
            return shape(field)
    if is_geometry(field):
        return _geometry(field)
    return next(shape for kind, shape, _ in _KINDS if isinstance(field, kind))(field)


def question_schema(form: forms.BaseForm) -> dict[str, Any]:
    """Return the ``requestedSchema`` of a Django form; what its fields show at first are the defaults.

    Raises:
        ImproperlyConfigured: a field that must be filled in is none that a client could show.
    """
    fields = fields_of(form)
    lost = [name for name, field in fields.items() if field is None and form.fields[name].required]
    if lost:
        raise ImproperlyConfigured(f"{type(form).__name__}.{lost[0]} is no field that a client's user can be asked for")
    properties = {name: field for name, field in fields.items() if field is not None}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [name for name in properties if is_required(form.fields[name])]:
        schema["required"] = required
    return schema


def is_required(field: forms.Field) -> bool:
    """Return whether an answer needs the field: a check box may always be left out, unless it must be ticked."""
    return field.required and not isinstance(field, forms.NullBooleanField)


def fields_of(form: forms.BaseForm, choices: Choices | None = None) -> dict[str, dict[str, Any] | None]:
    """Return the fields of a form that a person fills in, as plain fields; None for one that has no such form.

    ``choices`` gives those of fields that lead to rows.
    """
    return {
        name: _question(form, name, field, choices or options_of)
        for name, field in form.fields.items()
        if not field.disabled and not field.widget.is_hidden
    }


def _question(form: forms.BaseForm, name: str, field: Any, choices: Choices) -> dict[str, Any] | None:
    # What must not pass through the client is never asked for by a form (client/elicitation, Security Considerations).
    secret = isinstance(field.widget, forms.PasswordInput) or is_sensitive(name)
    ask = None if secret else next(ask for kind, _, ask in _KINDS if isinstance(field, kind))
    shape = ask(field, choices) if ask is not None else None
    if shape is None:
        return None
    schema, words = shape
    schema["title"] = str(field.label or name.replace("_", " ").strip().capitalize())
    schema = described(schema, [str(field.help_text or "").strip()], words)
    default = _default(schema, form.get_initial_for_field(field, name))
    return schema if default is None else {**schema, "default": default}


# Kinds of fields


def _text(field: Any) -> Shape:
    return text(field, notation(field, forms)[0])


def _ask_text(field: Any, choices: Choices) -> Shape:
    words, format_name = ("JSON", "") if isinstance(field, forms.JSONField) else notation(field, forms)
    if format_name:
        return {"type": "string", "format": format_name}, []
    low, high = lengths(field)
    return {"type": "string", **present(minLength=low, maxLength=high)}, [words]


def _number(kind: str) -> Callable[[Any], Shape]:
    return lambda field: number(kind, *bounds(field))


def _ask_number(field: Any, choices: Choices) -> Shape:
    whole = type(field).to_python is forms.IntegerField.to_python
    low, high = map(plain_number, bounds(field))
    return {"type": "integer" if whole else "number", **present(minimum=low, maximum=high)}, []


def _boolean(field: Any) -> Shape:
    return {"type": "boolean"}, ["must be true" if field.required else ""]


def _ask_boolean(field: Any, choices: Choices) -> Shape:
    return {"type": "boolean"}, []


def _choice(field: Any) -> Shape:
    options = list(_options(field.choices))
    return choice(options) if options else ({"type": "string"}, [])


def _ask_choice(field: Any, choices: Choices) -> Shape:
    if titled := _titled(choices(field)):
        return {"type": "string", "oneOf": titled}, []
    return {"type": "string"}, _key_words(field)


def _ask_choices(field: Any, choices: Choices) -> Shape | None:
    titled = _titled(choices(field))
    schema = {"type": "array", "items": {"anyOf": titled}, **({"minItems": 1} if field.required else {})}
    return (schema, _key_words(field)) if titled else None


def _titled(options: list[Option] | None) -> list[dict[str, str]]:
    return [{"const": value, "title": label} for value, label in options or ()]


def _key_words(field: Any) -> list[str]:
    is_row = isinstance(field, forms.ModelChoiceField)
    return [f"primary key of {model_of(field)._meta.label_lower}"] if is_row else []


def _options(choices: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    """Yield values and labels, those of groups too, without the blank one."""
    for value, label in choices:
        if isinstance(label, (list, tuple)):
            yield from _options(label)
        elif value not in (None, ""):
            yield getattr(value, "value", value), str(label)


def options_of(field: Any) -> list[Option] | None:
    """Return the choices of a field without the blank one, None when there are more than a person looks through."""
    found = [(str(value), label) for value, label in islice(_options(field.choices), MAX_CHOICES + 1)]
    return found if len(found) <= MAX_CHOICES else None


def model_of(field: Any) -> type[Model]:
    """Return the model of the rows that a field leads to."""
    model: type[Model] = field.queryset.model
    return model


def _row(field: Any) -> Shape:
    opts = model_of(field)._meta
    target: Any = opts.get_field(field.to_field_name) if field.to_field_name else opts.pk
    while target.is_relation:
        target = target.target_field
    key = target.name if field.to_field_name else "primary key"
    return {"type": key_type(target)}, [f"{key} of {opts.label_lower}"]


def _many(shape: Callable[[Any], Shape]) -> Callable[[Any], Shape]:
    def many(field: Any) -> Shape:
        schema, words = shape(field)
        return {"type": "array", "items": schema}, words

    return many


def _parts(field: Any) -> Shape:
    """Return the schema of a field with several controls: a list of what each of them takes."""
    notes = []
    for part in field.fields:
        shape, words = _shape(part)
        notes.append(", ".join(filter(None, words)) or " or ".join(map(str, shape.get("enum", ["text"]))))
    size = len(field.fields)
    schema = {"type": "array", "items": {"type": "string"}, "minItems": size, "maxItems": size}
    return schema, [f"a list of {'; '.join(notes)}"]


# What a tool takes and what a person is asked for, None for what has no place in a client's form. A field may be a
# subclass of another kind: the first that fits is the most special one.
_KINDS: Final[tuple[tuple[Any, Callable[[Any], Shape], Callable[[Any, Choices], Shape | None] | None], ...]] = (
    (forms.ModelMultipleChoiceField, _many(_row), _ask_choices),
    (forms.ModelChoiceField, _row, _ask_choice),
    (forms.MultipleChoiceField, _many(_choice), _ask_choices),
    (forms.ChoiceField, _choice, _ask_choice),
    (forms.NullBooleanField, lambda field: (any_of({"type": "boolean"}, NULL), []), _ask_boolean),
    (forms.BooleanField, _boolean, _ask_boolean),
    (forms.DecimalField, decimal, _ask_number),
    (forms.FloatField, _number("number"), _ask_number),
    (forms.IntegerField, _number("integer"), _ask_number),
    (forms.SplitDateTimeField, _text, _ask_text),
    (forms.DurationField, lambda field: text(field, "duration, such as 1 12:30:00 or PT12H30M"), _ask_text),
    (forms.JSONField, lambda field: ({}, ["any JSON value"]), _ask_text),
    (forms.FileField, lambda field: ({**FREE_OBJECT}, [FILE]), None),
    (forms.MultiValueField, _parts, None),
    (forms.Field, _text, _ask_text),
)


def is_geometry(field: Any) -> bool:
    """Return whether the field is one of GeoDjango's, whose libraries not every project has."""
    return hasattr(field, "geom_type") and hasattr(field, "srid")


def _geometry(field: Any) -> Shape:
    system = f"SRID {field.srid} unless it says another" if field.srid else ""
    return {"type": "string"}, [f"{field.geom_type.lower()} as WKT, EWKT or GeoJSON", system]


def _array(field: Any) -> Shape:
    item, words = _shape(field.base_field)
    each = ", ".join(filter(None, words))
    most = field.size if hasattr(field, "size") else field.max_length
    schema = {"type": "array", "items": item, **present(maxItems=most)}
    return schema, [between(None, most, "items"), each and f"each: {each}"]


def _range(field: Any) -> Shape:
    item, words = _shape(field.fields[0])
    end = any_of({"type": item.get("type", "string")}, NULL)
    ends = {"type": "array", "items": end, "minItems": 2, "maxItems": 2}
    return ends, ["the first value of the range and the first after it, null for no bound", *words]


def _mapping(field: Any) -> Shape:
    return {"type": "object", "additionalProperties": any_of({"type": "string"}, NULL)}, ["texts by name"]


# By name, as importing the module takes the driver of PostgreSQL.
_POSTGRES: Final[tuple[tuple[str, Callable[[Any], Shape]], ...]] = (
    ("SimpleArrayField", _array),
    ("SplitArrayField", _array),
    ("BaseRangeField", _range),
    ("HStoreField", _mapping),
)


# What a field shows at first, and what a person enters


def _default(schema: Mapping[str, Any], initial: Any) -> Any:
    """Return what the field shows at first, None for nothing that it could show."""
    kind = schema["type"]
    if kind == "array":
        known = {choice["const"] for choice in schema["items"]["anyOf"]}
        items = initial if isinstance(initial, (list, tuple, set)) else []
        return [text for text in map(_shown, items) if text in known] or None
    if kind == "boolean":
        return initial if isinstance(initial, bool) else None
    if kind in ("integer", "number"):
        number = isinstance(initial, (int, float, Decimal)) and not isinstance(initial, bool)
        return None if not number else initial if isinstance(initial, int) else float(initial)
    text = _shown(initial)
    known = {choice["const"] for choice in schema.get("oneOf", ())}
    return text if text and (not known or text in known) else None


def _shown(value: Any) -> str:
    value = value.pk if isinstance(value, Model) else getattr(value, "value", value)
    if value is None or isinstance(value, (list, tuple, dict, set)):
        return ""
    return value.isoformat() if isinstance(value, date) else str(value)


def read_form(form: Any, asked: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Bind the form to the content of an answer, let it validate itself and return its ``cleaned_data``.

    ``asked`` are the plain fields that were asked for, by name; all others keep what they show.

    Raises:
        ValueError: what was entered is not valid; in the form's own words.
    """
    data: dict[str, Any] = {}
    for name, field in form.fields.items():
        if name in asked:
            data[form.add_prefix(name)] = _entered(field, asked[name], content.get(name))
        elif not isinstance(field, forms.FileField):
            data[form.add_prefix(name)] = form.get_initial_for_field(field, name)
        # The widget would look for what a browser posts; here is the value itself.
        field.widget.value_from_datadict = _value
    form.data, form.files, form.is_bound = data, MultiValueDict(), True
    form._errors = None
    if not form.is_valid():
        raise ValueError(" ".join(_errors(form)))
    cleaned: dict[str, Any] = form.cleaned_data
    return cleaned


def _value(data: Mapping[str, Any], files: Any, name: str) -> Any:
    return data.get(name)


def _entered(field: Any, asked: Mapping[str, Any], value: Any) -> Any:
    """Return what the field's ``clean`` takes: of dates the dates themselves, in whatever way the field writes them."""
    if value is None:
        return None
    # Django's fields would take any of these for the text of something.
    if not isinstance(value, PLAIN[asked["type"]]) or (isinstance(value, bool) and asked["type"] != "boolean"):
        raise ValueError(f"{asked['title']}: expected {NOUNS[asked['type']]}.")
    value = str(value) if asked["type"] == "string" else value
    if isinstance(field, (forms.DateTimeField, forms.SplitDateTimeField)):
        moment = _moment(value)
        return _split(moment) if isinstance(field, forms.SplitDateTimeField) else moment
    if isinstance(field, forms.DateField):
        try:
            return parse_date(value) or value
        except ValueError:
            return value
    return value


PLAIN: Final[Mapping[str, Any]] = {
    "string": (str, int, float),
    "integer": (str, int, float),
    "number": (str, int, float),
    "boolean": bool,
    "array": list,
}
NOUNS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "array": "a list",
}


def _split(moment: Any) -> Any:
    """Return date and time as they are in the current time zone, in which the two fields are read."""
    if not isinstance(moment, datetime):
        return [moment, moment]
    moment = timezone.make_naive(moment) if timezone.is_aware(moment) else moment
    return [moment.date(), moment.time()]


def _moment(text: str) -> Any:
    try:
        return PARSED[datetime].convert(text, None)  # type: ignore[arg-type]
    except Invalid:
        return text


def _errors(form: forms.BaseForm) -> Iterator[str]:
    for name, errors in form.errors.as_data().items():
        messages = " ".join(str(message) for error in errors for message in error.messages)
        if name == NON_FIELD_ERRORS:
            yield messages
        else:
            yield f"{form[name].label}: {messages}"

"""Forms: the schema for a tool that fills one in, the plain form for a person, and the values that they entered.

Each kind of field is one row of a table: the JSON Schema and words for a tool, and the plain field for a person. Fields
of Django's forms and of REST framework's serializers validate their values themselves; the schema for a tool reads no
rows of relations. Clients show forms of plain fields only (client/elicitation, Requested Schema). A person is never
asked for files, nor for the value of a password field, which must not pass through a client (Form Mode Security).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ImproperlyConfigured
from django.db.models import Model
from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from django.utils.dateparse import parse_date

from .container_types import object_schema
from .json_values import MAX_SAFE_INTEGER, to_jsonable
from .secrets import is_sensitive
from .value_types import (
    FREE_OBJECT,
    NULL,
    PARSED,
    Invalid,
    any_of,
    between,
    described,
    in_words,
    key_type,
    present,
)

# Maximum number of values in a tool's schema; with more, only the field's error message names them.
MAX_VALUES: Final = 200
MAX_LABELS: Final = 50
# Maximum levels of nested serializers in a schema.
MAX_DEPTH: Final = 4
# Does not mention uploads, which only some sites have; the answer to an upload says how to use it in a record.
FILE: Final = 'a file, {"name": "a.pdf", "base64": "..."} or {"name": "a.txt", "text": "..."}'

# A JSON Schema, and its constraints in words.
Shape = tuple[dict[str, Any], list[str]]
Option = tuple[str, str]
# Returns the choices of a field as pairs of value and label, None if they are not to be shown.
Choices = Callable[[Any], list[Option] | None]


# Schemas for a tool, by kind of field


def text(field: Any, words: str = "") -> Shape:
    low, high = _lengths(field)
    return {"type": "string", **present(minLength=low, maxLength=high)}, [words, between(low, high, "characters")]


def _lengths(field: Any) -> tuple[Any, Any]:
    return getattr(field, "min_length", None), getattr(field, "max_length", None)


def _bounds(field: Any) -> tuple[Any, Any]:
    low = field.min_value
    high = field.max_value
    if callable(low):
        low = low()
    if callable(high):
        high = high()
    return low, high


def _boolean(field: Any) -> Shape:
    notes = ["must be true"] if field.required else []
    return {"type": "boolean"}, notes


def _number(kind: str, most: float = float("inf")) -> Callable[[Any], Shape]:
    def shape(field: Any) -> Shape:
        low, high = _bounds(field)
        if low is not None and abs(low) > most:
            low = None
        if high is not None and abs(high) > most:
            high = None
        return {"type": kind, **present(minimum=low, maximum=high)}, [between(low, high)]

    return shape


def _decimal(field: Any) -> Shape:
    # Bounds are in words, because numeric keywords do not apply to strings.
    digits = f"at most {field.max_digits} digits" if field.max_digits is not None else ""
    places = f"at most {field.decimal_places} decimal places" if field.decimal_places is not None else ""
    return {"type": "string"}, ["decimal number as text, such as 12.50", digits, places, between(*_bounds(field))]


def _choice(field: Any) -> Shape:
    options = list(_options(field.choices))
    return choice(options) if options else ({"type": "string"}, [])


def _choice_of_serializer(field: Any) -> Shape:
    options = [(value, str(label)) for value, label in field.choices.items() if value not in ("", None)]
    return choice(options, *([""] if getattr(field, "allow_blank", False) else []))


def choice(options: list[tuple[Any, str]], *more: str) -> Shape:
    """Return the schema of a form field for one of several values with labels; ``more`` are texts without a label."""
    if not options or len(options) > MAX_VALUES:
        return {"type": "string"}, [f"one of {len(options)} values"]
    # The field compares texts. If all values are integers they stay integers, because clients copy them.
    whole = all(type(value) is int for value, _ in options)
    values = [value for value, _ in options]
    if whole:
        schema = {"type": "integer", "enum": values}
    else:
        schema = {"type": "string", "enum": [*map(str, values), *more]}
    return schema, [in_words(zip(values, (label for _, label in options), strict=True), MAX_LABELS)]


def _options(choices: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    """Yield values and labels of a form field's choices for its schema, those of groups too, without the blank one."""
    for value, label in choices:
        if isinstance(label, (list, tuple)):
            yield from _options(label)
        elif value not in (None, ""):
            yield getattr(value, "value", value), str(label)


def _row(field: Any) -> Shape:
    opts = getattr(getattr(field.queryset, "model", None), "_meta", None)
    if opts is None:
        return {"type": "string"}, []
    name = getattr(field, "to_field_name", None)
    target: Any = opts.get_field(name) if name else opts.pk
    while target.is_relation:
        target = target.target_field
    return {"type": key_type(target)}, [f"{target.name if name else 'primary key'} of {opts.label_lower}"]


def _slug(field: Any) -> Shape:
    model = getattr(field.queryset, "model", None)
    return {"type": "string"}, [f"{field.slug_field} of {model._meta.label_lower}" if model else field.slug_field]


def _many(shape: Callable[[Any], Shape]) -> Callable[[Any], Shape]:
    def many(field: Any) -> Shape:
        schema, words = shape(field)
        return {"type": "array", "items": schema}, words

    return many


def _parts(field: Any) -> Shape:
    """Return the schema of a form field with several controls: a list of their values."""
    notes = []
    for part in field.fields:
        shape, words = _shape(part)
        notes.append(", ".join(filter(None, words)) or " or ".join(map(str, shape.get("enum", ["text"]))))
    size = len(field.fields)
    schema = {"type": "array", "items": {"type": "string"}, "minItems": size, "maxItems": size}
    return schema, [f"a list of {'; '.join(notes)}"]


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


# Plain fields for a person, None for a field that a client's form cannot have


def _ask_text(field: Any, choices: Choices) -> Shape:
    words, format_name = ("JSON", "") if isinstance(field, forms.JSONField) else notation(field)
    if format_name:
        return {"type": "string", "format": format_name}, []
    low, high = _lengths(field)
    return {"type": "string", **present(minLength=low, maxLength=high)}, [words]


def _ask_number(field: Any, choices: Choices) -> Shape:
    whole = type(field).to_python is forms.IntegerField.to_python
    low, high = map(plain_number, _bounds(field))
    return {"type": "integer" if whole else "number", **present(minimum=low, maximum=high)}, []


def plain_number(value: Any) -> int | float | None:
    if value is None or isinstance(value, int):
        return value
    return float(value)


def _ask_boolean(field: Any, choices: Choices) -> Shape:
    return {"type": "boolean"}, []


def _ask_choice(field: Any, choices: Choices) -> Shape:
    if titled := _titled(choices(field)):
        return {"type": "string", "oneOf": titled}, []
    return {"type": "string"}, _key_words(field)


def _ask_choices(field: Any, choices: Choices) -> Shape | None:
    titled = _titled(choices(field))
    schema = {"type": "array", "items": {"anyOf": titled}, **({"minItems": 1} if field.required else {})}
    return (schema, _key_words(field)) if titled else None


def _ask_nothing(field: Any, choices: Choices) -> None:
    return None


def _titled(options: list[Option] | None) -> list[dict[str, str]]:
    return [{"const": value, "title": label} for value, label in options or ()]


def _key_words(field: Any) -> list[str]:
    if not isinstance(field, forms.ModelChoiceField):
        return []
    label = FormField(field).model._meta.label_lower
    also = ", or the name of a model" if label == "contenttypes.contenttype" else ""
    return [f"primary key of {label}{also}"]


# Tables by the names of the fields' classes, because importing some of the classes needs a driver or a library


Ask = Callable[[Any, Choices], Shape | None]
_MOMENT: Final = (PARSED[datetime].words(), PARSED[datetime].format)
# The notation of a field's texts in words, and its ``format`` in a client's form.
NOTATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "DateTimeField": _MOMENT,
    "SplitDateTimeField": _MOMENT,
    "DateField": (PARSED[date].words(), PARSED[date].format),
    "TimeField": (PARSED[time].words(), ""),
    "DurationField": ("duration, such as 1 12:30:00", ""),
    "UUIDField": ("UUID", ""),
    "EmailField": ("email address", "email"),
    "URLField": ("URL", "uri"),
    "GenericIPAddressField": ("IP address", ""),
    "IPAddressField": ("IP address", ""),
}
FORM_FIELDS: Final[Mapping[str, tuple[Callable[[Any], Shape], Ask]]] = {
    "SimpleArrayField": (_array, _ask_text),
    "SplitArrayField": (_array, _ask_text),
    "BaseRangeField": (_range, _ask_nothing),
    "HStoreField": (
        lambda field: ({"type": "object", "additionalProperties": any_of({"type": "string"}, NULL)}, ["texts by name"]),
        _ask_text,
    ),
    "ModelMultipleChoiceField": (_many(_row), _ask_choices),
    "ModelChoiceField": (_row, _ask_choice),
    "MultipleChoiceField": (_many(_choice), _ask_choices),
    "ChoiceField": (_choice, _ask_choice),
    "NullBooleanField": (lambda field: (any_of({"type": "boolean"}, NULL), []), _ask_boolean),
    "BooleanField": (_boolean, _ask_boolean),
    "DecimalField": (_decimal, _ask_number),
    "FloatField": (_number("number"), _ask_number),
    "IntegerField": (_number("integer"), _ask_number),
    "DurationField": (lambda field: text(field, "duration, such as 1 12:30:00 or PT12H30M"), _ask_text),
    "JSONField": (lambda field: ({}, ["any JSON value"]), _ask_text),
    "FileField": (lambda field: ({**FREE_OBJECT}, [FILE]), _ask_nothing),
    "SplitDateTimeField": (lambda field: text(field, notation(field)[0]), _ask_text),
    "MultiValueField": (_parts, _ask_nothing),
    "Field": (lambda field: text(field, notation(field)[0]), _ask_text),
}
SERIALIZER_FIELDS: Final[Mapping[str, Callable[[Any], Shape]]] = {
    "PrimaryKeyRelatedField": _row,
    "SlugRelatedField": _slug,
    "HyperlinkedRelatedField": lambda field: text(field, "URL of the row, as the API shows it"),
    "MultipleChoiceField": _many(_choice_of_serializer),
    # Plain text, because its choices are files of the server.
    "FilePathField": text,
    "ChoiceField": _choice_of_serializer,
    "BooleanField": lambda field: ({"type": "boolean"}, []),
    # Larger bounds are left out: they are those of the database's widest columns, which no client needs to know.
    "IntegerField": _number("integer", MAX_SAFE_INTEGER),
    "FloatField": _number("number", MAX_SAFE_INTEGER),
    "DecimalField": _decimal,
    **{name: lambda field: text(field, notation(field)[0]) for name in (*NOTATIONS, "CharField")},
    "DictField": lambda field: ({**FREE_OBJECT}, []),
}


def _kind_of(field: Any, known: Mapping[str, Any]) -> Any:
    """Return the table's schema entry for the most specific class of a form field."""
    kinds = type(field).__mro__
    names = (kind.__name__ for kind in kinds if kind.__module__.startswith(("django.", "rest_framework.")))
    return next((known[name] for name in names if name in known), None)


def notation(field: Any) -> tuple[str, str]:
    """Return the notation for texts of a form field, and the ``format`` in its JSON Schema."""
    found: tuple[str, str] = _kind_of(field, NOTATIONS) or ("", "")
    return found


# Fields of forms


class FormField:
    """One field of a Django form. Of more choices than ``MAX_CHOICES`` a person is shown none, and enters the value."""

    MAX_CHOICES: Final = 100

    def __init__(self, field: Any) -> None:
        self.field = field

    @property
    def is_geometry(self) -> bool:
        """Whether it is one of GeoDjango's fields, whose libraries not every project has."""
        return hasattr(self.field, "geom_type") and hasattr(self.field, "srid")

    @property
    def is_required(self) -> bool:
        """Whether a person has to fill it in: a check box only if it must be ticked."""
        return self.field.required and not isinstance(self.field, forms.NullBooleanField)

    @property
    def model(self) -> type[Model]:
        """The model whose rows the field offers."""
        model: type[Model] = self.field.queryset.model
        return model

    def options(self) -> list[Option] | None:
        """Return values and labels of the choices without the blank one; None for more than people look through."""
        options = islice(_options(self.field.choices), self.MAX_CHOICES + 1)
        found = [(str(value), label) for value, label in options]
        return found if len(found) <= self.MAX_CHOICES else None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the field's values for a tool, with the constraints in the description."""
        field = self.field
        label = str(field.label or "").strip()
        texts = [label and f"{label.rstrip('.')}.", str(field.help_text or "").strip()]
        return with_default(_shape(field), None if isinstance(field.initial, Model) else field.initial, texts)


def _shape(field: Any) -> Shape:
    if FormField(field).is_geometry:
        system = f"SRID {field.srid} unless it says another" if field.srid else ""
        return {"type": "string"}, [f"{field.geom_type.lower()} as WKT, EWKT or GeoJSON", system]
    shape: Shape = _kind_of(field, FORM_FIELDS)[0](field)
    return shape


def with_default(shape: Shape, default: Any, texts: Iterable[str]) -> dict[str, Any]:
    """Return a form field's JSON Schema with its default and description."""
    schema, words = shape
    if default is not None and default != "" and not callable(default):
        schema["default"] = to_jsonable(default)
        words = [*words, f"default {schema['default']}"]
    return described(schema, texts, words)


# Serializers


class SerializerField:
    """A serializer of REST framework, or one of its fields; ``depth`` levels of nested serializers are told."""

    def __init__(self, field: Any, depth: int = MAX_DEPTH) -> None:
        self.field = field
        self.depth = depth

    def writable(self) -> dict[str, Any]:
        """Return by name the fields that clients can write; files have no JSON form."""
        from rest_framework.serializers import FileField, HiddenField

        fields: Mapping[str, Any] = getattr(self.field, "fields", {})
        return {
            name: field
            for name, field in fields.items()
            if not field.read_only and not isinstance(field, HiddenField | FileField)
        }

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values that clients write, with the constraints in the description."""
        field = self.field
        schema, words = self._shape()
        if field.allow_null:
            schema = any_of(schema, NULL)
        about = str(field.help_text or "").strip()
        label = "" if about or field.label is None else str(field.label)
        label = "" if label.lower().replace(" ", "_") == field.field_name else label
        return with_default((schema, words), field.default, [label and f"{label.rstrip('.')}.", about])

    def _shape(self) -> Shape:
        from rest_framework.relations import ManyRelatedField
        from rest_framework.serializers import ListField, ListSerializer, Serializer

        field = self.field
        if shape := _kind_of(field, SERIALIZER_FIELDS):
            found: Shape = shape(field)
            return found
        if isinstance(field, ListSerializer | ListField | ManyRelatedField):
            child = field.child_relation if isinstance(field, ManyRelatedField) else field.child
            item = SerializerField(child, self.depth).schema()
            note = item.pop("description", "")
            words = [f"each: {note.strip('()')}" if note else "", between(*_lengths(field), "items")]
            return {"type": "array", "items": item}, words
        if not isinstance(field, Serializer):
            return {}, []
        if not self.depth:
            return {**FREE_OBJECT}, []
        fields = self.writable()
        required = [name for name, member in fields.items() if member.required]
        members = {name: SerializerField(member, self.depth - 1).schema() for name, member in fields.items()}
        return object_schema(members, required), []


# Forms


class FormSchema:
    """A Django form: its schema for a tool, and the plain form by which a person fills it in."""

    def __init__(self, form: forms.BaseForm | type[forms.BaseForm]) -> None:
        self.form: Any = form

    def for_tool(self, *, exclude: Collection[str] = ()) -> dict[str, Any]:
        """Return the JSON Schema of the values that the form takes; ``exclude`` names fields to leave out.

        Disabled fields are left out.
        """
        form = self.form
        declared: Mapping[str, Any] = getattr(form, "base_fields", {}) if isinstance(form, type) else form.fields
        fields = {name: field for name, field in declared.items() if name not in exclude and not field.disabled}
        # A check box is required only if it must be ticked; any other counts as not ticked if it is left out.
        required = [name for name, field in fields.items() if field.required]
        return object_schema({name: FormField(field).schema() for name, field in fields.items()}, required, closed=True)

    def for_person(self) -> dict[str, Any]:
        """Return the schema of the plain form (``requestedSchema``).

        Raises:
            ImproperlyConfigured: the form requires a field that a person cannot be asked for.
        """
        fields = self.plain_fields()
        lost = [name for name, field in fields.items() if field is None and self.form.fields[name].required]
        if lost:
            name = type(self.form).__name__
            raise ImproperlyConfigured(f"{name}.{lost[0]} is not a field that a user can be asked for")
        properties = {name: field for name, field in fields.items() if field is not None}
        required = [name for name in properties if FormField(self.form.fields[name]).is_required]
        return object_schema(properties, required)

    def plain_fields(self, choices: Choices | None = None) -> dict[str, dict[str, Any] | None]:
        """Return the schema of each visible field, as a person fills it in, None for a field that has none.

        ``choices`` returns the choices of a field, by default all that it has.
        """

        def options(field: Any) -> list[Option] | None:
            return FormField(field).options()

        return {
            name: _question(self.form, name, field, choices or options)
            for name, field in self.form.fields.items()
            if not field.disabled and not field.widget.is_hidden
        }

    def read(self, asked: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
        """Validate the form with the values that a person entered, and return its ``cleaned_data``.

        ``asked`` has the schema of each plain field that was shown, by name; all other fields keep their initial
        values. Raises ``ValueError`` with a text for the person if a value is not valid.
        """
        form = self.form
        data: dict[str, Any] = {}
        for name, field in form.fields.items():
            if name in asked:
                data[form.add_prefix(name)] = _entered(field, asked[name], content.get(name))
            elif not isinstance(field, forms.FileField):
                data[form.add_prefix(name)] = form.get_initial_for_field(field, name)
            # The widget would look for the parts that a browser posts, but ``data`` has the value itself.
            field.widget.value_from_datadict = lambda data, files, name: data.get(name)
        form.data = data
        form.files = MultiValueDict()
        form.is_bound = True
        form._errors = None
        if form.is_valid():
            cleaned: dict[str, Any] = form.cleaned_data
            return cleaned
        texts = []
        for name, errors in form.errors.as_data().items():
            messages = " ".join(str(message) for error in errors for message in error.messages)
            texts.append(messages if name == NON_FIELD_ERRORS else f"{form[name].label}: {messages}")
        raise ValueError(" ".join(texts))


def _question(form: forms.BaseForm, name: str, field: Any, choices: Choices) -> dict[str, Any] | None:
    # A form never asks for what must not pass through the client (client/elicitation, Security Considerations).
    secret = isinstance(field.widget, forms.PasswordInput) or is_sensitive(name)
    shape = None if secret else _kind_of(field, FORM_FIELDS)[1](field, choices)
    if shape is None:
        return None
    schema, words = shape
    schema["title"] = str(field.label or name.replace("_", " ").strip().capitalize())
    schema = described(schema, [str(field.help_text or "").strip()], words)
    default = _initial(schema, form.get_initial_for_field(field, name))
    return schema if default is None else {**schema, "default": default}


def _initial(schema: Mapping[str, Any], initial: Any) -> Any:
    """Return the default in a form field's schema, which a person sees at first; None without one."""

    def shown(value: Any) -> str:
        value = value.pk if isinstance(value, Model) else getattr(value, "value", value)
        if value is None or isinstance(value, (list, tuple, dict, set)):
            return ""
        if isinstance(value, date):
            return value.isoformat()
        return str(value)

    match schema["type"]:
        case "array":
            known = {choice["const"] for choice in schema["items"]["anyOf"]}
            items = initial if isinstance(initial, (list, tuple, set)) else []
            return [text for text in map(shown, items) if text in known] or None
        case "boolean":
            return initial if isinstance(initial, bool) else None
        case "integer" | "number":
            if isinstance(initial, bool) or not isinstance(initial, (int, float, Decimal)):
                return None
            if isinstance(initial, int):
                return initial
            return float(initial)
    text = shown(initial)
    known = {choice["const"] for choice in schema.get("oneOf", ())}
    return text if text and (not known or text in known) else None


# Values that a person entered


# By type of the plain field: the Python types that its value can have, and the noun for error messages.
PLAIN: Final[Mapping[str, tuple[Any, str]]] = {
    "string": ((str, int, float), "a text"),
    "integer": ((str, int, float), "a whole number"),
    "number": ((str, int, float), "a number"),
    "boolean": (bool, "yes or no"),
    "array": (list, "a list"),
}


def _entered(field: Any, asked: Mapping[str, Any], value: Any) -> Any:
    """Convert a value entered by the schema of a Django form field, as the field's ``clean`` takes it."""
    # Some clients send an empty text for a field that was left blank.
    if value is None or (value == "" and asked["type"] != "string"):
        return None
    kinds, noun = PLAIN[asked["type"]]
    # Django's fields would accept other JSON types and convert them to text.
    if not isinstance(value, kinds) or (isinstance(value, bool) and asked["type"] != "boolean"):
        raise ValueError(f"{asked['title']}: expected {noun}.")
    value = str(value) if asked["type"] == "string" else value
    if isinstance(field, (forms.DateTimeField, forms.SplitDateTimeField)):
        try:
            moment: Any = PARSED[datetime].convert(value, None)  # type: ignore[arg-type]
        except Invalid:
            if isinstance(field, forms.SplitDateTimeField):
                return [value, value]
            return value
        if isinstance(field, forms.DateTimeField):
            return moment
        # The two fields read their values in the current time zone.
        moment = timezone.make_naive(moment) if timezone.is_aware(moment) else moment
        return [moment.date(), moment.time()]
    if isinstance(field, forms.DateField):
        try:
            return parse_date(value) or value
        except ValueError:
            return value
    return value

"""Django forms as questions: a flat form for a client to show.

Never asked for: files, which have no place in a form, and what is typed into a password field, which must not pass
through a client (client/elicitation, Form Mode Security).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model

from ..sensitive import is_sensitive

# Beyond that a person is not shown them all, and enters the value.
MAX_CHOICES: Final = 100

Option = tuple[str, str]
# Gives the choices of a field as pairs of value and label, None where they are not to be shown.
Choices = Callable[[Any], list[Option] | None]


def form_schema(form: forms.BaseForm) -> dict[str, Any]:
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
        name: _field(form, name, field, choices or options_of)
        for name, field in form.fields.items()
        if not field.disabled and not field.widget.is_hidden
    }


def _field(form: forms.BaseForm, name: str, field: Any, choices: Choices) -> dict[str, Any] | None:
    # What must not pass through the client is never asked for by a form (client/elicitation, Security Considerations).
    secret = isinstance(field.widget, forms.PasswordInput) or is_sensitive(name)
    schema = None if secret else _primitive(field, choices)
    if schema is None:
        return None
    schema["title"] = str(field.label or name.replace("_", " ").strip().capitalize())
    words = next((words for kind, words in NOTATIONS if isinstance(field, kind)), "")
    if isinstance(field, forms.ModelChoiceField) and "oneOf" not in schema:
        words = f"primary key of {model_of(field)._meta.label_lower}"
    if text := " ".join(filter(None, [str(field.help_text or "").strip(), words and f"({words})"])):
        schema["description"] = text
    default = _default(schema, form.get_initial_for_field(field, name))
    return schema if default is None else {**schema, "default": default}


def _primitive(field: Any, choices: Choices) -> dict[str, Any] | None:
    match field:
        case forms.MultipleChoiceField() | forms.ModelMultipleChoiceField():
            options = choices(field)
            items = {"anyOf": [{"const": value, "title": label} for value, label in options or ()]}
            return {"type": "array", "items": items, **({"minItems": 1} if field.required else {})} if options else None
        case forms.ChoiceField():
            options = choices(field)
            titled = [{"const": value, "title": label} for value, label in options or ()]
            return {"type": "string", **({"oneOf": titled} if titled else {})}
        case forms.FileField():
            return None
        case forms.BooleanField():
            return {"type": "boolean"}
        case forms.DecimalField() | forms.FloatField() | forms.IntegerField():
            whole = type(field).to_python is forms.IntegerField.to_python
            return {"type": "integer" if whole else "number", **_limits(field)}
        case forms.SplitDateTimeField():
            return {"type": "string", "format": "date-time"}
        case forms.MultiValueField():
            return None
    found = next((word for kind, word in FORMATS if isinstance(field, kind)), None)
    lengths = {"minLength": getattr(field, "min_length", None), "maxLength": getattr(field, "max_length", None)}
    given = {keyword: length for keyword, length in lengths.items() if length is not None}
    return {"type": "string", **({"format": found} if found else given)}


FORMATS: Final[tuple[tuple[type[forms.Field], str], ...]] = (
    (forms.DateTimeField, "date-time"),
    (forms.DateField, "date"),
    (forms.EmailField, "email"),
    (forms.URLField, "uri"),
)
NOTATIONS: Final[tuple[tuple[type[forms.Field], str], ...]] = (
    (forms.TimeField, "time of day, such as 14:30:00"),
    (forms.DurationField, "duration, such as 1 12:30:00"),
    (forms.UUIDField, "UUID"),
    (forms.GenericIPAddressField, "IP address"),
    (forms.JSONField, "JSON"),
)


def _limits(field: Any) -> dict[str, Any]:
    limits = {"minimum": field.min_value, "maximum": field.max_value}
    given = {keyword: limit() if callable(limit) else limit for keyword, limit in limits.items()}
    return {
        keyword: limit if isinstance(limit, int) else float(limit)
        for keyword, limit in given.items()
        if limit is not None
    }


def model_of(field: Any) -> type[Model]:
    """Return the model of the rows that a field leads to."""
    model: type[Model] = field.queryset.model
    return model


def options_of(field: Any) -> list[Option] | None:
    """Return the choices of a field without the blank one, None when there are more than a person looks through."""
    found = list(islice(_flat(field.choices), MAX_CHOICES + 1))
    return found if len(found) <= MAX_CHOICES else None


def _flat(choices: Iterable[Any]) -> Iterator[Option]:
    for value, label in choices:
        if isinstance(label, (list, tuple)):
            yield from _flat(label)
        elif value not in (None, ""):
            yield str(getattr(value, "value", value)), str(label)


def _default(schema: Mapping[str, Any], initial: Any) -> Any:
    """Return what the field shows at first, None for nothing that it could show."""
    kind = schema["type"]
    if kind == "array":
        known = {choice["const"] for choice in schema["items"]["anyOf"]}
        items = initial if isinstance(initial, (list, tuple, set)) else []
        return [text for text in map(_text, items) if text in known] or None
    if kind == "boolean":
        return initial if isinstance(initial, bool) else None
    if kind in ("integer", "number"):
        number = isinstance(initial, (int, float, Decimal)) and not isinstance(initial, bool)
        return None if not number else initial if isinstance(initial, int) else float(initial)
    text = _text(initial)
    known = {choice["const"] for choice in schema.get("oneOf", ())}
    return text if text and (not known or text in known) else None


def _text(value: Any) -> str:
    value = value.pk if isinstance(value, Model) else getattr(value, "value", value)
    if value is None or isinstance(value, (list, tuple, dict, set)):
        return ""
    return value.isoformat() if isinstance(value, date) else str(value)

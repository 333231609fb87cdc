"""Forms made of JSON Schemas: the arguments of a tool, and what a client is asked (client/elicitation)."""

import json
from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

MAX_HELP: Final = 600


class JSONText(forms.CharField):
    """Any JSON; what is none is text, where the schema takes text."""

    widget = forms.Textarea(attrs={"rows": 3, "dir": "ltr", "spellcheck": "false"})

    def __init__(self, *, takes_text: bool, **options: Any) -> None:
        self.takes_text = takes_text
        super().__init__(**options)

    def clean(self, value: Any) -> Any:
        """Return the value, None for none.

        Raises:
            ValidationError: it is neither JSON nor text that may stand there.
        """
        text: str = super().clean(value)
        return None if text == "" else _json(text, self.takes_text)


class Lines(forms.CharField):
    """A list of texts, one a line; a line that is a JSON object or list is that."""

    widget = forms.Textarea(attrs={"rows": 3, "dir": "auto", "spellcheck": "false"})

    def clean(self, value: Any) -> Any:
        """Return the list, None for no line."""
        lines = [line.strip() for line in super().clean(value).splitlines() if line.strip()]
        return [_json(line, True) if line[0] in "{[" else line for line in lines] or None


class Chosen(forms.ChoiceField):
    """One of the values of an ``enum``, of whatever type."""

    def __init__(self, *, values: Mapping[str, Any], **options: Any) -> None:
        self.values = values
        choices = [("", "-"), *((key, key if title is None else title) for key, (_value, title) in values.items())]
        super().__init__(choices=choices, **options)

    def clean(self, value: Any) -> Any:
        """Return the value, None for none."""
        found: str = super().clean(value)
        return self.values[found][0] if found else None


class SeveralChosen(forms.MultipleChoiceField):
    """Some of the values of an ``enum``."""

    widget = forms.CheckboxSelectMultiple

    def __init__(self, *, values: Mapping[str, Any], **options: Any) -> None:
        self.values = values
        choices = [(key, key if title is None else title) for key, (_value, title) in values.items()]
        super().__init__(choices=choices, **options)

    def clean(self, value: Any) -> Any:
        """Return the values, None for none."""
        return [self.values[key][0] for key in super().clean(value)] or None


def _json(text: str, takes_text: bool) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if takes_text:
            return text
        raise ValidationError(_("This is not JSON.")) from None


class SchemaForm(forms.Form):
    """The properties of a schema of type ``object``. Nothing is required: what is left out, the tool itself tells.

    ``initial`` are values by name, as they are in JSON.
    """

    def __init__(
        self, schema: Mapping[str, Any], data: Any = None, *, initial: Mapping[str, Any] | None = None, prefix: str
    ) -> None:
        super().__init__(data, prefix=prefix, auto_id=f"{prefix}_%s")
        required = schema.get("required", ())
        for name, part in schema.get("properties", {}).items():
            field = self.fields[name] = field_of(name, part if isinstance(part, Mapping) else {})
            field.is_asked_for = name in required  # type: ignore[attr-defined]
            value = (initial or {}).get(name, part.get("default") if isinstance(part, Mapping) else None)
            if value is not None:
                field.initial = _shown(field, value)

    def values_given(self) -> dict[str, Any]:
        """Return what was entered, by name, where the form is valid."""
        return {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}


def field_of(name: str, schema: Mapping[str, Any]) -> forms.Field:
    """Return the field for a property; what has no field of its own is entered as JSON."""
    help_text = str(schema.get("description", ""))[:MAX_HELP]
    options: dict[str, Any] = {"label": str(schema.get("title") or name), "help_text": help_text, "required": False}
    kind, items = schema.get("type"), schema.get("items")
    if values := _values(schema):
        return Chosen(values=values, **options)
    if kind == "array" and isinstance(items, Mapping):
        if values := _values(items):
            return SeveralChosen(values=values, **options)
        if items.get("type") == "string":
            return Lines(**options)
    match kind:
        case "string":
            return forms.CharField(strip=False, widget=forms.TextInput(attrs={"dir": "auto"}), **options)
        case "integer":
            return forms.IntegerField(**options)
        case "number":
            return forms.FloatField(**options)
    kinds = kind if isinstance(kind, list) else [kind]
    return JSONText(takes_text="string" in kinds or kind is None, **options)


def _values(schema: Mapping[str, Any]) -> dict[str, tuple[Any, str | None]]:
    """Return the values that a schema names, with their titles, by the text that stands for them in a form."""
    if schema.get("type") == "boolean":
        return {"true": (True, None), "false": (False, None)}
    titles = schema.get("enumNames") or ()
    found = [(value, titles[at] if at < len(titles) else None) for at, value in enumerate(schema.get("enum", ()))]
    for part in schema.get("oneOf", schema.get("anyOf", ())):
        if isinstance(part, Mapping) and "const" in part:
            found.append((part["const"], part.get("title")))
    return {value if isinstance(value, str) else json.dumps(value): (value, title) for value, title in found}


def _shown(field: forms.Field, value: Any) -> Any:
    """Return a JSON value as the field has it."""
    match field:
        case Lines() if isinstance(value, list):
            return "\n".join(item if isinstance(item, str) else json.dumps(item) for item in value)
        case SeveralChosen() if isinstance(value, list):
            return [item if isinstance(item, str) else json.dumps(item) for item in value]
        case Chosen() | JSONText():
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value

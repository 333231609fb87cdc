"""Answers to Django forms that a client's user was asked to fill in: the form validates them itself."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from django.utils.dateparse import parse_date

from .problems import Invalid
from .types import PARSED


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

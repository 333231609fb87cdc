"""Django forms filled from JSON: the admin's own form gets what its page would post, and says what is wrong.

Fields that the caller does not name keep their values exactly: they are not posted and parsed again, which would cost
the microseconds of a time or the blanks around a text, and would refuse a relation that this caller may not choose.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from django.core.exceptions import NON_FIELD_ERRORS, FieldDoesNotExist, ValidationError
from django.db.models import Model
from django.forms import (
    BaseForm,
    BooleanField,
    CharField,
    ChoiceField,
    DecimalField,
    Field,
    FileField,
    FloatField,
    JSONField,
    ModelChoiceField,
    ModelForm,
    ModelMultipleChoiceField,
    MultipleChoiceField,
    MultiValueField,
    SplitDateTimeField,
)
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.text import slugify

from ..context import MCPRequest
from ..exceptions import NotFound
from ..sensitive import HIDDEN, holds_hidden
from ..visibility import has_every_row
from .controls import Pair, posted
from .filevalues import BOMB, file_entries, is_bomb
from .inputs import json_or_text, pick_rows

__all__ = [
    "HIDDEN_ERROR",
    "compare_whole",
    "error_lines",
    "field_entries",
    "filled",
    "keep",
    "page_entries",
    "parse_truth",
    "prepopulated",
    "refuse",
    "writable_names",
]

MAX_CHOICES: Final = 20
# What is wrong with a field that the caller does not see is not told.
HIDDEN_ERROR: Final = "(another field): its value is missing or not valid, and you cannot set it here"
TRUTH: Final = {"true": True, "false": False, "1": True, "0": False, 1: True, 0: False}


def writable_names(form: BaseForm, visible: Collection[str]) -> list[str]:
    """Return the fields of the form that a caller who sees ``visible`` may set."""
    return [name for name, field in form.fields.items() if name in visible and not field.disabled]


def field_entries(
    request: MCPRequest, field: Field, html_name: str, value: Any, kept: Sequence[Any] = ()
) -> list[Pair]:
    """Return what a browser posts when a person enters ``value``, which is JSON, in the field, and leaves ``kept``.

    Raises:
        ValidationError: the JSON is of a type that the field does not take, or a row that the caller may not see.
    """
    if isinstance(field, FileField):
        return file_entries(request, field, html_name, value)
    value = _incoming(request, field, value)
    if kept:
        value = [*(value or ()), *kept]
    if isinstance(value, list) and hasattr(field, "base_field") and _is_written_as_text(field, value):
        # The field takes the list too, and its text would lose which comma is one of an item.
        return [(html_name, value)]
    return posted(field.widget, html_name, field.prepare_value(value))


def _incoming(request: MCPRequest, field: Field, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(field, JSONField):
        given = json_or_text(value)
        if holds_hidden(given):
            raise ValidationError(f"{HIDDEN} stands for a secret that was not shown: this value cannot be written.")
        return given
    if isinstance(field, BooleanField):
        return parse_truth(value)
    if isinstance(field, (ModelChoiceField, ModelMultipleChoiceField)):
        return _keys(request, field, value)
    if isinstance(field, (ChoiceField, MultipleChoiceField)):
        return _chosen(field, value)
    if hasattr(field, "base_field"):
        value = json_or_text(value)
        _check_items(field, value)
    if _is_written_as_text(field, value):
        return value
    takes_list = isinstance(field, MultiValueField) or hasattr(field, "base_field")
    value = json_or_text(value) if takes_list else value
    if isinstance(value, dict) or (isinstance(value, list) and not takes_list):
        raise ValidationError("Give one value, not a list or an object.")
    if isinstance(field, MultiValueField) and isinstance(value, list) and len(value) != len(field.fields):
        raise ValidationError(f"Give a list of {len(field.fields)} values.")
    if isinstance(value, bool) and isinstance(field, CharField):
        raise ValidationError("Give a text.")
    if isinstance(field, SplitDateTimeField) and isinstance(value, str):
        return _split_datetime(value)
    return _localized(field, value)


def _chosen(field: Any, value: Any) -> Any:
    """Return the values that are chosen, each given by itself or by its label, of which the stored value counts."""
    many = isinstance(field, MultipleChoiceField)
    value = json_or_text(value) if many else value
    if many is not isinstance(value, list) or isinstance(value, dict):
        raise ValidationError("Give a list of values." if many else "Give one value, not a list or an object.")
    offered = list(_flat(field.choices))
    by_label = {str(label).lower(): stored for stored, label in reversed(offered)}
    stored = {str(stored) for stored, _ in offered}
    given = value if many else [value]
    found = [item if str(item) in stored else by_label.get(str(item).lower(), item) for item in given]
    return found if many else found[0]


def _check_items(field: Any, value: Any) -> None:
    """Pass if the items of an array are lists just where those are arrays themselves."""
    if isinstance(value, list):
        inner = hasattr(field.base_field, "base_field")
        if any(isinstance(item, dict) or (item is not None and isinstance(item, list) is not inner) for item in value):
            raise ValidationError("Give a list of lists." if inner else "Give a list of values, not of lists.")
        for item in value if inner else ():
            _check_items(field.base_field, item)


def _is_written_as_text(field: Field, value: Any) -> bool:
    """Return whether the field itself makes a text of an object or a list, as those of PostgreSQL do."""
    return isinstance(value, (dict, list)) and isinstance(field.prepare_value(value), str)


def parse_truth(value: Any) -> bool:
    """Return the truth value that JSON, or a text of it, stands for.

    Raises:
        ValidationError: it is something else.
    """
    key = value.lower() if isinstance(value, str) else value
    if not isinstance(key, (str, int)) or key not in TRUTH:
        raise ValidationError("Give true or false.")
    return TRUTH[key]


def _split_datetime(value: str) -> Any:
    """Return the two texts of a date and a time in the current time zone, with the microseconds."""
    try:
        moment = parse_datetime(value.strip())
    except ValueError:
        moment = None
    if moment is None:
        parts = value.split(None, 1)
        return parts if len(parts) == 2 else [value, value]
    if isinstance(moment, datetime) and timezone.is_aware(moment):
        moment = timezone.make_naive(moment)
    return [moment.date().isoformat(), moment.time().isoformat()]


def _localized(field: Field, value: Any) -> Any:
    # JSON has one way to write a number; a localised field reads the way of the language.
    if field.localize and isinstance(field, (DecimalField, FloatField)):
        try:
            return Decimal(str(value))
        except InvalidOperation:
            return value
    return value


def _keys(request: MCPRequest, field: Any, value: Any) -> Any:
    """Return the keys that the field takes for the primary keys that the caller gave."""
    value = json_or_text(value)
    many = isinstance(field, ModelMultipleChoiceField)
    if many and not isinstance(value, list):
        raise ValidationError("Give a list of primary keys.")
    given = [_bare_key(item) for item in (value if many else [value])]
    if any(isinstance(item, (bool, float, dict, list)) for item in given):
        raise ValidationError("Give a primary key, as a text or an integer.")
    exposure = request.mcp.site.exposures.get(field.queryset.model)
    if exposure is not None:
        try:
            rows = pick_rows(request, exposure, given)[1] if exposure.has_view_permission(request) else None
        except NotFound:
            rows = None
        if rows is None:
            raise ValidationError(f"No {exposure.label} has this primary key.")
        given = [row.serializable_value(field.to_field_name or "pk") for row in rows]
    return given if many else given[0]


def _bare_key(item: Any) -> Any:
    """Return the key of a relation as results show it: with its label."""
    item = json_or_text(item)
    if isinstance(item, dict):
        return item.get("pk", item)
    return item[0] if isinstance(item, list) and len(item) == 2 else item


def filled(
    draft: "ModelForm[Any]", obj: Model | None, mentioned: Collection[str], data: Any, files: Any
) -> "ModelForm[Any]":
    """Return the form that is posted with ``data``, not validated yet; ``obj`` keeps what is not mentioned."""
    form: ModelForm[Any] = type(draft)(data, files, instance=obj)
    compare_whole(form)
    if obj is not None:
        keep(form, obj, mentioned)
    return form


def compare_whole(form: BaseForm) -> None:
    """Let what is entered be compared with the whole of what is stored: it does not come from a widget."""
    for field in form.fields.values():
        field.widget.supports_microseconds = True


def page_entries(
    request: MCPRequest, draft: BaseForm, values: Mapping[str, Any]
) -> tuple[list[Pair], dict[str, ValidationError]]:
    """Return what a page with the unbound form posts when ``values`` are entered, and which of them cannot be.

    ``values`` are JSON by field name, all of them names of its fields. Other fields post what the page shows.
    """
    data: list[Pair] = []
    wrong: dict[str, ValidationError] = {}
    for name, field in draft.fields.items():
        initial = draft.get_initial_for_field(field, name)
        entries = posted(field.widget, draft.add_prefix(name), field.prepare_value(initial))
        if name in values:
            try:
                kept = _unseen(request, field, initial) if getattr(draft, "instance", None) else ()
                entries = field_entries(request, field, draft.add_prefix(name), values[name], kept)
            except ValidationError as error:
                wrong[name] = error
        if field.show_hidden_initial:
            entries += posted(field.hidden_widget(), draft.add_initial_prefix(name), field.prepare_value(initial))
        data += entries
    return data, wrong


def _unseen(request: MCPRequest, field: Field, linked: Any) -> list[Any]:
    """Return the keys of linked rows that the caller may not see, and so cannot have meant to unlink."""
    if not isinstance(field, ModelMultipleChoiceField) or not linked:
        return []
    offered: Any = field.queryset
    exposure = request.mcp.site.exposures.get(offered.model)
    if exposure is None or has_every_row(exposure):
        return []
    key = field.to_field_name or "pk"
    rows = offered.filter(**{f"{key}__in": field.prepare_value(linked)})
    visible = exposure.get_queryset(request).order_by().values("pk")
    return list(rows.exclude(pk__in=visible).values_list(key, flat=True))


def prepopulated(
    sources: Mapping[str, Iterable[str]], form: BaseForm, values: Mapping[str, Any], writable: Collection[str]
) -> dict[str, str]:
    """Return the slugs that the script of the admin's add page would fill in, by ``prepopulated_fields``."""
    found = {}
    for name, fields in sources.items():
        text = " ".join(str(values[field]) for field in fields if values.get(field))
        if text and name in writable and name not in values:
            found[name] = slugify(text)[: getattr(form.fields[name], "max_length", None)]
    return found


def refuse(form: BaseForm, wrong: Mapping[str, ValidationError]) -> None:
    """Let each of these be the one error of its field, on a form that was validated."""
    for name, refused in wrong.items():
        form.errors.pop(name, None)
        form.add_error(name, refused)


def keep(form: BaseForm, obj: Model, mentioned: Collection[str]) -> None:
    """Let every field of the model that is not mentioned come out of validation as ``obj`` has it."""
    for name, field in form.fields.items():
        if name not in mentioned and _is_stored(obj, name):
            field.disabled = True
            field.clean = _constant(_current(obj, name))  # type: ignore[method-assign]
            # The form field of JSON compares what it shows even where it is disabled.
            field.has_changed = _constant(False)  # type: ignore[method-assign]


def _is_stored(obj: Model, name: str) -> bool:
    try:
        return not obj._meta.get_field(name).auto_created
    except FieldDoesNotExist:
        return False


def _current(obj: Model, name: str) -> Any:
    value = getattr(obj, name)
    return list(value.all()) if obj._meta.get_field(name).many_to_many else value


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def error_lines(
    form: BaseForm, writable: Collection[str], explain: Callable[[BaseForm, ValidationError], str] | None = None
) -> list[str]:
    """Return what is wrong, a line for each error: ``field: message (valid: …)``; ``explain`` may add to a line."""
    lines: list[str] = []
    for name, errors in form.errors.as_data().items():
        for error in errors:
            text = BOMB if is_bomb(error) else " ".join(str(message) for message in error.messages)
            if explain is not None and (name == NON_FIELD_ERRORS or name in writable):
                text += explain(form, error)
            if name == NON_FIELD_ERRORS:
                lines.append(f"(row): {text}")
            elif name in writable:
                lines.append(f"{name}: {text}{_valid(form.fields[name], error)}")
            else:
                lines.append(HIDDEN_ERROR)
    return list(dict.fromkeys(lines))


def _valid(field: Any, error: ValidationError) -> str:
    if isinstance(field, (ModelChoiceField, ModelMultipleChoiceField)) or not isinstance(field, ChoiceField):
        return ""
    if error.code not in ("invalid_choice", "required"):
        return ""
    offered: Any = field.choices
    choices = [str(value) for value, _ in _flat(offered) if value not in (None, "")]
    more = ", …" if len(choices) > MAX_CHOICES else ""
    return f" (valid: {', '.join(choices[:MAX_CHOICES])}{more})"


def _flat(choices: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    """Yield values and labels, those of groups too."""
    for value, label in choices:
        if isinstance(label, (list, tuple)):
            yield from _flat(label)
        else:
            yield value, label

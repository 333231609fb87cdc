"""Django forms filled from JSON: the admin's own form gets what its page would post, and says what is wrong.

Fields that the caller does not name keep their values exactly: they are not posted and parsed again, which would cost
the microseconds of a time or the blanks around a text, and would refuse a relation that this caller may not choose.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

from django.core.exceptions import NON_FIELD_ERRORS, FieldDoesNotExist, ObjectDoesNotExist, ValidationError
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
    ModelMultipleChoiceField,
    MultipleChoiceField,
    MultiValueField,
    SplitDateTimeField,
    Widget,
)
from django.forms.models import BaseModelForm
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.text import slugify

from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound, ToolError
from ..orm.geometries import geometry_text
from ..orm.inputs import pick_rows
from ..orm.instances import load_related
from ..orm.keys import named_rows
from ..orm.kinds import choice_of
from ..orm.unreadable import VALUE_ERRORS
from ..orm.wording import json_or_text
from ..schema.forms import is_geometry
from ..sensitive import HIDDEN, holds_hidden
from .files import BOMB, file_entries, is_bomb
from .html import Pair, posted

MAX_CHOICES: Final = 20
# Choices made of rows that a caller is told.
MAX_ROW_CHOICES: Final = 200
FROM: Final = re.compile(r"\bFROM\s+[\"`\[]?(\w+)")
# What is wrong with a field that the caller does not see is not told.
NOT_SHOWN: Final = f"{HIDDEN} stands for a secret that was not shown: this value cannot be written."
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
    return entered(field, html_name, incoming(request, field, value, kept))


def entered(field: Field, html_name: str, value: Any) -> list[Pair]:
    """Return what a browser posts when ``value``, as :func:`incoming` gives it, is entered in the field."""
    if isinstance(value, list) and hasattr(field, "base_field") and _is_written_as_text(field, value):
        # The field takes the list too, and its text would lose which comma is one of an item.
        return [(html_name, value)]
    shown = field.prepare_value(value)
    # A script may make the control that has the value.
    return posted(field.widget, html_name, shown) or ([(html_name, shown)] if shown and value is not False else [])


def incoming(request: MCPRequest, field: Field, value: Any, kept: Sequence[Any] = ()) -> Any:
    """Return the Python value that a field which takes no file shows for the JSON ``value``, beside ``kept``.

    Raises:
        ValidationError: see :func:`field_entries`.
    """
    value = _incoming(request, field, value)
    return [*(value or ()), *kept] if kept else value


def _incoming(request: MCPRequest, field: Field, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str) and HIDDEN in value:
        raise ValidationError(NOT_SHOWN)
    if isinstance(field, JSONField):
        given = json_or_text(value)
        if holds_hidden(given):
            raise ValidationError(NOT_SHOWN)
        return given
    if isinstance(field, BooleanField):
        return parse_truth(value)
    if isinstance(field, (ModelChoiceField, ModelMultipleChoiceField)):
        return _keys(request, field, value)
    if isinstance(field, (ChoiceField, MultipleChoiceField)):
        return _chosen(field, value)
    if is_geometry(field):
        return geometry_text(field, value)
    if hasattr(field, "base_field"):
        value = json_or_text(value)
        _check_items(field, value)
    if _is_written_as_text(field, value):
        return value
    if any(base.__name__ == "HStoreField" for base in type(field).__mro__):
        # It reads a text as JSON itself, without a bound.
        json_or_text(value)
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
    stored = {str(stored) for stored, _ in offered}
    given = value if many else [value]
    found = [item if str(item) in stored else _meant(offered, item) for item in given]
    return found if many else found[0]


def _meant(offered: Sequence[tuple[Any, Any]], value: Any) -> Any:
    """Return the stored value of the choice that a label means, the value itself where it means none, or several."""
    found = choice_of(offered, value)
    return value if found is None else found


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
    given = [bare_key(item) for item in (value if many else [value])]
    if any(isinstance(item, (bool, float, dict, list)) for item in given):
        raise ValidationError("Give a primary key, as a text or an integer.")
    exposure = request.mcp.site.exposures.get(field.queryset.model)
    if exposure is not None:
        rows = linked_rows(request, exposure, given)
        given = [row.serializable_value(field.to_field_name or "pk") for row in rows]
    elif field.to_field_name:
        rows = field.queryset.filter(pk__in=[key for key in given if _is_key(field.queryset.model, key)])
        found = {str(row.pk): row.serializable_value(field.to_field_name) for row in rows}
        given = [found.get(str(key), key) for key in given]
    return given if many else given[0]


def linked_rows(request: MCPRequest, exposure: Exposure, given: Sequence[Any]) -> list[Model]:
    """Return the rows that a relation is to lead to, named by primary keys, unique fields or labels.

    Raises:
        ValidationError: one of them is none that the caller may see, or is not named clearly.
    """
    missing = f"No {exposure.label} has this primary key."
    if not exposure.has_view_permission(request):
        raise ValidationError(missing)
    try:
        return pick_rows(request, exposure, given)[1]
    except NotFound:
        pass
    try:
        return named_rows(request, exposure, given, missing)
    except ToolError as error:
        raise ValidationError(error.message) from None


def _is_key(model: type[Model], key: Any) -> bool:
    try:
        return model._meta.pk.get_prep_value(key) is not None
    except VALUE_ERRORS:
        return False


def bare_key(item: Any) -> Any:
    """Return the key of a relation as results show it: with its label."""
    item = json_or_text(item)
    if isinstance(item, dict):
        return item.get("pk", item)
    return item[0] if isinstance(item, list) and len(item) == 2 else item


def compare_whole(form: BaseForm) -> None:
    """Let what is entered be compared with the whole of what is stored: it does not come from a widget.

    A hidden field with the initial value, as callable defaults have it, would lack the microseconds.
    """
    row: Any = getattr(form, "instance", None)
    exists = row is not None and not row._state.adding
    for field in form.fields.values():
        field.widget.supports_microseconds = True
        if exists:
            field.show_hidden_initial = False


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


class Given(Widget):
    """Stands in for a widget whose value is known: what a page posts has no part in it."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        """Return the value."""
        return self.value

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return that there is a value."""
        return False


def keep(form: BaseForm, obj: Model, mentioned: Collection[str]) -> None:
    """Let every field of the model that is not mentioned come out of validation as ``obj`` has it.

    Its widget and its value are not asked whether they fit: a row can be older than the rules for it.
    """
    kept: dict[str, Any] = {}
    for name, field in form.fields.items():
        if name not in mentioned and _is_stored(obj, name):
            kept[name] = value = _current(obj, name)
            field.disabled = True
            field.widget = Given(value)
            field.show_hidden_initial = False
            field.clean = _constant(value)  # type: ignore[method-assign]
            # The form field of JSON compares what it shows even where it is disabled.
            field.has_changed = _constant(False)  # type: ignore[method-assign]
    if isinstance(form, BaseModelForm):
        bound: Any = form
        bound._post_clean = partial(_post_clean, form, bound._post_clean, kept)


def _post_clean(form: Any, post_clean: Callable[[], None], kept: Mapping[str, Any]) -> None:
    """Validate the row of the form but for the values that it keeps; what they make together is validated."""
    row = form.instance
    # A key whose row is gone cannot be set as a row.
    dangling = [name for name in kept if name in form.cleaned_data and _dangles(row, name)]
    for name in dangling:
        del form.cleaned_data[name]
    clean_fields = row.clean_fields
    row.clean_fields = lambda exclude=None: clean_fields(exclude={*(exclude or ()), *kept})
    try:
        post_clean()
    finally:
        del row.clean_fields
        form.cleaned_data.update(dict.fromkeys(dangling))


def _is_stored(obj: Model, name: str) -> bool:
    try:
        return not obj._meta.get_field(name).auto_created
    except FieldDoesNotExist:
        return False


def _current(obj: Model, name: str) -> Any:
    if _dangles(obj, name):
        return None
    value = getattr(obj, name)
    return list(value.all()) if obj._meta.get_field(name).many_to_many else value


def _dangles(obj: Model, name: str) -> bool:
    """Return whether the field is a foreign key to a row that does not exist."""
    field: Any = obj._meta.get_field(name)
    if not (field.many_to_one or field.one_to_one) or not field.concrete or getattr(obj, field.attname) is None:
        return False
    try:
        load_related(obj, field)
        return getattr(obj, name) is None
    except (ObjectDoesNotExist, *VALUE_ERRORS):
        return True


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


def changing_choices(form: BaseForm) -> Iterator[tuple[str, Any]]:
    """Yield the fields whose choices are not those that the class declares: they may be made of rows."""
    declared: Mapping[str, Field] = getattr(form, "base_fields", {})
    for name, field in form.fields.items():
        if isinstance(field, ChoiceField) and not isinstance(field, ModelChoiceField):
            own: Any = getattr(declared.get(name), "choices", None)
            if not isinstance(own, list) or field.choices != own:
                yield name, field


def visible_choices(request: MCPRequest, choices: Iterable[Any], queries: Iterable[str]) -> list[tuple[Any, Any]]:
    """Return the choices that are keys of rows that the caller may see, in every table that the ``queries`` read."""
    offered = [(value, label) for value, label in _flat(choices) if value not in (None, "")][:MAX_ROW_CHOICES]
    tables = {match.group(1) for sql in queries if (match := FROM.search(sql))}
    exposures = {exposure.opts.db_table: exposure for exposure in request.mcp.site.exposures.values()}
    for table in tables:
        exposure = exposures.get(table)
        seen = _seen_keys(request, exposure, [value for value, _ in offered]) if exposure is not None else frozenset()
        offered = [(value, label) for value, label in offered if str(value) in seen]
    return offered if tables else []


def _seen_keys(request: MCPRequest, exposure: Exposure, values: Iterable[Any]) -> Collection[str]:
    keys = []
    for value in values:
        with suppress(ValidationError, ValueError, TypeError):
            keys.append(exposure.opts.pk.to_python(value))
    if not exposure.has_view_permission(request):
        return frozenset()
    rows = exposure.get_queryset(request).filter(pk__in=keys)
    return {str(row.pk) for row in rows if exposure.has_view_permission(request, row)}

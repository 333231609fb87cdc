"""Django forms filled from JSON: the admin's own form gets what its page would post.

Fields that the caller does not name keep their values exactly. Posting and parsing them again would lose microseconds
and the blanks around a text, and would refuse a related row that this caller cannot choose.

Some widgets only take an object of their field's own class, or are built by a script in the browser. Then the model
field converts the value, and the form gets the result directly.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

import orjson
from django import forms
from django.conf import settings
from django.core.exceptions import FieldDoesNotExist, ObjectDoesNotExist, ValidationError
from django.db import models
from django.db.models import Model
from django.forms.models import BaseModelForm
from django.forms.utils import from_current_timezone
from django.utils import timezone
from django.utils.choices import flatten_choices
from django.utils.dateparse import parse_datetime
from django.utils.text import slugify

from ..context.request import MCPRequest
from ..exceptions import NotFound, ToolError
from ..exposures.model_exposure import is_djangos
from ..orm.access import ModelAccess, access_of
from ..orm.alternative_spellings import json_or_text
from ..orm.compiled_queries import load_related
from ..orm.labels import is_key
from ..orm.row_finder import RowFinder
from ..orm.undecodable_values import VALUE_ERRORS
from ..schema.form_schemas import FormField
from ..schema.secrets import HIDDEN, holds_hidden
from ..schema.value_types import choice_of
from .geometries import geometry_text
from .html_forms import Pair, Unfit, entered, first_choice, is_written_as_text, posted, shown_entries
from .uploaded_files import file_entries

# Maximum number of choices made of rows that a caller sees.
MAX_ROW_CHOICES: Final = 200
# Maximum number of choices in one text.
MAX_NAMED: Final = 30
FROM: Final = re.compile(r"\bFROM\s+[\"`\[]?(\w+)")
NOT_SHOWN: Final = f"{HIDDEN} stands for a secret that was not shown: this value cannot be written."
# Django's ContentType: callers can name the model, because nobody knows the key of its row.
CONTENT_TYPE: Final = "contenttypes.contenttype"
UNREADABLE: Final = "This is not how to write a value of this field."
TRUTH: Final = {"true": True, "false": False, "1": True, "0": False, 1: True, 0: False}


class FilledForm:
    """Fills in a Django form with a caller's values, as a browser would post the form.

    ``values`` are JSON values by name of a form field. ``data`` is what the browser posts, with the shown values of all
    other fields. ``wrong`` has the errors of values, ``exact`` the Python values that no control can hold.
    """

    def __init__(self, request: MCPRequest, draft: forms.BaseForm, values: Mapping[str, Any]) -> None:
        self.request = request
        self.draft = draft
        self.values = values
        self.data: list[Pair] = []
        self.wrong: dict[str, ValidationError] = {}
        self.exact: dict[str, Any] = {}
        for name, item in draft.fields.items():
            initial = draft.get_initial_for_field(item, name)
            html_name = draft.add_prefix(name)
            try:
                if name in values:
                    self.data += self._entered(name, item, initial, values[name])
                else:
                    entries = shown_entries(item, html_name, initial)
                    if entries == [(html_name, "")]:
                        # A browser posts the first option of a select that has no blank one.
                        self.data += first_choice(item.widget, html_name) or entries
                    else:
                        self.data += entries
                if item.show_hidden_initial:
                    hidden = draft.add_initial_prefix(name)
                    self.data += posted(item.hidden_widget(), hidden, item.prepare_value(initial))
            except ValidationError as error:
                self.wrong[name] = error
                self.exact[name] = initial
            except Unfit:
                self.exact[name] = initial

    def _entered(self, name: str, item: Any, initial: Any, value: Any) -> list[Pair]:
        html_name = self.draft.add_prefix(name)
        if isinstance(item, forms.FileField):
            return file_entries(self.request, item, html_name, value)
        if (moment := _unspeakable(item, value)) is not None:
            self.exact[name] = moment
            return []
        # The model field behind the form field, if there is one.
        owner: Any = None
        with suppress(AttributeError, FieldDoesNotExist):
            owner = self.draft._meta.model._meta.get_field(name)  # type: ignore[attr-defined]
        if isinstance(value, list) and isinstance(item, forms.CharField) and not isinstance(item, forms.JSONField):
            value = _listed(owner, value)
        elif isinstance(item, forms.MultiValueField) and isinstance(owner, models.DecimalField) and _is_number(value):
            # The caller gives only an amount: its currency is the one that the page shows.
            _amount, *rest = item.widget.decompress(initial)
            shown = zip(item.widget.widgets[1:], rest, strict=False)
            value = [value, *(_shown_part(widget, part) for widget, part in shown)]
        given = incoming(self.request, item, value)
        if getattr(self.draft, "instance", None) and (unseen := self._unseen(item, initial)):
            given = [*(given or ()), *unseen]
        try:
            return shown_entries(item, html_name, given)
        except Unfit:
            made = readable(owner or item, "to_python")(
                orjson.dumps(value).decode() if isinstance(value, (dict, list)) else value
            )
        try:
            return shown_entries(item, html_name, made)
        except Unfit:
            self.exact[name] = made
            return []

    def _unseen(self, item: forms.Field, linked: Any) -> list[Any]:
        """Return linked rows hidden from the caller, who cannot have meant to unlink them by filling in the form."""
        if not isinstance(item, forms.ModelMultipleChoiceField) or not linked:
            return []
        offered: Any = item.queryset
        exposure = self.request.mcp.site.exposures.get(offered.model)
        if exposure is None or exposure.options.has_every_row:
            return []
        key = item.to_field_name or "pk"
        rows = offered.filter(**{f"{key}__in": item.prepare_value(linked)})
        visible = exposure.get_queryset(self.request).order_by().values("pk")
        return list(rows.exclude(pk__in=visible).values_list(key, flat=True))

    def bind(self, obj: Model | None, data: Any, files: Any) -> "forms.ModelForm[Any]":
        """Return the filled form, bound to the posted ``data`` and not yet validated; the row keeps other fields."""
        kind: Any = type(self.draft)
        form: Any = self.draft
        if obj is not None and form.instance is obj and is_djangos(kind.__init__):
            # Only a constructor of the project could tell this form from one that is made with the data.
            form.data = data
            form.files = files
            form.is_bound = True
        else:
            form = kind(data, files, instance=obj)
        self.impose(form)
        if obj is not None:
            keep(form, obj, self.values)
        bound: forms.ModelForm[Any] = form
        return bound

    def impose(self, form: forms.BaseForm) -> None:
        """Prepare the filled form for values that no widget could post; the form is not yet validated.

        Values are compared with the stored ones in full: the hidden initial value of a callable default would lack the
        microseconds. The fields in ``exact`` get their Python values.
        """
        row: Any = getattr(form, "instance", None)
        exists = row is not None and not row._state.adding
        for item in form.fields.values():
            item.widget.supports_microseconds = True
            if exists:
                item.show_hidden_initial = False
        for name, value in self.exact.items():
            item = form.fields[name]
            # A datetime needs no parsing, only validation.
            clean = partial(_validated, item) if isinstance(value, datetime) else readable(item, "clean")
            item.widget = Given(value)
            item.show_hidden_initial = False
            item.clean = clean  # type: ignore[method-assign]
            item.has_changed = lambda initial, data: initial != data  # type: ignore[method-assign]

    def refuse(self, form: forms.BaseForm) -> None:
        """Let the filled form show the errors of the caller's values, as the only errors of their fields."""
        for name, error in self.wrong.items():
            form.errors.pop(name, None)
            form.add_error(name, error)


def readable(owner: Any, method: str) -> Callable[..., Any]:
    """Wrap a field's method for filling in a form: each of its failures becomes a ``ValidationError``."""
    read = getattr(owner, method)

    def guarded(*value: Any) -> Any:
        try:
            return read(*value)
        except ValidationError:
            raise
        except Exception:
            raise ValidationError(UNREADABLE, "invalid") from None

    return guarded


def _validated(item: forms.Field, moment: datetime) -> datetime:
    item.validate(moment)
    item.run_validators(moment)
    return moment


def _shown_part(widget: forms.Widget, part: Any) -> str:
    """Return what a part of a form field's widget shows, such as a currency: without a value, its first choice."""
    if part not in (None, ""):
        return str(part)
    return next((value for _, value in first_choice(widget, "")), "")


def _listed(owner: Any, value: list[Any]) -> Any:
    """Return a list filled in for one form field as the text that the field reads: tags, or e-mail addresses."""
    items = [item[1] if isinstance(item, list) and len(item) == 2 else item for item in value]
    if not all(isinstance(item, str) and '"' not in item for item in items):
        return value
    if getattr(owner, "many_to_many", False):
        return ", ".join(f'"{item}"' for item in items)
    if hasattr(owner, "from_db_value") and not any("," in item for item in items):
        return ", ".join(items)
    return value


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (bool, list, dict)) and Decimal(str(value)).is_finite()
    except InvalidOperation:
        return False


def _unspeakable(item: forms.Field, value: Any) -> datetime | None:
    """Return a moment that cannot be filled in a form as text in its time zone: in an hour when clocks are put back."""
    is_moment = isinstance(item, (forms.DateTimeField, forms.SplitDateTimeField))
    if not settings.USE_TZ or not is_moment or not isinstance(value, str):
        return None
    try:
        moment = parse_datetime(value.strip())
        if moment is None or timezone.is_naive(moment) or _is_speakable(moment):
            return None
    except (ValueError, OverflowError):
        return None
    return moment


def _is_speakable(moment: datetime) -> bool:
    """Return whether the text of a moment in its time zone means this moment alone."""
    try:
        return from_current_timezone(timezone.make_naive(moment)) == moment
    except ValidationError:
        return False


# One value


def field_entries(request: MCPRequest, field: forms.Field, html_name: str, value: Any) -> list[Pair]:
    """Fill in one form field: return the entries of a browser where a person enters the JSON ``value``."""
    if isinstance(field, forms.FileField):
        return file_entries(request, field, html_name, value)
    return entered(field, html_name, incoming(request, field, value))


def incoming(request: MCPRequest, field: forms.Field, value: Any) -> Any:
    """Return the Python value with which a form field is filled in for the JSON ``value``."""
    if value is None:
        return None
    if isinstance(value, str) and HIDDEN in value:
        raise ValidationError(NOT_SHOWN)
    if isinstance(field, forms.JSONField):
        given = json_or_text(value)
        if holds_hidden(given):
            raise ValidationError(NOT_SHOWN)
        return given
    if isinstance(field, forms.BooleanField):
        return parse_truth(value)
    if isinstance(field, (forms.ModelChoiceField, forms.ModelMultipleChoiceField)):
        return _keys(request, field, value)
    if isinstance(field, (forms.ChoiceField, forms.MultipleChoiceField)):
        return _chosen(field, value)
    if FormField(field).is_geometry:
        return geometry_text(field, value)
    takes_list = isinstance(field, forms.MultiValueField) or hasattr(field, "base_field")
    if hasattr(field, "base_field"):
        value = json_or_text(value)
        _check_items(field, value)
    if is_written_as_text(field, value):
        return value
    if any(base.__name__ == "HStoreField" for base in type(field).__mro__):
        # The field parses a text as JSON without limits, so check the limits here.
        json_or_text(value)
    value = json_or_text(value) if takes_list else value
    if isinstance(value, dict) or (isinstance(value, list) and not takes_list):
        raise ValidationError("Give one value, not a list or an object.")
    if isinstance(field, forms.MultiValueField) and isinstance(value, list) and len(value) != len(field.fields):
        raise ValidationError(f"Give a list of {len(field.fields)} values.")
    if isinstance(value, bool) and isinstance(field, forms.CharField):
        raise ValidationError("Give a text.")
    if isinstance(field, forms.SplitDateTimeField) and isinstance(value, str):
        return _split_datetime(value)
    if field.localize and isinstance(field, (forms.DecimalField, forms.FloatField)):
        # A localised field reads numbers in the format of the language: let its widget format a Decimal.
        with suppress(InvalidOperation):
            return Decimal(str(value))
    return value


def _chosen(field: Any, value: Any) -> Any:
    """Return the choices with which a form field is filled in, each given by its value or its label."""
    many = isinstance(field, forms.MultipleChoiceField)
    value = json_or_text(value) if many else value
    if many and isinstance(value, str):
        value = _choices_in(list(flatten_choices(field.choices)), value) or value
    if many is not isinstance(value, list) or isinstance(value, dict):
        raise ValidationError("Give a list of values." if many else "Give one value, not a list or an object.")
    offered: list[tuple[Any, Any]] = list(flatten_choices(field.choices))
    stored = {str(stored) for stored, _ in offered}
    chosen = []
    for item in value if many else [value]:
        meant = item if str(item) in stored else choice_of(offered, item)
        chosen.append(item if meant is None else meant)
    return chosen if many else chosen[0]


def _choices_in(offered: Sequence[tuple[Any, Any]], text: str) -> list[Any]:
    """Return the choices that a form field's value names in one text, as results show them: "Belgium, France". A label
    can have commas of its own, so the longest that fits is taken. Return none if any part is no choice."""
    known = {str(label).lower(): value for value, label in offered} | {
        str(value).lower(): value for value, _ in offered
    }
    parts = text.lower().split(",")
    chosen = list[Any]()
    start = 0
    if len(parts) > MAX_NAMED:
        return []
    while start < len(parts):
        ends = range(len(parts), start, -1)
        end = next((end for end in ends if ",".join(parts[start:end]).strip() in known), None)
        if end is None:
            return []
        chosen.append(known[",".join(parts[start:end]).strip()])
        start = end
    return chosen


def _check_items(field: Any, value: Any) -> None:
    """Check that the items filled in for an array's form field are lists just where arrays are nested."""
    if isinstance(value, list):
        inner = hasattr(field.base_field, "base_field")
        if any(isinstance(item, dict) or (item is not None and isinstance(item, list) is not inner) for item in value):
            raise ValidationError("Give a list of lists." if inner else "Give a list of values, not of lists.")
        for item in value if inner else ():
            _check_items(field.base_field, item)


def parse_truth(value: Any) -> bool:
    """Return the boolean that fills in a form's check box, for JSON or for a text of it."""
    key = value.lower() if isinstance(value, str) else value
    if not isinstance(key, (str, int)) or key not in TRUTH:
        raise ValidationError("Give true or false.")
    return TRUTH[key]


def _split_datetime(value: str) -> Any:
    """Split date and time into two texts that fill in a split form field, in the current time zone."""
    try:
        moment = parse_datetime(value.strip())
    except ValueError:
        moment = None
    if moment is None:
        parts = value.split(None, 1)
        return parts if len(parts) == 2 else [value, value]
    if timezone.is_aware(moment):
        moment = timezone.make_naive(moment)
    return [moment.date().isoformat(), moment.time().isoformat()]


def _keys(request: MCPRequest, field: Any, value: Any) -> Any:
    """Return the keys that fill in a relation's form field, for given primary keys."""
    value = json_or_text(value)
    many = isinstance(field, forms.ModelMultipleChoiceField)
    if many and not isinstance(value, list):
        raise ValidationError("Give a list of primary keys.")
    given = [bare_key(item) for item in (value if many else [value])]
    if any(isinstance(item, (bool, float, dict, list)) for item in given):
        raise ValidationError("Give a primary key, as a text or an integer.")
    exposure = request.mcp.site.exposures.get(field.queryset.model)
    if exposure is not None:
        rows = linked_rows(access_of(request)[exposure], given)
        given = [row.serializable_value(field.to_field_name or "pk") for row in rows]
    elif field.queryset.model._meta.label_lower == CONTENT_TYPE:
        try:
            named = {key: access_of(request).get_model(key).exposure.model for key in given if not str(key).isdigit()}
        except NotFound:
            raise ValidationError("Give a model as list_models names it, or its key.") from None
        types = field.queryset.model.objects
        given = [types.get_for_model(named[key]).pk if key in named else key for key in given]
    elif field.to_field_name:
        rows = field.queryset.filter(pk__in=[key for key in given if is_key(field.queryset.model._meta.pk, key)])
        keys = {str(row.pk): row.serializable_value(field.to_field_name) for row in rows}
        given = [keys.get(str(key), key) for key in given]
    return given if many else given[0]


def linked_rows(model: ModelAccess, given: Sequence[Any]) -> list[Model]:
    """Return the rows that fill in a relation's form field, given by primary keys, unique values or labels."""
    exposure = model.exposure
    missing = f"No {exposure.label} has this primary key."
    if not model.may("view"):
        raise ValidationError(missing)
    try:
        return RowFinder(model).pick(given)[1]
    except NotFound:
        pass
    try:
        return RowFinder(model).rows(given, missing)
    except ToolError as error:
        raise ValidationError(error.message) from None


def bare_key(item: Any) -> Any:
    """Return the key that fills in a relation's form field, where a caller gives key and label as in results."""
    item = json_or_text(item)
    if isinstance(item, dict):
        return item.get("pk", item)
    if isinstance(item, list) and len(item) == 2:
        return item[0]
    return item


# Fields that keep their values


class Given(forms.Widget):
    """Replaces the widget of a filled form field whose value is known, so that nothing posted changes the value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        """Return the value."""
        return self.value

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return that there is a value."""
        return False


def keep(form: forms.BaseForm, obj: Model, mentioned: Collection[str]) -> None:
    """Let a filled form keep the row's value of every field that the caller did not fill in. These values are not
    validated, because a row can be older than its validation rules."""
    kept: dict[str, Any] = {}
    dangling: list[str] = []
    for name, item in form.fields.items():
        try:
            column: Any = obj._meta.get_field(name)
        except FieldDoesNotExist:
            continue
        if name in mentioned or column.auto_created:
            continue
        value = None
        if _dangles(obj, column):
            dangling.append(name)
        else:
            value = getattr(obj, name)
            value = list(value.all()) if column.many_to_many else value
        kept[name] = value
        item.disabled = True
        item.widget = Given(value)
        item.show_hidden_initial = False
        item.clean = _constant(value)  # type: ignore[method-assign]
        # JSONField.has_changed() ignores that the field is disabled.
        item.has_changed = _constant(False)  # type: ignore[method-assign]
    if isinstance(form, BaseModelForm):
        bound: Any = form
        bound._post_clean = partial(_post_clean, form, bound._post_clean, kept, dangling)


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _post_clean(form: Any, post_clean: Callable[[], None], kept: Mapping[str, Any], dangling: Iterable[str]) -> None:
    """Let a filled form validate its row, without the fields that keep their values."""
    row = form.instance
    # A foreign key to a deleted row cannot be assigned as an instance.
    missing = [name for name in dangling if name in form.cleaned_data]
    for name in missing:
        del form.cleaned_data[name]
    clean_fields = row.clean_fields
    row.clean_fields = lambda exclude=None: clean_fields(exclude={*(exclude or ()), *kept})
    try:
        post_clean()
    finally:
        del row.clean_fields
        form.cleaned_data.update(dict.fromkeys(missing))


def _dangles(obj: Model, field: Any) -> bool:
    if not (field.many_to_one or field.one_to_one) or not field.concrete or getattr(obj, field.attname) is None:
        return False
    try:
        load_related(obj, field)
        return getattr(obj, field.name) is None
    except (ObjectDoesNotExist, *VALUE_ERRORS):
        return True


# Choices


def writable_names(form: forms.BaseForm, visible: Collection[str]) -> list[str]:
    """Return the form fields that a caller who sees ``visible`` can fill in."""
    return [name for name, field in form.fields.items() if name in visible and not field.disabled]


def prepopulated(
    sources: Mapping[str, Iterable[str]], form: forms.BaseForm, values: Mapping[str, Any], writable: Collection[str]
) -> dict[str, str]:
    """Fill in the slugs of an add form as the page's script would, by ``prepopulated_fields``; return them."""
    slugs = {}
    for name, fields in sources.items():
        text = " ".join(str(values[field]) for field in fields if values.get(field))
        if text and name in writable and name not in values:
            slugs[name] = slugify(text)[: getattr(form.fields[name], "max_length", None)]
    return slugs


def changing_choices(form: forms.BaseForm) -> Iterator[tuple[str, Any]]:
    """Yield the fields to fill in of a form whose class does not declare their choices: they may be made of rows."""
    declared: Mapping[str, forms.Field] = getattr(form, "base_fields", {})
    for name, field in form.fields.items():
        if isinstance(field, forms.ChoiceField) and not isinstance(field, forms.ModelChoiceField):
            own: Any = getattr(declared.get(name), "choices", None)
            if not isinstance(own, list) or field.choices != own:
                yield name, field


def visible_choices(request: MCPRequest, choices: Iterable[Any], queries: Iterable[str]) -> list[tuple[Any, Any]]:
    """Return the choices with which a caller can fill in a form field: keys of rows that the caller can see."""
    pairs: Iterable[tuple[Any, Any]] = flatten_choices(choices)
    offered = [(value, label) for value, label in pairs if value not in (None, "")][:MAX_ROW_CHOICES]
    tables = {match.group(1) for sql in queries if (match := FROM.search(sql))}
    exposures = {exposure.opts.db_table: exposure for exposure in request.mcp.site.exposures.values()}
    for table in tables:
        exposure = exposures.get(table)
        keys = []
        if exposure is None or not (model := access_of(request)[exposure]).may("view"):
            return []
        for value, _ in offered:
            with suppress(ValidationError, ValueError, TypeError):
                keys.append(exposure.opts.pk.to_python(value))
        rows = exposure.get_queryset(request).filter(pk__in=keys)
        seen = {str(row.pk) for row in rows if model.may_row("view", row)}
        offered = [(value, label) for value, label in offered if str(value) in seen]
    return offered if tables else []

"""A form of a page, filled in by a caller: what the browser posts, and what no control of the page could hold.

A widget may take nothing but an object of its field's own class, or be built by a script in the browser. Then the value
is made by the model's field, and reaches the form as it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

import orjson
from django.conf import settings
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import DecimalField, Model
from django.forms import (
    BaseForm,
    BaseFormSet,
    CharField,
    DateTimeField,
    Field,
    FileField,
    JSONField,
    ModelForm,
    ModelMultipleChoiceField,
    MultiValueField,
    SplitDateTimeField,
)
from django.forms.utils import from_current_timezone
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from ..context.request import MCPRequest
from ..orm.access import has_every_row
from .filling import Given, compare_whole, entered, field_entries, incoming, keep
from .html import Pair, as_files, as_query, first_choice, posted

UNREADABLE: Final = "A value of this field is not written so."


@dataclass(slots=True)
class Entered:
    """What comes of filling in a form: what is posted, which values are wrong, and which no control could hold."""

    data: list[Pair] = field(default_factory=list)
    wrong: dict[str, ValidationError] = field(default_factory=dict)
    exact: dict[str, Any] = field(default_factory=dict)


class _Unfit(Exception):
    """The widget cannot show the value, or what it shows is not what it reads."""


def enter(request: MCPRequest, draft: BaseForm, values: Mapping[str, Any]) -> Entered:
    """Return what a page with the unbound form posts when ``values`` are entered.

    ``values`` are JSON by field name, all of them names of its fields. Other fields post what the page shows.
    """
    found = Entered()
    for name, item in draft.fields.items():
        initial = draft.get_initial_for_field(item, name)
        try:
            if name in values:
                found.data += _entries(request, draft, name, values[name], found.exact)
            else:
                found.data += _untouched(item, draft.add_prefix(name), initial)
            if item.show_hidden_initial:
                found.data += posted(item.hidden_widget(), draft.add_initial_prefix(name), item.prepare_value(initial))
        except ValidationError as error:
            found.wrong[name], found.exact[name] = error, initial
        except _Unfit:
            found.exact[name] = initial
    return found


def _entries(request: MCPRequest, draft: BaseForm, name: str, value: Any, exact: dict[str, Any]) -> list[Pair]:
    item, html_name = draft.fields[name], draft.add_prefix(name)
    if isinstance(item, FileField):
        return field_entries(request, item, html_name, value)
    moment = _unspeakable(item, value)
    if moment is not None:
        exact[name] = moment
        return []
    initial = draft.get_initial_for_field(item, name)
    if isinstance(value, list) and isinstance(item, CharField) and not isinstance(item, JSONField):
        value = _listed(draft, name, value)
    elif isinstance(item, MultiValueField) and isinstance(_owner(draft, name), DecimalField) and _is_number(value):
        # An amount alone: its currency stays.
        _amount, *rest = item.widget.decompress(initial)
        value = [value, *map(str, rest)]
    kept = _unseen(request, item, initial) if getattr(draft, "instance", None) else ()
    shown = incoming(request, item, value, kept)
    try:
        return _checked(item, html_name, shown)
    except _Unfit:
        made = _object(draft, name, value)
    try:
        return _checked(item, html_name, made)
    except _Unfit:
        exact[name] = made
        return []


def _owner(draft: Any, name: str) -> Any:
    """Return the field of the model that the form's field is of, None where there is none."""
    try:
        return draft._meta.model._meta.get_field(name)
    except (AttributeError, FieldDoesNotExist):
        return None


def _listed(draft: Any, name: str, value: list[Any]) -> Any:
    """Return the text for a field that reads several values of one text: tags, or e-mail addresses."""
    owner = _owner(draft, name)
    items = [item[1] if isinstance(item, list) and len(item) == 2 else item for item in value]
    if not all(isinstance(item, str) and '"' not in item for item in items):
        return value
    if getattr(owner, "many_to_many", False):
        return ", ".join(f'"{item}"' for item in items)
    return ", ".join(items) if hasattr(owner, "from_db_value") and not any("," in item for item in items) else value


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (bool, list, dict)) and Decimal(str(value)).is_finite()
    except InvalidOperation:
        return False


def _untouched(item: Field, html_name: str, value: Any) -> list[Pair]:
    entries = _checked(item, html_name, value)
    return (first_choice(item.widget, html_name) or entries) if entries == [(html_name, "")] else entries


def _checked(item: Field, html_name: str, value: Any) -> list[Pair]:
    """Return what the field posts when it shows ``value``.

    Raises:
        _Unfit: its widget cannot show that, or cannot read what it posts.
    """
    try:
        entries = entered(item, html_name, value)
        item.widget.value_from_datadict(as_query(entries), as_files(entries), html_name)
    except Exception as error:
        raise _Unfit from error
    return entries


def _object(draft: Any, name: str, value: Any) -> Any:
    """Return the object that the JSON value stands for by the model's field, or by the form's where there is none."""
    owner = _owner(draft, name) or draft.fields[name]
    try:
        return owner.to_python(orjson.dumps(value).decode() if isinstance(value, (dict, list)) else value)
    except ValidationError:
        raise
    except Exception:
        raise ValidationError(UNREADABLE) from None


def _unspeakable(item: Field, value: Any) -> datetime | None:
    """Return the moment if it is one that has no name of its own in the time zone: clocks are put back in that hour."""
    if not settings.USE_TZ or not isinstance(item, (DateTimeField, SplitDateTimeField)) or not isinstance(value, str):
        return None
    try:
        moment = parse_datetime(value.strip())
        if moment is None or timezone.is_naive(moment):
            return None
        return None if from_current_timezone(timezone.make_naive(moment)) == moment else moment
    except ValidationError:
        return moment
    except (ValueError, OverflowError):
        return None


def _unseen(request: MCPRequest, item: Field, linked: Any) -> list[Any]:
    """Return the keys of linked rows that the caller may not see, and so cannot have meant to unlink."""
    if not isinstance(item, ModelMultipleChoiceField) or not linked:
        return []
    offered: Any = item.queryset
    exposure = request.mcp.site.exposures.get(offered.model)
    if exposure is None or has_every_row(exposure):
        return []
    key = item.to_field_name or "pk"
    rows = offered.filter(**{f"{key}__in": item.prepare_value(linked)})
    visible = exposure.get_queryset(request).order_by().values("pk")
    return list(rows.exclude(pk__in=visible).values_list(key, flat=True))


def impose(form: BaseForm, exact: Mapping[str, Any]) -> None:
    """Let fields of the posted form, which is not validated yet, have these values, which nothing posts."""
    for name, value in exact.items():
        item = form.fields[name]
        clean = partial(_validated, item) if isinstance(value, datetime) else partial(_cleaned, item.clean)
        item.widget = Given(value)
        item.show_hidden_initial = False
        item.clean = clean  # type: ignore[method-assign]
        item.has_changed = lambda initial, data: initial != data  # type: ignore[method-assign]


def _validated(item: Field, moment: datetime) -> datetime:
    """Return the moment, which has nothing left to be parsed."""
    item.validate(moment)
    item.run_validators(moment)
    return moment


def _cleaned(clean: Any, *value: Any) -> Any:
    try:
        return clean(*value)
    except ValidationError:
        raise
    except Exception:
        raise ValidationError(UNREADABLE) from None


def filled(
    draft: "ModelForm[Any]",
    obj: Model | None,
    mentioned: Collection[str],
    exact: Mapping[str, Any],
    data: Any,
    files: Any,
) -> "ModelForm[Any]":
    """Return the form that is posted with ``data``, not validated yet; ``obj`` keeps what is not mentioned."""
    form: ModelForm[Any] = type(draft)(data, files, instance=obj)
    compare_whole(form)
    impose(form, exact)
    if obj is not None:
        keep(form, obj, mentioned)
    return form


def deeper_formsets(form: BaseForm) -> Sequence[Any]:
    """Return the formsets that hang on a form of a formset: rows within a row, which some packages and many recipes
    keep as attributes of the form."""
    found: list[Any] = []
    for value in vars(form).values():
        items = value if isinstance(value, (list, tuple)) else [value]
        found += [item for item in items if isinstance(item, BaseFormSet)]
    row = getattr(form, "instance", None)
    return [formset for formset in found if row is not None and getattr(formset, "instance", None) is row]

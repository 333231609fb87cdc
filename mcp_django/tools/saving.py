"""Saving a row with values that a caller gave: through the form of the admin's page, or the exposure's serializer."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ValidationError
from django.db.models import Model
from django.utils.text import slugify
from rest_framework.relations import ManyRelatedField, PrimaryKeyRelatedField

from ..context import MCPRequest
from ..exceptions import NotFound, ToolError
from ..visibility import visible_fields
from .arguments import alternatives
from .forms import bind, error_lines, writable_names
from .history import log_addition, log_change
from .inputs import pick_rows

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["save_row"]

NOT_SAVED: Final = "Nothing was saved:"


def save_row(
    request: MCPRequest, exposure: "ModelExposure", obj: Model | None, values: Mapping[str, Any], tool: str
) -> tuple[Model, list[str]]:
    """Save ``values`` to ``obj``, or to a new row, with its entry in the history; return it and the changed fields.

    To be called in a transaction: validation may fail after the row was written.

    Raises:
        ToolError: a field is not one that the caller may write, or a value is not valid.
    """
    save = _save_with_form if exposure.serializer_class is None else _save_with_serializer
    return save(request, exposure, obj, values, tool)


def _visible(request: MCPRequest, exposure: "ModelExposure", obj: Model | None) -> set[str]:
    """Return the fields that the caller may name; a row does not change its primary key."""
    names = set(visible_fields(request, exposure, obj))
    return names - {exposure.opts.pk.name} if obj is not None else names


def _named(exposure: "ModelExposure", values: Mapping[str, Any], writable: Collection[str]) -> dict[str, Any]:
    """Return the values by field name; a foreign key may be named by its column, as in filters.

    Raises:
        ToolError: a name is not writable; one text for hidden, read-only and missing fields.
    """
    columns = {field.attname: field.name for field in exposure.opts.concrete_fields if field.name in writable}
    found = {name if name in writable else columns.get(name, name): value for name, value in values.items()}
    unknown = [name for name in found if name not in writable]
    if unknown:
        names = ", ".join(repr(name[:60]) for name in unknown[:5])
        valid = alternatives(unknown[0], writable)
        raise ToolError(f"You cannot write {names} of {exposure.label}. {valid} Nothing was saved.")
    return found


# Forms


def _save_with_form(
    request: MCPRequest, exposure: "ModelExposure", obj: Model | None, values: Mapping[str, Any], tool: str
) -> tuple[Model, list[str]]:
    change = obj is not None
    draft = exposure.get_form(request, obj, change=change)(instance=obj)
    writable = writable_names(draft, _visible(request, exposure, obj))
    named = _named(exposure, values, writable)
    if not change:
        named |= _prepopulated(request, exposure, draft, named, writable)
    form = bind(request, draft, obj, named)
    if form.errors:
        raise ToolError("\n".join([NOT_SAVED, *error_lines(form, writable)]))
    saved = exposure.save_form(request, form, change)
    exposure.save_model(request, saved, form, change)
    exposure.save_related(request, form, change)
    message = exposure.construct_change_message(request, form, add=not change)
    log = log_change if change else log_addition
    log(request, exposure, saved, message, tool)
    return saved, [name for name in form.changed_data if name in writable]


def _prepopulated(
    request: MCPRequest, exposure: "ModelExposure", form: Any, values: Mapping[str, Any], writable: Collection[str]
) -> dict[str, str]:
    """Return the slugs that the script of the admin's add page would fill in."""
    admin = getattr(exposure, "model_admin", None)
    found = {}
    for name, sources in (admin.get_prepopulated_fields(request) if admin is not None else {}).items():
        text = " ".join(str(values[source]) for source in sources if values.get(source))
        if text and name in writable and name not in values:
            found[name] = slugify(text)[: form.fields[name].max_length]
    return found


# Serializers


def _save_with_serializer(
    request: MCPRequest, exposure: "ModelExposure", obj: Model | None, values: Mapping[str, Any], tool: str
) -> tuple[Model, list[str]]:
    assert exposure.serializer_class is not None
    change, context = obj is not None, {"request": request}
    visible = _visible(request, exposure, obj) - set(exposure.get_readonly_fields(request, obj))
    shown: Any = exposure.serializer_class(obj, context=context)
    writable = [name for name, field in shown.fields.items() if name in visible and not field.read_only]
    named = _named(exposure, values, writable)
    before = dict(shown.data) if change else {}
    serializer: Any = exposure.serializer_class(obj, data=named, partial=change, context=context)
    wrong = list(_invisible_rows(request, serializer, named))
    if wrong or not serializer.is_valid():
        raise ToolError("\n".join([NOT_SAVED, *(wrong or _serializer_lines(serializer.errors))]))
    saved: Model = serializer.save()
    _validate(saved)
    after = exposure.serializer_class(saved, context=context).data
    changed = [name for name in writable if name in after and (name not in before or before[name] != after[name])]
    if change:
        log_change(request, exposure, saved, [{"changed": {"fields": changed}}] if changed else [], tool)
    else:
        log_addition(request, exposure, saved, [{"added": {}}], tool)
    return saved, changed


def _invisible_rows(request: MCPRequest, serializer: Any, values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        field = serializer.fields[name]
        related: Any = field.child_relation if isinstance(field, ManyRelatedField) else field
        if value is None or not isinstance(related, PrimaryKeyRelatedField):
            continue
        rows: Any = related.get_queryset()
        exposure = request.mcp.site.exposures.get(rows.model)
        if exposure is None:
            continue
        try:
            given = value if isinstance(value, list) else [value]
            if exposure.has_view_permission(request) and pick_rows(request, exposure, given):
                continue
        except NotFound:
            pass
        yield f"{name}: No {exposure.label} has this primary key."


def _serializer_lines(errors: Any, path: str = "") -> Iterator[str]:
    if isinstance(errors, Mapping):
        for name, found in errors.items():
            yield from _serializer_lines(found, f"{path}.{name}".lstrip("."))
    elif isinstance(errors, (list, tuple)):
        for found in errors:
            yield from _serializer_lines(found, path)
    else:
        yield f"{'(row)' if path == 'non_field_errors' else path}: {errors}"


def _validate(saved: Model) -> None:
    """Run the validation of the model too, which serializers leave out; the caller's transaction undoes the write."""
    try:
        saved.full_clean()
    except ValidationError as error:
        lines = [f"{name}: {' '.join(messages)}" for name, messages in error.message_dict.items()]
        raise ToolError("\n".join([NOT_SAVED, *lines])) from None

"""Saving a row through the serializer of its exposure."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Model
from rest_framework.fields import FileField
from rest_framework.relations import ManyRelatedField, PrimaryKeyRelatedField

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..exposures.history import log_addition, log_change
from ..forms.files import read_file_value
from ..forms.filling import linked_rows
from .naming import NOT_SAVED, nameable, named_values

__all__ = ["save_with_serializer"]


def save_with_serializer(
    request: MCPRequest, exposure: Exposure, obj: Model | None, values: Mapping[str, Any], tool: str
) -> tuple[Model, list[str]]:
    """Save the values through the exposure's serializer: see :func:`~.saving.save_row`."""
    assert exposure.serializer_class is not None
    change, context = obj is not None, {"request": request}
    visible = nameable(request, exposure, obj) - set(exposure.get_readonly_fields(request, obj))
    shown: Any = exposure.serializer_class(obj, context=context)
    writable = [name for name, field in shown.fields.items() if name in visible and not field.read_only]
    named, wrong = _with_files(request, shown, named_values(exposure, values, writable))
    wrong += _take_keys(request, shown, named)
    before = dict(shown.data) if change else {}
    serializer: Any = exposure.serializer_class(obj, data=named, partial=change, context=context)
    if wrong or not serializer.is_valid():
        raise ToolError("\n".join([NOT_SAVED, *(wrong or _serializer_lines(serializer.errors))]))
    saved: Model = serializer.save()
    _validate(saved)
    after = exposure.serializer_class(saved, context=context).data
    changed = [name for name in writable if name in after and (name not in before or before[name] != after[name])]
    if not change:
        log_addition(request, exposure, saved, [{"added": {}}], tool)
    elif changed:
        log_change(request, exposure, saved, [{"changed": {"fields": changed}}], tool)
    return saved, changed


def _with_files(request: MCPRequest, serializer: Any, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values with the files that some of them are, and what is wrong with those."""
    found, wrong = dict(values), []
    for name, value in values.items():
        if value is not None and isinstance(serializer.fields[name], FileField):
            try:
                found[name] = read_file_value(request, value)
            except ValidationError as error:
                wrong.append(f"{name}: {' '.join(error.messages)}")
    return found, wrong


def _take_keys(request: MCPRequest, serializer: Any, values: dict[str, Any]) -> Iterator[str]:
    """Put the primary keys of the rows that relations name into the values; yield what is wrong with a name."""
    for name, value in list(values.items()):
        field = serializer.fields[name]
        related: Any = field.child_relation if isinstance(field, ManyRelatedField) else field
        if value is None or not isinstance(related, PrimaryKeyRelatedField):
            continue
        rows: Any = related.get_queryset()
        exposure = request.mcp.site.exposures.get(rows.model)
        if exposure is None:
            continue
        many = isinstance(value, list)
        try:
            found = [row.pk for row in linked_rows(request, exposure, value if many else [value])]
        except ValidationError as error:
            yield f"{name}: {' '.join(error.messages)}"
        else:
            values[name] = found if many else found[0]


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

"""What a column is compared with in place of a value: another column, or an aggregate over the caller's rows.

Both are looked up by the caller's own rule (:func:`~mcp_django.orm.path.target_of`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.db import NotSupportedError
from django.db.models import Q, Subquery, Value

from ..exceptions import ToolError
from ..exposures.querysets import DerivedTable
from .access import ModelAccess
from .aggregates.functions import FUNCTIONS
from .aggregates.ranks import as_computed
from .arithmetic import combined, shift, value_of
from .columns import Column, FieldColumn
from .fields import kind_of
from .path import Target
from .suggestions import naming

# Members that add something to the other value, or subtract it.
SHIFTS: Final[Mapping[str, str]] = {"plus": "+", "minus": "-"}
AGGREGATES: Final = ("avg", "median", "min", "max")


def is_field(value: Any) -> bool:
    """Return whether a value compares one field with another: ``{"field": "promised_at"}``, maybe with ``plus``."""
    return isinstance(value, dict) and isinstance(value.get("field"), str) and value.keys() <= {"field", *SHIFTS}


def aggregate_in(model: ModelAccess, value: Any) -> str:
    """Return the aggregate that a field is compared with, as in ``{"avg": "total", "where": {...}}``, "" for none.

    Some clients also write limits as ``min`` and ``max``: their value is not a field of this caller's.
    """
    if not isinstance(value, dict):
        return ""
    name = next((name for name in AGGREGATES if name in value), "")
    if not name or not isinstance(value[name], str) or not value.keys() <= {name, "where", *SHIFTS}:
        return ""
    if name in ("min", "max") and "where" not in value:
        try:
            value_of(model, value[name], FUNCTIONS[name].usable)
        except ToolError:
            return ""
    return name


def other_value(model: ModelAccess, value: Mapping[str, Any]) -> Target:
    """Return the other field in a comparison of two fields, with ``plus`` or ``minus`` added."""
    with naming("filters", "aggregates"):
        return _moved(value_of(model, str(value["field"]), _is_compared), value)


def aggregate_value(model: ModelAccess, value: Mapping[str, Any], where: Callable[[], Q] | None) -> Target:
    """Return the aggregate over the caller's rows that a field is compared with, of those rows that pass ``where``."""
    name = next(name for name in AGGREGATES if name in value)
    function = FUNCTIONS[name]
    with naming("filters", "aggregates"):
        target = value_of(model, value[name], function.usable)
    result = function.result_of(target.column)
    own = model.exposure.get_queryset(model.request)
    rows = model.exposure.model._base_manager.using(own.db).order_by()
    if DerivedTable.is_in(own):
        # The model's own table lacks the columns of a derived queryset.
        rows = own.order_by()
    elif not model.sees_every_row:
        # Select by key: the joins of the project's own queryset could count a row twice.
        rows = rows.filter(pk__in=own.order_by().values("pk"))
    rows = rows.filter(where()) if where is not None else rows
    made = rows.annotate(mcp_all=Value(1)).values("mcp_all")
    try:
        computed = as_computed(function.make(target.expression, output_field=result), rows, {})
    except NotSupportedError as error:
        raise ToolError(f"The database cannot compute that: {error}") from None
    made = made.annotate(mcp_value=computed).values("mcp_value")
    title = f"{name}({target.name})"
    found = Target(title, FieldColumn(title, field=result), Subquery(made, output_field=result), target.narrowed)
    return _moved(found, value)


def _moved(target: Target, value: Mapping[str, Any]) -> Target:
    for word, sign in SHIFTS.items():
        if word in value:
            target = combined(target, sign, shift(value[word]))
    return target


def _is_compared(column: Column) -> bool:
    """Return whether a field can be compared with another field; encrypted ones cannot be."""
    return column.is_countable() and "exact" in kind_of(column.field).usual_lookups

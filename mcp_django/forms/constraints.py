"""Explain a broken database constraint with only the fields and the conflicting row that the caller can see."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, IntegrityError, connections, router
from django.db.models import CheckConstraint, Model, UniqueConstraint
from django.forms import BaseForm

from ..context.request import Exposure, MCPRequest
from ..orm.access import may_view, visible_fields
from ..orm.columns import pk_text

# How SQLite words what PostgreSQL has names for.
UNIQUE: Final = re.compile(r"UNIQUE constraint failed: (\w+\.\w+(?:, \w+\.\w+)*)$")
INDEX: Final = re.compile(r"UNIQUE constraint failed: index '(\w+)'$")
CHECK: Final = re.compile(r"CHECK constraint failed: (\w+)$")


def duplicate_note(request: MCPRequest, form: BaseForm, error: ValidationError) -> str:
    """Return which row has the values that have to be unique, where the caller may see them and the row."""
    fields = (error.params or {}).get("unique_check", ())
    instance: Any = getattr(form, "instance", None)
    exposure = request.mcp.site.exposures.get(type(instance)) if fields else None
    if exposure is None or not may_view(request, exposure) or not set(fields) <= set(visible_fields(request, exposure)):
        return ""
    values = {name: instance.serializable_value(name) for name in map(_column_of(instance), fields)}
    rows = exposure.get_queryset(request).filter(**values)
    for row in rows[:1] if instance._state.adding else rows.exclude(pk=instance.pk)[:1]:
        if exposure.has_view_permission(request, row):
            return f" ({exposure.label} with pk {pk_text(row.pk)} has it)"
    return ""


def _column_of(instance: Model) -> Any:
    return lambda name: instance._meta.get_field(name).attname  # type: ignore[union-attr]


def broken_constraint(request: MCPRequest, exposure: Exposure, error: IntegrityError) -> str:
    """Return a sentence on the constraint of the model that the database found broken, "" where it cannot be told.

    It names fields only, and only where the caller sees all of them. The transaction has to be over.
    """
    kind, fields = _broken(exposure.model, error)
    if not fields or not set(fields) <= set(visible_fields(request, exposure)):
        return ""
    names = ", ".join(fields)
    if kind == "check":
        return f"the values break a rule of the database on {names}."
    return f"there is a row of {exposure.label} with the same {names} already."


def _broken(model: type[Model], error: IntegrityError) -> tuple[str, Sequence[str]]:
    """Return the kind of the constraint and its fields."""
    cause = error.__cause__ or error
    found = getattr(cause, "diag", None)
    name = getattr(found, "constraint_name", None)
    text = str(cause)
    for pattern in (INDEX, CHECK):
        if match := pattern.search(text):
            name = match[1]
    for constraint in _constraints(model):
        if constraint.name == name:
            return ("check" if isinstance(constraint, CheckConstraint) else "unique"), _fields(constraint)
    if match := UNIQUE.search(text):
        return "unique", _by_column(model, [part.split(".") for part in match[1].split(", ")])
    if found is not None and name and found.table_name:
        return "unique", _by_column(model, _columns(model, found.table_name, name))
    return "", ()


def _constraints(model: type[Model]) -> Iterator[Any]:
    for part in (model, *model._meta.all_parents):
        yield from part._meta.constraints


def _fields(constraint: Any) -> Sequence[str]:
    if isinstance(constraint, UniqueConstraint):
        return list(constraint.fields)
    if not isinstance(constraint, CheckConstraint):
        return ()
    return sorted(getattr(constraint.condition, "referenced_base_fields", ()))


def _columns(model: type[Model], table: str, name: str) -> list[list[str]]:
    """Return the tables and columns of a unique constraint that the database has named itself."""
    connection = connections[router.db_for_write(model)]
    try:
        with connection.cursor() as cursor:
            found: Mapping[str, Any] = connection.introspection.get_constraints(cursor, table).get(name, {})
    except DatabaseError:
        return []
    return [[table, column] for column in found.get("columns") or ()] if found.get("unique") else []


def _by_column(model: type[Model], columns: Iterable[Sequence[str]]) -> Sequence[str]:
    """Return the fields of the columns, none where one belongs to another table."""
    fields = {(field.model._meta.db_table, field.column): field.name for field in model._meta.concrete_fields}
    found = [fields.get((table, column)) for table, column in columns]
    return [name for name in found if name is not None] if None not in found else ()

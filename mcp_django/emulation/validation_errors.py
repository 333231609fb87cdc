"""What is wrong with values that were entered or saved, told with only the fields and rows that the caller can see."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import DatabaseError, IntegrityError, connections, router
from django.db.models import CheckConstraint, Model, UniqueConstraint
from django.forms import BaseForm, ChoiceField, ModelChoiceField, ModelMultipleChoiceField

from ..context.request import MCPRequest
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import pk_text
from ..orm.database_writes import refusals
from .form_filling import flat_choices
from .uploaded_files import BOMB, is_bomb

MAX_CHOICES: Final = 20
# What is wrong with a field that the caller does not see is not told.
HIDDEN_ERROR: Final = "(another field): its value is missing or not valid, and you cannot set it here"
# How SQLite words what PostgreSQL has names for.
UNIQUE: Final = re.compile(r"UNIQUE constraint failed: (\w+\.\w+(?:, \w+\.\w+)*)$")
INDEX: Final = re.compile(r"UNIQUE constraint failed: index '(\w+)'$")
CHECK: Final = re.compile(r"CHECK constraint failed: (\w+)$")


def error_lines(
    form: BaseForm, writable: Collection[str], explain: Callable[[BaseForm, ValidationError], str] | None = None
) -> list[str]:
    """Return the validation errors of a form, a line for each: ``field: message (valid: …)``. ``explain`` may add to a
    line."""
    lines: list[str] = []
    for name, errors in form.errors.as_data().items():
        for error in errors:
            text = BOMB if is_bomb(error) else " ".join(map(str, error.messages))
            if explain is not None and (name == NON_FIELD_ERRORS or name in writable):
                text += explain(form, error)
            if name == NON_FIELD_ERRORS:
                lines.append(f"(row): {text}")
            elif name in writable:
                lines.append(f"{name}: {text}{_valid_choices(form.fields[name], error)}")
            else:
                lines.append(HIDDEN_ERROR)
    return list(dict.fromkeys(lines))


def _valid_choices(field: Any, error: ValidationError) -> str:
    has_choices = isinstance(field, ChoiceField) and not isinstance(field, (ModelChoiceField, ModelMultipleChoiceField))
    if not has_choices or error.code not in ("invalid_choice", "required"):
        return ""
    choices = [str(value) for value, _ in flat_choices(field.choices) if value not in (None, "")]
    more = ", …" if len(choices) > MAX_CHOICES else ""
    return f" (valid: {', '.join(choices[:MAX_CHOICES])}{more})"


def duplicate_note(request: MCPRequest, form: BaseForm, error: ValidationError) -> str:
    """Return a note on the validation error of a unique field: the visible row that already has the values."""
    fields = (error.params or {}).get("unique_check", ())
    row: Any = getattr(form, "instance", None)
    exposure = request.mcp.site.exposures.get(type(row)) if fields else None
    if exposure is None:
        return ""
    model = access_of(request)[exposure]
    if not model.is_there or not set(fields) <= set(model.fields):
        return ""
    columns = [row._meta.get_field(name).attname for name in fields]
    rows = exposure.get_queryset(request).filter(**{name: row.serializable_value(name) for name in columns})
    for other in rows[:1] if row._state.adding else rows.exclude(pk=row.pk)[:1]:
        if model.may_row("view", other):
            return f" ({exposure.label} with pk {pk_text(other.pk)} has it)"
    return ""


def write_refusals(access: ModelAccess) -> AbstractContextManager[None]:
    """Return a context that turns a database error into a validation error that names only visible fields."""
    return refusals(partial(broken_constraint, access))


def broken_constraint(access: ModelAccess, error: IntegrityError) -> str:
    """Return the validation error for a constraint that an ``IntegrityError`` names, "" if none is named. It names
    fields only, and only where the caller sees all of them. The transaction has to be over."""
    kind, fields = _broken(access.exposure.model, error)
    if not fields or not set(fields) <= set(access.fields):
        return ""
    names = ", ".join(fields)
    if kind == "check":
        return f"the values break a rule of the database on {names}."
    return f"there is a row of {access.exposure.label} with the same {names} already."


def _broken(model: type[Model], error: IntegrityError) -> tuple[str, Sequence[str]]:
    cause = error.__cause__ or error
    diagnosis, text = getattr(cause, "diag", None), str(cause)
    name = getattr(diagnosis, "constraint_name", None)
    for pattern in (INDEX, CHECK):
        if match := pattern.search(text):
            name = match[1]
    for part in (model, *model._meta.all_parents):
        for constraint in part._meta.constraints:
            if constraint.name == name and isinstance(constraint, CheckConstraint):
                return "check", sorted(getattr(constraint.condition, "referenced_base_fields", ()))
            if constraint.name == name:
                return "unique", list(constraint.fields) if isinstance(constraint, UniqueConstraint) else ()
    if match := UNIQUE.search(text):
        return "unique", _by_column(model, [part.split(".") for part in match[1].split(", ")])
    if name and diagnosis is not None and diagnosis.table_name:
        return "unique", _by_column(model, _columns(model, diagnosis.table_name, name))
    return "", ()


def _columns(model: type[Model], table: str, name: str) -> list[list[str]]:
    """Return the columns of a unique constraint with a name of the database's own, for its validation error."""
    connection = connections[router.db_for_write(model)]
    try:
        with connection.cursor() as cursor:
            found: Mapping[str, Any] = connection.introspection.get_constraints(cursor, table).get(name, {})
    except DatabaseError:
        return []
    return [[table, column] for column in found.get("columns") or ()] if found.get("unique") else []


def _by_column(model: type[Model], columns: Iterable[Sequence[str]]) -> Sequence[str]:
    names = {(field.model._meta.db_table, field.column): field.name for field in model._meta.concrete_fields}
    found = [names.get((table, column)) for table, column in columns]
    return [name for name in found if name is not None] if None not in found else ()

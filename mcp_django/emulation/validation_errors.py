"""Errors of values that were entered or saved, described with only the fields and rows that the caller can see."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from functools import partial
from itertools import chain
from typing import Any, Final

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import DatabaseError, IntegrityError, connections, router
from django.db.models import CheckConstraint, F, Func, Model, Q, UniqueConstraint
from django.utils.choices import flatten_choices

from ..context.confirmation import one_line, quoted
from ..context.request import MCPRequest
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import pk_text
from ..orm.database_writes import refusals
from .uploaded_files import BOMB, is_bomb

# The kind of a constraint ("unique" or "check"), its fields, and the fields of its condition.
Parts = tuple[str, Sequence[str], Sequence[str]]

MAX_CHOICES: Final = 20
# Maximum characters of what the project says of a row.
MAX_MESSAGE: Final = 500
SOME_DAY: Final = date(2026, 1, 31)
# Example values by class of form field, for fields that do not declare another format.
MOMENTS: Final[Mapping[type[forms.Field], str]] = {
    forms.DateField: "2026-01-31",
    forms.DateTimeField: "2026-01-31T10:00:00Z",
    forms.SplitDateTimeField: "2026-01-31T10:00:00Z",
    forms.TimeField: "10:00",
    forms.DurationField: "P1DT2H",
}
# Stands for every error of a field that the caller does not see.
HIDDEN_ERROR: Final = "(another field): its value is missing or not valid, and you cannot set it here"
# Messages for broken constraints: of SQLite, and of MySQL and MariaDB, whose first one begins with the caller's value.
# PostgreSQL reports the name of the constraint separately.
UNIQUE: Final = re.compile(r"UNIQUE constraint failed: (\w+\.\w+(?:, \w+\.\w+)*)$")
INDEX: Final = re.compile(r"UNIQUE constraint failed: index '(\w+)'$")
CHECK: Final = re.compile(r"CHECK constraint failed: (\w+)$")
MYSQL_UNIQUE: Final = re.compile(r"^Duplicate entry .* for key '(?:([^'.]+)\.)?([^'.]+)'$", re.DOTALL)
MYSQL_CHECK: Final = re.compile(
    r"^(?:CONSTRAINT `|Check constraint ')(?:[^`'.]+\.)?([^`'.]+)[`'] (?:failed|is violated)"
)


def error_lines(
    form: forms.BaseForm,
    writable: Collection[str],
    explain: Callable[[forms.BaseForm, ValidationError], str] | None = None,
) -> list[str]:
    """Return the validation errors of a form, a line each: ``field: message (valid: …)``. ``explain`` adds a note."""
    lines: list[str] = []
    for name, errors in form.errors.as_data().items():
        for error in errors:
            text = _text_of(error)
            note = ""
            if explain is not None and (name == NON_FIELD_ERRORS or name in writable):
                note = explain(form, error)
            if name == NON_FIELD_ERRORS:
                lines.append(f"{row_error(text)}{note}")
            elif name in writable:
                lines.append(f"{name}: {text}{note}{_valid_values(form.fields[name], error)}")
            else:
                lines.append(HIDDEN_ERROR)
    return list(dict.fromkeys(lines))


def field_line(name: str, field: Any, error: ValidationError) -> str:
    """Return the line of an error of one field."""
    return f"{name}: {_text_of(error)}{_valid_values(field, error)}"


def _text_of(error: ValidationError) -> str:
    # A line of the project's code must not pass for one of ours.
    return BOMB if is_bomb(error) else one_line(" ".join(map(str, error.messages)))


def row_error(text: str) -> str:
    """Return the line of an error of a whole row, which the project's code says: it is not taken for our words."""
    return f"(row): {quoted(text, MAX_MESSAGE)}"


def _valid_values(field: Any, error: ValidationError) -> str:
    example = next((example for kind, example in MOMENTS.items() if isinstance(field, kind)), "")
    if example and error.code == "invalid":
        formats: Any = getattr(field, "input_formats", None)
        if isinstance(field, forms.DateField) and "%Y-%m-%d" not in formats:
            example = SOME_DAY.strftime(formats[0])
        return f" (such as {example})"
    has_choices = isinstance(field, forms.ChoiceField) and not isinstance(
        field, (forms.ModelChoiceField, forms.ModelMultipleChoiceField)
    )
    if not has_choices or error.code not in ("invalid_choice", "required"):
        return ""
    choices = [str(value) for value, _ in flatten_choices(field.choices) if value not in (None, "")]
    more = ", …" if len(choices) > MAX_CHOICES else ""
    return f" (valid: {', '.join(choices[:MAX_CHOICES])}{more})"


def duplicate_note(request: MCPRequest, form: forms.BaseForm, error: ValidationError) -> str:
    """Return a note on the validation error of a unique field or a constraint: its fields, where Django does not name
    them, and the visible row that already has the values. It names only what the caller sees."""
    row: Any = getattr(form, "instance", None)
    exposure = request.mcp.site.exposures.get(type(row))
    if exposure is None or not (model := access_of(request)[exposure]).is_there:
        return ""
    note = ""
    fields = (error.params or {}).get("unique_check", ())
    condition = Q()
    seen = set(model.fields)
    known = chain.from_iterable(constraints for _, constraints in row.get_constraints())
    broken = (item for item in known if item.get_violation_error_message() in error.messages)
    if not fields and (constraint := next(broken, None)) is not None:
        kind, names, needed = _parts(constraint)
        if not names or not set(names) <= seen:
            return ""
        if kind == "check":
            return f" It is a rule on {', '.join(names)}."
        note = f" It allows one row for each {', '.join(names)}{_condition(needed, seen)}."
        if set(needed) <= seen:
            fields = constraint.fields
            condition = constraint.condition or condition
    if not fields or not set(fields) <= seen:
        return note
    columns = [row._meta.get_field(name).attname for name in fields]
    rows = exposure.get_queryset(request).filter(condition, **{name: row.serializable_value(name) for name in columns})
    for other in rows[:1] if row._state.adding else rows.exclude(pk=row.pk)[:1]:
        if model.may_row("view", other):
            note += f" ({exposure.label} with pk {pk_text(other.pk)} has it)"
    return note


def _parts(constraint: Any) -> Parts:
    needed = sorted(getattr(getattr(constraint, "condition", None), "referenced_base_fields", ()))
    if isinstance(constraint, CheckConstraint):
        return "check", needed, ()
    if not isinstance(constraint, UniqueConstraint):
        return "", (), ()
    parts: Any = Func(*constraint.expressions).flatten()
    names = [part.name for part in parts if isinstance(part, F)]  # type: ignore[attr-defined]
    return "unique", [*constraint.fields, *names], needed


def _condition(needed: Collection[str], seen: Collection[str]) -> str:
    """Return the condition of a constraint in words for its validation error, "" for none."""
    if not needed:
        return ""
    if set(needed) <= set(seen):
        return f", depending on {', '.join(needed)}"
    return ", under a condition"


def write_refusals(model: ModelAccess) -> AbstractContextManager[None]:
    """Return a context that turns a database error into a validation error that names only visible fields."""
    return refusals(partial(broken_constraint, model), model=model.exposure.model)


def broken_constraint(model: ModelAccess, error: IntegrityError) -> str:
    """Return the validation error for a constraint that an ``IntegrityError`` names, "" if none is named. The text
    names fields only if the caller sees all of them. Call it after the transaction has ended."""
    kind, fields, needed = _broken(model.exposure.model, error)
    if not fields or not set(fields) <= set(model.fields):
        return ""
    names = ", ".join(fields)
    if kind == "check":
        return f"the values break a rule of the database on {names}."
    rule = f" The database allows one for each {names}{_condition(needed, model.fields)}." if needed else ""
    return f"there is a row of {model.exposure.label} with the same {names} already.{rule}"


def _broken(model: type[Model], error: IntegrityError) -> Parts:
    cause = error.__cause__ or error
    diagnosis = getattr(cause, "diag", None)
    text = str(cause.args[-1]) if cause.args else ""
    name = getattr(diagnosis, "constraint_name", None)
    table = getattr(diagnosis, "table_name", None)
    for pattern in (INDEX, CHECK, MYSQL_CHECK):
        if match := pattern.search(text):
            name = match[1]
    # MySQL names the table with the key, MariaDB the key alone.
    tables: Iterable[str] = [table] if table else []
    if match := MYSQL_UNIQUE.search(text):
        table, name = match.groups()
        tables = (
            [table] if table else dict.fromkeys(field.model._meta.db_table for field in model._meta.concrete_fields)
        )
    match = UNIQUE.search(text)
    fields = _by_column(model, [part.split(".") for part in match[1].split(", ")]) if match else ()
    for constraint in chain.from_iterable(part._meta.constraints for part in (model, *model._meta.all_parents)):
        # For a unique constraint, SQLite reports the columns instead of the name.
        if constraint.name == name or (fields and fields == list(getattr(constraint, "fields", ()))):
            return _parts(constraint)
    if name:
        found = (columns for table in tables if (columns := _columns(model, table, name)))
        fields = _by_column(model, next(found, [])) or fields
    return "unique", fields, ()


def _columns(model: type[Model], table: str, name: str) -> list[list[str]]:
    """Return the columns of a unique constraint that the database has named itself, for its validation error."""
    connection = connections[router.db_for_write(model)]
    try:
        with connection.cursor() as cursor:
            found: Mapping[str, Any] = connection.introspection.get_constraints(cursor, table).get(name, {})
    except DatabaseError:
        return []
    if found.get("unique"):
        return [[table, column] for column in found.get("columns") or ()]
    return []


def _by_column(model: type[Model], columns: Iterable[Sequence[str]]) -> Sequence[str]:
    names = {(field.model._meta.db_table, field.column): field.name for field in model._meta.concrete_fields}
    found = [names.get((table, column)) for table, column in columns]
    if None not in found:
        return [name for name in found if name is not None]
    return ()

"""Expressions in the values of a write: ``{"price": {"field": "price*1.05", "round": "0.10"}}``.

An expression reads the row that it is written to, as the database holds it now, and nothing else: fields that the
caller reads as they are stored. What it gives is then filled in the form like a value that the caller wrote, so the
form's validation applies to it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from django.db.models import F, GeneratedField, Model
from django.utils.duration import duration_string
from orjson import dumps

from ..emulation.saving import NOT_SAVED, RowPage
from ..exceptions import Repair, ToolError
from ..orm.access import ModelAccess
from ..orm.arithmetic import DATES, NUMBERS, target_in
from ..orm.column_values import iso_text
from ..orm.columns import Column
from ..orm.expression_grammar import Part, names_in, parsed
from ..orm.fields import is_stored_as_text, kind_of, stored_field
from ..orm.nearest_names import Misnamed
from ..orm.path import Target
from ..orm.undecodable_values import VALUE_ERRORS
from .exact_arithmetic import NotComputed, Value, computed, decimal_of, rounded, shown, value_in_row

KINDS: Final = (*NUMBERS, *DATES, "duration")
EXAMPLE: Final = 'Write an expression as {"field": "price*1.05", "round": "0.10"} or {"field": "due+7d"}.'
# The largest step to round to, and how one is written.
MAX_STEP: Final = 10**15
_STEP: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,12})?")


class RowFields:
    """The fields of a row that expressions can read: numbers, dates and durations of its own, read as stored."""

    def __init__(self, model: ModelAccess, row: Model | None = None) -> None:
        self.model = model
        self.shown = model.fields_of(row)

    @cached_property
    def names(self) -> Sequence[str]:
        """The names of the fields that an expression can read."""
        return [name for name in self.shown if self.find(name) is not None]

    def find(self, text: str) -> Column | None:
        """Return the column that a name in an expression means; None for any that it cannot read."""
        column = self.model.column_named(text)
        if column is None or column.name not in self.shown or not self._is_own(column):
            return None
        if column.is_foreign_key or kind_of(column.field).word not in KINDS or is_stored_as_text(column.field):
            return None
        return column

    def _is_own(self, column: Column) -> bool:
        """Return whether the column is one of the row's table, and not one that a path leads to."""
        own = self.model.exposure.opts.concrete_fields
        return column.is_countable() and column.field in own and column.path == column.field.attname

    def unknown(self, text: str, repair: Callable[[str], Repair]) -> ToolError:
        """Return the error for a name that is none of these fields, the same for hidden fields and missing ones."""
        label = self.model.exposure.label
        lead = f"{label} has no field {text[:60]!r} for an expression, which reads numbers, dates and durations of the"
        return Misnamed(f"{lead} row itself.", text, self.names, repair, of=self.model.exposure.opts.model_name)


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression for one field of a row, ``field``; ``given`` is how the caller wrote it.

    ``columns`` are those that it reads, by the names in the expression. ``step`` is what its result is rounded to.
    """

    name: str
    field: Any
    given: Mapping[str, Any]
    part: Part
    columns: Mapping[str, Column]
    step: Fraction | None

    @classmethod
    def read(cls, model: ModelAccess, name: str, field: Any, given: Mapping[str, Any]) -> "RowExpression":
        """Return the expression that an object in the values of a write is.

        Raises ``ToolError`` if it is written in another way, reads a field that the caller may not, or gives another
        kind of value than the field holds.
        """
        text = given["field"]
        if not isinstance(text, str) or not given.keys() <= {"field", "round"}:
            raise ToolError(f"{name}: this object is no expression. {EXAMPLE}")
        fields = RowFields(model)
        part = parsed(text)
        columns: dict[str, Column] = {}
        for written in names_in(part):
            column = fields.find(written)
            if column is None:
                raise fields.unknown(written, _Respelling(name, given, written).repair)
            columns[written] = column
        if not columns:
            raise ToolError(f"{name}: {text[:60]!r} reads no field of the row. Give the value itself.")

        # The kinds that go together are those of arithmetic in questions, and so are its errors.
        target = target_in(part, lambda word: Target(word, columns[word], F(columns[word].path)))
        word = kind_of(field).word
        result = kind_of(target.column.field).word
        if result != word and not {result, word} <= {*NUMBERS}:
            raise ToolError(f"{name} ({word}) cannot hold what {text[:60]!r} gives ({result}).")
        return cls(name, field, given, part, columns, _step(name, word, given))

    @property
    def reads(self) -> frozenset[str]:
        """The names of the model fields that the expression reads."""
        return frozenset(column.field.name for column in self.columns.values())

    @property
    def told(self) -> str:
        """The expression in words, for a question."""
        text = str(self.given["field"])
        return f"{text}, rounded to {self.given['round']}" if self.step is not None else text

    def value_for(self, model: ModelAccess, row: Model, label: str = "") -> Any:
        """Return the value that the expression gives for a row, as JSON for the form.

        Raises ``ToolError`` if the row has no such value, or hides a field that the expression reads.
        """
        fields = RowFields(model, row)
        for written in self.columns:
            if fields.find(written) is None:
                raise fields.unknown(written, _Respelling(self.name, self.given, written).repair)
        try:
            found = computed(self.part, lambda word: _value(self.columns[word].field, row, label))
            return self._fitting(found)
        except NotComputed as error:
            raise _refusal(self.name, label, error) from None

    def _fitting(self, found: Value) -> Any:
        """Return what the expression gives as JSON for the form, rounded if the caller says so."""
        if isinstance(found, Fraction) and self.step is not None:
            found = rounded(found, self.step)
        choices = kind_of(self.field).choices
        if choices:
            return _choice(choices, found, kind_of(self.field).word)
        if isinstance(found, Fraction):
            return self._number(found)
        if isinstance(found, timedelta):
            return duration_string(found)
        return iso_text(found)

    def _number(self, found: Fraction) -> Any:
        """Return a number as the field holds it, if it can without losing digits."""
        if kind_of(self.field).word == "number":
            try:
                return float(found)
            except OverflowError:
                raise NotComputed("is out of range") from None
        places = getattr(stored_field(self.field), "decimal_places", 0)
        if places is None:
            # A decimal column of any number of digits.
            number = decimal_of(found)
            if number is None:
                raise NotComputed(f"would be {shown(found)}, {self._offer(2)}")
            return format(number, "f")
        if rounded(found, Fraction(1, 10**places)) != found:
            few = f"more than {places} decimals" if places else "no whole number"
            raise NotComputed(f"would be {shown(found)}, {few}: {self._offer(places)}")
        number = decimal_of(found)
        if number is None:
            raise NotComputed("is out of range")
        return f"{number:.{places}f}"

    def _offer(self, places: int) -> str:
        step = format(Decimal(1).scaleb(-places), "f")
        offered = dumps({"field": self.given["field"], "round": step}).decode()
        return f"write {offered} to round it half up"


class RowExpressions:
    """The values of a write, with the expressions among them: ``plain`` are the others, ``expressions`` these by name.

    Expressions are computed from a row as it was before the write, so their order does not matter.
    """

    def __init__(self, model: ModelAccess, plain: Mapping[str, Any], expressions: Mapping[str, RowExpression]) -> None:
        self.model = model
        self.plain = plain
        self.expressions = expressions

    @classmethod
    def read(cls, model: ModelAccess, values: Mapping[str, Any]) -> "RowExpressions":
        """Return the ``values`` of a write of existing rows. Raises ``ToolError`` for an expression that is wrong.

        An object with the member "field" is an expression in fields of numbers, dates and durations that the caller may
        name. For any other field, also for one that is not there, it stays a value like others.
        """
        plain = dict(values)
        expressions: dict[str, RowExpression] = {}
        objects = [name for name, value in values.items() if isinstance(value, Mapping) and "field" in value]
        if objects:
            nameable = RowPage(model, None).nameable()
            for name in objects:
                field = _computable(model, name)
                if field is not None and field.name in nameable:
                    expressions[name] = RowExpression.read(model, name, field, plain.pop(name))
        return cls(model, plain, expressions)

    @property
    def is_empty(self) -> bool:
        """Whether there are no expressions among the values."""
        return not self.expressions

    @property
    def told(self) -> Mapping[str, Any]:
        """The values as a question tells them: of an expression its text."""
        texts = {name: expression.told for name, expression in self.expressions.items()}
        return {**self.plain, **texts}

    @property
    def rereads(self) -> bool:
        """Whether the same write, made again, may give other values: an expression reads a field that it writes."""
        written = {*self.plain, *(expression.field.name for expression in self.expressions.values())}
        for expression in self.expressions.values():
            # Each write changes these: the time of the last one, and what the database computes of other columns.
            fields = [column.field for column in expression.columns.values()]
            changes = [getattr(field, "auto_now", False) or isinstance(field, GeneratedField) for field in fields]
            if any(changes) or expression.reads & written:
                return True
        return False

    def values_for(self, row: Model | None, label: str = "") -> dict[str, Any]:
        """Return the values to write to a row, with the value that each expression gives for it.

        ``row`` is locked and was just read; ``label`` names it in errors, "" where they are told by row. Raises
        ``ToolError`` if an expression has no value for the row: a field is NULL, the result has more digits than the
        field, or the row hides a field. A row that has to be created, None, has no values to compute with.
        """
        given = dict(self.plain)
        for name, expression in self.expressions.items():
            if row is None:
                raise ToolError(f"{NOT_SAVED} the row is new, and has nothing to compute {name} from.")
            given[name] = expression.value_for(self.model, row, label)
        return given


def _computable(model: ModelAccess, name: str) -> Any:
    """Return the model field of a name if it holds numbers, dates or durations; None for any other name."""
    for field in model.exposure.opts.concrete_fields:
        if name in (field.name, field.attname) and not field.is_relation and kind_of(field).word in KINDS:
            return field
    return None


def _step(name: str, word: str, given: Mapping[str, Any]) -> Fraction | None:
    """Return the step that an expression is rounded to, None for no rounding."""
    if "round" not in given:
        return None
    if word not in NUMBERS:
        raise ToolError(f"{name}: round is for numbers, and this field holds a {word}.")
    text = given["round"]
    if isinstance(text, (int, float)) and not isinstance(text, bool) and abs(text) < MAX_STEP:
        text = str(text)
    is_number = isinstance(text, str) and _STEP.fullmatch(text)
    if not is_number or not Fraction(text):
        raise ToolError(f'{name}: round is a step, such as "0.10", "1" or "5", to which it rounds half up.')
    return Fraction(text)


def _value(field: Any, row: Model, label: str) -> Value:
    """Return the value of a row's field. Raises ``ToolError``, which names the field, if nothing can be made of it."""
    try:
        stored = getattr(row, field.attname)
    except VALUE_ERRORS:
        raise _refusal(field.name, label, "cannot be read") from None
    if stored is None:
        raise ToolError(f"{NOT_SAVED} {label or 'it'} has no {field.name}.")
    try:
        return value_in_row(stored, kind_of(field).word)
    except NotComputed as error:
        raise _refusal(field.name, label, error) from None


def _refusal(name: str, label: str, cause: object) -> ToolError:
    of = f" of {label}" if label else ""
    return ToolError(f"{NOT_SAVED} {name}{of} {cause}.")


def _choice(choices: Sequence[tuple[Any, Any]], found: Value, word: str) -> str:
    """Return the one of a field's choices that has this value: a form also takes a choice by its label."""
    for stored, _ in choices:
        try:
            if value_in_row(stored, word) == found:
                return str(stored)
        except NotComputed:
            # A text, or none.
            continue
    told = shown(found) if isinstance(found, Fraction) else str(found)
    raise NotComputed(f"would be {told}, which is not one of its choices")


class _Respelling:
    """The correction of a name in an expression, wherever the arguments of a call have this expression."""

    def __init__(self, name: str, given: Mapping[str, Any], wrong: str) -> None:
        self.name = name
        self.given = given
        self.wrong = re.compile(rf"(?<![\w.]){re.escape(wrong)}(?![\w.])")

    def repair(self, right: str) -> Repair:
        """Return the repair that writes ``right`` in place of the wrong name."""
        text = self.wrong.sub(lambda _: right, self.given["field"])
        return Repair(lambda arguments: self._mended(dict(arguments), {**self.given, "field": text}))

    def _mended(self, within: Any, right: Mapping[str, Any]) -> Any:
        if isinstance(within, list):
            return [self._mended(item, right) for item in within]
        if not isinstance(within, dict):
            return within
        mended = {}
        for key, item in within.items():
            is_meant = key == self.name and item == self.given
            mended[key] = right if is_meant else self._mended(item, right)
        return mended

"""Measures of an aggregation: their values in the query and as JSON."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.db.models import F, Value

from ...context.request import MCPRequest
from ..access import MAX_NAME
from ..arithmetic import INTEGER
from ..column_values import field_renderer, render, render_column, trimmed
from ..columns import Column
from ..fields import kind_of
from ..labels import labels_for
from ..nearest_names import Misnamed
from ..suggestions import with_field
from ..undecodable_values import UNDECODABLE
from .functions import (
    FUNCTIONS,
    MAX_DECIMALS,
    Amount,
    UnitField,
)

# Kinds of values, as in ``Measure.kind``.
NUMBER: Final = "number"
DATES: Final = ("date", "datetime")
DEFAULT_UNIT: Final = "days"
# Significant digits of a floating point number that is shown.
MAX_FIGURES: Final = 10
# Maximum characters of a value that is shown.
MAX_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure (aggregate) of ``aggregate_records``: its ``title`` for the caller, its ``alias`` in the query.

    The alias is generated: text from a client is never a name in SQL. ``result`` is the type of the values. A measure
    derived from others (``sources``) has an expression of their aliases, and ``derive`` computes it from their values.
    With a ``unit``, a duration is shown as a number; with a ``column``, values are shown as in that column.
    """

    title: str
    alias: str
    expression: Any
    result: Any = INTEGER
    function: str = "count"
    narrowed: tuple[str, ...] = ()
    sources: tuple["Measure", ...] = ()
    derive: Callable[..., Any] | None = None
    unit: timedelta | None = None
    column: Column | None = None

    @property
    def depth(self) -> int:
        """Depth of a derived measure: the measures that it is derived from, one after the other; 0 for a plain one."""
        if self.sources:
            return 1 + max(source.depth for source in self.sources)
        return 0

    @property
    def has_change(self) -> bool:
        """Whether the measure is a change from the period before, or derived from one."""
        return self.function == "change" or any(source.has_change for source in self.sources)

    @property
    def kind(self) -> str:
        """The kind of a measure's values; a duration shown in a unit is a number."""
        word = kind_of(self.result).word
        if word in ("integer", "decimal", "number") or self.unit is not None:
            return NUMBER
        return word

    @property
    def amount(self) -> Any:
        """The measure as an SQL number, by which another measure can divide."""
        found = Amount(F(self.alias))
        if self.unit is not None:
            return found / Value(self.unit.total_seconds())
        return found

    @property
    def is_rounded(self) -> bool:
        """Whether the values of the measure are shown as numbers rounded by :func:`rounded`."""
        has_places = isinstance(self.result, UnitField) or self.function in ("count", "sum", "min", "max")
        return self.unit is not None or not has_places

    def number(self, value: Any) -> float | None:
        """Return a value of the measure as the number that :attr:`amount` is in SQL."""
        if isinstance(value, timedelta):
            return value / (self.unit or timedelta(seconds=1))
        if value is None or value is UNDECODABLE:
            return None
        return float(value)

    def combined(self) -> Any:
        """Combine a measure over several groups: return the aggregate, None if the groups' values are not enough."""
        function = FUNCTIONS.get(self.function)
        combine = function.combine if function is not None else None
        if combine is not None:
            return combine(self.alias, output_field=self.result)
        return None

    @property
    def shown_column(self) -> Column | None:
        """The column whose values are shown; None if they are computed."""
        return self.column

    @property
    def shown_field(self) -> Any:
        """The field that says of what type computed values are."""
        return self.result

    def shown(self, request: MCPRequest, values: Sequence[Any]) -> list[Any]:
        """Return the values as JSON."""
        if self.column is not None:
            return shown_values(request, self.column, values)
        if self.unit is not None:
            values = [value / self.unit if isinstance(value, timedelta) else value for value in values]
        if self.is_rounded:
            return [render(rounded(value)) for value in values]
        places = getattr(self.result, "decimal_places", None)
        return [render(trimmed(value, places)) for value in values]


def shown_values(request: MCPRequest, column: Column, values: Sequence[Any]) -> list[Any]:
    """Return the values of a measure's column as JSON; a relation as ``[key, label]``."""
    places = getattr(column.field, "decimal_places", None)
    whole = [trimmed(value, places) for value in values] if places is not None else values
    keys, _ = render_column(column.name, field_renderer(column.field, MAX_TEXT, ""), whole)
    if not column.is_foreign_key:
        return keys
    labels = labels_for(request, column.field, values)
    return [None if key is None else [key, labels.get(value)] for key, value in zip(keys, values, strict=True)]


def rounded(value: Any) -> Any:
    """Round a measure: a float to its significant digits, a decimal to a number of places."""
    if isinstance(value, float):
        return float(f"{value:.{MAX_FIGURES}g}")
    if not isinstance(value, Decimal) or not value.is_finite():
        return value
    short = round(value, MAX_DECIMALS).normalize()
    return short if short else Decimal(0)


def find_title(titles: Sequence[str], text: str) -> int | None:
    """Find a measure by its title, or as it was asked for (``sum:total``), and return its position."""

    def plain(name: str) -> str:
        return re.sub(r"[:._()]+", "_", name).strip("_").lower()

    if text in titles:
        return titles.index(text)
    meant = plain(text[:MAX_NAME])
    return next((position for position, title in enumerate(titles) if plain(title) == meant), None)


def position_of(titles: Sequence[str], name: str, message: str, member: str) -> int:
    """Return the position of the measure that a client names in an argument; raise ``Misnamed`` for an unknown name."""
    position = find_title(titles, name)
    if position is None:
        raise Misnamed(message, name, titles, partial(with_field, name, within=(member,)))
    return position


def alike(*measures: Measure) -> list[Measure]:
    """Return measures in one kind, for a measure that combines them: durations as such, or numbers in their units."""
    durations = all(kind_of(measure.result).word == "duration" for measure in measures)
    if durations:
        return [replace(measure, unit=None) for measure in measures]
    return list(measures)

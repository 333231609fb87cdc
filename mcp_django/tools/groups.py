"""What ``aggregate_records`` groups by: fields, also of related models, and the periods and weekdays of dates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from django.db.models import DateField, DateTimeField, Q, Value
from django.db.models.functions import (
    ExtractIsoWeekDay,
    TruncDay,
    TruncHour,
    TruncMonth,
    TruncQuarter,
    TruncWeek,
    TruncYear,
)

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..orm.arguments import alternatives
from ..orm.columns import field_renderer, render_column
from ..orm.kinds import kind_of
from ..orm.relations import labels_for
from .measures import trimmed
from .targets import Target, is_groupable, is_period, target_of

__all__ = ["PERIODS", "Group", "group_of"]

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MAX_TEXT: Final = 200


def _quarter(value: date) -> str:
    return f"{value.isoformat()[:4]}-Q{(value.month + 2) // 3}"


def _week(value: date) -> str:
    year, week, _ = value.isocalendar()
    return f"{year:04}-W{week:02}"


# What computes a period from a column, and how its value is written.
PERIODS: Final[Mapping[str, tuple[Callable[..., Any], Callable[[Any], str]]]] = {
    "year": (TruncYear, lambda value: value.isoformat()[:4]),
    "quarter": (TruncQuarter, _quarter),
    "month": (TruncMonth, lambda value: value.isoformat()[:7]),
    "week": (TruncWeek, _week),
    "day": (TruncDay, lambda value: value.isoformat()[:10]),
    "hour": (TruncHour, lambda value: value.isoformat()[:13]),
    "weekday": (ExtractIsoWeekDay, lambda value: WEEKDAYS[value - 1]),
}


@dataclass(frozen=True, slots=True)
class Group:
    """One column that rows are grouped by: its ``title`` for the caller, its ``alias`` in the query.

    The alias is made here: what a client writes is never a name in SQL.
    """

    title: str
    alias: str
    target: Target
    period: str = ""

    @property
    def narrowed(self) -> tuple[str, ...]:
        """See :class:`~mcp_django.tools.targets.Target`."""
        return self.target.narrowed

    @property
    def expression(self) -> Any:
        """What the query groups by."""
        if not self.period:
            return self.target.expression
        function, _ = PERIODS[self.period]
        # As dates, the values of all but hours can be compared without regard to time zones.
        options = {} if self.period in ("hour", "weekday") else {"output_field": DateField()}
        return function(self.target.expression, **options)

    def equals(self, value: Any) -> Q:
        """Return the condition that the group has a value that the query gave."""
        if value is None:
            return Q((f"{self.alias}__isnull", True))
        if isinstance(value, datetime) and self.period:
            value = TruncHour(Value(value, output_field=DateTimeField()))
        return Q((self.alias, value))

    def shown(self, request: MCPRequest, values: Sequence[Any]) -> list[Any]:
        """Return the values as JSON; a relation as ``[key, label]``."""
        if self.period:
            _, write = PERIODS[self.period]
            return [None if value is None else write(value) for value in values]
        column = self.target.column
        places = getattr(column.field, "decimal_places", None)
        whole = [trimmed(value, places) for value in values] if places is not None else values
        keys, _ = render_column(column.name, field_renderer(column.field, MAX_TEXT, ""), whole)
        if column.kind != "relation":
            return keys
        labels = labels_for(request, column.field, values)
        return [None if key is None else [key, labels.get(value)] for key, value in zip(keys, values, strict=True)]


def group_of(request: MCPRequest, exposure: Exposure, given: Any, position: int) -> Group:
    """Return what ``status``, ``customer__country`` or ``created:month`` groups by.

    Raises:
        ToolError: the caller cannot group by that.
    """
    if not isinstance(given, str):
        raise ToolError('group_by is a list of fields, a date also as "created:month".')
    name, _, period = given.partition(":")
    alias = f"mcp_g{position}"
    if not period:
        root, _, last = name.rpartition("__")
        try:
            target = target_of(request, exposure, name, is_groupable)
            return Group(target.name, alias, target)
        except ToolError:
            if not root or last not in PERIODS:
                raise
            # "created__month"
            name, period = root, last
    if period not in PERIODS:
        raise ToolError(f"Unknown period {period[:40]!r}. {alternatives(period, PERIODS)}")
    target = target_of(request, exposure, name, is_period)
    if period == "hour" and kind_of(target.column.field).word == "date":
        raise ToolError(
            f"{target.name} has no hours. {alternatives(period, (name for name in PERIODS if name != period))}"
        )
    return Group(f"{target.name}:{period}", alias, target, period)

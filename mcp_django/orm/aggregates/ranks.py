"""Measures by the rank of rows, for databases that have no aggregate functions for them: MySQL and MariaDB.

A derived table ranks the rows of each group by a window function, and says what each row adds to the measure. An
aggregate function then puts that together by groups: the sum for a percentile, the greatest value for the first row.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.db import NotSupportedError
from django.db.models import (
    Case,
    CompositePrimaryKey,
    Count,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    QuerySet,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.expressions import Combinable, OrderBy
from django.db.models.functions import Abs, Greatest, RowNumber
from django.db.models.lookups import Exact, IsNull

from ...context.databases import ranks_rows
from ..arithmetic import Scaled

KEY: Final = "mcp_key"
PART: Final = "mcp_part"


def as_computed(function: Any, rows: QuerySet[Any], groups: Mapping[str, Any]) -> Any:
    """Return an aggregate function of rows as their database computes it: by rank, if it takes an order.

    Raises ``NotSupportedError`` for rows that cannot be ranked.
    """
    if ranks_rows(rows.db) and hasattr(function, "by_rank"):
        return function.by_rank(RankedRows(rows, groups))
    return function


class RankedRows:
    """The rows of a queryset, ranked within their groups; ``groups`` are expressions by aliases."""

    def __init__(self, rows: QuerySet[Any], groups: Mapping[str, Any]) -> None:
        if isinstance(rows.model._meta.pk, CompositePrimaryKey):
            raise NotSupportedError("it ranks rows by their keys, and a key of several columns is not one value.")
        names = {f"mcp_ranked_{alias}": expression for alias, expression in groups.items()}
        self.rows = rows.order_by().annotate(**names)
        self.partition = [F(name) for name in names]

    def percentile(self, value: Any, share: float) -> Any:
        """Return what each row adds to the percentile of a number: the two rows around its place, a part of each."""
        rows = self.rows.annotate(mcp_ranked_value=value)
        value = F("mcp_ranked_value")
        position = self._number([OrderBy(value, nulls_last=True)])
        number = Window(Count(value), partition_by=self.partition or None)

        # Both numbers count from 0, so that the share 1 is the last row.
        place = (number - Value(1)) * Value(share)
        distance = Abs(ExpressionWrapper(position - Value(1) - place, output_field=FloatField()))
        weight = Greatest(ExpressionWrapper(Value(1.0) - distance, output_field=FloatField()), Value(0.0))
        part = ExpressionWrapper(Scaled(value, Combinable.MUL, weight), output_field=FloatField())
        return self._parts(rows, Case(When(IsNull(value, False), then=part)))

    def edge(self, value: Any, places: list[Any], *, descending: bool) -> Any:
        """Return what each row adds to the value of the first row by an order: its value, NULL for all others.

        Rows whose first place is NULL do not count.
        """
        order = [OrderBy(place, descending=descending, nulls_last=True) for place in places]
        part = Case(When(Exact(self._number(order), Value(1)), then=value), output_field=value.output_field)
        return self._parts(self.rows, part)

    def _number(self, order: list[Any]) -> Window:
        return Window(RowNumber(), partition_by=self.partition or None, order_by=order)

    def _parts(self, rows: QuerySet[Any], part: Any) -> "PartOfRow":
        ranked = rows.annotate(**{PART: part, KEY: F("pk")}).values(KEY, PART)
        return PartOfRow(F("pk"), Subquery(ranked, output_field=part.output_field))


class PartOfRow(Func):
    """What a row adds to a measure: the value that a query of keys and parts has for the row's key."""

    def __init__(self, key: Any, ranked: Subquery, **extra: Any) -> None:
        super().__init__(key, ranked, **extra)

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> Any:  # type: ignore[override]
        """Return the look-up in the derived table, which the database makes once for the whole query."""
        key, ranked = self.get_source_expressions()
        key_sql, key_params = compiler.compile(key)
        ranked_sql, ranked_params = compiler.compile(ranked)
        quote = connection.ops.quote_name
        wanted = f"SELECT mcp_ranked.{quote(PART)} FROM {ranked_sql} mcp_ranked"
        return f"({wanted} WHERE mcp_ranked.{quote(KEY)} = {key_sql})", (*ranked_params, *key_params)

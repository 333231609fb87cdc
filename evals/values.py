"""What the values of a SELECT statement are: columns, parts of dates, texts that were cut, aggregates."""

import re
from collections.abc import Iterator
from typing import Any, Final

from sqlglot import exp

from .scopes import is_date

ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div)
COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
NOW: Final = (exp.CurrentTimestamp, exp.CurrentDate)
# Around a value that a caller can put around it too.
ROUNDED: Final = (exp.Round, exp.Coalesce, exp.Nullif)
NUMBER_OR_DATE: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?$|[0-9]{4}-[0-9]{2}")
# Where SUBSTR of a date in ISO 8601 begins, its length, and what that is for STRFTIME.
DATE_PARTS: Final = {(1, 4): "%Y", (1, 7): "%Y-%m", (1, 10): "%Y-%m-%d", (6, 2): "%m", (5, 2): "%m", (9, 2): "%d"}


def kind(node: Any) -> str:
    """Return what a value is of: a column, a part of a date, a text that was cut, an aggregate ..."""
    if isinstance(node, exp.Alias | exp.Paren | exp.TsOrDsToTimestamp | exp.Neg | exp.Nullif):
        return kind(node.this)
    if isinstance(node, exp.Cast):
        inner = kind(node.this)
        return "parsed" if inner in ("text", "prefix") else inner
    if isinstance(node, exp.Literal):
        return "now" if node.name.lower() == "now" else "constant"
    if isinstance(node, NOW) or (isinstance(node, exp.Anonymous) and not node.expressions):
        return "now"
    if isinstance(node, exp.Null | exp.Boolean | exp.Star):
        return "constant"
    if isinstance(node, exp.Column):
        return "column"
    if isinstance(node, exp.Subquery | exp.Select):
        return "subquery"
    if isinstance(node, exp.Window):
        return "window"
    if has_aggregate(node):
        return "aggregate"
    if isinstance(node, exp.Round | exp.Coalesce):
        return "case" if kind(node.this) in ("column", "arithmetic") else kind(node.this)
    if isinstance(node, exp.Case | exp.If):
        parsed = any(kind(part) == "parsed" for part in (*branches(node)[1], branches(node)[2]) if part is not None)
        return "parsed" if parsed else "case"
    if isinstance(node, (*COMPARISONS, exp.And, exp.Or, exp.Not, exp.Like, exp.In, exp.Is, exp.Between)):
        return "boolean"
    return _computed(node)


def _computed(node: Any) -> str:
    if isinstance(node, exp.TimeToStr | exp.Year | exp.Month):
        return {"now": "nowpart", "column": "part", "date": "part"}.get(kind(node.this), "text")
    if isinstance(node, exp.Date):
        return {"now": "now", "column": "date"}.get(kind(node.this), "date")
    if isinstance(node, exp.Anonymous):
        inner = kind(node.expressions[0])
        known = node.name.upper() in ("JULIANDAY", "DATETIME", "UNIXEPOCH")
        return {"now": "now", "column": "date"}.get(inner, inner) if known else "text"
    if isinstance(node, exp.Substring):
        return _cut(node)
    if isinstance(node, exp.Upper | exp.Lower | exp.Trim):
        return "folded" if kind(node.this) == "column" else "text"
    return _arithmetic(node) if isinstance(node, ARITHMETIC) else "text"


def _cut(node: Any) -> str:
    inner, start, length = kind(node.this), node.args.get("start"), node.args.get("length")
    if inner in ("now", "nowpart"):
        return "nowpart"
    if inner not in ("column", "date") or not isinstance(start, exp.Literal):
        return "text"
    where = (int(start.name), int(length.name)) if isinstance(length, exp.Literal) else (int(start.name), 0)
    column = node.find(exp.Column)
    if is_date(column.name) and where in DATE_PARTS:
        return "part"
    return "prefix" if where[0] == 1 else "text"


def _arithmetic(node: Any) -> str:
    kinds = {kind(node.left), kind(node.right)} - {"constant"}
    for found in ("subquery", "window", "parsed", "case", "age"):
        if found in kinds:
            return found
    if kinds & {"text", "prefix", "folded"}:
        return "parsed"
    if kinds & {"now", "nowpart"}:
        return "age" if kinds - {"now", "nowpart"} else "constant"
    if kinds & {"part", "years", "boolean"}:
        return "years" if kinds - {"boolean"} else "case"
    if "date" in kinds or "days" in kinds:
        return "days"
    return "arithmetic" if kinds else "constant"


def has_aggregate(node: Any) -> bool:
    """Return whether a value is made of aggregates of the query itself."""
    return any(True for _ in aggregates(node))


def aggregates(node: Any) -> Iterator[Any]:
    """Yield the aggregates of the query itself: none of windows or subqueries."""
    if isinstance(node, exp.Window | exp.Subquery | exp.Select):
        return
    if isinstance(node, exp.AggFunc):
        yield node
    elif isinstance(node, exp.Expression):
        for child in node.iter_expressions():
            yield from aggregates(child)


def bare(node: Any) -> Any:
    """Return a value without brackets, names, casts and rounding."""
    while isinstance(node, (exp.Alias, exp.Paren, exp.Cast, *ROUNDED)):
        node = node.this
    return node


def branches(node: Any) -> tuple[list[Any], list[Any], Any]:
    """Return the conditions of a CASE or IIF, the values, and that of all others."""
    if isinstance(node, exp.If):
        return [node.this], [node.args["true"]], node.args.get("false")
    ifs = node.args["ifs"]
    found = [
        part.this if node.this is None else exp.EQ(this=node.this.copy(), expression=part.this.copy()) for part in ifs
    ]
    return found, [part.args["true"] for part in ifs], node.args.get("default")


def is_empty(node: Any) -> bool:
    """Return whether a value adds nothing to a sum."""
    return node is None or isinstance(node, exp.Null) or (isinstance(node, exp.Literal) and node.name in ("0", "0.0"))


def is_word(node: Any) -> bool:
    """Return whether a value is a text that is neither a number nor a date."""
    node = bare(node)
    return isinstance(node, exp.Literal) and bool(node.is_string) and not NUMBER_OR_DATE.match(node.name)


def without_factors(node: Any) -> tuple[Any, bool]:
    """Return a value without the numbers that it is multiplied with or divided by, and whether there were any."""
    node, factored = bare(node), False
    while isinstance(node, exp.Mul | exp.Div):
        kinds = [kind(node.left), kind(node.right)]
        if kinds[1] == "constant":
            node, factored = bare(node.left), True
        elif kinds[0] == "constant" and isinstance(node, exp.Mul):
            node, factored = bare(node.right), True
        else:
            break
    return node, factored

"""The measures of ``aggregate_records``, those derived from others, and conditions on them: ``having``."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from math import floor, log10
from typing import Any, Final, NamedTuple

from django.db.models import CompositePrimaryKey, Count, F, IntegerField, Q, Subquery, Value
from django.db.models.functions import Coalesce, NullIf
from django.db.models.lookups import GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..orm.access import MAX_NAME, Link, ModelAccess
from ..orm.aggregate_functions import (
    EDGES,
    FUNCTIONS,
    MAX_DECIMALS,
    Amount,
    OverGroups,
    UnitField,
    Units,
    edge,
    exact_field,
    middle,
    result_of,
)
from ..orm.alternative_spellings import OPERATORS, aggregate_meant, as_aggregate, filters_meant, json_or_text
from ..orm.arithmetic import DURATION, FLOAT, INTEGER, is_expression, value_of
from ..orm.column_values import field_renderer, render, render_column, trimmed
from ..orm.columns import Column
from ..orm.conditions import COMPARISONS as BETWEEN
from ..orm.fields import UNITS, FieldPath, kind_of, parse_boolean, parse_operand, parse_value, stored_field
from ..orm.filter_parser import FilterReader
from ..orm.labels import labels_for
from ..orm.lookups import is_dated, parse_condition
from ..orm.nearest_names import Misnamed, alternatives
from ..orm.path import Target, target_of
from ..orm.suggestions import with_field
from ..orm.undecodable_values import UNDECODABLE

_TITLE: Final = re.compile(r"(?!groups$)[A-Za-z][A-Za-z0-9_]{0,39}")
_CALL: Final = re.compile(r"(\w{1,20})\((.*)\)")
_SPELLING: Final = (
    'An aggregate is "count", "sum:field", "sum:quantity*price", or {"function", "field", "where", "as"}; '
    'of two of them {"ratio": ["refunded", "count"]}. Several are a list.'
)
# Members of an object that describes an aggregate of rows.
_MEMBERS: Final = frozenset({"function", "field", "as", "where", "share", "unit", "order"})
SHARES: Final = "a share between 0 and 1, such as 0.9"
DEFAULT_UNIT: Final = "days"
# Kinds of values, as in ``Measure.kind``.
NUMBER: Final = "number"
DATES: Final = ("date", "datetime")
UNIT_SPELLING: Final = (
    'A duration is a number in a unit: {"function": "sum", "field": "working_time", "unit": "hours", "as": "hours"}.'
)
# Lookups that ``having`` accepts, and the maximum number of its conditions.
COMPARISONS: Final = (*BETWEEN, "range", "isnull")
MAX_COMPARISONS: Final = 10
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
        found = Amount(F(self.alias), FLOAT)
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
    if column.kind != "relation":
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


# Parsing


class Asked(NamedTuple):
    """An aggregate as the client asked for it."""

    function: str
    field: str = ""
    title: str = ""
    where: Any = None
    share: Any = None
    unit: Any = None
    sources: tuple[str, ...] = ()
    order: Any = None


def _asked(given: Any) -> Asked:
    """Parse one measure: an object, or a text such as ``sum:total``, ``sum(total)`` or ``ratio:a/b``."""
    given = json_or_text(given)
    if isinstance(given, str):
        called = _CALL.fullmatch(given.strip())
        name, _, text = (called[1], ":", called[2]) if called else given.strip().partition(":")
        name = name.strip().lower()
        text = text.strip()
        if name in DERIVED:
            separator = {"ratio": "/", "difference": "-"}.get(name)
            return Asked(name, sources=tuple(part.strip() for part in text.split(separator)) if separator else (text,))
        if name == "percentile":
            share = ""
            if ":" in text:
                text, _, share = text.rpartition(":")
            return Asked(name, text.strip(), share=share.strip())
        if name in EDGES:
            text, _, order = (part.strip() for part in text.partition(":"))
            return Asked(name, text, order=order)
        return Asked(name, text)
    if not isinstance(given, dict):
        raise ToolError(_SPELLING)
    given = as_aggregate(given, FUNCTIONS)
    title = given.get("as") or ""
    if not isinstance(title, str) or (title and not _TITLE.fullmatch(title)):
        raise ToolError("as must be a short name of letters, digits and underscores.")
    made = next((name for name in DERIVED if name in given), None)
    if made is not None and given.keys() <= {made, "as"}:
        sources = given[made] if isinstance(given[made], list) else [given[made]]
        if not all(isinstance(source, str) for source in sources):
            raise ToolError(_SPELLING)
        return Asked(made, title=title, sources=tuple(sources))
    name = given.get("function")
    text = given.get("field") or ""
    if not given.keys() <= _MEMBERS or not isinstance(name, str) or not isinstance(text, str):
        raise ToolError(_SPELLING)
    more = {member: given.get(member) for member in ("where", "share", "unit", "order")}
    return Asked(name.lower(), text, title, **more)


def _turned(given: str) -> str:
    """Return ``sum:total`` for a measure that says it as ``total:sum``, ``total__sum`` or ``sum of total``, else ""."""
    words = re.split(r"__|[\s.:=-]+", given)
    for word, field in ((words[0], given.removeprefix(words[0])), (words[-1], given.removesuffix(words[-1]))):
        name = aggregate_meant(word.lower())
        path = field.strip(" _.:=-").removeprefix("of ")
        if name in FUNCTIONS and path:
            return f"{name}:{path}"
    return ""


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


class MeasureReader:
    """Parser of the measures (argument ``aggregates``) that a caller asks for."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure

    def read(self, given: Sequence[Any]) -> tuple[Measure, ...]:
        """Parse measures: ``count``, ``sum:total`` or ``{"function": "sum", "field": "total", "as": "all"}``.

        Some are derived from others, which can come before or after them.
        """
        asked = list(map(_asked, given))
        found = {
            position: self.measure(item, f"mcp_a{position}") for position, item in enumerate(asked) if not item.sources
        }
        while waiting := [position for position in range(len(asked)) if position not in found]:
            titles = [measure.title for measure in found.values()]
            ready = (
                position
                for position in waiting
                if all(find_title(titles, name) is not None for name in asked[position].sources)
            )
            # If none is ready, the first one raises an error that names what it lacks.
            position = next(ready, waiting[0])
            later = [asked[number].title for number in waiting if asked[number].title]
            found[position] = _derived(asked[position], f"mcp_a{position}", list(found.values()), later)
        return tuple(found[position] for position in range(len(asked)))

    def measure(self, asked: Asked, alias: str) -> Measure:
        """Return the measure that aggregates rows, not other measures."""
        name = asked.function
        text = asked.field
        if name not in FUNCTIONS:
            message = f"Unknown aggregate {name[:40]!r}."
            meant = aggregate_meant(name)
            # An unknown function without a field may be a field without its function.
            near: list[str] | None = []
            if text:
                near = [meant] if meant in FUNCTIONS else None
            given = f"{name}:{text}" if text else name
            if meant not in FUNCTIONS and (turned := _turned(given)):
                name = given
                near = [turned]
            repair = partial(with_field, name, within=("aggregates",))
            more = "" if near else ' Write "count", or a function with its field, such as "sum:total".'
            raise Misnamed(message, name, [*FUNCTIONS, *DERIVED], repair, near, more, of=None if near else "")
        where: dict[str, Any] = {}
        if asked.where is not None:
            where["filter"] = FilterReader(self.model).where(asked.where)
        if text in ("", "*"):
            if name != "count":
                raise ToolError(f'The aggregate {name} needs a field, such as "{name}:total".')
            return Measure(asked.title or "count", alias, Count(Value(1), **where) if where else Count("*"))
        function = FUNCTIONS[name]
        suffix = ""
        if name == "percentile":
            try:
                share = float(asked.share)
            except (TypeError, ValueError):
                share = -1.0
            # Accept percent too: people write 90 for 0.9.
            share = share / 100 if 1 < share <= 100 else share
            if not 0 <= share <= 1:
                raise ToolError(
                    f'percentile needs {SHARES}: {{"function": "percentile", "field": "total", "share": 0.9}}.'
                )
            function = middle(share)
            suffix = f"_{share:g}".replace(".", "_")
        several = self.to_several(text)
        if several is not None:
            return self.over_related(asked, alias, *several, where)
        if name in EDGES:
            return self.edge(asked, alias, where)
        target = value_of(self.model, text, function.usable)
        result = result_of(function, target.column)
        unit, word = _unit(asked.unit, result, is_expression(text))
        title = asked.title or f"{name}{suffix}_{target.name}{word}"
        if isinstance(target.column.field, CompositePrimaryKey):
            # Every row has a key of its own, and no database counts keys of several columns.
            expression = Count(Value(1), **where)
        else:
            expression = function.make(target.expression, output_field=result, **where)
        return Measure(
            title, alias, expression, result, name, target.narrowed, unit=unit, column=_text_column(result, target)
        )

    def edge(self, asked: Asked, alias: str, where: Mapping[str, Any]) -> Measure:
        """Return the measure ``first`` or ``last``: the value of one row by an order, then by the key."""
        name = asked.function
        given = asked.order
        if not isinstance(given, str) or not given.strip("+- "):
            raise ToolError(f'{name} needs an order: {{"function": "{name}", "field": "status", "order": "created"}}.')
        turned = given.strip().startswith("-")
        text = given.strip().lstrip("+-")
        target = target_of(self.model, asked.field, lambda column: column.is_groupable())
        order = value_of(self.model, text, lambda column: column.is_ordering())
        keys = [F(field.attname) for field in self.exposure.opts.pk_fields]
        result = stored_field(target.column.field)
        last = (name == "last") is not turned
        value = edge(target.expression, order.expression, keys, last=last, result=result, **where)
        title = asked.title or f"{name}_{target.name}"
        return Measure(title, alias, value, result, name, (*target.narrowed, *order.narrowed), column=target.column)

    def over_related(self, asked: Asked, alias: str, link: Link, text: str, where: Mapping[str, Any]) -> Measure:
        """Return the measure of related rows, each counted once by a subquery."""
        name = asked.function
        if name not in ("count", "sum", "min", "max"):
            raise ToolError(f"{name} of several related rows: aggregate {link.exposure.label} itself.")
        function = FUNCTIONS[name]
        target = value_of(link.related, text, function.usable) if text else None
        result = result_of(function, target.column) if target is not None else INTEGER
        inner = function.make(target.expression, output_field=result) if target is not None else Count("*")
        rows = link.rows().annotate(mcp_all=Value(1)).values("mcp_all")
        each = Subquery(rows.annotate(mcp_value=inner).values("mcp_value"), output_field=result)
        unit, word = _unit(asked.unit, result, is_expression(text))
        assert function.combine is not None
        expression = function.combine(each, output_field=result, **where)
        if name == "count":
            expression = Coalesce(expression, Value(0), output_field=INTEGER)
        title = asked.title or f"{name}_{asked.field.replace('.', '__')}{word}"
        narrowed, column = (target.narrowed, _text_column(result, target)) if target is not None else ((), None)
        return Measure(title, alias, expression, result, name, narrowed, unit=unit, column=column)

    def to_several(self, text: str) -> tuple[Link, str] | None:
        """Return the relation to several rows with which all fields of a measure begin, and the rest.

        Return None for an expression of fields of the row itself.
        """
        paths = re.findall(r"[^\W\d][\w.]*", text)
        roots = {path.replace(".", "__").partition("__")[0] for path in paths}
        links = [self.model.link(root) for root in roots]
        several = [link for link in links if link is not None and link.to_many]
        if not several:
            return None
        if len(roots) > 1:
            raise ToolError(f"{text[:60]!r} mixes rows: all of its fields have to begin with {several[0].name}.")
        root = next(iter(roots))
        return several[0], re.sub(rf"\b{re.escape(root)}(?:\.|__|$|(?=\W))", "", text)


def _text_column(result: Any, target: Target) -> Column | None:
    """Return the column in which the texts of a measure are shown, None for a measure of other values."""
    return target.column if kind_of(result).word == "text" else None


def _unit(given: Any, result: Any, is_computed: bool) -> tuple[timedelta | None, str]:
    """Return the unit of a measure that is a duration, and the word for the unit in titles."""
    if result.get_internal_type() != "DurationField" or (given is None and not is_computed):
        return None, ""
    word = given if given is not None else DEFAULT_UNIT
    unit = UNITS.get(word.lower()) if isinstance(word, str) else None
    if unit is None:
        raise ToolError(f"Unknown unit {str(word)[:20]!r}. {alternatives(str(word), UNITS)}")
    return unit, "_" + next(name for name, length in UNITS.items() if length == unit)


# Derived measures


def alike(*measures: Measure) -> list[Measure]:
    """Return measures in one kind, for a measure that combines them: durations as such, or numbers in their units."""
    durations = all(kind_of(measure.result).word == "duration" for measure in measures)
    if durations:
        return [replace(measure, unit=None) for measure in measures]
    return list(measures)


def _ratio(one: Measure, other: Measure) -> tuple[Any, Any, Any]:
    def derive(value: Any, by: Any) -> Any:
        dividend = one.number(value)
        divisor = other.number(by)
        if dividend is None or not divisor:
            return None
        return dividend / divisor

    return one.amount / NullIf(other.amount, Value(0.0)), FLOAT, derive


def _less(one: Measure, other: Measure) -> tuple[Any, Any, Any]:
    words = {kind_of(measure.result).word for measure in (one, other)}
    exact = exact_field([one.result, other.result])
    plain: Any = F(one.alias) - F(other.alias)
    if len(words) == 1 and words <= {"date", "datetime", "duration"}:
        exact = DURATION
    elif exact is not None and exact is not INTEGER:
        plain = Units(F(one.alias), output_field=exact) - Units(F(other.alias), output_field=exact)

    def derive(value: Any, by: Any) -> Any:
        if value is None or by is None:
            return None
        if exact is not None:
            return value - by
        return (one.number(value) or 0.0) - (other.number(by) or 0.0)

    if exact is not None:
        return (plain, exact, derive)
    return (one.amount - other.amount, FLOAT, derive)


# The derived functions, and how many measures each takes.
DERIVED: Final[Mapping[str, int]] = {"ratio": 2, "difference": 2, "percent_of_total": 1, "change": 1}


def _derived(asked: Asked, alias: str, measures: Sequence[Measure], later: Sequence[str]) -> Measure:
    """Derive a measure from others (ratio, difference); a reference to ``later`` ones would be a circle."""
    function = asked.function
    titles = [measure.title for measure in measures]
    sources = []
    for name in asked.sources:
        if find_title(titles, name) is None and find_title(later, name) is not None:
            raise ToolError(f"{function} uses {name[:60]!r}, which needs it or is not known.")
        message = f"{function} uses other aggregates of this call, not {name[:60]!r}."
        sources.append(measures[position_of(titles, name, message, "aggregates")])
    if len(sources) != DERIVED[function]:
        raise ToolError(f'{function} takes {DERIVED[function]}, as in {{"ratio": ["refunded", "count"]}}.')
    kinds = [source.kind for source in alike(*sources)]
    for source, kind in zip(sources, kinds, strict=True):
        if kind not in (NUMBER, "duration") and not (function == "difference" and kind in DATES):
            raise ToolError(f"{function} takes numbers and durations; {source.title} is neither.")
        if function == "change" and source.has_change:
            raise ToolError(f"change cannot use {source.title}, which is made from a change.")
    if len(set(kinds)) > 1:
        names = " and ".join(source.title for source in sources)
        ways = "two numbers, two dates or two durations" if function == "difference" else "two numbers or two durations"
        message = f"{function} takes {ways}: {names} are of different kinds."
        if "duration" in kinds and NUMBER in kinds:
            message += f" {UNIT_SPELLING}"
        raise ToolError(message)
    title = asked.title or "_".join([function, *(source.title for source in sources)])[:80]
    made: tuple[Any, Any, Any] = (None, FLOAT, None)
    if function in ("ratio", "difference"):
        made = (_ratio if function == "ratio" else _less)(*alike(*sources))
    narrowed = tuple(label for source in sources for label in source.narrowed)
    expression, result, derive = made
    unit = None
    if result is DURATION:
        unit = UNITS[DEFAULT_UNIT] if sources[0].kind in DATES else sources[0].unit
    if expression is not None:
        expression = OverGroups(expression, output_field=result)
    return Measure(title, alias, expression, result, function, narrowed, tuple(sources), derive, unit)


# Conditions on the groups


def having_of(measures: Sequence[Measure], value: Any) -> Q:
    """Parse the ``having`` of measures: ``{"sum_total__gte": 1000}`` or ``{"sum_total": {"gte": 1000}}``.

    A measure is compared with a value, or with another measure: ``{"sum_total__gt": {"field": "sum_paid"}}``.
    """
    value = json_or_text(value)
    if value is None or value == "":
        return Q()
    value = value if isinstance(value, dict) else filters_meant(value)
    if not isinstance(value, dict):
        raise ToolError('having must be an object such as {"count__gte": 10}.')
    titles = [measure.title for measure in measures]
    comparisons: list[tuple[str, str, Any]] = []
    for name, given in value.items():
        if isinstance(given, dict) and given.keys() != {"field"}:
            comparisons += [(name, lookup, item) for lookup, item in given.items()]
        elif find_title(titles, name) is not None:
            comparisons.append((name, "exact", given))
        else:
            root, _, lookup = name.rpartition("__")
            comparisons.append((root or name, lookup, given))
    if len(comparisons) > MAX_COMPARISONS:
        raise ToolError(f"having takes at most {MAX_COMPARISONS} conditions.")
    condition = Q()
    for name, lookup, given in comparisons:
        message = f"having compares an aggregate of this call, not {name[:60]!r}."
        position = position_of(titles, name, message, "having")
        if isinstance(given, dict) and given.keys() == {"field"}:
            field = given["field"]
            other = find_title(titles, field) if isinstance(field, str) else None
            if other is None:
                known = alternatives(str(field)[:60], titles)
                raise ToolError(f"having: field is an aggregate of this call. {known}")
            condition &= _with_other(measures[position], _lookup(lookup), measures[other])
        else:
            condition &= _compared(measures[position], _lookup(lookup), given)
    return condition


def _lookup(text: str) -> str:
    lookup = text if text in COMPARISONS else OPERATORS.get(text.removeprefix("$"), text)
    if lookup not in COMPARISONS:
        raise ToolError(f"having has no comparison {lookup[:40]!r}. {alternatives(lookup, COMPARISONS)}")
    return lookup


def _with_other(measure: Measure, lookup: str, other: Measure) -> Q:
    """Return the HAVING condition that compares two measures of one kind."""
    measure, other = alike(measure, other)
    compare = BETWEEN.get(lookup)
    kinds = [measure.kind, other.kind]
    if compare is None:
        raise ToolError(f"having compares two aggregates by {', '.join(BETWEEN)}.")
    if kinds == [NUMBER, NUMBER]:
        return Q(compare(measure.amount, other.amount))
    if kinds[0] != kinds[1]:
        names = f"{measure.title} and {other.title}"
        raise ToolError(f"having: {names} cannot be compared: a {kinds[0]} and a {kinds[1]}.")
    return Q(compare(F(measure.alias), F(other.alias)))


def _compared(measure: Measure, lookup: str, given: Any) -> Q:
    try:
        if lookup == "isnull":
            return Q((f"{measure.alias}__isnull", parse_boolean(measure.result, given)))
        if is_dated(measure.result):
            # A date can be relative, or stand for a whole day.
            found = parse_condition(FieldPath(measure.alias, measure.result, False, True), lookup, given)
            single = found.values[0] if found.lookup not in ("in", "range") else list(found.values)
            return Q((f"{measure.alias}__{found.lookup}", single))
        if lookup == "range" and (not isinstance(given, list) or len(given) != 2):
            raise ValueError("a list of two values: the first and the last")
        return _between(measure, lookup, given if lookup == "range" else [given])
    except ValueError as error:
        raise ToolError(f"having: {measure.title} with {lookup} needs {error}.") from None


def _as_shown(measure: Measure, lookup: str, given: Sequence[Any]) -> Q:
    """Return the HAVING condition that compares a measure's number as it is shown, not its further digits."""
    numbers = [parse_operand(FLOAT, item) for item in given]
    is_decimal = kind_of(measure.result).word == "decimal"

    def half(number: float) -> float:
        """Half of the last place that is shown."""
        if is_decimal:
            return 0.5 * 10.0**-MAX_DECIMALS
        if number:
            return 0.5 * 10.0 ** (floor(log10(abs(number))) - MAX_FIGURES + 1)
        return 0.0

    # What is nearer to a number than half of its last place is shown as the number.
    found = Q()
    if lookup in ("gte", "range", "exact"):
        found &= Q(GreaterThanOrEqual(measure.amount, numbers[0] - half(numbers[0])))
    if lookup in ("lte", "range", "exact"):
        found &= Q(LessThanOrEqual(measure.amount, numbers[-1] + half(numbers[-1])))
    if lookup == "gt":
        found &= Q(GreaterThan(measure.amount, numbers[0] + half(numbers[0])))
    if lookup == "lt":
        found &= Q(LessThan(measure.amount, numbers[0] - half(numbers[0])))
    return found


def _length(unit: timedelta, item: Any) -> timedelta:
    """Read a duration that is compared with a measure in a unit: a number of units, or a text such as ``90min``."""
    try:
        return timedelta(seconds=parse_operand(FLOAT, item) * unit.total_seconds())
    except ValueError:
        pass
    try:
        found: timedelta = parse_operand(DURATION, item)
    except ValueError as error:
        word = next(name for name, length in UNITS.items() if length == unit)
        raise ValueError(f"a number of {word}, or {error}") from None
    return found


def _between(measure: Measure, lookup: str, given: Sequence[Any]) -> Q:
    parse: Any = parse_value if lookup == "exact" else parse_operand
    unit = measure.unit
    result = measure.result
    if unit is None and measure.is_rounded and measure.kind == NUMBER and not isinstance(result, IntegerField):
        return _as_shown(measure, lookup, given)
    try:
        if unit is None:
            values = [parse(result, item) for item in given]
        else:
            values = [_length(unit, item) for item in given]
    except ValueError:
        if kind_of(measure.result).word != "decimal":
            raise
        # The number has more digits than the type of the measure: compare as floats.
        numbers = [parse_operand(FLOAT, item) for item in given]
        lookups = ("gte", "lte") if lookup == "range" else (lookup,)
        found = Q()
        for name, number in zip(lookups, numbers, strict=True):
            found &= Q(BETWEEN[name](measure.amount, number))
        return found
    return Q((f"{measure.alias}__{lookup}", values if lookup == "range" else values[0]))

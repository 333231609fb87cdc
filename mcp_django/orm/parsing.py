"""The argument ``filters``: an expression of conditions, which is read against what the caller may filter on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, Final, Literal

from django.db.models import IntegerField, Q

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from .access import related_exposure
from .arithmetic import combined, compared, shift, value_of
from .columns import Column, pk_text
from .conditions import COMPARISONS
from .filters import all_of, filters_of, find_filter
from .keys import key_meant, named_rows
from .kinds import kind_of, parse_integer
from .lookups import (
    MAX_VALUES,
    Applied,
    Comparison,
    Condition,
    Filter,
    Junction,
    NamedFilter,
    Offer,
    Path,
    Quantified,
    conditions_of,
    in_fixed_order,
    is_dated,
    named_filters_of,
    parse_condition,
    usual_lookups,
)
from .relative_dates import local_now
from .spellings import MISSPELT, OPERATORS, as_conditions, lookup_meant, name_meant
from .ways import Link, is_countable, link_of, target_of
from .wording import alternatives, is_short_text, json_or_text

MAX_FILTERS: Final = 20
MAX_DEPTH: Final = 4
MAX_TEXT: Final = 200
JUNCTIONS: Final[Mapping[str, Literal["and", "or", "not"]]] = {"and": "and", "or": "or", "not": "not"}
# One condition as an object of its own.
SPELT_OUT: Final = frozenset({"field", "value"})
# How many of the related rows pass.
QUANTIFIERS: Final[Mapping[str, Literal["some", "none", "every", "count"]]] = {
    **dict.fromkeys(("some", "any", "exists", "has"), "some"),
    **dict.fromkeys(("none", "no"), "none"),
    **dict.fromkeys(("every", "all"), "every"),
    "count": "count",
}
# What a field that is compared with another one may be moved by.
SHIFTS: Final[Mapping[str, str]] = {"plus": "+", "minus": "-"}
COUNT_FIELD: Final[Any] = IntegerField()
SOME_EXAMPLE: Final = '{"some": {"status": "paid"}}.'
COUNT_EXAMPLE: Final = '{"count__gte": 3}.'
EXAMPLE: Final = '{"status": "paid", "created__gte": "2026-01-01"}'


class _Unknown(Exception):
    """The caller has no filter on a field of that name."""


@dataclass(slots=True)
class _Reader:
    """Reads one expression; ``taken`` has one item for each condition that was read."""

    request: MCPRequest
    exposure: Exposure
    clock: Callable[[], datetime]
    sources: Sequence[NamedFilter]
    taken: list[None] = field(default_factory=list)
    # What stands before the names in the path that the client wrote.
    prefix: str = ""

    def read(self, given: Mapping[str, Any], depth: int) -> tuple[Filter, ...]:
        """Return what the object holds, all of which has to be true."""
        found: list[Filter] = []
        applied: dict[NamedFilter, dict[str, tuple[str, ...]]] = {}
        if given.keys() >= SPELT_OUT:
            given = self._spelt_out(given)
        for name, value in given.items():
            connector = JUNCTIONS.get(name.lower())
            if connector is not None and find_filter(self.request, self.exposure, name) is None:
                found.append(self._junction(connector, value, depth))
                continue
            source = next((source for source in self.sources if source.comes_first and name in source.names()), None)
            is_object = isinstance(value, dict) and not is_field(value)
            if source is None and is_object and (link := self._link(name, value)) is not None:
                found.append(self._related(link, value, depth))
                continue
            if source is None:
                conditions, source = self._conditions_or_source(name, value, depth)
                found += conditions
            if source is not None:
                applied.setdefault(source, {})[name] = self._values(source, name, value)
        return in_fixed_order([*found, *(Applied(source, values) for source, values in applied.items())])

    def _spelt_out(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``{"total": {"gt": 3}}`` for ``{"field": "total", "operator": ">", "value": 3}``."""
        operator = next((given[key] for key in ("operator", "op", "lookup") if key in given), "exact")
        extra = len(given) - len(SPELT_OUT) - any(key in given for key in ("operator", "op", "lookup"))
        name, known = given["field"], find_filter(self.request, self.exposure, "field") is not None
        if known or extra or not isinstance(name, str) or not isinstance(operator, str):
            return given
        return {name: {operator: given["value"]}}

    def _conditions_or_source(self, name: str, value: Any, depth: int) -> tuple[Sequence[Filter], NamedFilter | None]:
        """Return the conditions on the field, or the named filter where there is no such field or no such value."""
        try:
            return self._conditions(name, value), None
        except (_Unknown, ToolError) as error:
            source = next((source for source in self.sources if name in source.names()), None)
            if source is not None:
                return [], source
            if not isinstance(error, _Unknown):
                raise
        meant = name_meant(name)
        try:
            if meant is not None:
                return self._conditions(meant, value), None
        except _Unknown:
            pass
        return [self._behind(name, value, depth)], None

    def _junction(self, connector: Literal["and", "or", "not"], value: Any, depth: int) -> Junction:
        value = json_or_text(value)
        self._check_depth(depth)
        items = [value] if connector == "not" else value
        if not isinstance(items, list) or not all(isinstance(item, dict) and item for item in items) or not items:
            expected = f"an object such as {EXAMPLE}" if connector == "not" else f"a list of objects such as {EXAMPLE}"
            raise ToolError(f'"{connector}" takes {expected}. {MISSPELT}')
        parts = [self._all_of(self.read(item, depth + 1)) for item in items[: MAX_FILTERS + 1]]
        return Junction(connector, in_fixed_order(parts))

    def _all_of(self, found: tuple[Filter, ...]) -> Filter:
        return found[0] if len(found) == 1 else Junction("and", found)

    def _count(self) -> None:
        self.taken.append(None)
        if len(self.taken) > MAX_FILTERS:
            raise ToolError(f"filters takes at most {MAX_FILTERS} conditions.")

    def _check_depth(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise ToolError(f"filters may be nested {MAX_DEPTH} deep.")

    # Conditions on related rows

    def _link(self, name: str, value: Mapping[str, Any]) -> Link | None:
        """Return the relation of that name, unless the object has nothing but lookups of a column."""
        link = link_of(self.request, self.exposure, name)
        target = find_filter(self.request, self.exposure, name) if link is not None else None
        lookups = target[1] if target is not None else ()
        if lookups and all(key in lookups or lookup_meant(key, item, lookups) for key, item in value.items()):
            return None
        return link if self.exposure.get_filter_fields(self.request) is None or target is not None else None

    def _open_link(self, root: str) -> Link | None:
        """Return the relation that a path begins with, where anything may be asked of it."""
        is_open = self.exposure.get_filter_fields(self.request) is None
        return link_of(self.request, self.exposure, root) if is_open else None

    def _behind(self, name: str, value: Any, depth: int) -> Filter:
        """Return the condition on rows behind the first relation of a path: on some of them, where they are several.

        Raises:
            ToolError: it is no path of this caller.
        """
        root, _, rest = name.replace(".", "__").partition("__")
        link = self._open_link(root) if len(name) <= MAX_TEXT else None
        if link is None:
            raise ToolError(self._unknown(name))
        word, _, lookup = rest.partition("__")
        if rest == "isnull" or not rest:
            return self._related(link, {"exists": value is False} if rest else {"some": {"pk": value}}, depth)
        if QUANTIFIERS.get(word.lower()) == "count" and lookup:
            return self._related(link, {"count": {lookup: value}}, depth)
        return replace(self, prefix=f"{self.prefix}{root}__")._related(link, {rest: value}, depth)

    def _related(self, link: Link, value: Mapping[str, Any], depth: int) -> Filter:
        """Return what an object such as ``{"some": {...}}`` or ``{"count__gte": 3, "where": {...}}`` asks of rows."""
        self._check_depth(depth)
        where = value.get("where", {})
        parts: list[Filter] = []
        rest: dict[str, Any] = {}
        for key, item in value.items():
            word, _, lookup = key.lower().partition("__")
            quantifier = QUANTIFIERS.get(word)
            if key == "where" or quantifier is None:
                rest |= {} if key == "where" else {key: item}
            elif quantifier == "count":
                parts += self._counts(link, {lookup: item} if lookup else item, where, depth)
            else:
                quantifier, item = ("some" if item else "none", {}) if isinstance(item, bool) else (quantifier, item)
                parts.append(Quantified(link, quantifier, self._of_related(link, item, depth)))
        if rest:
            parts.append(Quantified(link, "some", self._of_related(link, rest, depth)))
        return self._all_of(in_fixed_order(parts)) if parts else Quantified(link, "some", ())

    def _of_related(self, link: Link, given: Any, depth: int) -> tuple[Filter, ...]:
        """Return the filters on the related rows."""
        given = as_conditions(json_or_text(given))
        if not isinstance(given, dict):
            raise ToolError(f"{link.name} takes filters on {link.exposure.label}: {SOME_EXAMPLE}")
        self._count()
        sources = link.exposure.get_named_filters(self.request)
        return replace(self, exposure=link.exposure, sources=sources).read(given, depth + 1)

    def _counts(self, link: Link, given: Any, where: Any, depth: int) -> list[Filter]:
        """Return what the number of related rows has to be."""
        parts = self._of_related(link, where, depth)
        found: list[Filter] = []
        for word, item in (given if isinstance(given, dict) else {"exact": given}).items():
            lookup = OPERATORS.get(word.lower().removeprefix("$"), word)
            try:
                if lookup not in COMPARISONS:
                    raise ValueError(f"one of {', '.join(COMPARISONS)}")
                found.append(Quantified(link, "count", parts, lookup, (parse_integer(COUNT_FIELD, item),)))
            except ValueError as error:
                raise ToolError(f"The number of {link.name} needs {error}, as in {COUNT_EXAMPLE}") from None
        return found

    # Conditions on fields

    def _conditions(self, name: str, value: Any) -> Sequence[Filter]:
        if not isinstance(value, dict) or is_field(value):
            return [self._condition(name, None, value)]
        if not value:
            raise ToolError(f"The filter {name[:60]!r} is empty.")
        return [self._condition(name, lookup, item) for lookup, item in value.items()]

    def _condition(self, name: str, lookup: str | None, value: Any) -> Filter:
        target, is_path = find_filter(self.request, self.exposure, name), False
        if target is None and lookup is None:
            root, _, last = name.rpartition("__")
            is_path = True
            target, lookup = find_filter(self.request, self.exposure, root) if root else None, last
        if target is None:
            self._count()
            raise _Unknown
        path, lookups = target
        lookup = _default_lookup(lookups, value) if lookup is None else lookup
        # Testing for null by another word needs no declaration of its own.
        if lookup in lookups or (value is None and lookup == "exact" and "isnull" in lookups):
            return self._compared(name, path, lookups, lookup, value)
        if isinstance(value, dict) and lookup.lower() in ("not", "$not"):
            return Junction("not", (self._all_of(in_fixed_order(self._conditions(name, value))),))
        meant = lookup_meant(lookup, value, lookups)
        if meant is None and is_path and path.field.is_relation and self._open_link(name.partition("__")[0]):
            # A field of the related row.
            raise _Unknown
        if meant is None:
            return self._compared(name, path, lookups, lookup, value)
        found = self._compared(name, path, lookups, meant[0], meant[1])
        return Junction("not", (found,)) if meant[2] else found

    def _compared(
        self, name: str, path: Path, lookups: Sequence[str], lookup: str, value: Any
    ) -> Condition | Comparison:
        self._count()
        if is_field(value) and kind_of(path.field).word not in ("json", "mapping"):
            return self._with_field(name, path, lookups, lookup, value)
        if not self.exposure.lookup_allowed(self.request, f"{path.column}__{lookup}", _as_in_url(value)):
            raise _Unknown
        wanted = "isnull" if value is None and lookup == "exact" else lookup
        if wanted not in lookups:
            known = alternatives(lookup, lookups)
            raise ToolError(f"The filter {name[:60]!r} takes other lookups. {known}{self._by_key(name)}")
        condition = self._parsed(name, path, lookup, value)
        if condition.lookup == "in" and lookup == "exact" and "in" not in lookups:
            raise ToolError(f"The filter {name[:60]!r} takes one value.")
        return condition

    def _with_field(
        self, name: str, path: Path, lookups: Sequence[str], lookup: str, value: Mapping[str, Any]
    ) -> Comparison:
        """Return the comparison of the field with another one of the row, or of a related row."""
        if lookup not in COMPARISONS or lookup not in lookups:
            raise ToolError(f"The filter {name[:60]!r} compares fields by {', '.join(COMPARISONS)}.")
        root = name if find_filter(self.request, self.exposure, name) is not None else name.rpartition("__")[0]
        left = target_of(self.request, self.exposure, root, is_countable)
        right = value_of(self.request, self.exposure, str(value["field"]), _is_compared)
        for word, sign in SHIFTS.items():
            if word in value:
                right = combined(right, sign, shift(value[word]))
        left, right = compared(left, right)
        return Comparison(left, lookup, right)

    def _parsed(self, name: str, path: Path, lookup: str, value: Any) -> Condition:
        """Return the condition; what is no key of a related row may name that row otherwise."""
        linked = path.field.is_relation and lookup in ("exact", "in")
        try:
            condition = parse_condition(path, lookup, value, self.clock() if is_dated(path.field) else None)
            missing = ""
        except ValueError as error:
            missing = f"The filter {name[:60]!r} with {lookup} needs {error}."
        related = related_exposure(self.request, path.field) if linked else None
        if related is not None and (missing or _is_longer(related.opts.pk, value)):
            try:
                return parse_condition(path, lookup, _keys(self.request, related, value, missing))
            except ToolError as refused:
                if missing and refused.message == missing and isinstance(value, str):
                    text = f"No {related.label} is named {value[:60]!r}: the{missing.removeprefix('The')}"
                    raise ToolError(text) from None
                if missing:
                    raise
        if missing:
            raise ToolError(missing)
        return condition

    def _unknown(self, name: str) -> str:
        known = [known for known, _, _ in filters_of(self.request, self.exposure)]
        known += [offer.name for offer in named_filters_of(self.request, self.exposure)]
        known += ["or", "and", "not"]
        names = alternatives(name, dict.fromkeys(known))
        root, by_year, _ = name.partition("__year__")
        if by_year and find_filter(self.request, self.exposure, root) is not None:
            names += f' A year is compared as {{"{root}__gte": "2026"}}.'
        return f"{self.exposure.label} has no filter {(self.prefix + name)[:60]!r}. {names}{self._by_key(name)}"

    def _by_key(self, name: str) -> str:
        """Return how to filter by what a relation leads to: by the keys of the rows there."""
        root, separator, _ = name.partition("__")
        target = find_filter(self.request, self.exposure, root) if separator else None
        if target is None or not target[0].field.is_relation:
            return ""
        related = related_exposure(self.request, target[0].field)
        return f" {root} takes primary keys: find them with query_records on {related.label}." if related else ""

    # Named filters

    def _values(self, source: NamedFilter, name: str, value: Any) -> tuple[str, ...]:
        self._count()
        offer = next((offer for offer in source.offers() if offer.name == name), None)
        if offer is None:
            raise ToolError(self._unknown(name))
        items = value if isinstance(value, list) else [value]
        if not 0 < len(items) <= (MAX_VALUES if source.takes_lists else 1):
            raise ToolError(f"The filter {name[:60]!r} takes one value.")
        return tuple(self._value(source, offer, item) for item in items)

    def _value(self, source: NamedFilter, offer: Offer, value: Any) -> str:
        if isinstance(value, bool):
            value = str(value).lower()
        text = str(value) if isinstance(value, (int, float)) else value
        if not is_short_text(text, MAX_TEXT):
            raise ToolError(f"The filter {offer.name!r} takes a text of at most {MAX_TEXT} characters.")
        found = source.value_of(offer, text)
        if found is None:
            told = next((known for known in source.told() if known.name == offer.name), offer)
            known = alternatives(text, [stored for stored, _ in told.choices])
            raise ToolError(f"The filter {offer.name!r} has no choice {text[:60]!r}. {known}")
        return found


def _is_compared(column: Column) -> bool:
    """Return whether the column's values are compared as they are stored, which those of encrypted ones are not."""
    return is_countable(column) and "exact" in usual_lookups(column.field)


def is_field(value: Any) -> bool:
    """Return whether a value is another field: ``{"field": "promised_at"}``, also with ``plus`` or ``minus``."""
    return isinstance(value, dict) and isinstance(value.get("field"), str) and value.keys() <= {"field", *SHIFTS}


def _is_longer(key: Any, value: Any) -> bool:
    """Return whether a text among the values is longer than any key."""
    longest = getattr(key, "max_length", None)
    items = value if isinstance(value, list) else [value]
    return longest is not None and any(isinstance(item, str) and len(item) > longest for item in items[:MAX_VALUES])


def _keys(request: MCPRequest, related: Exposure, value: Any, missing: str) -> Any:
    """Return the primary keys of the rows that a filter names, one of which at least is no key.

    Raises:
        ToolError: one names none of the caller's rows, or several.
    """
    if not isinstance(value, list):
        return key_meant(request, related, value, missing)
    if len(value) > MAX_VALUES:
        raise ToolError(missing)
    return [pk_text(row.pk) for row in named_rows(request, related, value, missing)]


def _as_in_url(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _default_lookup(lookups: Sequence[str], value: Any) -> str:
    """Return what a filter without a lookup means: equality, or the one lookup that there is."""
    if isinstance(value, list) and "in" in lookups:
        return "in"
    return "exact" if "exact" in lookups or len(lookups) != 1 else lookups[0]


def filters_argument(
    request: MCPRequest, exposure: Exposure, value: Any, clock: Callable[[], datetime] | None = None
) -> tuple[Filter, ...]:
    """Return the filters, all of which have to hold, in a fixed order.

    They are given as ``{field: value, field__lookup: value, field: {lookup: value}}``, with ``{"or": [..]}``,
    ``{"and": [..]}`` and ``{"not": {..}}`` among them. Relative dates are seen from the moment that ``clock``
    gives each time, by default that of the first question. Filters of the admin's sidebar that narrow its list when it
    is opened are among them until the caller chooses something of theirs.

    Raises:
        ToolError: a field or lookup is not one that the caller may use, or a value does not fit.
    """
    value = json_or_text(value)
    found: tuple[Filter, ...] = ()
    if value is not None and value != "":
        value = value if isinstance(value, dict) else as_conditions(value)
        if not isinstance(value, dict):
            raise ToolError(f"filters must be an object such as {EXAMPLE}. {MISSPELT}")
        sources = exposure.get_named_filters(request)
        found = _Reader(request, exposure, clock or cache(local_now), sources).read(value, 0)
    opening = exposure.get_opening_filters(request)
    return in_fixed_order([*found, *_left_open(found, opening)]) if opening else found


def condition_of(request: MCPRequest, exposure: Exposure, value: Any) -> Q:
    """Return the condition that filters are, as the ``where`` of an aggregate has them.

    Raises:
        ToolError: a field or lookup is not one that the caller may use, or a value does not fit.
    """
    given = as_conditions(json_or_text(value))
    if not isinstance(given, dict) or not given:
        raise ToolError(f"where must be an object such as {EXAMPLE}.")
    reader = _Reader(request, exposure, cache(local_now), exposure.get_named_filters(request))
    return all_of(request, exposure, exposure.get_queryset(request).db, reader.read(given, 0))


def _left_open(found: Sequence[Filter], opening: Sequence[NamedFilter]) -> Iterator[Applied]:
    """Yield the filters that narrow the list when it is opened and of which nothing is chosen."""
    chosen = {name for item in conditions_of(found, related=False) if isinstance(item, Applied) for name in item.values}
    for source in opening:
        if chosen.isdisjoint(source.names()):
            yield Applied(source, {})


def opening_hint(filters: Sequence[Filter]) -> Iterator[str]:
    """Yield what to say of filters that narrow though the caller has not named them."""
    names = [name for item in filters if isinstance(item, Applied) and not item.values for name in item.source.names()]
    if names:
        yield f"As in the admin, the filter {', '.join(names)} applies by itself: describe_model tells its choices."

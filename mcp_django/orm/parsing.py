"""The argument ``filters``: an expression of conditions, which is read against what the caller may filter on.

What is no filter of theirs, or no value for one, is a ``ToolError``, with what may be meant (``suggestions``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Final, Literal

from django.db.models import IntegerField, Q

from ..context.request import MCPRequest
from ..exceptions import Repair, ToolError
from ..exposures.base import ModelExposure
from .access import Link, access_of
from .arithmetic import compared
from .columns import Column, pk_text
from .comparisons import aggregate_in, aggregate_value, is_field, other_value
from .conditions import (
    COMPARISONS,
    Applied,
    Comparison,
    Condition,
    Filter,
    Junction,
    Quantified,
    Scope,
    in_fixed_order,
    left_open,
)
from .filters import find_filter
from .keys import RowFinder
from .kinds import FieldPath, kind_of, parse_integer
from .lookups import MAX_VALUES, OF_PARTS, PARTS, is_dated, parse_condition
from .named_filters import NamedFilter, Offer
from .path import target_of
from .relative_dates import local_now
from .suggestions import QUANTIFIERS, FilterSuggestions, open_link, with_argument, with_condition
from .wording import (
    MISSPELT,
    OPERATORS,
    as_conditions,
    filters_meant,
    is_short_text,
    json_or_text,
    lookup_meant,
    misnamed,
    name_meant,
    without_value,
)

MAX_FILTERS: Final = 20
MAX_DEPTH: Final = 4
MAX_TEXT: Final = 200
JUNCTIONS: Final[Mapping[str, Literal["and", "or", "not"]]] = {"and": "and", "or": "or", "not": "not"}
# One condition as an object of its own.
SPELT_OUT: Final = frozenset({"field", "value"})
COUNT_FIELD: Final[Any] = IntegerField()
# Names of the argument itself, within which some clients write the filters once more.
WRAPPERS: Final = frozenset({"filters", "filter", "where", "conditions"})
SOME_EXAMPLE: Final = '{"some": {"status": "paid"}}.'
COUNT_EXAMPLE: Final = '{"count__gte": 3}.'
EXAMPLE: Final = '{"status": "paid", "created__gte": "2026-01-01"}'


class _Unknown(Exception):
    """The caller has no filter on a field of that name."""


@dataclass(slots=True)
class _Reader:
    """Reads one expression; ``taken`` has one item for each condition that was read."""

    request: MCPRequest
    exposure: ModelExposure
    clock: Callable[[], datetime]
    sources: Sequence[NamedFilter]
    taken: list[None] = field(default_factory=list)
    # What stands before the names in the path that the client wrote.
    prefix: str = ""
    # Whether these are the conditions of an aggregate.
    is_inner: bool = False

    @property
    def suggestions(self) -> FilterSuggestions:
        """What is told of what cannot be read."""
        return FilterSuggestions(self.request, self.exposure, self.sources, self.prefix, self.clock)

    def read(self, given: Mapping[str, Any], depth: int) -> tuple[Filter, ...]:
        """Return what the object holds, all of which has to be true."""
        found: list[Filter] = []
        applied: dict[NamedFilter, dict[str, tuple[str, ...]]] = {}
        if given.keys() >= SPELT_OUT:
            given = self._spelt_out(given)
        for name, value in given.items():
            connector = JUNCTIONS.get(name.lower())
            if connector is not None and find_filter(access_of(self.request)[self.exposure], name) is None:
                found.append(self._junction(connector, value, depth))
                continue
            source = next((source for source in self.sources if source.comes_first(name, value)), None)
            is_object = isinstance(value, dict) and not self._is_other(value)
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
        name, known = given["field"], find_filter(access_of(self.request)[self.exposure], "field") is not None
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
        items = [value] if connector == "not" or (connector == "and" and isinstance(value, dict)) else value
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

    def unwrapped(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what ``{"where": {...}}`` holds, where that is no filter of its own."""
        name = next(iter(given)) if len(given) == 1 else ""
        inner = json_or_text(given[name]) if name in WRAPPERS and not self.suggestions.is_filter(name) else None
        return inner if isinstance(inner, dict) else given

    # Conditions on related rows

    def _link(self, name: str, value: Mapping[str, Any]) -> Link | None:
        """Return the relation of that name, unless the object has nothing but lookups of a column."""
        link = access_of(self.request)[self.exposure].link(name)
        target = find_filter(access_of(self.request)[self.exposure], name) if link is not None else None
        lookups = target[1] if target is not None else ()
        if lookups and all(key in lookups or lookup_meant(key, item, lookups) for key, item in value.items()):
            return None
        return link if self.exposure.get_filter_fields(self.request) is None or target is not None else None

    def _behind(self, name: str, value: Any, depth: int) -> Filter:
        """Return the condition on rows behind the first relation of a path: on some of them, where they are several."""
        root, _, rest = name.replace(".", "__").partition("__")
        link = open_link(self.request, self.exposure, root) if len(name) <= MAX_TEXT else None
        if link is None:
            raise self.suggestions.unknown(name)
        word, _, lookup = rest.partition("__")
        if rest == "isnull" or (not rest and value is None):
            return self._related(link, {"exists": value is False}, depth)
        if not rest:
            return self._related(link, {"some": {"pk": value}}, depth)
        inner = replace(self, prefix=f"{self.prefix}{root}__")
        if word in QUANTIFIERS and find_filter(access_of(self.request)[link.exposure], word) is not None:
            # A path leads to a field where there is one of that name.
            return inner._related(link, {"some": {rest: value}}, depth)
        if QUANTIFIERS.get(word.lower()) == "count" and lookup:
            return self._related(link, {"count": {lookup: value}}, depth)
        if not link.to_many and (column := without_value(rest, value)):
            # A related row that is hidden, or not there, has no values.
            return inner._related(link, {"none": {f"{column}__isnull": False}}, depth)
        return inner._related(link, {rest: value}, depth)

    def _related(self, link: Link, value: Mapping[str, Any], depth: int) -> Filter:
        """Return what an object such as ``{"some": {...}}`` or ``{"count__gte": 3, "where": {...}}`` asks of rows."""
        self._check_depth(depth)
        where = value.get("where", {})
        parts: list[Filter] = []
        rest: dict[str, Any] = {}
        for key, item in value.items():
            word, _, lookup = key.lower().partition("__")
            quantifier = QUANTIFIERS.get(word)
            if (
                not link.to_many
                and quantifier
                and find_filter(access_of(self.request)[link.exposure], word) is not None
            ):
                # Of one row there is nothing to count.
                quantifier = None
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
        if not isinstance(value, dict) or self._is_other(value):
            return [self._condition(name, None, value)]
        if not value:
            raise ToolError(f"The filter {name[:60]!r} is empty.")
        return [self._condition(name, lookup, item) for lookup, item in value.items()]

    def _condition(self, name: str, lookup: str | None, value: Any) -> Filter:
        target, is_path, part = find_filter(access_of(self.request)[self.exposure], name), False, ""
        if target is None and lookup is None:
            root, _, last = name.rpartition("__")
            is_path = True
            target, lookup = find_filter(access_of(self.request)[self.exposure], root) if root else None, last
        if target is None:
            # A part of a date: `year` of "created__year__gte", or of {"created__year": {"gte": 2025}}.
            target, part = self._part(root if is_path else name)
        elif lookup is not None and lookup.partition("__")[0] in PARTS and "__" in lookup:
            part, _, lookup = lookup.partition("__")
        if target is not None and part in target[1]:
            target = target[0], OF_PARTS
        elif part:
            lookup, part = part, ""
        if target is None or (
            # A filter of the project's own has the name of a computed value.
            target[0].expression is not None and any(name in source.names() for source in self.sources)
        ):
            self._count()
            raise _Unknown
        path, lookups = target
        if lookup is None and "in" in lookups and kind_of(path.field).word == "text":
            self._check_text(name, value)
        if lookup is None and isinstance(value, list) and "in" in lookups:
            lookup = "in"
        elif lookup is None:
            # Equality, or the one lookup that there is.
            lookup = "exact" if "exact" in lookups or len(lookups) != 1 else lookups[0]
        # Testing for null by another word needs no declaration of its own.
        if lookup in lookups or (value is None and lookup == "exact" and "isnull" in lookups):
            return self._compared(name, path, lookups, lookup, value, part)
        if isinstance(value, dict) and lookup.lower() in ("not", "$not"):
            return Junction("not", (self._all_of(in_fixed_order(self._conditions(name, value))),))
        meant = lookup_meant(lookup, value, lookups)
        if meant is None:
            root = name.partition("__")[0]
            if is_path and path.field.is_relation and open_link(self.request, self.exposure, root):
                # A field of the related row.
                raise _Unknown
            return self._compared(name, path, lookups, lookup, value, part)
        found = self._compared(name, path, lookups, meant[0], meant[1], part)
        return Junction("not", (found,)) if meant[2] else found

    def _part(self, name: str) -> tuple[tuple[FieldPath, tuple[str, ...]] | None, str]:
        """Return the filter on the date of which the name is a part, and the part; None for any other name."""
        root, _, part = name.replace(".", "__").rpartition("__")
        return (
            (find_filter(access_of(self.request)[self.exposure], root), part) if root and part in PARTS else (None, "")
        )

    def _check_text(self, name: str, value: Any) -> None:
        """Pass unless a text holds a list, which may be meant as one."""
        items = json_or_text(value) if isinstance(value, str) else None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            short = name[:60]
            raise ToolError(
                f"The filter {short!r} has a list within a text: {short}__in takes the list, {short}__exact the text.",
                repair=with_condition(name, {f"{name}__in": items}, value, prefix=self.prefix),
            )

    def _compared(
        self, name: str, path: FieldPath, lookups: Sequence[str], lookup: str, value: Any, part: str = ""
    ) -> Condition | Comparison:
        """Return the condition; with ``part``, it is one on that part of the date."""
        self._count()
        if self._is_other(value) and kind_of(path.field).word not in ("json", "mapping"):
            return self._with_other(name, path, lookups, lookup, value)
        whole = f"{part}__{lookup}" if part and lookup != "exact" else part or lookup
        in_url = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        if not self.exposure.lookup_allowed(self.request, f"{path.column}__{whole}", in_url):
            raise _Unknown
        wanted = "isnull" if value is None and lookup == "exact" else lookup
        if wanted not in lookups:
            raise self.suggestions.other_lookup(name, path, lookups, lookup, value)
        condition = self._parsed(name, path, whole, value)
        if condition.lookup == "in" and lookup == "exact" and "in" not in lookups:
            raise ToolError(f"The filter {name[:60]!r} takes one value.")
        return condition

    def _is_other(self, value: Any) -> bool:
        """Return whether a value is another field, or an aggregate."""
        return isinstance(value, dict) and (is_field(value) or bool(aggregate_in(self.request, self.exposure, value)))

    def _with_other(
        self, name: str, path: FieldPath, lookups: Sequence[str], lookup: str, value: Mapping[str, Any]
    ) -> Comparison:
        """Return the comparison with another field of the row or of a related one, or with an aggregate of all rows."""
        if lookup not in COMPARISONS or lookup not in lookups:
            raise ToolError(f"The filter {name[:60]!r} compares fields by {', '.join(COMPARISONS)}.")
        root = (
            name if find_filter(access_of(self.request)[self.exposure], name) is not None else name.rpartition("__")[0]
        )
        left = target_of(access_of(self.request)[self.exposure], root, Column.is_countable)
        parts: tuple[Filter, ...] = ()
        if is_field(value):
            right = other_value(self.request, self.exposure, value)
        elif self.is_inner:
            raise ToolError("The where of an aggregate in filters takes no other aggregate.")
        else:
            where, using = None, self.exposure.get_queryset(self.request).db
            if "where" in value:
                given = as_conditions(json_or_text(value["where"]))
                if not isinstance(given, dict):
                    raise ToolError(f"where must be an object such as {EXAMPLE}.")
                parts = replace(self, is_inner=True).read(given, 1)
                where = partial(Scope(self.request, self.exposure, using).all_of, parts)
            right = aggregate_value(self.request, self.exposure, value, where)
        left, right = compared(left, right)
        return Comparison(left, lookup, right, parts)

    def _parsed(self, name: str, path: FieldPath, lookup: str, value: Any) -> Condition:
        """Return the condition; what is no key of a related row may name that row otherwise."""
        linked = path.field.is_relation and lookup in ("exact", "in")
        if lookup in ("in", "range"):
            value = json_or_text(value)
        try:
            condition = parse_condition(path, lookup, value, self.clock() if is_dated(path.field) else None)
            missing = ""
        except ValueError as error:
            missing = f"The filter {name[:60]!r} with {lookup} needs {error}."
        related = access_of(self.request).exposure_of(path.field.related_model) if linked else None
        longest = getattr(related.opts.pk, "max_length", None) if related is not None else None
        items = value if isinstance(value, list) else [value]
        is_longer = longest is not None and any(
            isinstance(item, str) and len(item) > longest for item in items[:MAX_VALUES]
        )
        if related is not None and (missing or is_longer):
            root = self.suggestions.column(name)

            def by_key(key: str) -> Repair:
                return with_condition(name, {root: key}, value, prefix=self.prefix)

            try:
                return parse_condition(path, lookup, _keys(self.request, related, value, missing, by_key))
            except ToolError as refused:
                if missing and refused.message == missing and isinstance(value, str):
                    missing = f"No {related.label} is named {value[:60]!r}: the{missing.removeprefix('The')}"
                elif missing:
                    raise
        if missing:
            raise self.suggestions.other_value(missing, name, path, lookup, value)
        return condition

    # Named filters

    def _values(self, source: NamedFilter, name: str, value: Any) -> tuple[str, ...]:
        self._count()
        offer = next((offer for offer in source.offers() if offer.name == name), None)
        if offer is None:
            raise self.suggestions.unknown(name)
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
            raise misnamed(
                f"The filter {offer.name!r} has no choice {text[:60]!r}.",
                text,
                [stored for stored, _ in told.choices],
                lambda right: with_condition(offer.name, {offer.name: right}, value, is_spelling=True),
            )
        return found


def _keys(
    request: MCPRequest, related: ModelExposure, value: Any, missing: str, repair: Callable[[str], Repair]
) -> Any:
    """Return the primary keys of the rows that a filter names, one of which at least is no key."""
    if not isinstance(value, list):
        return RowFinder(access_of(request)[related]).key(value, missing, repair)
    if not 0 < len(value) <= MAX_VALUES:
        raise ToolError(missing)
    return [pk_text(row.pk) for row in RowFinder(access_of(request)[related]).rows(value, missing)]


def filters_argument(
    request: MCPRequest, exposure: ModelExposure, value: Any, clock: Callable[[], datetime] | None = None
) -> tuple[Filter, ...]:
    """Return the filters, all of which have to hold, in a fixed order.

    They are given as ``{field: value, field__lookup: value, field: {lookup: value}}``, with ``{"or": [..]}``,
    ``{"and": [..]}`` and ``{"not": {..}}`` among them. Relative dates are seen from the moment that ``clock``
    gives each time, by default that of the first question. Filters of the admin's sidebar that narrow its list when it
    is opened are among them until the caller chooses something of theirs.
    """
    value = json_or_text(value)
    found: tuple[Filter, ...] = ()
    if value is not None and value != "":
        reader = _Reader(request, exposure, clock or cache(local_now), exposure.get_named_filters(request))
        value = value if isinstance(value, dict) else as_conditions(value)
        if not isinstance(value, dict):
            text, meant = f"filters must be an object such as {EXAMPLE}. {MISSPELT}", filters_meant(value)
            try:
                if meant is not None:
                    reader.read(meant, 0)
            except ToolError as error:
                raise ToolError(f"{text} {error.message}") from None
            raise ToolError(text, repair=with_argument("filters", meant) if meant is not None else None)
        value = reader.unwrapped(value)
        found = reader.read(value, 0)
    opening = exposure.get_listing(request).opening_filters()
    return in_fixed_order([*found, *left_open(found, opening)]) if opening else found


def condition_of(request: MCPRequest, exposure: ModelExposure, value: Any) -> Q:
    """Return the condition that filters are, as the ``where`` of an aggregate has them."""
    if not isinstance(given := as_conditions(json_or_text(value)), dict) or not given:
        raise ToolError(f"where must be an object such as {EXAMPLE}.")
    reader = _Reader(request, exposure, cache(local_now), exposure.get_named_filters(request))
    return Scope(request, exposure, exposure.get_queryset(request).db).all_of(reader.read(given, 0))

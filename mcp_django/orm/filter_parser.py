"""Parse the argument ``filters`` into conditions, among what the caller can filter on.

An unknown filter or a value that does not fit is a ``ToolError``, with a suggestion of what is meant (``suggestions``).
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import cache, partial
from typing import Any, Final, Literal

from django.db.models import IntegerField, Q

from ..exceptions import Repair, ToolError
from .access import Link, ModelAccess, access_of
from .allowed_filters import find_filter
from .alternative_spellings import (
    MISSPELT,
    OPERATORS,
    as_conditions,
    filters_meant,
    is_short_text,
    json_or_text,
    lookup_meant,
    name_meant,
    without_value,
)
from .arithmetic import compared
from .column_values import pk_text
from .columns import Column
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
from .conditions_on_one_row import all_of, on_one_row
from .field_comparisons import aggregate_in, aggregate_value, is_field, other_value
from .fields import FieldPath, kind_of, parse_boolean, parse_integer
from .lookups import MAX_VALUES, OF_PARTS, PARTS, is_dated, parse_condition
from .named_filters import NamedFilter, Offer
from .nearest_names import Misnamed, misspelt
from .path import target_of
from .relative_dates import local_now
from .row_finder import RowFinder
from .suggestions import QUANTIFIERS, FilterSuggestions, with_argument, with_condition

MAX_FILTERS: Final = 20
MAX_DEPTH: Final = 4
MAX_TEXT: Final = 200
JUNCTIONS: Final[Mapping[str, Literal["and", "or", "not"]]] = {"and": "and", "or": "or", "not": "not"}
# Members of an object that spells out one condition.
SPELT_OUT: Final = frozenset({"field", "value"})
# Words before an object of lookups that must not hold.
DENIALS: Final = frozenset({"not", "$not"})
# The lookup by which a relation has no related row.
NULL: Final = ("isnull",)
COUNT_FIELD: Final[Any] = IntegerField()
# Names of the argument itself: some clients write the filters within one of them.
WRAPPERS: Final = frozenset({"filters", "filter", "where", "conditions"})
SOME_EXAMPLE: Final = '{"some": {"status": "paid"}}.'
COUNT_EXAMPLE: Final = '{"count__gte": 3}.'
EXAMPLE: Final = '{"status": "paid", "created__gte": "2026-01-01"}'


class _Unknown(Exception):
    """Raised while a filter is parsed, if the caller has no filter on a field of that name."""


class FilterReader(FilterSuggestions):
    """Parser of the argument ``filters`` that a caller writes for a model.

    Filters have the form ``{field: value, field__lookup: value, field: {lookup: value}}``, with ``{"or": [..]}``,
    ``{"and": [..]}`` and ``{"not": {..}}`` among them. Relative dates are counted from the time that ``clock`` returns,
    by default the time of its first call.
    """

    # Whether these filters are the ``where`` of an aggregate that a filter compares with.
    is_inner = False

    def __init__(self, model: ModelAccess, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(model, clock or cache(local_now))
        # One item for each condition that was read, shared by the parsers of all parts, to count them.
        self.taken: list[None] = []

    def _like(self, **changes: Any) -> "FilterReader":
        """Return a parser of a part of the same filters."""
        found = copy(self)
        vars(found).update(changes)
        return found

    def argument(self, value: Any) -> tuple[Filter, ...]:
        """Parse the argument ``filters``: all of them have to hold, in a fixed order.

        Filters that narrow the admin's list by default are included, unless the caller chooses a value for them.
        """
        value = json_or_text(value)
        found = tuple[Filter, ...]()
        if value is not None and value != "":
            given = value if isinstance(value, dict) else as_conditions(value)
            if not isinstance(given, dict):
                text = f"filters must be an object such as {EXAMPLE}. {MISSPELT}"
                meant = filters_meant(given)
                try:
                    if meant is not None:
                        self.read(meant, 0)
                except ToolError as error:
                    raise ToolError(f"{text} {error.message}") from None
                raise ToolError(text, repair=with_argument("filters", meant) if meant is not None else None)
            name = next(iter(given)) if len(given) == 1 else ""
            inner = json_or_text(given[name]) if name in WRAPPERS and not self.is_filter(name) else None
            found = self.read(inner if isinstance(inner, dict) else given, 0)
        opening = self.exposure.get_listing(self.request).opening_filters()
        if opening:
            return in_fixed_order([*found, *left_open(found, opening)])
        return found

    def where(self, value: Any) -> Q:
        """Parse filters into a ``Q``: those in the ``where`` of an aggregate."""
        if not isinstance(given := as_conditions(json_or_text(value)), dict) or not given:
            raise ToolError(f"where must be an object such as {EXAMPLE}.")
        using = self.exposure.get_queryset(self.request).db
        return Scope(self.request, self.exposure, using).all_of(self.read(given, 0))

    def read(self, given: Mapping[str, Any], depth: int) -> tuple[Filter, ...]:
        """Parse one JSON object of filters, all of which must hold."""
        if len(given) > MAX_FILTERS:
            raise _too_many()
        found: list[Filter] = []
        applied: dict[NamedFilter, dict[str, tuple[str, ...]]] = {}
        operators = [given[key] for key in ("operator", "op", "lookup") if key in given]
        if given.keys() >= SPELT_OUT and len(given) == len(SPELT_OUT) + bool(operators) and self.find("field") is None:
            # {"field": "total", "operator": ">", "value": 3}
            name = given["field"]
            operator = operators[0] if operators else "exact"
            if isinstance(name, str) and isinstance(operator, str):
                given = {name: {operator: given["value"]}}
        for name, value in given.items():
            connector = JUNCTIONS.get(name.lower())
            if connector is not None and self.find(name) is None:
                found.append(self._junction(connector, value, depth))
                continue
            source = next((source for source in self.sources if source.comes_first(name, value)), None)
            is_object = isinstance(value, dict) and not self._is_other(value)
            if source is None and is_object and (link := self._link(name, value)) is not None:
                found.append(self._related(link, value, depth))
            elif source is None:
                try:
                    found += self._conditions(name, value)
                except (_Unknown, ToolError) as error:
                    source = self.source_named(name)
                    if source is None and not isinstance(error, _Unknown):
                        raise
                    if source is None:
                        found += self._spelt_otherwise(name, value, depth)
            if source is not None:
                applied.setdefault(source, {})[name] = self._values(source, name, value)
        found += (Applied(source, values) for source, values in applied.items())
        if len(found) > 1:
            return on_one_row(self.model, found)
        return tuple(found)

    def _spelt_otherwise(self, name: str, value: Any, depth: int) -> Sequence[Filter]:
        """Parse a filter whose name is not a field: an alternative spelling, or a path to a field of a related row."""
        meant = name_meant(name)
        try:
            if meant is not None:
                return self._conditions(meant, value)
        except _Unknown:
            pass
        return [self._behind(name, value, depth)]

    def _junction(self, connector: Literal["and", "or", "not"], value: Any, depth: int) -> Filter:
        value = json_or_text(value)
        self._check_depth(depth)
        items = [value] if connector == "not" or (connector == "and" and isinstance(value, dict)) else value
        if not isinstance(items, list) or not all(isinstance(item, dict) and item for item in items) or not items:
            expected = f"an object such as {EXAMPLE}" if connector == "not" else f"a list of objects such as {EXAMPLE}"
            raise ToolError(f'"{connector}" takes {expected}. {MISSPELT}')
        parts = [all_of(self.read(item, depth + 1)) for item in items[: MAX_FILTERS + 1]]
        if connector == "and":
            return all_of(on_one_row(self.model, parts))
        return Junction(connector, in_fixed_order(parts))

    def _count(self) -> None:
        self.taken.append(None)
        if len(self.taken) > MAX_FILTERS:
            raise _too_many()

    def _check_depth(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise ToolError(f"filters can be nested {MAX_DEPTH} deep.")

    # Conditions on related rows

    def _link(self, name: str, value: Mapping[str, Any]) -> Link | None:
        """Return the relation that a parsed filter names, unless its object only holds lookups of a column."""
        link = self.model.link(name)
        target = self.find(name) if link is not None else None
        lookups = target.lookups if target is not None else ()
        if lookups and _has_lookups(value, lookups):
            return None
        if self.exposure.get_filter_fields(self.request) is None or target is not None:
            return link
        return None

    def _behind(self, name: str, value: Any, depth: int) -> Filter:
        """Parse a filter on a path through a relation: some of the related rows must match."""
        root, _, rest = name.replace(".", "__").partition("__")
        link = self.open_link(root) if len(name) <= MAX_TEXT else None
        if link is None:
            raise self.unknown(name)
        word, _, lookup = rest.partition("__")
        inner = self._like(prefix=f"{self.prefix}{root}__")
        wanted: Mapping[str, Any] = {rest: value}
        if rest == "isnull" or (not rest and value is None):
            inner = self
            wanted = {"exists": value is False}
        elif not rest:
            inner = self
            wanted = {"pk": value}
        elif word in QUANTIFIERS and find_filter(link.related, word) is not None:
            # A field of this name takes precedence over the quantifier.
            return inner._of_path(link, wanted, depth)
        elif QUANTIFIERS.get(word.lower()) == "count" and lookup:
            inner = self
            wanted = {"count": {lookup: value}}
        elif (column := without_value(rest, value)) and not link.to_many and not _is_through_list(link.related, column):
            # A related row that is hidden or does not exist has no values, so its column is null too.
            wanted = {"none": {f"{column}__isnull": False}}
        return inner._related(link, wanted, depth)

    def _related(self, link: Link, value: Mapping[str, Any], depth: int) -> Filter:
        """Parse a filter on related rows: ``{"some": {...}}`` or ``{"count__gte": 3, "where": {...}}``."""
        self._check_depth(depth)
        parts: list[Filter] = []
        rest: dict[str, Any] = {}
        for key, item in value.items():
            word, _, lookup = key.lower().partition("__")
            quantifier = QUANTIFIERS.get(word)
            is_field = quantifier is not None and not link.to_many and find_filter(link.related, word) is not None
            if key == "where":
                continue
            if lookup_meant(key, item, NULL) is not None and find_filter(link.related, key) is None:
                parts.append(Quantified(link, "none" if _is_null(link, key, item) else "some", ()))
            elif quantifier is None or is_field:
                # With a relation to one row there is nothing to count: a field of this name is meant.
                rest[key] = item
            elif quantifier == "count":
                parts += self._counts(link, {lookup: item} if lookup else item, value.get("where", {}), depth)
            else:
                quantifier, item = ("some" if item else "none", {}) if isinstance(item, bool) else (quantifier, item)
                parts.append(Quantified(link, quantifier, self._of_related(link, item, depth)))
        if rest:
            parts.append(self._of_path(link, rest, depth))
        if parts:
            return all_of(in_fixed_order(parts))
        return Quantified(link, "some", ())

    def _of_path(self, link: Link, given: Mapping[str, Any], depth: int) -> Quantified:
        """Return the condition that some related row passes filters, which other paths may share with these."""
        self._check_depth(depth)
        return Quantified(link, "some", self._of_related(link, given, depth), is_path=True)

    def _of_related(self, link: Link, given: Any, depth: int) -> tuple[Filter, ...]:
        """Return the filters on the related rows."""
        given = as_conditions(json_or_text(given))
        if not isinstance(given, dict):
            raise ToolError(f"{link.name} takes filters on {link.exposure.label}: {SOME_EXAMPLE}")
        self._count()
        there = FilterReader(link.related, self.clock)
        there.taken = self.taken
        there.prefix = self.prefix
        there.is_inner = self.is_inner
        return there.read(given, depth + 1)

    def _counts(self, link: Link, given: Any, where: Any, depth: int) -> list[Filter]:
        """Parse the filters that compare the number of related rows."""
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
        path, lookups, lookup, part, is_path = self._spelt(name, lookup)
        if lookup is None:
            if "in" in lookups and kind_of(path.field).word == "text":
                self._check_text(name, value)
            # The default is equality, or the only lookup of the field.
            single = "exact" if "exact" in lookups or len(lookups) != 1 else lookups[0]
            lookup = "in" if isinstance(value, list) and "in" in lookups else single
        # A null value means "isnull", without a declaration of "exact".
        is_known = lookup in lookups or (value is None and lookup == "exact" and "isnull" in lookups)
        if not is_known and isinstance(value, dict) and lookup.lower() in DENIALS:
            denied = self._like(is_denied=True)._conditions(name.rpartition("__")[0] if is_path else name, value)
            return Junction("not", (all_of(in_fixed_order(denied)),))
        meant = None if is_known else lookup_meant(lookup, value, lookups)
        if meant is not None:
            reader = self._like(is_denied=True) if meant.is_denied else self
            found = reader._compared(name, path, lookups, meant.lookup, meant.value, part)
            if meant.is_denied:
                return Junction("not", (found,))
            return found
        root, _, rest = name.partition("__")
        if not is_known and (is_path or rest) and path.field.is_relation and self.open_link(root):
            # The lookup may be a field of the related row.
            raise _Unknown
        return self._compared(name, path, lookups, lookup, value, part)

    def _spelt(self, name: str, lookup: str | None) -> tuple[FieldPath, Sequence[str], str | None, str, bool]:
        """Parse the name of a filter, with or without a lookup or a part of a date after it, and find the filter."""
        root, _, last = name.rpartition("__")
        target = self.find(name)
        is_path = False
        part = ""
        if target is None and lookup is None:
            target = self.find(root) if root else None
            lookup = last
            is_path = True
        if target is None:
            # `year` of "created__year__gte", or of {"created__year": {"gte": 2025}}.
            dated, _, part = (root if is_path else name).replace(".", "__").rpartition("__")
            target = self.find(dated) if dated and part in PARTS else None
            if target is not None and target.path.field.is_relation:
                # The related row has a field of this name, or none has.
                target = None
        elif lookup is not None and "__" in lookup and lookup.partition("__")[0] in PARTS:
            part, _, lookup = lookup.partition("__")
        if target is None or (target.path.expression is not None and self.source_named(name) is not None):
            # There is no such filter, or it is a computed value and the project has a filter of the same name.
            raise _Unknown
        if part in target.lookups:
            return target.path, OF_PARTS, lookup, part, is_path
        # A part that the field does not have is treated as a lookup that it does not take.
        return target.path, target.lookups, part or lookup, "", is_path

    def _check_text(self, name: str, value: Any) -> None:
        """Refuse to parse a filter whose text value holds a JSON list, which could be meant as a list."""
        items = json_or_text(value) if isinstance(value, str) else None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            short = name[:60]
            raise ToolError(
                f"The filter {short!r} has a list within a text: {short}__in takes the list, {short}__exact the text.",
                repair=with_condition(name, {f"{name}__in": items}, value, prefix=self.prefix),
            )

    def _compared(
        self, name: str, path: FieldPath, lookups: Sequence[str], lookup: str, value: Any, part: str
    ) -> Condition | Comparison:
        """Return the parsed filter on a field, or on a ``part`` of its date."""
        self._count()
        if self._is_other(value) and kind_of(path.field).word not in ("json", "mapping"):
            return self._with_other(name, lookups, lookup, value)
        whole = f"{part}__{lookup}" if part and lookup != "exact" else part or lookup
        in_url = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        if not self.exposure.lookup_allowed(self.request, f"{path.column}__{whole}", in_url):
            raise _Unknown
        if ("isnull" if value is None and lookup == "exact" else lookup) not in lookups:
            raise self.other_lookup(name, path, lookups, lookup, value)
        condition = self._parsed(name, path, whole, value)
        if condition.lookup == "in" and lookup == "exact" and "in" not in lookups:
            raise ToolError(f"The filter {name[:60]!r} takes one value.")
        return condition

    def _is_other(self, value: Any) -> bool:
        """Return whether the value of a parsed filter is another field or an aggregate."""
        return isinstance(value, dict) and (is_field(value) or bool(aggregate_in(self.model, value)))

    def _with_other(self, name: str, lookups: Sequence[str], lookup: str, value: Mapping[str, Any]) -> Comparison:
        """Parse a filter whose value is another field, or an aggregate of all rows."""
        if lookup not in COMPARISONS or lookup not in lookups:
            raise ToolError(f"The filter {name[:60]!r} compares fields by {', '.join(COMPARISONS)}.")
        left = target_of(self.model, self.column(name), Column.is_countable)
        parts: tuple[Filter, ...] = ()
        if is_field(value):
            right = other_value(self.model, value)
        elif self.is_inner:
            raise ToolError("The where of an aggregate in filters cannot have another aggregate.")
        else:
            where = None
            using = self.exposure.get_queryset(self.request).db
            if "where" in value:
                given = as_conditions(json_or_text(value["where"]))
                if not isinstance(given, dict):
                    raise ToolError(f"where must be an object such as {EXAMPLE}.")
                parts = self._like(is_inner=True).read(given, 1)
                where = partial(Scope(self.request, self.exposure, using).all_of, parts)
            right = aggregate_value(self.model, value, where)
        left, right = compared(left, right)
        return Comparison(left, lookup, right, parts)

    def _parsed(self, name: str, path: FieldPath, lookup: str, value: Any) -> Condition:
        """Parse the value of a filter; a related row can be named by its label in place of its key."""
        if lookup in ("in", "range"):
            value = json_or_text(value)
        linked = path.field.is_relation and lookup in ("exact", "in")
        related = access_of(self.request).exposure_of(path.field.related_model) if linked else None
        items = (value if isinstance(value, list) else [value])[:MAX_VALUES]
        condition = None
        missing = ""
        try:
            condition = parse_condition(path, lookup, value, self.clock() if is_dated(path.field) else None)
        except ValueError as error:
            missing = f"The filter {name[:60]!r} with {lookup} needs {error}."
        # A text longer than any key must be a label.
        longest = getattr(related.opts.pk, "max_length", None) if related is not None else None
        is_label = longest is not None and any(isinstance(item, str) and len(item) > longest for item in items)
        if condition is not None and not is_label:
            return condition
        if related is not None:

            def by_key(key: str) -> Repair:
                return with_condition(name, {self.column(name): key}, value, prefix=self.prefix)

            try:
                keys: Any
                finder = RowFinder(access_of(self.request)[related])
                if not isinstance(value, list):
                    keys = finder.key(value, missing, None if self.is_denied else by_key)
                elif 0 < len(value) <= MAX_VALUES:
                    keys = [pk_text(row.pk) for row in finder.rows(value, missing)]
                else:
                    raise ToolError(missing)
                return parse_condition(path, lookup, keys)
            except ToolError as refused:
                if missing and refused.message == missing and isinstance(value, str):
                    missing = f"No {related.label} is named {value[:60]!r}: the{missing.removeprefix('The')}"
                elif missing:
                    raise
        if condition is None:
            raise self.other_value(missing, name, path, lookup, value)
        return condition

    # Named filters

    def _values(self, source: NamedFilter, name: str, value: Any) -> tuple[str, ...]:
        self._count()
        offer = next((offer for offer in source.offers() if offer.name == name), None)
        if offer is None:
            raise self.unknown(name)
        items = value if isinstance(value, list) else [value]
        if not 0 < len(items) <= (MAX_VALUES if source.takes_lists else 1):
            raise ToolError(f"The filter {name[:60]!r} takes one value.")
        return tuple(self._value(source, offer, item) for item in items)

    def _value(self, source: NamedFilter, offer: Offer, value: Any) -> str:
        text = (
            str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, (int, float)) else value
        )
        if not is_short_text(text, MAX_TEXT):
            raise ToolError(f"The filter {offer.name!r} takes a text of at most {MAX_TEXT} characters.")
        found = source.value_of(offer, text)
        if found is None:
            told = next((known for known in source.described() if known.name == offer.name), offer)
            stored = [stored for stored, _ in told.choices]
            raise Misnamed(
                f"The filter {offer.name!r} has no choice {text[:60]!r}.",
                text,
                stored,
                lambda right: with_condition(offer.name, {offer.name: right}, value, is_spelling=True),
                misspelt(text, stored),
                of=None,
            )
        return found


def _is_through_list(model: ModelAccess, path: str) -> bool:
    """Return whether a path leads through several related rows before it ends."""
    for name in path.split("__")[:-1]:
        link = model.link(name)
        if link is None:
            return False
        if link.to_many:
            return True
        model = link.related
    return False


def _has_lookups(given: Mapping[str, Any], lookups: Sequence[str]) -> bool:
    """Return whether an object only holds lookups of a column, which ``not`` may deny."""
    for key, item in given.items():
        if key.lower() in DENIALS and isinstance(item, dict):
            if not _has_lookups(item, lookups):
                return False
        elif key not in lookups and lookup_meant(key, item, lookups) is None:
            return False
    return True


def _is_null(link: Link, word: str, value: Any) -> bool:
    """Return whether a filter such as ``{"orders": {"isnull": true}}`` wants no related row."""
    meant = lookup_meant(word, value, NULL)
    try:
        wanted = meant is not None and parse_boolean(None, meant.value)
    except ValueError as error:
        raise ToolError(f"{link.name} with isnull needs {error}.") from None
    return wanted != (meant is not None and meant.is_denied)


def _too_many() -> ToolError:
    return ToolError(f"filters takes at most {MAX_FILTERS} conditions.")

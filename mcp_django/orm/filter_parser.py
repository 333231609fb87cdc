"""Parse the argument ``filters`` into conditions, among what the caller can filter on.

A name can mean several things: a field with or without a lookup, a filter of the project's own, a path through a
relation. Each is asked in turn, and returns None if it does not know the name. If none does, or a value does not fit,
that is a ``ToolError``, with a suggestion of what is meant (``suggestions``).
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import cache, partial
from typing import Any, Final, Literal, NamedTuple

from django.db.models import IntegerField, Q

from ..exceptions import Repair, ToolError
from ..exposures.model_exposure import ModelExposure
from .access import Link, ModelAccess
from .allowed_filters import AllowedFilter
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
from .conditions import (
    COMPARISONS,
    Applied,
    Comparison,
    Condition,
    Filter,
    Junction,
    Quantified,
    QueryContext,
    in_fixed_order,
    left_open,
)
from .conditions_on_one_row import all_of, on_one_row
from .field_comparisons import aggregate_in, aggregate_value, is_field, other_value
from .fields import PARTS, FieldPath, kind_of, parse_boolean, parse_integer
from .lookups import MAX_VALUES, OF_PARTS, is_dated, parse_condition
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


class _FieldLookup(NamedTuple):
    """The field and the lookup that the name of a filter means, with what the field takes."""

    path: FieldPath
    lookups: Sequence[str]
    # None if the client wrote no lookup, neither in the name nor in an object.
    lookup: str | None
    # The part of a date that is compared, such as ``year``, "" for the whole value.
    part: str
    # Whether the name ends with the lookup.
    is_in_name: bool


class ConditionBudget:
    """How many conditions the filters of one call can still have: the readers of all their parts share it."""

    def __init__(self) -> None:
        self._used = 0

    def take(self) -> None:
        """Count one more condition. Raises ``ToolError`` if these are too many."""
        self._used += 1
        if self._used > MAX_FILTERS:
            raise _too_many()


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
        self.budget = ConditionBudget()

    def _like(self, **changes: Any) -> "FilterReader":
        """Return a parser of a part of the same filters."""
        reader = copy(self)
        vars(reader).update(changes)
        return reader

    def argument(self, value: Any) -> tuple[Filter, ...]:
        """Parse the argument ``filters``: all of them have to hold, in a fixed order.

        Filters that narrow the admin's list by default are included, unless the caller chooses a value for them.
        """
        value = json_or_text(value)
        filters = tuple[Filter, ...]()
        if value is not None and value != "":
            given = value if isinstance(value, dict) else as_conditions(value)
            if not isinstance(given, dict):
                raise self._not_an_object(given)
            filters = self.read(self._unwrapped(given), 0)

        opening = self.exposure.get_listing(self.request).opening_filters()
        if opening:
            return in_fixed_order([*filters, *left_open(filters, opening)])
        return filters

    def _unwrapped(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the filters within an object such as ``{"where": {...}}``, and any other object as it is."""
        if len(given) != 1:
            return given
        [(name, value)] = given.items()
        if name not in WRAPPERS or self.is_filter(name):
            return given
        inner = json_or_text(value)
        return inner if isinstance(inner, dict) else given

    def _not_an_object(self, given: Any) -> ToolError:
        """Return the error for filters that are no object, with a repair if SQL or a list of three is meant."""
        text = f"filters must be an object such as {EXAMPLE}. {MISSPELT}"
        meant = filters_meant(given)
        if meant is None:
            return ToolError(text)
        try:
            self.read(meant, 0)
        except ToolError as error:
            return ToolError(f"{text} {error.message}")
        return ToolError(text, repair=with_argument("filters", meant))

    def where(self, value: Any) -> Q:
        """Return the ``where`` of an aggregate as a ``Q``."""
        given = as_conditions(json_or_text(value))
        if not isinstance(given, dict) or not given:
            raise ToolError(f"where must be an object such as {EXAMPLE}.")
        return self._query_context().all_of(self.read(given, 0))

    def _query_context(self) -> QueryContext:
        return QueryContext(self.model, self.exposure.get_queryset(self.request).db)

    def read(self, given: Mapping[str, Any], depth: int) -> tuple[Filter, ...]:
        """Parse one JSON object of filters, all of which must hold."""
        if len(given) > MAX_FILTERS:
            raise _too_many()
        filters: list[Filter] = []
        applied: dict[NamedFilter, dict[str, tuple[str, ...]]] = {}
        for name, value in self._by_name(given).items():
            connector = JUNCTIONS.get(name.lower())
            if connector is not None and self.find(name) is None:
                filters.append(self._junction(connector, value, depth))
                continue

            # The project's own filter comes first if it says so, then the relation or field of that name.
            source = next((source for source in self.sources if source.comes_first(name, value)), None)
            conditions: Sequence[Filter] | None = None
            if source is None:
                conditions = self._on_relation(name, value, depth)
            if source is None and conditions is None:
                conditions = self._on_field(name, value)
                source = self.source_named(name) if conditions is None else None

            # Last of all, the name is another spelling or a path.
            if source is not None:
                applied.setdefault(source, {})[name] = self._values(source, name, value)
            elif conditions is not None:
                filters += conditions
            else:
                filters += self._spelt_otherwise(name, value, depth)

        filters += (Applied(source, values) for source, values in applied.items())
        if len(filters) > 1:
            return on_one_row(self.model, filters)
        return tuple(filters)

    def _by_name(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``{"total": {">": 3}}`` for ``{"field": "total", "operator": ">", "value": 3}``.

        Any other object is returned as it is.
        """
        if not given.keys() >= SPELT_OUT:
            return given
        operators = [given[key] for key in ("operator", "op", "lookup") if key in given]
        if len(given) != len(SPELT_OUT) + bool(operators) or self.find("field") is not None:
            return given
        name = given["field"]
        operator = operators[0] if operators else "exact"
        if isinstance(name, str) and isinstance(operator, str):
            return {name: {operator: given["value"]}}
        return given

    def _on_relation(self, name: str, value: Any, depth: int) -> Sequence[Filter] | None:
        """Return the condition on related rows that an object holds, None if the name is no relation."""
        if not isinstance(value, dict) or self._is_other(value):
            return None
        link = self._link(name, value)
        if link is None:
            return None
        return [self._related(link, value, depth)]

    def _on_field(self, name: str, value: Any) -> Sequence[Filter] | None:
        """Return the conditions on a field, None if the caller has no filter on a field of that name.

        Raises ``ToolError`` if the field does not take the lookup or the value. A filter of the project's own with the
        same name is then asked next, so with such a filter it returns None.
        """
        if self.source_named(name) is None:
            return self._conditions(name, value)
        try:
            return self._conditions(name, value)
        except ToolError:
            return None

    def _spelt_otherwise(self, name: str, value: Any, depth: int) -> Sequence[Filter]:
        """Parse a filter whose name is not a field: an alternative spelling, or a path to a field of a related row."""
        meant = name_meant(name)
        conditions = self._conditions(meant, value) if meant is not None else None
        if conditions is not None:
            return conditions
        if self.is_generic(name) and isinstance(value, dict) and value:
            # ``{"notes": {"count": 3}}`` for ``{"notes.count": 3}``
            self._check_depth(depth)
            return self.read({f"{name}__{key}": item for key, item in value.items()}, depth + 1)
        unknown = self.unknown_of_list(name)
        if unknown is not None:
            raise unknown
        return [self._behind(name, value, depth)]

    def _junction(self, connector: Literal["and", "or", "not"], value: Any, depth: int) -> Filter:
        value = json_or_text(value)
        self._check_depth(depth)
        is_single = connector == "not" or (connector == "and" and isinstance(value, dict))
        items = [value] if is_single else value
        if not isinstance(items, list) or not all(isinstance(item, dict) and item for item in items) or not items:
            expected = f"an object such as {EXAMPLE}" if connector == "not" else f"a list of objects such as {EXAMPLE}"
            raise ToolError(f'"{connector}" takes {expected}. {MISSPELT}')

        parts = [all_of(self.read(item, depth + 1)) for item in items[: MAX_FILTERS + 1]]
        if connector == "and":
            return all_of(on_one_row(self.model, parts))
        return Junction(connector, in_fixed_order(parts))

    def _check_depth(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise ToolError(f"filters can be nested {MAX_DEPTH} deep.")

    # Conditions on related rows

    def _link(self, name: str, value: Mapping[str, Any]) -> Link | None:
        """Return the relation of this name, None if there is none or the object only holds lookups of its column."""
        link = self.model.link(name)
        if link is None:
            return None
        target = self.find(name)
        if target is not None and target.lookups and _has_lookups(value, target.lookups):
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

        if rest == "isnull" or (not rest and value is None):
            return self._related(link, {"exists": value is False}, depth)
        if not rest:
            return self._related(link, {"pk": value}, depth)

        behind = self._like(prefix=f"{self.prefix}{root}__")
        word, _, lookup = rest.partition("__")
        if word in QUANTIFIERS and AllowedFilter.find(link.related, word) is not None:
            # A field of this name takes precedence over the quantifier.
            return behind._of_path(link, {rest: value}, depth)
        if QUANTIFIERS.get(word.lower()) == "count" and lookup:
            return self._related(link, {"count": {lookup: value}}, depth)
        column = without_value(rest, value)
        if column and not link.to_many and not _is_through_list(link.related, column):
            # A related row that is hidden or does not exist has no values, so its column is null too.
            return behind._related(link, {"none": {f"{column}__isnull": False}}, depth)
        return behind._related(link, {rest: value}, depth)

    def _related(self, link: Link, value: Mapping[str, Any], depth: int) -> Filter:
        """Parse a filter on related rows: ``{"some": {...}}`` or ``{"count__gte": 3, "where": {...}}``."""
        self._check_depth(depth)
        parts: list[Filter] = []
        rest: dict[str, Any] = {}
        for key, item in value.items():
            if key == "where":
                continue
            word, _, lookup = key.lower().partition("__")
            quantifier = QUANTIFIERS.get(word)
            # With a relation to one row there is nothing to count: a field of this name is meant.
            is_name = quantifier is not None and not link.to_many and AllowedFilter.find(link.related, word) is not None
            if lookup_meant(key, item, NULL) is not None and AllowedFilter.find(link.related, key) is None:
                parts.append(Quantified(link, "none" if _is_null(link, key, item) else "some", ()))
            elif quantifier is None or is_name:
                rest[key] = item
            elif quantifier == "count":
                counted = {lookup: item} if lookup else item
                parts += self._counts(link, counted, value.get("where", {}), depth)
            elif isinstance(item, bool):
                # {"exists": false} means no related row at all.
                parts.append(Quantified(link, "some" if item else "none", self._of_related(link, {}, depth)))
            else:
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
        self.budget.take()
        there = FilterReader(link.related, self.clock)
        there.budget = self.budget
        there.prefix = self.prefix
        there.is_inner = self.is_inner
        return there.read(given, depth + 1)

    def _counts(self, link: Link, given: Any, where: Any, depth: int) -> list[Filter]:
        """Parse the filters that compare the number of related rows."""
        parts = self._of_related(link, where, depth)
        comparisons = given if isinstance(given, dict) else {"exact": given}
        filters: list[Filter] = []
        for word, item in comparisons.items():
            lookup = OPERATORS.get(word.lower().removeprefix("$"), word)
            try:
                if lookup not in COMPARISONS:
                    raise ValueError(f"one of {', '.join(COMPARISONS)}")
                number = parse_integer(COUNT_FIELD, item)
            except ValueError as error:
                raise ToolError(f"The number of {link.name} needs {error}, as in {COUNT_EXAMPLE}") from None
            filters.append(Quantified(link, "count", parts, lookup, (number,)))
        return filters

    # Conditions on fields

    def _conditions(self, name: str, value: Any) -> Sequence[Filter] | None:
        """Return the conditions on a field, None if the caller has no filter on a field of that name.

        Raises ``ToolError`` if the field does not take the lookup or the value.
        """
        if isinstance(value, dict) and not value:
            raise self.unknown_of_generic(name) or ToolError(f"The filter {name[:60]!r} is empty.")
        items: list[tuple[str | None, Any]] = [(None, value)]
        if isinstance(value, dict) and not self._is_other(value):
            items = list(value.items())

        conditions: list[Filter] = []
        for lookup, item in items:
            condition = self._condition(name, lookup, item)
            if condition is None:
                return None
            conditions.append(condition)
        return conditions

    def _condition(self, name: str, lookup: str | None, value: Any) -> Filter | None:
        meant = self._field_lookup(name, lookup)
        if meant is None:
            return None
        path = meant.path
        lookups = meant.lookups
        lookup = meant.lookup
        if lookup is None:
            if "in" in lookups and kind_of(path.field).word == "text":
                self._check_text(name, value)
            # The default is equality, or the only lookup of the field.
            single = "exact" if "exact" in lookups or len(lookups) != 1 else lookups[0]
            lookup = "in" if isinstance(value, list) and "in" in lookups else single

        # A null value means "isnull", without a declaration of "exact".
        if lookup in lookups or (value is None and lookup == "exact" and "isnull" in lookups):
            return self._compared(name, meant, lookup, value)

        # Another lookup is one that denies, another spelling, or the name of a field of the related row.
        if isinstance(value, dict) and lookup.lower() in DENIALS:
            column = name.rpartition("__")[0] if meant.is_in_name else name
            denied = self._like(is_denied=True)._conditions(column, value)
            return Junction("not", (all_of(in_fixed_order(denied)),)) if denied is not None else None
        other = lookup_meant(lookup, value, lookups)
        if other is not None and other.is_denied:
            condition = self._like(is_denied=True)._compared(name, meant, other.lookup, other.value)
            return Junction("not", (condition,)) if condition is not None else None
        if other is not None:
            return self._compared(name, meant, other.lookup, other.value)
        root, _, rest = name.partition("__")
        if (meant.is_in_name or rest) and path.field.is_relation and self.open_link(root):
            return None
        return self._compared(name, meant, lookup, value)

    def _field_lookup(self, name: str, lookup: str | None) -> _FieldLookup | None:
        """Parse the name of a filter, with or without a lookup or a part of a date after it, and find its field.

        Returns None if the caller has no filter on a field of that name.
        """
        # The name is that of a filter, or has the lookup at its end.
        root, _, last = name.rpartition("__")
        target = self.find(name)
        is_in_name = False
        if target is None and lookup is None:
            target = self.find(root) if root else None
            lookup = last
            is_in_name = True

        # A part of a date stands before the lookup, as in "created__year__gte" or in {"created__year": {"gte": 2025}}.
        part = ""
        if target is None:
            dated, _, part = (root if is_in_name else name).replace(".", "__").rpartition("__")
            target = self.find(dated) if dated and part in PARTS else None
            if target is not None and target.path.field.is_relation:
                # The related row has a field of this name, or none has.
                target = None
        elif lookup is not None and "__" in lookup and lookup.partition("__")[0] in PARTS:
            part, _, lookup = lookup.partition("__")

        if target is None:
            return None
        if target.path.expression is not None and self.source_named(name) is not None:
            # The project has a filter of the same name as a computed value.
            return None
        if part in target.lookups:
            return _FieldLookup(target.path, OF_PARTS, lookup, part, is_in_name)
        # A part that the field does not have is treated as a lookup that it does not take.
        return _FieldLookup(target.path, target.lookups, part or lookup, "", is_in_name)

    def _check_text(self, name: str, value: Any) -> None:
        """Raise ``ToolError`` if a text holds a JSON list of texts: the list could be meant, or the text."""
        items = json_or_text(value) if isinstance(value, str) else None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            short = name[:60]
            raise ToolError(
                f"The filter {short!r} has a list within a text: {short}__in takes the list, {short}__exact the text.",
                repair=with_condition(name, {f"{name}__in": items}, value, prefix=self.prefix),
            )

    def _compared(self, name: str, meant: _FieldLookup, lookup: str, value: Any) -> Condition | Comparison | None:
        """Return the condition on a field or on a part of its date, None if the exposure does not allow the lookup."""
        path = meant.path
        part = meant.part
        self.budget.take()
        if self._is_other(value) and kind_of(path.field).word not in ("json", "mapping"):
            return self._with_other(name, meant.lookups, lookup, value)

        whole = part or lookup
        if part and lookup != "exact":
            whole = f"{part}__{lookup}"
        in_url = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        if not self.exposure.lookup_allowed(self.request, f"{path.column}__{whole}", in_url):
            return None
        stored = "isnull" if value is None and lookup == "exact" else lookup
        if stored not in meant.lookups:
            raise self.other_lookup(name, path, meant.lookups, lookup, value)

        condition = self._parsed(name, path, whole, value)
        if condition.lookup == "in" and lookup == "exact" and "in" not in meant.lookups:
            raise ToolError(f"The filter {name[:60]!r} takes one value.")
        return condition

    def _is_other(self, value: Any) -> bool:
        """Return whether a value is another field, or an aggregate over all rows."""
        return isinstance(value, dict) and (is_field(value) or bool(aggregate_in(self.model, value)))

    def _with_other(self, name: str, lookups: Sequence[str], lookup: str, value: Mapping[str, Any]) -> Comparison:
        """Return the condition that compares a field with another one, or with an aggregate over all rows."""
        if lookup not in COMPARISONS or lookup not in lookups:
            raise ToolError(f"The filter {name[:60]!r} compares fields by {', '.join(COMPARISONS)}.")
        left = target_of(self.model, self.column(name), lambda column: column.is_countable())
        parts: tuple[Filter, ...] = ()
        if is_field(value):
            right = other_value(self.model, value)
        elif self.is_inner:
            raise ToolError("The where of an aggregate in filters cannot have another aggregate.")
        else:
            where = None
            context = self._query_context()
            if "where" in value:
                given = as_conditions(json_or_text(value["where"]))
                if not isinstance(given, dict):
                    raise ToolError(f"where must be an object such as {EXAMPLE}.")
                parts = self._like(is_inner=True).read(given, 1)
                where = partial(context.all_of, parts)
            right = aggregate_value(self.model, value, where)
        left, right = compared(left, right)
        return Comparison(left, lookup, right, parts)

    def _parsed(self, name: str, path: FieldPath, lookup: str, value: Any) -> Condition:
        """Parse the value of a filter; a related row can be named by its label in place of its key."""
        if lookup in ("in", "range"):
            value = json_or_text(value)
        linked = path.field.is_relation and lookup in ("exact", "in")
        related = self.model.access.model_of(path.field.related_model) if linked else None

        # First, the value as it is: a key, for a relation.
        condition = None
        missing = ""
        try:
            condition = parse_condition(path, lookup, value, self.clock() if is_dated(path.field) else None)
        except ValueError as error:
            missing = f"The filter {name[:60]!r} with {lookup} needs {error}."
        if condition is not None and (related is None or not _is_label(related.exposure, value)):
            return condition

        # Then, the label of a related row.
        if related is not None:
            try:
                return parse_condition(path, lookup, self._keys(name, related, value, missing))
            except ToolError as refused:
                if missing and refused.message == missing and isinstance(value, str):
                    missing = f"No {related.exposure.label} is named {value[:60]!r}: the{missing.removeprefix('The')}"
                elif missing:
                    raise
        if condition is None:
            raise self.other_value(missing, name, path, lookup, value)
        return condition

    def _keys(self, name: str, related: ModelAccess, value: Any, missing: str) -> Any:
        """Return the key of the related row that a value names, or the keys of several.

        Raises ``ToolError``, with the message ``missing``, if no row or too many are named.
        """
        finder = RowFinder(related)
        if isinstance(value, list):
            if not 0 < len(value) <= MAX_VALUES:
                raise ToolError(missing)
            return [pk_text(row.pk) for row in finder.rows(value, missing)]

        def by_key(key: str) -> Repair:
            return with_condition(name, {self.column(name): key}, value, prefix=self.prefix)

        return finder.key(value, missing, None if self.is_denied else by_key)

    # Named filters

    def _values(self, source: NamedFilter, name: str, value: Any) -> tuple[str, ...]:
        self.budget.take()
        offer = next((offer for offer in source.offers() if offer.name == name), None)
        if offer is None:
            raise self.unknown(name)
        items = value if isinstance(value, list) else [value]
        if not 0 < len(items) <= (MAX_VALUES if source.takes_lists else 1):
            raise ToolError(f"The filter {name[:60]!r} takes one value.")
        return tuple(self._value(source, offer, item) for item in items)

    def _value(self, source: NamedFilter, offer: Offer, value: Any) -> str:
        text = value
        if isinstance(value, bool):
            text = str(value).lower()
        elif isinstance(value, (int, float)):
            text = str(value)
        if not is_short_text(text, MAX_TEXT):
            raise ToolError(f"The filter {offer.name!r} takes a text of at most {MAX_TEXT} characters.")
        choice = source.value_of(offer, text)
        if choice is not None:
            return choice

        shown = next((item for item in source.described() if item.name == offer.name), offer)
        stored = [stored for stored, _ in shown.choices]
        raise Misnamed(
            f"The filter {offer.name!r} has no choice {text[:60]!r}.",
            text,
            stored,
            lambda right: with_condition(offer.name, {offer.name: right}, value, is_spelling=True),
            misspelt(text, stored),
            of=None,
        )


def _is_label(related: ModelExposure, value: Any) -> bool:
    """Return whether a value must be the label of a related row: a text that is longer than any key."""
    longest = getattr(related.opts.pk, "max_length", None)
    if longest is None:
        return False
    items = value if isinstance(value, list) else [value]
    return any(isinstance(item, str) and len(item) > longest for item in items[:MAX_VALUES])


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

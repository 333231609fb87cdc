"""Suggestions for calls that cannot be read, and repairs that correct the arguments that were sent.

Nothing here decides what a caller may ask: a suggestion is looked up like any other name when the client sends it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, Literal

from orjson import dumps

from ..exceptions import Repair, ToolError
from .access import MAX_NAME, Access, Link, ModelAccess
from .allowed_filters import COMPUTED, AllowedFilter
from .alternative_spellings import OPERATORS, json_or_text, lookup_meant, name_meant, values_meant
from .conditions import TEXTS
from .fields import MORE_TEXT, PARTS, TEXTUAL, FieldPath, kind_of
from .generic_links import GenericLink
from .lookups import is_dated, parse_condition
from .named_filters import NamedFilter
from .nearest_names import COUNTING, Misnamed, letters, misspelt, nearest, says_all, singular, words
from .path import MAX_HOPS, NoField
from .related_values import RelatedNames, RelatedValue
from .relative_dates import days_meant

MAX_PARTS: Final = MAX_HOPS + 3
_SEPARATORS: Final = re.compile(r"__|\.|->|/|::")
# Words after the name of a field that are not part of a path: operators, lookups and directions.
_ENDINGS: Final = frozenset(
    {*OPERATORS, *TEXTUAL, *MORE_TEXT, "asc", "desc", "exact", "gt", "gte", "lt", "lte", "in", "range", "isnull"}
)
# Words of totals, which are no filters.
_TOTALS: Final = frozenset({"sum", "avg", "average", "mean", "median", "min", "max"})
# Maximum number of values of lists that a message names, and what has all other totals.
MAX_WAYS: Final = 4
GROUPED: Final = "aggregate_records with having"
# Words for how many of the related rows must match.
QUANTIFIERS: Final[Mapping[str, Literal["some", "none", "every", "count"]]] = {
    **dict.fromkeys(("some", "any", "exists", "has"), "some"),
    **dict.fromkeys(("none", "no"), "none"),
    **dict.fromkeys(("every", "all"), "every"),
    "count": "count",
}


def nearest_models(access: Access, text: Any) -> list[str]:
    """Suggest models of the caller's for a misspelt model label, name or title, singular or plural."""
    if not isinstance(text, str) or not letters(text):
        return []
    titles = {}
    for exposure in access.exposures:
        opts = exposure.opts
        names = [exposure.label, str(opts.model_name), str(opts.verbose_name), str(opts.verbose_name_plural)]
        titles[exposure.label] = names
    wanted = singular(text[:MAX_NAME])
    same = [label for label, names in titles.items() if wanted in map(singular, names)]
    if same:
        return same[:3]

    # No model has that name: suggest those with similar names.
    owners = {name.lower(): label for label, names in titles.items() for name in names}
    return list(dict.fromkeys(owners[name] for name in nearest(text.lower(), owners)))


class Suggestions:
    """Suggestions for misspelt names of fields and paths, among those of a model that the caller can see."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model

    def paths(self, text: str, accepts: Callable[[str], bool]) -> list[str]:
        """Suggest field paths for a misspelt one; a lookup at its end stays there."""
        if len(text) > MAX_NAME:
            return []
        parts = [part.strip() for part in _SEPARATORS.split(text.strip("+- "))]
        found = dict.fromkeys(self._meant([part for part in parts if part][:MAX_PARTS]))
        return [path for path in found if path != text and accepts(path)][:3]

    def _meant(self, parts: Sequence[str]) -> Iterator[str]:
        """Suggest paths for the names of a misspelt one, each name among those of the model that it belongs to."""
        name = parts[0] if parts else ""
        rest = parts[1:]
        names = self._names()
        heads = [name] if name in names else nearest(name, names)
        if name not in names and not any(letters(head) == letters(name) for head in heads):
            compound = list(self._compound(name, rest))
            if compound:
                yield from compound
                return
        for head in heads:
            yield from self._followed(head, rest)

    def _names(self) -> list[str]:
        """Return the names of fields and relations among which a path is suggested."""
        links = [link.name for link in self.model.links]
        return list(dict.fromkeys(["pk", *self.model.fields, *links]))

    def _followed(self, head: str, rest: Sequence[str]) -> Iterator[str]:
        """Suggest paths that begin with this name."""
        link = self.model.link(head) if rest else None
        paths = list(Suggestions(link.related)._meant(rest)) if link is not None else []
        if paths:
            yield from (f"{head}__{path}" for path in paths)
        else:
            yield "__".join([head, *rest])

    def _compound(self, text: str, rest: Sequence[str]) -> Iterator[str]:
        """Suggest paths for names written as one word: ``customerName``, ``total_gte``, ``orderNumber``."""
        parts = words(text)
        by_letters = {letters(name): name for name in self._names()}

        # The name of a field, with a lookup or the rest of a path after it.
        for cut in range(len(parts) - 1, 0, -1):
            head = by_letters.get(letters("".join(parts[:cut])))
            tail = "_".join(parts[cut:]).lower()
            if head is None:
                continue
            link = self.model.link(head)
            if tail in _ENDINGS:
                yield "__".join([head, tail, *rest])
            elif link is not None:
                yield from (f"{head}__{path}" for path in Suggestions(link.related)._ends(tail, rest))

        # A relation, with a word for the number of its rows.
        counted = [part for part in parts if part.lower() not in {*COUNTING, "total", "of"}]
        if len(counted) < len(parts):
            wanted = singular("".join(counted))
            many = [link.name for link in self.model.links]
            yield from ("__".join([name, "count", *rest]) for name in many if singular(name) == wanted)

        # The name of a field, with a lookup or the model's own name before it.
        own = by_letters.get(letters("".join(parts[1:]))) if len(parts) > 1 else None
        if own is not None and parts[0].lower() in _ENDINGS:
            yield "__".join([own, parts[0].lower(), *rest])
        if own is not None and letters(parts[0]) == letters(str(self.model.exposure.opts.model_name)):
            yield from self._followed(own, rest)

    def _ends(self, text: str, rest: Sequence[str]) -> Iterator[str]:
        """Suggest the ends of a path whose last names are written as one word."""
        same = [name for name in self._names() if letters(name) == letters(text)]
        if same:
            yield from ("__".join([name, *rest]) for name in same)
        else:
            yield from self._compound(text, rest)


@contextmanager
def naming(*within: str) -> Iterator[None]:
    """Turn the error of an unknown field into a suggestion and a repair of the arguments ``within``."""
    try:
        yield
    except NoField as error:
        lost = error
        model = lost.model
        several = {link.name for link in model.links} if "aggregates" in within else set()

        def near() -> list[str]:
            return Suggestions(model).paths(lost.text, lambda path: path in several or lost.accepts(path))

        repair = partial(with_field, lost.text, within=within)
        of = model.exposure.opts.model_name
        raise Misnamed(lost.lead, lost.text, lost.known, repair, near, of=of) from None


# Errors about filters


class FilterSuggestions(Suggestions):
    """Suggestions for filters that cannot be read; ``prefix`` is the path that leads to their names.

    ``clock`` returns the time from which relative dates are counted.
    """

    # Whether the lookup that is read is the opposite of what was written, as for ``ne``.
    is_denied = False

    def __init__(self, model: ModelAccess, clock: Callable[[], datetime], prefix: str = "") -> None:
        super().__init__(model)
        self.request = model.request
        self.exposure = model.exposure
        self.clock = clock
        self.prefix = prefix

    @cached_property
    def sources(self) -> Sequence[NamedFilter]:
        """The project's own filters."""
        return self.exposure.get_named_filters(self.request)

    def find(self, name: str) -> AllowedFilter | None:
        """Return the caller's filter on a field, or on a value of a list, with this name, None if there is none."""
        return AllowedFilter.find(self.model, name) or self._of_list(name)

    def _of_list(self, name: str) -> AllowedFilter | None:
        """Return the filter on a value of a list, such as ``orders.sum.total``, None if there is none.

        The number of rows has conditions of its own, which need not be compiled for each call, unless the relation is
        a generic one.
        """
        value = RelatedValue.read(self.model, name) if not self._is_narrowed else None
        if value is None or value.has_conditions:
            return None
        lookups = tuple(word for word in kind_of(value.field).usual_lookups if word in COMPUTED or word in TEXTS)
        return AllowedFilter(FieldPath(value.name, value.field, False, True, expression=value.expression), lookups)

    @property
    def _is_narrowed(self) -> bool:
        """Whether the exposure declares what can be filtered by."""
        return self.exposure.get_filter_fields(self.request) is not None

    def source_named(self, name: str) -> NamedFilter | None:
        """Return the project's own filter with this name, None if there is none."""
        return next((source for source in self.sources if name in source.names()), None)

    def open_link(self, name: str) -> Link | None:
        """Return the relation with this name, None if there is none that filters can follow."""
        return self.model.link(name) if not self._is_narrowed else None

    def unknown_of_list(self, name: str) -> ToolError | None:
        """Return the error for a name that can only mean a value of a list and is none, with the values of that list.

        Return None for any other name, also for the number of rows, which is a condition of its own.
        """
        root, _, lookup = name.rpartition("__")
        text = root if lookup in _ENDINGS else name
        names = RelatedNames(self.model).meant(text) if not self._is_narrowed else []
        if not names or ("(" not in text and names[0].endswith(".count")):
            return self.unknown_of_generic(name)
        end = name.removeprefix(text)
        return Misnamed(
            f"{self.exposure.label} has no filter {(self.prefix + name)[:60]!r}.",
            text,
            names,
            lambda right: with_condition(name, right + end, prefix=self.prefix),
            of=self.exposure.opts.model_name,
        )

    def _generic(self, name: str) -> GenericLink | None:
        """Return the generic relation that a name begins with, None if there is none that filters can follow."""
        root = name[:MAX_NAME].replace(".", "__").partition("__")[0]
        if self._is_narrowed or self.model.link(root) is not None:
            return None
        return GenericLink.named(self.model, root)

    def is_generic(self, name: str) -> bool:
        """Return whether a name begins with a generic relation that filters can follow."""
        return self._generic(name) is not None

    def unknown_of_generic(self, name: str) -> ToolError | None:
        """Return the error for a condition on the rows of a generic relation, with what works in its place."""
        link = self._generic(name)
        if link is None:
            return None
        full = f"{self.prefix}{link.name}".replace("__", ".")
        ways = ", ".join(f"{full}{way.removeprefix(link.name)}" for way in RelatedNames.some_of(link))
        return ToolError(
            f"{self.exposure.label} has no filter {(self.prefix + name)[:60]!r}. {link.name} is a generic relation: "
            f'filter by values of all its rows, such as {ways}. {{"{full}.count__gte": 1}} finds those that have any. '
            f"For conditions on single rows, query {link.exposure.label}."
        )

    def unknown(self, name: str) -> ToolError:
        """Return the error for an unknown filter, with suggestions of the caller's filters."""

        def known() -> Iterator[str]:
            yield from (known for known, _ in AllowedFilter.all(self.model))
            yield from (offer.name for offer in NamedFilter.offers_of(self.model))
            if not self._is_narrowed:
                yield from (link.name for link in self.model.links)
            yield from ("or", "and", "not")

        # A name such as "sum_total" asks for a total: the field alone would compare something else.
        totals = _TOTALS & {word.lower() for word in words(name)}

        def near() -> list[str]:
            found = self.paths(name_meant(name) or name, self.is_filter)
            return [path for path in found if totals <= {word.lower() for word in words(path)}]

        return Misnamed(
            f"{self.exposure.label} has no filter {(self.prefix + name)[:60]!r}.",
            name,
            known(),
            lambda right: with_condition(name, right, prefix=self.prefix),
            near() if totals else near,
            self._by_key(name) or (self._totals_hint() if totals else ""),
            of=self.exposure.opts.model_name,
        )

    def other_lookup(self, name: str, path: FieldPath, lookups: Sequence[str], lookup: str, value: Any) -> ToolError:
        """Return the error for a lookup that the field does not take, with the lookups that it takes."""
        root = self.column(name)
        word = kind_of(path.field).word
        is_null = lookup == "isnull" or value is None
        if is_null and "isnull" not in lookups:
            empty = ' Without a text it is "".' if word == "text" and getattr(path.field, "blank", False) else ""
            return ToolError(f"{root} is never null.{empty}")

        message = f"The filter {name[:60]!r} takes other lookups."
        if not path.field.is_relation and not _is_lookup(lookup):
            full = f"{self.prefix}{root}__{lookup}"[:60]
            message = f"{self.exposure.label} has no filter {full!r}: {root} is {_with_article(word)}, not a relation."
        elif path.field.is_relation and self.model.access.model_of(path.field.related_model) is None:
            return self.unknown(f"{root}__{lookup}")

        near: list[str] = []
        if not is_null:
            near = [item for item in nearest(lookup, lookups) if item != lookup and says_all(lookup, item)]
        return Misnamed(
            message,
            lookup,
            lookups,
            lambda right: with_condition(name, {f"{root}__{right}": value}, value, is_spelling=True),
            near,
            self._by_key(name),
        )

    def other_value(self, message: str, name: str, path: FieldPath, lookup: str, value: Any) -> ToolError:
        """Return the error for a value that does not fit, with a suggestion of the filter that may be meant."""
        if self.is_denied:
            # The right condition would have to be denied too, and a text can say that in several ways.
            return ToolError(message)
        root = self.column(name)
        target = self.find(root)
        lookups = target.lookups if target is not None else ()
        is_key = path.field.is_relation or path.field.primary_key
        meanings = list(values_meant(value, lookup, is_key=is_key))
        # Suggest a choice only if the value has no other meaning.
        is_choice = not meanings
        if is_choice:
            meanings = [("", text) for text in self._choice(path, lookup, value)]

        for word, item in meanings:
            meant = lookup_meant(word or lookup, item, lookups)
            if meant is None:
                continue
            try:
                parse_condition(path, meant.lookup, meant.value, self.clock() if is_dated(path.field) else None)
            except ValueError:
                continue
            key = root if meant.lookup == "exact" else f"{root}__{meant.lookup}"
            right = {"not": {key: meant.value}} if meant.is_denied else {key: meant.value}
            text = f"{message} Did you mean {dumps(right).decode()}?"
            repair = with_condition(name, right, value, prefix=self.prefix, is_spelling=is_choice)
            return ToolError(text, repair=repair)

        # A date that is written in numbers can be either of two days.
        days = days_meant(value) if is_dated(path.field) and isinstance(value, str) else []
        if days:
            return ToolError(f"{message} Did you mean {' or '.join(days)}?")
        return ToolError(message)

    def _choice(self, path: FieldPath, lookup: str, value: Any) -> list[str]:
        """Suggest the one choice of a field that a value misspells."""
        if lookup not in ("exact", "in"):
            return []
        pairs = kind_of(path.field).choices
        near = misspelt(value, [str(text) for pair in pairs for text in pair])
        stored = {stored for stored, label in pairs if str(stored) in near or str(label) in near}
        return near[:1] if len(stored) == 1 else []

    def column(self, name: str) -> str:
        """Return a filter's name without its lookup."""
        if self.find(name) is not None:
            return name
        return name.rpartition("__")[0]

    def is_filter(self, path: str) -> bool:
        """Return whether a name is a filter of the caller's, alone or with a lookup or a path after it."""
        if self.source_named(path) is not None or self.find(path) is not None:
            return True

        # A filter with a lookup after it.
        root, _, last = path.rpartition("__")
        target = self.find(root) if root else None
        if target is not None and (last in target.lookups or lookup_meant(last, "", target.lookups) is not None):
            return True

        # A relation, with a filter of the related model or a quantifier after it.
        head, _, rest = path.partition("__")
        link = self.open_link(head)
        if link is None or QUANTIFIERS.get(rest.partition("__")[0]) is not None or rest in ("", "isnull"):
            return link is not None
        return FilterSuggestions(link.related, self.clock).is_filter(rest)

    def _totals_hint(self) -> str:
        """Return how totals of related rows are written: as values of lists of the model, and in another call."""
        ways = [way for link in self.model.links for way in RelatedNames.some_of(link)] if not self._is_narrowed else []
        return f" Totals of related rows: {', '.join([*ways[:MAX_WAYS], GROUPED])}."

    def _by_key(self, name: str) -> str:
        """Suggest to filter a relation by primary keys of the related rows."""
        root, separator, _ = name.partition("__")
        target = self.find(root) if separator else None
        if target is None or not target.path.field.is_relation:
            return ""
        related = self.model.access.model_of(target.path.field.related_model)
        if related is None:
            return f" You cannot see the rows that {root} leads to: filter by their keys."
        return f" {root} takes primary keys: find them with query_records on {related.exposure.label}."


def _is_lookup(word: str) -> bool:
    """Return whether a word after the name of a field is a lookup or a part of a date, or like one."""
    known = [*_ENDINGS, *PARTS, "date", "regex", "iregex"]
    return any(part.lower() in known or nearest(part, known) for part in word.split("__"))


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


# Repairs: each corrects the arguments that a client sent, or returns None if it does not fit them

# Members of an object that spells out one condition.
COMPARING: Final = frozenset({"field", "value", "operator", "op", "lookup"})


def with_argument(name: str, value: Any, *, is_spelling: bool = False) -> Repair:
    """Return the repair that sets an argument."""
    return Repair(lambda arguments: {**arguments, name: value}, is_spelling)


def without_argument(name: str) -> Repair:
    """Return the repair that leaves an argument out."""
    return Repair(lambda arguments: {key: value for key, value in arguments.items() if key != name}, False)


def _renamed(given: Any, wrong: str, right: str) -> dict[str, Any] | None:
    if not isinstance(given, dict) or wrong not in given or right in given:
        return None
    # In the same order, as the client reads it.
    renamed: dict[str, Any] = {}
    for key, value in given.items():
        renamed[right if key == wrong else key] = value
    return renamed


def with_name(wrong: str, right: str) -> Repair:
    """Return the repair that gives an argument its right name."""

    def mend(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        renamed = _renamed(dict(arguments), wrong, right)
        if renamed is not None and right == "pk" and isinstance(renamed[right], list) and len(renamed[right]) == 1:
            # A list of one key means that key.
            renamed[right] = renamed[right][0]
        return renamed

    return Repair(mend)


def with_value(wrong: str, right: str) -> Repair:
    """Return the repair that gives a field its right name in the argument ``values``."""

    def mend(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        values = _renamed(_opened(arguments.get("values")), wrong, right)
        if values is None:
            return None
        return {**arguments, "values": values}

    return Repair(mend)


def with_model(wrong: Any, right: str, *, is_spelling: bool = True) -> Repair:
    """Return the repair that gives a model its label, also among several."""

    def mend(arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = _opened(arguments.get("model"))
        several = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
        if not isinstance(several, list) or wrong not in several:
            several = [wrong]
        labels: list[Any] = []
        for item in several:
            label = right if item == wrong else item
            if label not in labels:
                labels.append(label)

        # The model stands first if the call has none.
        mended = {"model": right, **arguments}
        if len(labels) == 1:
            mended["model"] = right
        elif isinstance(given, str):
            mended["model"] = ",".join(labels)
        else:
            mended["model"] = labels
        return mended

    return Repair(mend, is_spelling)


def with_field(wrong: str, right: str, within: Sequence[str]) -> Repair:
    """Return the repair that gives a field its right name wherever it stands in the arguments ``within``.

    The name may stand alone, within a path, or before a lookup. A ``where`` has repairs of its own.
    """

    def respelt(value: Any, name: re.Pattern[str]) -> Any:
        value = _opened(value)
        if isinstance(value, str):
            return name.sub(lambda _: right, value)
        if isinstance(value, list):
            return [respelt(item, name) for item in value]
        if isinstance(value, dict):
            found = {}
            for key, item in value.items():
                found[respelt(key, name)] = item if key == "where" else respelt(item, name)
            return found
        return value

    def mend(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        for text in dict.fromkeys((wrong, wrong.replace("__", "."))) if wrong else ():
            name = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)|(?<=__){re.escape(text)}|{re.escape(text)}(?=__)")
            mended = {**arguments}
            for key in arguments.keys() & {*within}:
                mended[key] = respelt(arguments[key], name)
            if mended != arguments:
                return mended
        return None

    return Repair(mend)


def with_condition(
    name: str, right: Mapping[str, Any] | str, value: Any = None, *, prefix: str = "", is_spelling: bool = False
) -> Repair:
    """Return the repair that writes one condition of a filter in another way.

    The condition has this ``name``, after ``prefix`` if it is part of a path, and this ``value``, if one is given.
    ``right`` is its right name, or the members of an object that replace it.
    """

    def mend(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        for start in dict.fromkeys((prefix, "")):
            new = start + right if isinstance(right, str) else {start + key: item for key, item in right.items()}
            rewriter = _ConditionRewriter(start + name, new, value)
            mended = {**arguments}
            for key in arguments.keys() & {"filters", "aggregates"}:
                mended[key] = rewriter.rewritten(arguments[key])
            if rewriter.places == 1:
                return mended
        return None

    return Repair(mend, is_spelling or isinstance(right, str))


class _ConditionRewriter:
    """Writes a condition in another way wherever it stands within filters.

    The condition has the name ``wrong`` and this ``value``, any value for None. ``new`` is its new name, or the members
    of an object that replace it. ``places`` counts where it stood.
    """

    def __init__(self, wrong: str, new: Mapping[str, Any] | str, value: Any) -> None:
        self.wrong = wrong
        self.new = new
        self.value = value
        self.places = 0

    def rewritten(self, given: Any) -> Any:
        """Return the filters with the condition written in the new way."""
        given = _opened(given)
        if isinstance(given, list):
            return [self.rewritten(item) for item in given]
        if not isinstance(given, dict):
            return given
        if given.keys() <= COMPARING and given.get("field") == self.wrong and self._is_meant(given.get("value")):
            self.places += 1
            if isinstance(self.new, str):
                return {**given, "field": self.new}
            return dict(self.new)

        mended: dict[str, Any] = {}
        for key, item in given.items():
            if self.wrong in (key, key.replace(".", "__"), name_meant(key)):
                mended |= self._member(key, item)
            else:
                mended[key] = self.rewritten(item)
        return mended

    def _member(self, key: str, item: Any) -> Mapping[str, Any]:
        """Return what replaces a member of an object that has the condition's name."""
        if self._is_meant(item):
            self.places += 1
            return {self.new: item} if isinstance(self.new, str) else self.new
        if not isinstance(item, dict) or isinstance(self.new, str):
            return {key: self.rewritten(item)}

        # Keep other conditions that stand beside it under the same name: {"t": {"lt": 9, "gt": "x"}}.
        others = {word: part for word, part in item.items() if not self._is_meant(part)}
        if len(others) == len(item):
            return {key: self.rewritten(item)}
        self.places += 1
        if not others:
            return self.new
        return {key: others, **self.new}

    def _is_meant(self, item: Any) -> bool:
        return self.value is None or (type(item) is type(self.value) and bool(item == self.value))


def _opened(value: Any) -> Any:
    try:
        return json_or_text(value)
    except ToolError:
        return value

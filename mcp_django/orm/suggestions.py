"""What was meant by a call that cannot be read, and the repair that makes the right arguments of those that were sent.

Nothing here decides what a caller may ask. What is found is proposed, and is looked up like any other name when the
client sends it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

from orjson import dumps

from ..context.request import MCPRequest
from ..exceptions import Repair, ToolError
from ..exposures.base import ModelExposure
from .access import MAX_NAME, Link, access_of
from .filters import filters_of, find_filter
from .kinds import TEXTUAL, FieldPath, choices_of
from .lookups import MORE_TEXT, is_dated, parse_condition
from .named_filters import NamedFilter, named_filters_of
from .path import MAX_HOPS, NoField
from .relative_dates import days_meant
from .wording import (
    COUNTING,
    OPERATORS,
    json_or_text,
    letters,
    lookup_meant,
    misnamed,
    name_meant,
    nearest,
    singular,
    values_meant,
    words,
)

MAX_PARTS: Final = MAX_HOPS + 3
_SEPARATORS: Final = re.compile(r"__|\.|->|/|::")
_IDENTIFIERS: Final = re.compile(r"[^\W\d][\w.]*")
# What is no part of a path though it stands after the name of a field.
_ENDINGS: Final = frozenset(
    {*OPERATORS, *TEXTUAL, *MORE_TEXT, "asc", "desc", "exact", "gt", "gte", "lt", "lte", "in", "range", "isnull"}
)
# Aggregates of other aggregates, whose operands are no fields.
_OF_RESULTS: Final = frozenset({"ratio", "difference", "percent_of_total", "change"})
# How many of the related rows pass.
QUANTIFIERS: Final[Mapping[str, Literal["some", "none", "every", "count"]]] = {
    **dict.fromkeys(("some", "any", "exists", "has"), "some"),
    **dict.fromkeys(("none", "no"), "none"),
    **dict.fromkeys(("every", "all"), "every"),
    "count": "count",
}


class Suggestions:
    """What the caller may have meant by names that are none: among what they can see, and nothing else."""

    def __init__(self, request: MCPRequest) -> None:
        self.request = request

    # Models

    def models(self, text: Any) -> list[str]:
        """Return the labels of the caller's models that a text may mean: by label, name or title, in any number."""
        if not isinstance(text, str) or not letters(text):
            return []
        titles = {}
        for exposure in access_of(self.request).exposures:
            opts = exposure.opts
            names = [exposure.label, str(opts.model_name), str(opts.verbose_name), str(opts.verbose_name_plural)]
            titles[exposure.label] = names
        wanted = singular(text[:MAX_NAME])
        same = [label for label, names in titles.items() if wanted in map(singular, names)]
        if same:
            return same[:3]
        owners = {name.lower(): label for label, names in titles.items() for name in names}
        return list(dict.fromkeys(owners[name] for name in nearest(text.lower(), owners)))

    def models_fitting(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the labels of the caller's models that have all the fields which a call without a model names."""
        paths = list(dict.fromkeys(_paths_of(arguments)))[:40]
        exposures = access_of(self.request).exposures if paths else []
        return [exposure.label for exposure in exposures if all(self._leads(exposure, path) for path in paths)]

    def _leads(self, exposure: ModelExposure, path: str) -> bool:
        """Return whether the path leads to a field; what stands after one may be a lookup."""
        seen: ModelExposure | None = exposure
        for name in _SEPARATORS.split(path)[:MAX_PARTS]:
            if seen is None:
                return True
            link = access_of(self.request)[seen].link(name)
            if link is None and name != "pk" and name not in access_of(self.request)[seen].fields:
                return seen is not exposure and name.lower() in _ENDINGS | {"some", "none", "every", "count", "isnull"}
            seen = link.exposure if link is not None else None
        return True

    # Fields

    def paths(self, exposure: ModelExposure, text: str, accepts: Callable[[str], bool]) -> list[str]:
        """Return the paths near to a text that are of use where it stands; a lookup at its end stays there."""
        if len(text) > MAX_NAME:
            return []
        parts = [part.strip() for part in _SEPARATORS.split(text.strip("+- "))]
        found = dict.fromkeys(self._meant(exposure, [part for part in parts if part][:MAX_PARTS]))
        return [path for path in found if path != text and accepts(path)][:3]

    def _meant(self, exposure: ModelExposure, parts: Sequence[str]) -> Iterator[str]:
        name, rest = parts[0] if parts else "", parts[1:]
        names = self._names(exposure)
        heads = [name] if name in names else nearest(name, names)
        if name not in names and not any(letters(head) == letters(name) for head in heads):
            compound = list(self._compound(exposure, names, name, rest))
            if compound:
                yield from compound
                return
        for head in heads:
            yield from self._followed(exposure, head, rest)

    def _names(self, exposure: ModelExposure) -> list[str]:
        """Return the names that a path can go on with."""
        links = [link.name for link in access_of(self.request)[exposure].links]
        return list(dict.fromkeys(["pk", *access_of(self.request)[exposure].fields, *links]))

    def _followed(self, exposure: ModelExposure, head: str, rest: Sequence[str]) -> Iterator[str]:
        link = access_of(self.request)[exposure].link(head) if rest else None
        found = [f"{head}__{path}" for path in self._meant(link.exposure, rest)] if link is not None else []
        yield from found or ["__".join([head, *rest])]

    def _compound(self, exposure: ModelExposure, names: Sequence[str], text: str, rest: Sequence[str]) -> Iterator[str]:
        """Yield the paths that are written as one word, such as ``customerName``, ``total_gte`` or ``orderNumber``."""
        parts = words(text)
        by_letters = {letters(name): name for name in names}
        for cut in range(len(parts) - 1, 0, -1):
            head, tail = by_letters.get(letters("".join(parts[:cut]))), "_".join(parts[cut:]).lower()
            if head is not None and tail in _ENDINGS:
                yield "__".join([head, tail, *rest])
            elif head is not None and (link := access_of(self.request)[exposure].link(head)) is not None:
                there = self._names(link.exposure)
                ends = [name for name in there if letters(name) == letters(tail)]
                behind = [["__".join([name, *rest])] for name in ends] or [
                    list(self._compound(link.exposure, there, tail, rest))
                ]
                yield from (f"{head}__{path}" for paths in behind for path in paths)
        counted = [part for part in parts if part.lower() not in {*COUNTING, "of"}]
        if len(counted) < len(parts):
            many = [link.name for link in access_of(self.request)[exposure].links]
            same = (name for name in many if singular(name) == singular("".join(counted)))
            yield from ("__".join([name, "count", *rest]) for name in same)
        own = by_letters.get(letters("".join(parts[1:]))) if len(parts) > 1 else None
        if own is not None and parts[0].lower() in _ENDINGS:
            yield "__".join([own, parts[0].lower(), *rest])
        if own is not None and letters(parts[0]) == letters(str(exposure.opts.model_name)):
            yield from self._followed(exposure, own, rest)


def _paths_of(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that the arguments of a call name."""
    yield from _keys(json_or_text(arguments.get("filters")))
    yield from (
        text.partition(":")[0] for name in ("fields", "group_by", "related") for text in _texts(arguments, name)
    )
    for text in _texts(arguments, "aggregates"):
        function, _, expression = text.partition(":")
        yield from _IDENTIFIERS.findall(expression if function not in _OF_RESULTS else "")
    for item in json_or_text(arguments.get("aggregates")) or ():
        yield from _keys(item.get("where") if isinstance(item, dict) else None)
    if "aggregates" not in arguments and "group_by" not in arguments:
        yield from (text.lstrip("+-").partition(":")[0] for text in _texts(arguments, "ordering"))


def _keys(given: Any) -> Iterator[str]:
    if isinstance(given, list):
        for item in given:
            yield from _keys(item)
    elif isinstance(given, dict):
        for key, item in given.items():
            if key.lower() in ("and", "or", "not"):
                yield from _keys(item)
            else:
                yield key


def _texts(arguments: Mapping[str, Any], name: str) -> Iterator[str]:
    given = json_or_text(arguments.get(name))
    items = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("field"), str):
            yield f":{item['field']}"
        elif isinstance(item, str):
            yield item.strip()


@contextmanager
def naming(request: MCPRequest, *within: str) -> Iterator[None]:
    """Propose the field that is meant where one is named that is not there, in the arguments ``within``."""
    try:
        yield
    except NoField as error:
        several = {link.name for link in access_of(request)[error.exposure].links} if "aggregates" in within else set()
        # The name is another one outside of the clause.
        lost = error
        near = Suggestions(request).paths(lost.exposure, lost.text, lambda path: path in several or lost.accepts(path))
        repair = partial(with_field, lost.text, within=within)
        raise misnamed(
            lost.lead, lost.text, lost.known, repair, near or None, of=lost.exposure.opts.model_name
        ) from None


# What is wrong with filters


class FilterSuggestions(Suggestions):
    """What was meant by a part of filters that cannot be read; ``prefix`` stands before its names in the whole path.

    ``sources`` are the filters of the project's own, ``clock`` gives the moment from which relative dates are seen.
    """

    def __init__(
        self,
        request: MCPRequest,
        exposure: ModelExposure,
        sources: Sequence[NamedFilter],
        prefix: str,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(request)
        self.exposure, self.sources, self.prefix, self.clock = exposure, sources, prefix, clock

    def unknown(self, name: str) -> ToolError:
        """Return the error of a name that no filter has."""
        known = [known for known, _, _ in filters_of(access_of(self.request)[self.exposure])]
        known += [offer.name for offer in named_filters_of(access_of(self.request)[self.exposure])]
        near = self.paths(self.exposure, name_meant(name) or name, self.is_filter)
        return misnamed(
            f"{self.exposure.label} has no filter {(self.prefix + name)[:60]!r}.",
            name,
            dict.fromkeys([*known, "or", "and", "not"]),
            lambda right: with_condition(name, right, prefix=self.prefix),
            near or None,
            self._by_key(name),
            of=self.exposure.opts.model_name,
        )

    def other_lookup(self, name: str, path: FieldPath, lookups: Sequence[str], lookup: str, value: Any) -> ToolError:
        """Return the error of a lookup that the field does not take."""
        message, root = f"The filter {name[:60]!r} takes other lookups.", self.column(name)
        is_null = lookup == "isnull" or value is None
        if is_null and "isnull" not in lookups:
            message = f"{message} {root} is never null."
        elif path.field.is_relation and access_of(self.request).exposure_of(path.field.related_model) is None:
            return self.unknown(f"{root}__{lookup}")
        return misnamed(
            message,
            lookup,
            lookups,
            lambda right: with_condition(name, {f"{root}__{right}": value}, value, is_spelling=True),
            [] if is_null else [item for item in nearest(lookup, lookups) if item != lookup],
            self._by_key(name),
        )

    def other_value(self, message: str, name: str, path: FieldPath, lookup: str, value: Any) -> ToolError:
        """Return the error of a value that does not fit, with the condition that it may mean."""
        root = self.column(name)
        target = find_filter(access_of(self.request)[self.exposure], root)
        choices = [str(item) for pair in choices_of(path.field) for item in pair] if lookup in ("exact", "in") else []
        near = nearest(value, choices) if choices else []
        choice = [("", near[0])] if near and len({*map(str.lower, near)}) == 1 else []
        # What is more than a misspelt choice says something else.
        meanings = [*values_meant(value)] or choice
        for word, item in meanings:
            meant = lookup_meant(word or lookup, item, target[1] if target is not None else ())
            if meant is None:
                continue
            try:
                parse_condition(path, meant[0], meant[1], self.clock() if is_dated(path.field) else None)
            except ValueError:
                continue
            key = root if meant[0] == "exact" else f"{root}__{meant[0]}"
            right = {"not": {key: meant[1]}} if meant[2] else {key: meant[1]}
            text = f"{message} Did you mean {dumps(right).decode()}?"
            repair = with_condition(name, right, value, prefix=self.prefix, is_spelling=meanings is choice)
            return ToolError(text, repair=repair)
        days = days_meant(value) if is_dated(path.field) and isinstance(value, str) else []
        return ToolError(f"{message} Did you mean {' or '.join(days)}?" if days else message)

    def column(self, name: str) -> str:
        """Return the name of a condition without the lookup at its end."""
        return (
            name if find_filter(access_of(self.request)[self.exposure], name) is not None else name.rpartition("__")[0]
        )

    def is_filter(self, path: str) -> bool:
        """Return whether a condition can have the name, which is of exact names."""
        if any(path in source.names() for source in self.sources):
            return True
        if find_filter(access_of(self.request)[self.exposure], path) is not None:
            return True
        root, _, last = path.rpartition("__")
        target = find_filter(access_of(self.request)[self.exposure], root) if root else None
        if target is not None and (last in target[1] or lookup_meant(last, "", target[1]) is not None):
            return True
        head, _, rest = path.partition("__")
        link = open_link(self.request, self.exposure, head)
        if link is None:
            return False
        if QUANTIFIERS.get(rest.partition("__")[0]) is not None or rest in ("", "isnull"):
            return True
        return FilterSuggestions(self.request, link.exposure, (), self.prefix, self.clock).is_filter(rest)

    def _by_key(self, name: str) -> str:
        """Return how to filter by what a relation leads to: by the keys of the rows there."""
        root, separator, _ = name.partition("__")
        target = find_filter(access_of(self.request)[self.exposure], root) if separator else None
        if target is None or not target[0].field.is_relation:
            return ""
        related = access_of(self.request).exposure_of(target[0].field.related_model)
        if related is None:
            return f" You cannot see the rows that {root} leads to: filter by their keys."
        return f" {root} takes primary keys: find them with query_records on {related.label}."


def open_link(request: MCPRequest, exposure: ModelExposure, name: str) -> Link | None:
    """Return the relation of that name, where anything may be asked of it."""
    return access_of(request)[exposure].link(name) if exposure.get_filter_fields(request) is None else None


# Repairs: each makes the right arguments of those that a client sent, or None where it does not fit them


Arguments = Mapping[str, Any]

# The members of an object that is one condition.
COMPARING: Final = frozenset({"field", "value", "operator", "op", "lookup"})


def with_argument(name: str, value: Any, *, is_spelling: bool = False) -> Repair:
    """Return the repair that sets an argument."""
    return Repair(lambda arguments: {**arguments, name: value}, is_spelling)


def without_argument(name: str) -> Repair:
    """Return the repair that leaves an argument out."""
    return Repair(lambda arguments: {key: value for key, value in arguments.items() if key != name}, False)


def with_name(wrong: str, right: str) -> Repair:
    """Return the repair that gives an argument its right name."""

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        if right in arguments or wrong not in arguments:
            return None
        renamed = _renamed(arguments, wrong, right)
        if right == "pk" and isinstance(renamed[right], list) and len(renamed[right]) == 1:
            # The one of several keys.
            renamed[right] = renamed[right][0]
        return renamed

    return Repair(mend)


def _renamed(given: Mapping[str, Any], wrong: str, right: str) -> dict[str, Any]:
    return {right if key == wrong else key: value for key, value in given.items()}


def with_model(wrong: Any, right: str, *, is_spelling: bool = True) -> Repair:
    """Return the repair that gives a model its label, also among several."""

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        given = json_or_text(arguments.get("model"))
        if isinstance(given, list) and len(given) > 1:
            return {**arguments, "model": [right if item == wrong else item for item in given]}
        if isinstance(given, str) and given.strip() != wrong:
            parts = [part.strip() for part in given.split(",")]
            return {**arguments, "model": ",".join(right if part == wrong else part for part in parts)}
        return {"model": right, **{key: value for key, value in arguments.items() if key != "model"}}

    return Repair(mend, is_spelling)


def with_value(wrong: str, right: str) -> Repair:
    """Return the repair that gives a field its right name in the argument ``values``."""

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        values = _opened(arguments.get("values"))
        if not isinstance(values, dict) or wrong not in values or right in values:
            return None
        return {**arguments, "values": _renamed(values, wrong, right)}

    return Repair(mend)


def with_field(wrong: str, right: str, within: Sequence[str]) -> Repair:
    """Return the repair that gives a field its right name wherever it stands in the arguments ``within``."""

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        for text in dict.fromkeys((wrong, wrong.replace("__", "."))):
            found = {key: _respelt(value, text, right) if key in within else value for key, value in arguments.items()}
            if found != arguments:
                return found
        return None

    return Repair(mend)


def _respelt(value: Any, wrong: str, right: str) -> Any:
    value = _opened(value)
    if isinstance(value, str):
        return _in_text(value, wrong, right)
    if isinstance(value, list):
        return [_respelt(item, wrong, right) for item in value]
    if isinstance(value, dict):
        return {
            _in_text(key, wrong, right): _respelt(item, wrong, right) if key != "where" else item
            for key, item in value.items()
        }
    return value


def _in_text(text: str, wrong: str, right: str) -> str:
    """Return the text with a name replaced where it stands alone, as a part of a path, or before a lookup."""
    name = re.escape(wrong)
    return re.sub(rf"(?<!\w){name}(?!\w)|(?<=__){name}|{name}(?=__)", lambda found: right, text) if wrong else text


def with_condition(
    name: str, right: Mapping[str, Any] | str, value: Any = None, *, prefix: str = "", is_spelling: bool = False
) -> Repair:
    """Return the repair that writes one condition of a filter in another way.

    It is known by its ``name``, after ``prefix`` where that is part of a path, and, if one is given, by its ``value``.
    ``right`` is its right name, or the members of an object that say the same.
    """

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        for start in dict.fromkeys((prefix, "")):
            written = start + right if isinstance(right, str) else {start + key: item for key, item in right.items()}
            rewriter = _Conditions(start + name, written, value)
            found = {
                key: rewriter.rewrite(item) if key in ("filters", "aggregates") else item
                for key, item in arguments.items()
            }
            if rewriter.count == 1:
                return found
        return None

    return Repair(mend, is_spelling or isinstance(right, str))


class _Conditions:
    """Rewrites the conditions of one name; ``count`` is how many there were."""

    def __init__(self, name: str, right: Mapping[str, Any] | str, value: Any) -> None:
        self.name, self.right, self.value = name, right, value
        self.count = 0

    def rewrite(self, given: Any) -> Any:
        given = _opened(given)
        if isinstance(given, list):
            return [self.rewrite(item) for item in given]
        if not isinstance(given, dict):
            return given
        if given.keys() <= COMPARING and given.get("field") == self.name and self._is_meant(given.get("value")):
            self.count += 1
            return {**given, "field": self.right} if isinstance(self.right, str) else dict(self.right)
        found: dict[str, Any] = {}
        for key, item in given.items():
            found.update(self._member(key, item))
        return found

    def _member(self, key: str, item: Any) -> Mapping[str, Any]:
        if self.name not in (key, key.replace(".", "__"), name_meant(key)):
            return {key: self.rewrite(item)}
        if self._is_meant(item):
            self.count += 1
            return {self.right: item} if isinstance(self.right, str) else self.right
        members = item if isinstance(item, dict) and not isinstance(self.right, str) else {}
        others = {lookup: value for lookup, value in members.items() if not self._is_meant(value)}
        if isinstance(self.right, str) or len(others) == len(members):
            return {key: self.rewrite(item)}
        self.count += 1
        return {**({key: others} if others else {}), **self.right}

    def _is_meant(self, item: Any) -> bool:
        return self.value is None or (type(item) is type(self.value) and bool(item == self.value))


def _opened(value: Any) -> Any:
    try:
        return json_or_text(value)
    except ToolError:
        return value

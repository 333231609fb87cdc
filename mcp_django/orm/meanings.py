"""What names mean that are none: the models and the paths of fields that a caller can see and that are near.

Nothing here decides what a caller may ask. What is found is proposed, and is looked up like any other name when the
client sends it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from .access import MAX_NAME, visible_exposures, visible_fields
from .kinds import TEXTUAL
from .lookups import MORE_TEXT
from .repairs import with_field
from .spellings import OPERATORS
from .ways import MAX_HOPS, NoField, link_of, links_of
from .wording import COUNTING, json_or_text, letters, misnamed, nearest, singular, words

MAX_PARTS: Final = MAX_HOPS + 3
_SEPARATORS: Final = re.compile(r"__|\.|->|/|::")
_IDENTIFIERS: Final = re.compile(r"[^\W\d][\w.]*")
# What is no part of a path though it stands after the name of a field.
_ENDINGS: Final = frozenset(
    {*OPERATORS, *TEXTUAL, *MORE_TEXT, "asc", "desc", "exact", "gt", "gte", "lt", "lte", "in", "range", "isnull"}
)
# Aggregates of other aggregates, whose operands are no fields.
_OF_RESULTS: Final = frozenset({"ratio", "difference", "percent_of_total", "change"})


# Models


def models_meant(request: MCPRequest, text: Any) -> list[str]:
    """Return the labels of the caller's models that a text may mean: by label, name or title, in any number."""
    if not isinstance(text, str) or not letters(text):
        return []
    titles = {exposure.label: _titles(exposure) for exposure in visible_exposures(request)}
    wanted = singular(text[:MAX_NAME])
    same = [label for label, names in titles.items() if wanted in map(singular, names)]
    if same:
        return same[:3]
    owners = {name.lower(): label for label, names in titles.items() for name in names}
    return list(dict.fromkeys(owners[name] for name in nearest(text.lower(), owners)))


def _titles(exposure: Exposure) -> list[str]:
    opts = exposure.opts
    return [exposure.label, str(opts.model_name), str(opts.verbose_name), str(opts.verbose_name_plural)]


def models_fitting(request: MCPRequest, arguments: Mapping[str, Any]) -> list[str]:
    """Return the labels of the caller's models that have all the fields which a call without a model names."""
    paths = list(dict.fromkeys(_paths_of(arguments)))[:40]
    if not paths:
        return []
    exposures = visible_exposures(request)
    return [exposure.label for exposure in exposures if all(_leads(request, exposure, path) for path in paths)]


def _paths_of(arguments: Mapping[str, Any]) -> Iterator[str]:
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


def _leads(request: MCPRequest, exposure: Exposure, path: str) -> bool:
    """Return whether the path leads to a field; what stands after one may be a lookup."""
    seen: Exposure | None = exposure
    for name in _SEPARATORS.split(path)[:MAX_PARTS]:
        if seen is None:
            return True
        link = link_of(request, seen, name)
        if link is None and name != "pk" and name not in visible_fields(request, seen):
            return seen is not exposure and name.lower() in _ENDINGS | {"some", "none", "every", "count", "isnull"}
        seen = link.exposure if link is not None else None
    return True


# Fields


def paths_meant(request: MCPRequest, exposure: Exposure, text: str, accepts: Callable[[str], bool]) -> list[str]:
    """Return the paths near to a text that are of use where it stands; a lookup at its end stays there."""
    if len(text) > MAX_NAME:
        return []
    parts = [part.strip() for part in _SEPARATORS.split(text.strip("+- "))]
    found = dict.fromkeys(_meant(request, exposure, [part for part in parts if part][:MAX_PARTS]))
    return [path for path in found if path != text and accepts(path)][:3]


@contextmanager
def naming(request: MCPRequest, *within: str) -> Iterator[None]:
    """Propose the field that is meant where one is named that is not there, in the arguments ``within``.

    Raises:
        ToolError: the field is not there.
    """
    try:
        yield
    except NoField as error:
        raise _named_so(request, error, within) from None


def _named_so(request: MCPRequest, error: NoField, within: Sequence[str]) -> ToolError:
    several = {link.name for link in links_of(request, error.exposure)} if "aggregates" in within else set()

    def accepts(path: str) -> bool:
        return path in several or error.accepts(path)

    near = paths_meant(request, error.exposure, error.text, accepts)
    repair = partial(with_field, error.text, within=within)
    return misnamed(error.lead, error.text, error.known, repair, near or None, of=error.exposure.opts.model_name)


def _meant(request: MCPRequest, exposure: Exposure, parts: Sequence[str]) -> Iterator[str]:
    name, rest = parts[0] if parts else "", parts[1:]
    names = _names(request, exposure)
    heads = [name] if name in names else nearest(name, names)
    if name not in names and not any(letters(head) == letters(name) for head in heads):
        compound = list(_compound(request, exposure, names, name, rest))
        if compound:
            yield from compound
            return
    for head in heads:
        yield from _followed(request, exposure, head, rest)


def _names(request: MCPRequest, exposure: Exposure) -> list[str]:
    """Return the names that a path can go on with."""
    links = [link.name for link in links_of(request, exposure)]
    return list(dict.fromkeys(["pk", *visible_fields(request, exposure), *links]))


def _followed(request: MCPRequest, exposure: Exposure, head: str, rest: Sequence[str]) -> Iterator[str]:
    link = link_of(request, exposure, head) if rest else None
    if link is None:
        yield "__".join([head, *rest])
        return
    found = [f"{head}__{path}" for path in _meant(request, link.exposure, rest)]
    yield from found or ["__".join([head, *rest])]


def _compound(
    request: MCPRequest, exposure: Exposure, names: Sequence[str], text: str, rest: Sequence[str]
) -> Iterator[str]:
    """Yield the paths that are written as one word, such as ``customerName``, ``total_gte`` or ``orderNumber``."""
    parts = words(text)
    by_letters = {letters(name): name for name in names}
    for cut in range(len(parts) - 1, 0, -1):
        head, tail = by_letters.get(letters("".join(parts[:cut]))), "_".join(parts[cut:]).lower()
        if head is not None and tail in _ENDINGS:
            yield "__".join([head, tail, *rest])
        elif head is not None and (link := link_of(request, exposure, head)) is not None:
            there = _names(request, link.exposure)
            ends = [name for name in there if letters(name) == letters(tail)]
            behind = [["__".join([name, *rest])] for name in ends] or [
                list(_compound(request, link.exposure, there, tail, rest))
            ]
            yield from (f"{head}__{path}" for paths in behind for path in paths)
    counted = [part for part in parts if part.lower() not in {*COUNTING, "of"}]
    if len(counted) < len(parts):
        many = (link.name for link in links_of(request, exposure) if singular(link.name) == singular("".join(counted)))
        yield from ("__".join([name, "count", *rest]) for name in many)
    own = by_letters.get(letters("".join(parts[1:]))) if len(parts) > 1 else None
    if own is not None and parts[0].lower() in _ENDINGS:
        yield "__".join([own, parts[0].lower(), *rest])
    if own is not None and letters(parts[0]) == letters(str(exposure.opts.model_name)):
        yield from _followed(request, exposure, own, rest)

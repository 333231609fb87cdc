"""The arguments that the read tools share: models, fields, filters, order, limits.

What a client sends is looked up in the caller's allow-lists; what is not there is refused with the names that are, and
the answer is the same for what is hidden and what does not exist.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import orjson

from ..conf import settings
from ..context import MCPRequest
from ..exceptions import NotFound, ToolError
from ..filtering import filters_of, find_filter
from ..lookups import Condition, parse_condition
from ..ordering import client_order_key, default_ordering, total_order
from ..pagination import OrderKey
from ..queries import check_searchable
from ..serializers import Column
from ..visibility import columns_of, get_exposure, page_fields, visible_exposures, visible_fields, visible_name
from .base import Tool

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = [
    "RECORD_NOT_FOUND",
    "alternatives",
    "check_names",
    "exposure_argument",
    "fields_argument",
    "filters_argument",
    "flag_argument",
    "json_or_text",
    "limit_argument",
    "ordering_argument",
    "search_argument",
]

RECORD_NOT_FOUND: Final = "No such record. Find records with query_records; the first column of its rows is the pk."
MAX_FILTERS: Final = 20
MAX_ORDER: Final = 5
MAX_SEARCH: Final = 200
MAX_SEARCH_WORDS: Final = 12
MAX_LISTED: Final = 40
MAX_FIELDS: Final = 200


def alternatives(text: Any, names: Iterable[str]) -> str:
    """Return the names, the nearest to ``text`` first, as the end of an error message."""
    known = list(names)
    near = get_close_matches(text[:100], known, n=1, cutoff=0.6) if isinstance(text, str) else []
    meant = f"Did you mean {near[0]}? " if near else ""
    more = f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    return f"{meant}Valid: {', '.join(known[:MAX_LISTED]) or 'none'}{more}."


def check_names(
    arguments: Mapping[str, Any], known: Iterable[str], ignored: Iterable[str] = Tool.ignored_arguments
) -> dict[str, Any]:
    """Return the arguments that are set, without those that clients send of their own accord.

    Raises:
        ToolError: an argument is not one of ``known``.
    """
    known, ignored = list(known), frozenset(ignored)
    for name in arguments:
        if name not in known and name not in ignored:
            raise ToolError(f"Unknown argument {name[:60]!r}. {alternatives(name, known)}")
    return {name: value for name, value in arguments.items() if value is not None and name not in ignored}


def json_or_text(value: Any) -> Any:
    """Return the JSON object or array that a text holds: some clients send those as text."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def exposure_argument(request: MCPRequest, label: Any) -> "ModelExposure":
    """Return the exposure of a model's label.

    Raises:
        ToolError: there is none for this caller.
    """
    try:
        return get_exposure(request, label)
    except NotFound:
        labels = [exposure.label for exposure in visible_exposures(request)]
        text = label.lower() if isinstance(label, str) else label
        raise ToolError(f"No such model. {alternatives(text, labels)} list_models describes them.") from None


def _names(value: Any, what: str, most: int) -> list[str]:
    value = json_or_text(value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > most:
        raise ToolError(f"{what} must be a list of at most {most} names.")
    return [item for item in value if item]


def fields_argument(request: MCPRequest, exposure: "ModelExposure", value: Any) -> tuple[Column, ...]:
    """Return the columns asked for, the primary key first; those of the list where none is named.

    Raises:
        ToolError: a name is not one that the caller may read.
    """
    if value is None:
        return columns_of(exposure, page_fields(request, exposure))
    visible = visible_fields(request, exposure)
    found = [visible[0]]
    for text in _names(value, "fields", MAX_FIELDS):
        name = visible_name(request, exposure, text)
        if name is None:
            raise ToolError(f"{exposure.label} has no field {text[:60]!r}. {alternatives(text, visible)}")
        found.append(name)
    return columns_of(exposure, dict.fromkeys(found))


def filters_argument(request: MCPRequest, exposure: "ModelExposure", value: Any) -> tuple[Condition, ...]:
    """Return the conditions of ``{field: value, field__lookup: value, field: {lookup: value}}``, in a fixed order.

    Raises:
        ToolError: a field or lookup is not one that the caller may use, or a value does not fit.
    """
    value = json_or_text(value)
    if value is None or value == "":
        return ()
    if not isinstance(value, dict):
        raise ToolError('filters must be an object such as {"status": "paid", "created__gte": "2026-01-01"}.')
    found = []
    for name, given in value.items():
        if isinstance(given, dict):
            found += [_condition(request, exposure, name, lookup, item) for lookup, item in given.items()]
        else:
            found.append(_condition(request, exposure, name, None, given))
    if len(found) > MAX_FILTERS:
        raise ToolError(f"filters takes at most {MAX_FILTERS} conditions.")
    return tuple(sorted(found, key=lambda condition: (condition.path.column, condition.lookup, repr(condition.values))))


def _condition(request: MCPRequest, exposure: "ModelExposure", name: str, lookup: str | None, value: Any) -> Condition:
    target = find_filter(request, exposure, name)
    if target is None and lookup is None:
        root, _, last = name.rpartition("__")
        target, lookup = find_filter(request, exposure, root) if root else None, last
    if target is None:
        known = [known for known, _, _ in filters_of(request, exposure)]
        raise ToolError(f"{exposure.label} has no filter {name[:60]!r}. {alternatives(name, known)}")
    path, lookups = target
    lookup = lookup or _default_lookup(lookups, value)
    # Testing for null by another word needs no declaration of its own.
    wanted = "isnull" if value is None and lookup == "exact" else lookup
    if wanted not in lookups:
        raise ToolError(f"The filter {name[:60]!r} takes other lookups. {alternatives(lookup, lookups)}")
    try:
        condition = parse_condition(path, lookup, value)
    except ValueError as error:
        raise ToolError(f"The filter {name[:60]!r} with {lookup} needs {error}.") from None
    if condition.lookup == "in" and lookup == "exact" and "in" not in lookups:
        raise ToolError(f"The filter {name[:60]!r} takes one value.")
    return condition


def _default_lookup(lookups: Sequence[str], value: Any) -> str:
    """Return what a filter without a lookup means: equality, or the one lookup that there is."""
    if isinstance(value, list) and "in" in lookups:
        return "in"
    return "exact" if "exact" in lookups or len(lookups) != 1 else lookups[0]


def ordering_argument(request: MCPRequest, exposure: "ModelExposure", value: Any) -> tuple[OrderKey, ...]:
    """Return the order asked for, made total by the primary key, or the exposure's own.

    Raises:
        ToolError: a name is not one that the caller may sort by.
    """
    names = _names(value, "ordering", MAX_ORDER) if value is not None else []
    if not names:
        return default_ordering(request, exposure)
    keys = []
    for text in names:
        name = text[1:] if text[:1] in "+-" else text
        key = client_order_key(request, exposure, name, descending=text[:1] == "-")
        if key is None:
            known = [
                known
                for known in visible_fields(request, exposure)
                if client_order_key(request, exposure, known, descending=False)
            ]
            raise ToolError(f"{exposure.label} cannot be ordered by {name[:60]!r}. {alternatives(name, known)}")
        keys.append(key)
    return total_order(exposure, keys)


def limit_argument(value: Any, default: int, most: int | None = None) -> int:
    """Return the number of rows asked for, at most ``most`` (the setting ``MAX_PAGE_SIZE``).

    Raises:
        ToolError: it is no whole number above zero.
    """
    most = settings.MAX_PAGE_SIZE if most is None else most
    if value is None:
        return max(1, min(default, most))
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ToolError(f"limit must be a whole number from 1 to {most}.")
    return min(value, most)


def flag_argument(value: Any, name: str) -> bool:
    """Return a boolean argument.

    Raises:
        ToolError: it is neither true nor false.
    """
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if value is not None and not isinstance(value, bool):
        raise ToolError(f"{name} must be true or false.")
    return bool(value)


def search_argument(request: MCPRequest, exposure: "ModelExposure", value: Any) -> str:
    """Return the search term, "" for none.

    Raises:
        ToolError: the exposure has no search, or the term is not a short text.
    """
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or len(value) > MAX_SEARCH or "\0" in value or len(value.split()) > MAX_SEARCH_WORDS:
        raise ToolError(f"search must be a text of at most {MAX_SEARCH} characters and {MAX_SEARCH_WORDS} words.")
    check_searchable(request, exposure)
    return value.strip()

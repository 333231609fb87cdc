"""The arguments that the read tools share: models, fields, filters, order, limits.

What a client sends is looked up in the caller's allow-lists; what is not there is refused with the names that are, and
the answer is the same for what is hidden and what does not exist.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from ..conf import settings
from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound, ToolError
from ..schema.types import is_empty
from .access import columns_of, get_exposure, page_fields, visible_exposures, visible_fields, visible_name
from .columns import Column, resolve_column
from .ordering import client_order_key, default_ordering, sortable_names, total_order
from .pagination import OrderKey
from .queries import check_searchable
from .spellings import order_meant, order_texts
from .ways import names_behind, related_column
from .wording import alternatives, is_short_text, json_or_text

RECORD_NOT_FOUND: Final = "No such record. Find records with query_records; the first column of its rows is the pk."
MAX_ORDER: Final = 5
NULL_PLACES: Final[Mapping[str, bool | None]] = {"": None, "nulls_first": False, "nulls_last": True}
MAX_SEARCH: Final = 200
MAX_SEARCH_WORDS: Final = 12
MAX_FIELDS: Final = 200
# What these hold is looked for as it is written, brackets and all.
SEARCHED: Final = frozenset({"search", "query"})
# Characters of a text that may hold an empty list or object.
MAX_EMPTY: Final = 16

# Sent by some clients with every call, whatever the schema says.
IGNORED: Final = frozenset({"wait_for_previous"})


def check_names(arguments: Mapping[str, Any], known: Iterable[str], *, keeping: Collection[str] = ()) -> dict[str, Any]:
    """Return the arguments that are set, without those that clients send of their own accord.

    An empty text, list or object is as good as left out: some models have to write something for every argument. So it
    is never everything. Those of ``keeping`` may be empty.

    Raises:
        ToolError: an argument is not one of ``known``.
    """
    known, ignored = list(known), IGNORED
    for name in arguments:
        if name not in known and name not in ignored:
            raise ToolError(f"Unknown argument {name[:60]!r}. {alternatives(name, known)}")
    return {
        name: value
        for name, value in arguments.items()
        if value is not None and name not in ignored and (name in keeping or not _is_left_out(name, value))
    }


def _is_left_out(name: str, value: Any) -> bool:
    holds_json = name not in SEARCHED and (not isinstance(value, str) or len(value) <= MAX_EMPTY)
    return is_empty(json_or_text(value) if holds_json else value)


def exposure_argument(request: MCPRequest, label: Any) -> Exposure:
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


def names_argument(value: Any, what: str, most: int) -> list[str]:
    """Return a list of names, which may be given as one text.

    Raises:
        ToolError: it is something else, or too long.
    """
    value = json_or_text(value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > most:
        raise ToolError(f"{what} must be a list of at most {most} names.")
    return [item for item in value if item]


def fields_argument(request: MCPRequest, exposure: Exposure, value: Any) -> tuple[Column, ...]:
    """Return the columns asked for, the primary key first; those of the list where none is named.

    Raises:
        ToolError: a name is not one that the caller may read.
    """
    if value is None:
        return columns_of(exposure, page_fields(request, exposure))
    visible = visible_fields(request, exposure)
    found = [*columns_of(exposure, visible[:1])]
    for text in names_argument(value, "fields", MAX_FIELDS):
        name = visible_name(request, exposure, text)
        column = resolve_column(exposure, name) if name is not None else related_column(request, exposure, text)
        if column is None:
            known = [*visible, *names_behind(request, exposure, text)]
            raise ToolError(f"{exposure.label} has no field {text[:60]!r}. {alternatives(text, known)}")
        found.append(column)
    return tuple(dict.fromkeys(found))


def ordering_argument(request: MCPRequest, exposure: Exposure, value: Any) -> tuple[OrderKey, ...]:
    """Return the order asked for, made total by the primary key, or the exposure's own.

    Raises:
        ToolError: a name is not one that the caller may sort by.
    """
    names = names_argument(order_texts(value), "ordering", MAX_ORDER) if value is not None else []
    if not names:
        return default_ordering(request, exposure)
    return total_order(exposure, [_order_key(request, exposure, text) for text in names])


def _order_key(request: MCPRequest, exposure: Exposure, text: str) -> OrderKey:
    """Return the key of ``name``, ``-name`` or ``-name:nulls_last``, or of what means the same in other words."""
    key = _spelt_key(request, exposure, text) or _spelt_key(request, exposure, order_meant(text))
    if key is not None:
        return key
    name, _, place = text.lstrip("+-").partition(":")
    if place not in NULL_PLACES:
        raise ToolError(f"Unknown order {place[:40]!r}. Write field, -field, field:nulls_first or field:nulls_last.")
    known = sortable_names(request, exposure)
    raise ToolError(
        f"{exposure.label} cannot be ordered by {name[:60]!r}. {alternatives(name, known)} Descending is -field."
    )


def _spelt_key(request: MCPRequest, exposure: Exposure, text: str) -> OrderKey | None:
    name, _, place = text.partition(":")
    if place not in NULL_PLACES:
        return None
    descending, name = name[:1] == "-", name[1:] if name[:1] in "+-" else name
    return client_order_key(request, exposure, name, descending=descending, nulls_last=NULL_PLACES[place])


def limit_argument(value: Any, default: int, most: int | None = None) -> int:
    """Return the number of rows asked for, at most ``most`` (the setting ``MAX_PAGE_SIZE``).

    Raises:
        ToolError: it is no whole number above zero.
    """
    most = settings.MAX_PAGE_SIZE if most is None else most
    if value is None:
        return max(1, min(default, most))
    return min(_whole_number(value, most), most)


def limit_hint(value: Any, most: int | None = None, what: str = "limit") -> Iterator[str]:
    """Yield what to say of a limit, which :func:`limit_argument` has read, where it is above the maximum."""
    most = settings.MAX_PAGE_SIZE if most is None else most
    if value is not None and _whole_number(value, most) > most:
        yield f"{what} is {most} at most"


def _whole_number(value: Any, most: int) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ToolError(f"limit must be a whole number from 1 to {most}.")
    return value


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


def search_argument(request: MCPRequest, exposure: Exposure, value: Any) -> str:
    """Return the search term, "" for none.

    Raises:
        ToolError: the exposure has no search, or the term is not a short text.
    """
    if value is None or value == "":
        return ""
    if not is_short_text(value, MAX_SEARCH) or len(value.split()) > MAX_SEARCH_WORDS:
        raise ToolError(f"search must be a text of at most {MAX_SEARCH} characters and {MAX_SEARCH_WORDS} words.")
    check_searchable(request, exposure)
    return value.strip()

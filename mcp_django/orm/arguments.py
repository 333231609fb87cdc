"""The arguments that the read tools share: models, fields, filters, order, limits.

What a client sends is looked up in the caller's allow-lists; what is not there is refused with the names that are, and
the answer is the same for what is hidden and what does not exist.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from ..conf import settings
from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound, NotPermitted, ToolError
from ..schema.types import is_empty
from .access import columns_of, get_exposure, page_fields, visible_exposures, visible_fields, visible_name
from .columns import Column, resolve_column
from .meanings import models_fitting, models_meant, paths_meant
from .ordering import client_order_key, default_ordering, sortable_names, total_order
from .pagination import OrderKey
from .parsing import filters_argument
from .queries import check_searchable
from .repairs import with_argument, with_field, with_model, with_name, without_argument
from .spellings import argument_meant, order_meant, order_texts, starts_at_the_beginning
from .ways import hops_told, names_behind, related_column
from .wording import is_short_text, json_or_text, letters, misnamed, nearest

# Models whose filters are tried for a call without a model.
MAX_FITTING: Final = 5
# Characters of the labels of models in a message.
MAX_LABELS: Final = 360
RECORD_NOT_FOUND: Final = "No such record. Find records with query_records; the first column of its rows is the pk."
MAX_ORDER: Final = 5
NULL_PLACES: Final[Mapping[str, bool | None]] = {"": None, "nulls_first": False, "nulls_last": True}
MAX_SEARCH: Final = 200
MAX_SEARCH_WORDS: Final = 12
MAX_FIELDS: Final = 200
# What these hold is looked for as it is written, brackets and all.
SEARCHED: Final = frozenset({"search", "query"})
# Arguments that say how many rows there may be.
BOUNDS: Final = frozenset({"limit", "top"})
# What is said for true and false elsewhere.
FLAGS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("yes", "y", "on", "1"), True),
    **dict.fromkeys(("no", "n", "off", "0"), False),
}
# Characters of a text that may hold an empty list or object.
MAX_EMPTY: Final = 16

# Sent by some clients with every call, whatever the schema says.
IGNORED: Final = frozenset({"wait_for_previous"})


def check_names(
    arguments: Mapping[str, Any], known: Iterable[str], *, keeping: Collection[str] = (), strict: bool = False
) -> dict[str, Any]:
    """Return the arguments that are set, without those that clients send of their own accord.

    An empty text, list or object is as good as left out: some models have to write something for every argument. So it
    is never everything. Those of ``keeping`` may be empty. Unless it is ``strict``, other names for an argument, such
    as ``orderBy`` or ``where``, are understood, and a bound of 0 rows is none.

    Raises:
        ToolError: an argument is not one of ``known``.
    """
    known, ignored = list(known), IGNORED
    if not strict:
        arguments = understood_names(arguments, known)
    for name in arguments:
        if name not in known and name not in ignored:
            raise _unknown_argument(arguments, name, known)
    return {
        name: value
        for name, value in arguments.items()
        if value is not None
        and name not in ignored
        and (name in keeping or not _is_left_out(name, value))
        and (strict or name not in BOUNDS or str(value) != "0")
    }


def understood_names(arguments: Mapping[str, Any], known: Collection[str]) -> Mapping[str, Any]:
    """Return the arguments with those names of theirs that mean one of ``known`` without doubt in its spelling."""
    if all(name in known for name in arguments):
        return arguments
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        meant, is_sure = argument_meant(name, known) if name not in known and name not in IGNORED else (None, False)
        if "cursor" in known and starts_at_the_beginning(name, value):
            continue
        found[meant if meant is not None and is_sure and meant not in arguments else name] = value
    return found


def _unknown_argument(arguments: Mapping[str, Any], name: str, known: Collection[str]) -> ToolError:
    message = f"Unknown argument {name[:60]!r}."
    if "cursor" in known and starts_at_the_beginning(name, None):
        text = f"{message} Pages are by cursor: call without it, then repeat the call with next_cursor as cursor."
        return ToolError(text, repair=without_argument(name))
    meant, _ = argument_meant(name, known)
    near = [meant] if meant is not None else nearest(name, known)
    return misnamed(message, name, known, lambda right: with_name(name, right), near, of="" if meant is None else None)


def _is_left_out(name: str, value: Any) -> bool:
    holds_json = name not in SEARCHED and (not isinstance(value, str) or len(value) <= MAX_EMPTY)
    found = json_or_text(value) if holds_json else value
    return not found and is_empty(found)


def exposure_argument(request: MCPRequest, label: Any, given: Mapping[str, Any] | None = None) -> Exposure:
    """Return the exposure of a model's label; an error may name the models that the other arguments ``given`` fit.

    Raises:
        ToolError: there is none for this caller.
    """
    record = request.mcp.record
    try:
        exposure = get_exposure(request, label)
        record.model = exposure.label
        return exposure
    except NotFound:
        labels = [exposure.label for exposure in visible_exposures(request)]
    if label is None or label == "":
        fitting = _fitting_models(request, given or {})
        which = f"Those with all that the call names: {', '.join(fitting)}." if len(fitting) > 1 else ""
        which = which or f"One of: {', '.join(labels)[:MAX_LABELS]}. list_models describes them."
        repair = with_model(label, fitting[0], is_spelling=False) if len(fitting) == 1 else None
        raise ToolError(f"The argument model is missing. {which}", repair=repair) from None
    text = label[0] if isinstance(label, list) and len(label) == 1 else label
    near = [text.lower()] if isinstance(text, str) and text.lower() in labels else models_meant(request, text)
    more = " list_models describes them."
    error = misnamed("No such model.", text, labels, lambda right: with_model(text, right), near, more, of=None)
    if isinstance(text, str) and text.lower() in request.mcp.site.exposures_by_label:
        error.outcome, record.model = NotPermitted.outcome, text.lower()
    raise error from None


def _fitting_models(request: MCPRequest, arguments: Mapping[str, Any]) -> list[str]:
    """Return the models of the caller that have all the fields and choices which the arguments name, unless many do."""
    found = models_fitting(request, arguments)
    if 1 < len(found) <= MAX_FITTING:
        found = [label for label in found if _can_be_filtered(request, label, arguments)]
    return found if len(found) <= MAX_FITTING else []


def _can_be_filtered(request: MCPRequest, label: str, arguments: Mapping[str, Any]) -> bool:
    exposure, aggregates = get_exposure(request, label), json_or_text(arguments.get("aggregates"))
    parts = aggregates if isinstance(aggregates, list) else []
    try:
        filters_argument(request, exposure, arguments.get("filters"))
        for part in parts:
            filters_argument(request, exposure, part.get("where") if isinstance(part, dict) else None)
    except ToolError:
        return False
    return True


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
            raise _unknown_field(request, exposure, text)
        found.append(column)
    return tuple(dict.fromkeys(found))


def _unknown_field(request: MCPRequest, exposure: Exposure, text: str) -> ToolError:
    def is_readable(path: str) -> bool:
        known = visible_name(request, exposure, path) or related_column(request, exposure, path)
        return known is not None

    message = f"{exposure.label} has no field {text[:60]!r}."
    if text in ("*", "all"):
        return ToolError(f"{message} Without fields, a page has those of the list.", repair=without_argument("fields"))
    if "(" in text:
        return ToolError(f"{message} Totals and counts: aggregate_records.")
    message += hops_told(request, exposure, text)
    known = [*visible_fields(request, exposure), *names_behind(request, exposure, text)]
    near = paths_meant(request, exposure, text, is_readable) or paths_meant(
        request, exposure, text.rpartition("__")[0], is_readable
    )
    name = exposure.opts.model_name
    return misnamed(message, text, known, lambda right: with_field(text, right, ["fields"]), near or None, of=name)


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
    name = order_meant(text).lstrip("-")
    near = paths_meant(request, exposure, name, lambda path: client_order_key(request, exposure, path) is not None)
    if not name.replace(".", "").isidentifier():
        # A proposal would lose what else it says.
        near = [path for path in near if letters(path) == letters(name)]
    raise misnamed(
        f"{exposure.label} cannot be ordered by {name[:60]!r}.{hops_told(request, exposure, name)}",
        name,
        sortable_names(request, exposure),
        lambda right: with_field(name, right, ["ordering"]),
        near or (None if name.replace(".", "").isidentifier() else []),
        " Descending is -field.",
        of=exposure.opts.model_name,
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
        meant = FLAGS.get(str(value).lower())
        repair = with_argument(name, meant) if meant is not None else None
        raise ToolError(f"{name} must be true or false.", repair=repair)
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

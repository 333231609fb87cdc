"""The arguments that the read tools share: models, fields, filters, order, limits.

What a client sends is looked up in the caller's allow-lists; what is not there is refused by a ``ToolError`` with the
names that are, and the answer is the same for what is hidden and what does not exist.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from ..conf import settings
from ..context.request import MCPRequest
from ..exceptions import NotFound, NotPermitted, ToolError
from ..exposures.base import ModelExposure
from ..schema.types import is_empty
from .access import access_of, columns_of
from .columns import Column, resolve_column
from .paging import OrderKey, client_order_key, default_ordering, sortable_names, total_order
from .parsing import filters_argument
from .path import Path
from .queries import check_searchable
from .suggestions import (
    Suggestions,
    with_argument,
    with_field,
    with_model,
    with_name,
    without_argument,
)
from .wording import (
    argument_meant,
    is_short_text,
    json_or_text,
    letters,
    misnamed,
    nearest,
    order_meant,
    order_texts,
    starts_at_the_beginning,
)

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
    """Return the arguments that are set, without those that clients send of their own accord; all have to be ``known``.

    An empty text, list or object is as good as left out: some models have to write something for every argument. So it
    is never everything. Those of ``keeping`` may be empty. Unless it is ``strict``, other names for an argument, such
    as ``orderBy`` or ``where``, are understood, and a bound of 0 rows is none.
    """
    known = list(known)
    if not strict:
        arguments = understood_names(arguments, known)
    for name in arguments:
        if name in known or name in IGNORED:
            continue
        message = f"Unknown argument {name[:60]!r}."
        if "cursor" in known and starts_at_the_beginning(name, None):
            text = f"{message} Pages are by cursor: call without it, then repeat the call with next_cursor as cursor."
            raise ToolError(text, repair=without_argument(name))
        meant, _ = argument_meant(name, known)
        near, of = ([meant], None) if meant is not None else (nearest(name, known), "")
        raise misnamed(message, name, known, partial(with_name, name), near, of=of)
    return {
        name: value
        for name, value in arguments.items()
        if value is not None
        and name not in IGNORED
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


def _is_left_out(name: str, value: Any) -> bool:
    holds_json = name not in SEARCHED and (not isinstance(value, str) or len(value) <= MAX_EMPTY)
    found = json_or_text(value) if holds_json else value
    return not found and is_empty(found)


def exposure_argument(request: MCPRequest, label: Any, given: Mapping[str, Any] | None = None) -> ModelExposure:
    """Return the exposure of a model's label; an error may name the models that the other arguments ``given`` fit."""
    record = request.mcp.record
    try:
        exposure = access_of(request).get_exposure(label)
        record.model = exposure.label
        return exposure
    except NotFound:
        labels = [exposure.label for exposure in access_of(request).exposures]
    if label is None or label == "":
        fitting = _fitting_models(request, given or {})
        which = f"Those with all that the call names: {', '.join(fitting)}." if len(fitting) > 1 else ""
        which = which or f"One of: {', '.join(labels)[:MAX_LABELS]}. list_models describes them."
        repair = with_model(label, fitting[0], is_spelling=False) if len(fitting) == 1 else None
        raise ToolError(f"The argument model is missing. {which}", repair=repair) from None
    text = label[0] if isinstance(label, list) and len(label) == 1 else label
    is_label = isinstance(text, str) and text.lower() in labels
    near = [text.lower()] if is_label else Suggestions(request).models(text)
    more = " list_models describes them."
    error = misnamed("No such model.", text, labels, lambda right: with_model(text, right), near, more, of=None)
    if isinstance(text, str) and text.lower() in request.mcp.site.exposures_by_label:
        error.outcome, record.model = NotPermitted.outcome, text.lower()
    raise error from None


def _fitting_models(request: MCPRequest, arguments: Mapping[str, Any]) -> list[str]:
    """Return the models of the caller that have all the fields and choices which the arguments name, unless many do."""
    found = Suggestions(request).models_fitting(arguments)
    aggregates = json_or_text(arguments.get("aggregates"))
    parts = [part for part in aggregates if isinstance(part, dict)] if isinstance(aggregates, list) else []

    def can_be_filtered(label: str) -> bool:
        exposure = access_of(request).get_exposure(label)
        try:
            for filters in (arguments.get("filters"), *(part.get("where") for part in parts)):
                filters_argument(request, exposure, filters)
        except ToolError:
            return False
        return True

    if 1 < len(found) <= MAX_FITTING:
        return list(filter(can_be_filtered, found))
    return found if len(found) <= MAX_FITTING else []


def names_argument(value: Any, what: str, most: int) -> list[str]:
    """Return a list of at most ``most`` names, which may be given as one text."""
    value = json_or_text(value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > most:
        raise ToolError(f"{what} must be a list of at most {most} names.")
    return [item for item in value if item]


def fields_argument(request: MCPRequest, exposure: ModelExposure, value: Any) -> tuple[Column, ...]:
    """Return the columns asked for, the primary key first; those of the list where none is named."""
    if value is None:
        return columns_of(exposure, access_of(request)[exposure].page_fields)
    visible = access_of(request)[exposure].fields
    found = [*columns_of(exposure, visible[:1])]
    for text in names_argument(value, "fields", MAX_FIELDS):
        name = access_of(request)[exposure].field_named(text)
        column = (
            resolve_column(exposure, name)
            if name is not None
            else Path.read(access_of(request)[exposure], text).shown_column
        )
        if column is None:
            raise _unknown_field(request, exposure, text)
        found.append(column)
    return tuple(dict.fromkeys(found))


def _unknown_field(request: MCPRequest, exposure: ModelExposure, text: str) -> ToolError:
    def is_readable(path: str) -> bool:
        known = (
            access_of(request)[exposure].field_named(path) or Path.read(access_of(request)[exposure], path).shown_column
        )
        return known is not None

    message = f"{exposure.label} has no field {text[:60]!r}."
    if text in ("*", "all"):
        return ToolError(f"{message} Without fields, a page has those of the list.", repair=without_argument("fields"))
    if "(" in text:
        return ToolError(f"{message} Totals and counts: aggregate_records.")
    near: list[str] = []
    for path in (text, text.rpartition("__")[0]):
        near = near or Suggestions(request).paths(exposure, path, is_readable)
    return misnamed(
        message + Path.read(access_of(request)[exposure], text).length_hint,
        text,
        [*access_of(request)[exposure].fields, *Path.read(access_of(request)[exposure], text).siblings],
        lambda right: with_field(text, right, ["fields"]),
        near or None,
        of=exposure.opts.model_name,
    )


def ordering_argument(request: MCPRequest, exposure: ModelExposure, value: Any) -> tuple[OrderKey, ...]:
    """Return the order asked for, made total by the primary key, or the exposure's own."""
    names = names_argument(order_texts(value), "ordering", MAX_ORDER) if value is not None else []
    if not names:
        return default_ordering(request, exposure)
    return total_order(exposure, [_order_key(request, exposure, text) for text in names])


def _order_key(request: MCPRequest, exposure: ModelExposure, text: str) -> OrderKey:
    """Return the key of ``name``, ``-name`` or ``-name:nulls_last``, or of what means the same in other words."""
    for spelt in (text, order_meant(text)):
        name, _, place = spelt.partition(":")
        descending, name = name[:1] == "-", name[1:] if name[:1] in "+-" else name
        if place in NULL_PLACES:
            nulls_last = NULL_PLACES[place]
            key = client_order_key(request, exposure, name, descending=descending, nulls_last=nulls_last)
            if key is not None:
                return key
    place = text.lstrip("+-").partition(":")[2]
    if place not in NULL_PLACES:
        raise ToolError(f"Unknown order {place[:40]!r}. Write field, -field, field:nulls_first or field:nulls_last.")
    name = order_meant(text).lstrip("-")

    def is_sortable(path: str) -> bool:
        return client_order_key(request, exposure, path) is not None

    near = Suggestions(request).paths(exposure, name, is_sortable)
    is_name = name.replace(".", "").isidentifier()
    if not is_name:
        # A proposal would lose what else it says.
        near = [path for path in near if letters(path) == letters(name)]
    path = Path.read(access_of(request)[exposure], name)
    raise misnamed(
        f"{exposure.label} cannot be ordered by {name[:60]!r}.{path.length_hint}",
        name,
        sortable_names(request, exposure),
        lambda right: with_field(name, right, ["ordering"]),
        near or (None if is_name else []),
        " Descending is -field.",
        of=exposure.opts.model_name,
    )


def limit_argument(value: Any, default: int, most: int | None = None) -> int:
    """Return the number of rows asked for, at most ``most`` (the setting ``MAX_PAGE_SIZE``)."""
    most = settings.MAX_PAGE_SIZE if most is None else most
    return max(1, min(default, most)) if value is None else min(_whole_number(value, most), most)


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
    """Return a boolean argument."""
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if value is not None and not isinstance(value, bool):
        meant = FLAGS.get(str(value).lower())
        repair = with_argument(name, meant) if meant is not None else None
        raise ToolError(f"{name} must be true or false.", repair=repair)
    return bool(value)


def search_argument(request: MCPRequest, exposure: ModelExposure, value: Any) -> str:
    """Return the search term, "" for none."""
    if value is None or value == "":
        return ""
    if not is_short_text(value, MAX_SEARCH) or len(value.split()) > MAX_SEARCH_WORDS:
        raise ToolError(f"search must be a text of at most {MAX_SEARCH} characters and {MAX_SEARCH_WORDS} words.")
    check_searchable(request, exposure)
    return value.strip()

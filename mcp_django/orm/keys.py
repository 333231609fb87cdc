"""Rows that a caller names otherwise than by primary key: by a unique field, such as a number, or by the label.

They are looked up only where what was given is no key, so that keys cost nothing more: among the caller's rows, by
unique fields that they may read and filter by, and by labels as results show them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from django.db.models import Model, Q, QuerySet

from ..context.request import MCPRequest
from ..exceptions import NotFound, Repair, ToolError, Unreadable
from ..exposures.base import ModelExposure
from .access import access_of, parse_pk
from .columns import pk_text
from .conditions import joined
from .filters import find_filter
from .kinds import kind_of, parse_value
from .queries import check_searchable, narrowed
from .relations import MAX_LABEL, label_of, labels_of, plain_label, with_labels_of
from .unreadable import all_readable
from .wording import is_short_text

# Rows whose labels are made to be compared, where no column has them, and rows that an error names.
MAX_COMPARED: Final = 200
MAX_NAMED: Final = 5
# Characters from which on a part of a label says something.
MIN_PART: Final = 3


def named_rows(request: MCPRequest, exposure: ModelExposure, given: Iterable[Any], missing: str) -> list[Model]:
    """Return the rows that primary keys, or other names of theirs, mean."""
    found: list[Model] = []
    for item in given:
        try:
            found.append(access_of(request)[exposure].get_row(item))
        except NotFound:
            found.append(access_of(request)[exposure].get_row(key_meant(request, exposure, item, missing)))
    return list({row.pk: row for row in found}.values())


def key_meant(
    request: MCPRequest,
    exposure: ModelExposure,
    given: Any,
    missing: str,
    repair: Callable[[str], Repair] | None = None,
) -> str:
    """Return the primary key of the one row of the caller that ``given``, which is no key of theirs, names.

    What could be a key is never taken for a name, only told: the row that it was the key of may have gone. ``repair``
    mends the call by the key of the only row that may be meant.
    """
    text = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not is_short_text(text, MAX_LABEL) or not text.strip() or exposure.opts.is_composite_pk:
        raise ToolError(missing)
    text = text.strip()
    could_be_key = _could_be_key(exposure, text)
    try:
        found, is_exact = _rows_named(request, exposure, text), True
        if not found and not could_be_key and len(text) >= MIN_PART:
            found, is_exact = _rows_near(request, exposure, text), False
    except Unreadable:
        raise ToolError(missing) from None
    if is_exact and len(found) == 1 and not could_be_key:
        return pk_text(found[0].pk)
    mended = repair(pk_text(found[0].pk)) if repair is not None and len(found) == 1 else None
    raise ToolError(f"{missing} {_told(exposure, text, found, is_exact)}".strip(), repair=mended)


def names_told(request: MCPRequest, exposure: ModelExposure, given: Iterable[Any]) -> Iterator[str]:
    """Yield which keys may be meant by texts that were taken for keys."""
    for item in islice(given, MAX_NAMED):
        try:
            key = key_meant(request, exposure, item, "")
        except ToolError as error:
            yield from [error.message.strip(" .")] if error.message else ()
        else:
            if key != item:
                yield f"{item!r} is {key}"


def _could_be_key(exposure: ModelExposure, text: str) -> bool:
    """Return whether the text has the form of a key; any text is one where keys are texts, and says nothing then."""
    if kind_of(exposure.opts.pk).word == "text":
        return False
    try:
        parse_pk(exposure, text)
    except NotFound:
        return False
    return True


def _told(exposure: ModelExposure, text: str, found: Sequence[Model], is_exact: bool) -> str:
    if not found:
        return ""
    rows = "; ".join(f"{pk_text(row.pk)}: {label_of(exposure, row) or '(no label)'}" for row in found[:MAX_NAMED])
    more = " and more" if len(found) > MAX_NAMED else ""
    which = "is named" if is_exact and len(found) == 1 else "are named" if is_exact else "may be meant by"
    return f"Of {exposure.label} {which} {text[:60]!r}, by key: {rows}{more}. Give the key."


def _rows_named(request: MCPRequest, exposure: ModelExposure, text: str) -> list[Model]:
    """Return the rows whose unique field or label is the text; if there are none, in whatever case it is."""
    rows = exposure.get_queryset(request).order_by("pk")
    label = plain_label(exposure)
    conditions = [*_unique_values(request, exposure, text), *([Q((label, text))] if label is not None else [])]
    found = _read(request, exposure, rows.filter(joined("or", conditions))) if conditions else []
    if found:
        return found
    if label is not None:
        return _read(request, exposure, rows.filter(Q((f"{label}__iexact", text))))
    return _labelled(request, exposure, rows, text)


def _unique_values(request: MCPRequest, exposure: ModelExposure, text: str) -> Iterator[Q]:
    """Yield a condition for each unique field that can have the value, of those that the caller may filter by."""
    alone = {item.fields[0] for item in exposure.opts.total_unique_constraints if len(item.fields) == 1}
    for name in access_of(request)[exposure].fields:
        field = exposure.fields_by_name.get(name)
        if field is None or field.is_relation or field.primary_key or not (field.unique or name in alone):
            continue
        found = find_filter(request, exposure, name)
        if found is None or "exact" not in found[1]:
            continue
        path = found[0].column
        try:
            value = parse_value(field, text)
        except ValueError:
            continue
        if exposure.lookup_allowed(request, f"{path}__exact", text):
            yield Q((path, value))


def _read(request: MCPRequest, exposure: ModelExposure, rows: QuerySet[Any]) -> list[Model]:
    with all_readable():
        read = list(with_labels_of(exposure, rows)[: MAX_NAMED + 1])
    return [row for row in read if access_of(request)[exposure].may_row("view", row)]


def _labelled(request: MCPRequest, exposure: ModelExposure, rows: QuerySet[Any], text: str) -> list[Model]:
    """Return the rows that ``__str__`` calls so; none where there are too many rows to ask each of them."""
    with all_readable():
        read = list(with_labels_of(exposure, rows)[: MAX_COMPARED + 1])
    if len(read) > MAX_COMPARED:
        return []
    wanted, seen = text.casefold(), [row for row in read if access_of(request)[exposure].may_row("view", row)]
    labels = labels_of(exposure, seen)
    return [row for row, label in zip(seen, labels, strict=True) if (label or "").casefold() == wanted]


def _rows_near(request: MCPRequest, exposure: ModelExposure, text: str) -> list[Model]:
    """Return some rows whose label contains the text, or which the exposure's search finds by it."""
    label = plain_label(exposure)
    try:
        if label is not None:
            rows = exposure.get_queryset(request).filter(Q((f"{label}__icontains", text)))
        else:
            check_searchable(request, exposure)
            rows = narrowed(request, exposure, (), text)
    except ToolError:
        return []
    return _read(request, exposure, rows.order_by("pk"))

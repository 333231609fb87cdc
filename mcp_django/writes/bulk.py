"""Changing or deleting many rows in one call: shown first, confirmed once, and done to all of them or to none.

Each row is saved as the admin saves it, by its own form and with its own entry in the history. Deleting goes the way of
the admin's ``delete_selected``: by ``delete_queryset``, so that it is the project's override of that, and not the
model's ``delete()``, that is called.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from django.db import connections, router, transaction
from django.db.models import Model

from ..conf import settings
from ..context.admin_page import as_page
from ..context.confirmation import CHANGED, MAX_LABELS, can_ask, confirm, issue, listed, quoted, redeem
from ..context.places import go_to
from ..context.request import Exposure, MCPRequest
from ..context.results import ToolResult
from ..exceptions import NotPermitted, ToolError
from ..exposures.history import log_deletions
from ..forms.constraints import broken_constraint
from ..forms.html import as_query
from ..forms.requests import changelist_entries
from ..orm.deletion import plan_deletion
from ..orm.inputs import as_object, one_transaction, refusals
from ..orm.queries import chunks
from ..orm.relations import label_of
from .naming import NOT_SAVED
from .saving import check_values, save_row
from .selection import QUERY, Selection, queryset_of, select_rows

# The action of the admin that deletes rows.
DELETE: Final = "delete_selected"
# Refused rows after which the others are not tried, and characters of the reason of each.
MAX_REFUSED: Final = 5
MAX_REASON: Final = 200
# Characters of a value in a preview.
MAX_VALUE: Final = 200
NEXT: Final = "Nothing has been changed yet. If it is right, call again with the same arguments and confirm_token."


def picks_many(arguments: Mapping[str, Any]) -> bool:
    """Return whether the arguments pick rows otherwise than by ``pk``.

    Raises:
        ToolError: they do both, or neither.
    """
    many = [name for name in QUERY if name in arguments]
    if many and "pk" in arguments:
        raise ToolError(f"Give either pk or {', '.join(many)}, not both. Nothing was changed.")
    if not many and "pk" not in arguments:
        raise ToolError("Missing argument: pk for one row, or pks, or filters or search for all rows that match.")
    if many and "version" in arguments:
        raise ToolError("version is that of one row: give it with pk. Nothing was changed.")
    return bool(many)


class Writer(Protocol):
    """The tool that writes: its name, and who may do what it does."""

    name: str
    permission: str

    def allows(self, request: MCPRequest, exposure: Exposure, row: Model) -> bool:
        """Return whether the caller may do it to the row."""


def update_rows(request: MCPRequest, tool: Writer, exposure: Exposure, arguments: Mapping[str, Any]) -> ToolResult:
    """Change the picked rows, or ask first.

    Raises:
        ToolError: some may not be changed, or cannot be changed so; nothing was.
    """
    values = as_object(arguments["values"], "values")
    if not values:
        raise ToolError("values is empty. Nothing was changed.")
    go_to(request, exposure, "changelist")
    with refusals(partial(broken_constraint, request, exposure)), one_transaction(exposure.model, request):
        rows = _locked(request, tool, exposure, arguments).rows
        check_values(request, exposure, rows[0], values)
        shown = {"model": exposure.label, "rows": len(rows), "objects": _labels(exposure, rows)}
        told = {name: str(value)[:MAX_VALUE] for name, value in values.items()}
        message = f"This changes {_counted(rows)} of {exposure.label}: {_assigned(told)}."
        bound = (tool.name, {"model": exposure.label, "values": values}, rows)
        asked = _unconfirmed(request, arguments, message, {**shown, "values": told}, bound)
        if asked is not None:
            return asked
        done = _save_all(request, tool, exposure, rows, values)
        return ToolResult(structured={"updated": True, **done, **shown})


def _counted(rows: Sequence[Model]) -> str:
    return f"{len(rows)} row{'s' if len(rows) != 1 else ''}"


def _assigned(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {quoted(value)}" for name, value in values.items())


def delete_rows(request: MCPRequest, tool: Writer, exposure: Exposure, arguments: Mapping[str, Any]) -> ToolResult:
    """Delete the picked rows with all that goes with them, or ask first.

    Raises:
        ToolError: some may not be deleted; nothing was.
    """
    go_to(request, exposure, "changelist")
    with refusals(), one_transaction(exposure.model, request):
        rows = _locked(request, tool, exposure, arguments).rows
        deletion = plan_deletion(request, exposure, *rows)
        counts = dict(deletion.counts)
        shown = {"model": exposure.label, "rows": len(rows), "objects": _labels(exposure, rows), "deletes": counts}
        goes = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        message = f"This deletes {_counted(rows)} of {exposure.label}, which cannot be undone. In all: {goes}."
        bound = (tool.name, {"model": exposure.label}, deletion.objects)
        asked = _unconfirmed(request, arguments, message, shown, bound)
        if asked is not None:
            return asked
        messages: list[dict[str, str]] = []
        posted = as_query([*changelist_entries(DELETE, rows), ("post", "yes")])
        with as_page(request, "POST", posted, messages), exposure.recording(request):
            log_deletions(request, exposure, rows, tool.name)
            exposure.delete_queryset(request, queryset_of(request, exposure, rows))
        return ToolResult(structured={"deleted": True, **shown, **_said(messages)})


# Rows


def _locked(request: MCPRequest, tool: Writer, exposure: Exposure, arguments: Mapping[str, Any]) -> Selection:
    """Return the picked rows as they are now, and as they stay until the transaction ends.

    Raises:
        ToolError: the caller may not write one of them.
    """
    selection = select_rows(request, exposure, arguments)
    using = router.db_for_write(exposure.model)
    if connections[using].features.has_select_for_update:
        keys = [row.pk for row in selection.rows]
        locking = exposure.model._base_manager.using(using).select_for_update().order_by("pk")
        for chunk in chunks(keys):
            list(locking.filter(pk__in=chunk))
        selection = select_rows(request, exposure, arguments)
        if [row.pk for row in selection.rows] != keys:
            raise ToolError("Someone else was changing these rows. Nothing was changed. Repeat the call.")
    refused = []
    for row in selection.rows:
        if tool.permission == "change":
            go_to(request, exposure, "change", row.pk)
        refused += [] if tool.allows(request, exposure, row) else [row]
    if refused:
        labels = listed(_labels(exposure, refused[:MAX_REFUSED]), len(refused))
        raise NotPermitted(
            f"You may not {tool.permission} {len(refused)} of these rows of {exposure.label}: {labels}. "
            "Nothing was changed. Leave them out."
        )
    return selection


def _labels(exposure: Exposure, rows: Iterable[Model]) -> list[str]:
    return [label_of(exposure, row) or str(row.pk) for row in islice(rows, MAX_LABELS)]


def _save_all(
    request: MCPRequest, tool: Writer, exposure: Exposure, rows: Sequence[Model], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Save all rows, and tell of each; return which fields changed, and in how many rows."""
    changed: dict[str, None] = {}
    changed_rows = 0
    messages: list[dict[str, str]] = []
    refused: dict[str, list[str]] = {}
    for number, row in enumerate(rows, 1):
        label = label_of(exposure, row) or str(row.pk)
        try:
            names = _save_one(request, tool, exposure, row, values, messages)
        except ToolError as error:
            refused.setdefault(_reason(error), []).append(label)
            if sum(map(len, refused.values())) >= MAX_REFUSED:
                break
            continue
        changed |= dict.fromkeys(names)
        changed_rows += bool(names)
        request.mcp.progress(number, len(rows))
    if refused:
        lines = [f"{', '.join(labels)}: {reason}" for reason, labels in refused.items()]
        raise ToolError("\n".join([f"Nothing was saved, because rows of {exposure.label} are refused.", *lines]))
    return {"changed": list(changed), "changed_rows": changed_rows, **_said(messages)}


def _said(messages: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return what the project's hooks said, each thing once."""
    found = list({tuple(message.items()): message for message in messages}.values())
    return {"messages": found[:MAX_LABELS]} if found else {}


def _save_one(
    request: MCPRequest,
    tool: Writer,
    exposure: Exposure,
    row: Model,
    values: Mapping[str, Any],
    messages: list[dict[str, str]],
) -> list[str]:
    """Save one row; what the database refuses is undone for this row alone, so that the others can be tried."""
    using = router.db_for_write(exposure.model, instance=row)
    go_to(request, exposure, "change", row.pk)
    with refusals(partial(broken_constraint, request, exposure)), transaction.atomic(using=using):
        return save_row(request, exposure, row, values, tool.name, messages)[1]


def _reason(error: ToolError) -> str:
    return " ".join(error.message.removeprefix(NOT_SAVED).split())[:MAX_REASON]


# Confirming


def _unconfirmed(
    request: MCPRequest,
    arguments: Mapping[str, Any],
    message: str,
    shown: Mapping[str, Any],
    bound: tuple[str, Mapping[str, Any], Sequence[Model]],
) -> ToolResult | None:
    """Return the result that asks, None once the call is confirmed for exactly these rows."""
    errors = {}
    if "confirm_token" in arguments:
        try:
            redeem(request, arguments["confirm_token"], *bound)
        except ToolError:
            errors = {"errors": [CHANGED]}
        else:
            return None
    elif can_ask(request):
        named = f"{shown['model']} ({shown['rows']}): {listed(shown['objects'], shown['rows'])}"
        confirm(request, f"{message}\n\n{named}", [bound[1], *bound[2]])
        return None
    question = {
        "confirmation_required": True,
        "message": message,
        **errors,
        **shown,
        "next": NEXT,
        "confirm_token": issue(request, *bound),
        "expires_in": settings.CONFIRMATION_MAX_AGE,
    }
    return ToolResult(structured=question, is_error=bool(errors))

"""``create_record``, ``update_record`` and ``delete_record``: rows written as the admin writes them.

Each runs in one transaction together with its entry in the admin's history, so that an error means that nothing was
changed. A row that is changed or deleted is locked first, where the database can do that. Deleting calls
``delete_model``, and so the model's own ``delete()``, for one row; with it goes what the admin's page would show.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from django.db import connections, router
from django.db.models import Model

from ..conf import settings
from ..context.admin_page import as_page
from ..context.confirmation import can_ask, confirm, issue, quoted, redeem
from ..context.places import PageName, go_to
from ..context.request import Exposure, MCPRequest
from ..context.results import ToolResult
from ..exceptions import NotFound, NotPermitted, ToolError
from ..exposures.history import log_deletion
from ..forms.constraints import broken_constraint
from ..forms.html import as_query
from ..orm.access import get_exposure, permits_any
from ..orm.arguments import RECORD_NOT_FOUND, exposure_argument
from ..orm.columns import pk_text, render
from ..orm.deletion import Deletion, plan_deletion
from ..orm.inputs import as_object, one_transaction, refusals, taken
from ..orm.keys import key_meant, named_rows
from ..orm.relations import label_of
from ..orm.rows import find_row, whole_row
from ..schema.types import FREE_OBJECT, KEY
from ..scopes import WRITE
from ..writes.bulk import delete_rows, picks_many, update_rows
from ..writes.saving import save_row
from ..writes.selection import PICKING, QUERY
from ..writes.versions import check_version
from .base import IDEMPOTENCY_KEY, Tool
from .record import full_record

MODEL: Final = {"type": "string"}
VALUES: Final = {
    **FREE_OBJECT,
    "description": ("By field name; a relation by primary key, an inline as a list of rows, a file as {name, base64}"),
}
CHANGES: Final = {
    **VALUES,
    "description": "As in create_record; inline rows: {pk: 1, qty: 2}, {pk: 1, delete: true}, new without pk",
}
VERSION: Final = {"type": "string", "description": "Of get_record: refuse if changed"}
CONFIRM_TOKEN: Final = {"type": "string", "description": "From its preview"}
NEXT: Final = "Nothing has been deleted yet. If it is right, call again with the same arguments and confirm_token."
GONE: Final = "It was saved, and is not among the rows that you may see."


class WriteTool(Tool):
    """A tool that writes rows; ``permission`` is the one that it takes."""

    permission: str
    scopes = frozenset({WRITE})
    # A write runs the project's own code, and may wait for the lock of a row.
    slow = True
    takes_key = True

    def is_atomic(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """See :meth:`Tool.is_atomic`."""
        return True

    def may_repeat(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """See :meth:`Tool.may_repeat`: the model can be written, and the row that was changed can."""
        if "model" not in arguments:
            return True
        try:
            exposure = get_exposure(request, arguments["model"])
            if self.permission != "change" or arguments.get("pk") in (None, ""):
                return self.allows(request, exposure)
            go_to(request, exposure, "change", arguments["pk"])
            [row] = named_rows(request, exposure, [arguments["pk"]], RECORD_NOT_FOUND)
            return self.allows(request, exposure, row)
        except (NotFound, ToolError):
            return False

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether there is a model that the caller may write so."""
        if settings.READ_ONLY:
            return False
        return permits_any(request, f"has_{self.permission}_permission", self.allows)

    def allows(self, request: MCPRequest, exposure: Exposure, *obj: Model) -> bool:
        """Return whether the caller has the permission for the model, or for a row of it."""
        check: Callable[..., bool] = getattr(exposure, f"has_{self.permission}_permission")
        return check(request, *obj)

    def check_allowed(self, request: MCPRequest, exposure: Exposure, *obj: Model) -> None:
        """Raise ``ToolError`` unless the caller has the permission."""
        if not self.allows(request, exposure, *obj):
            what = "this row" if obj else "rows"
            raise NotPermitted(
                f"You may view but not {self.permission} {what} of {exposure.label}. Nothing was changed."
            )


def _locked_row(request: MCPRequest, exposure: Exposure, page: PageName, pk: Any) -> Model:
    """Return the row as it is now, and as it stays until the transaction ends; the request is on its page then."""
    go_to(request, exposure, page, pk)
    try:
        row = whole_row(request, exposure, pk)
    except NotFound:
        pk = key_meant(request, exposure, pk, RECORD_NOT_FOUND)
        go_to(request, exposure, page, pk)
        row = whole_row(request, exposure, pk)
    using = router.db_for_write(exposure.model, instance=row)
    if not connections[using].features.has_select_for_update:
        return row
    rows = exposure.model._base_manager.using(using).filter(pk=row.pk)
    list(rows.select_for_update().values_list("pk"))
    try:
        return whole_row(request, exposure, pk)
    except NotFound:
        raise ToolError(RECORD_NOT_FOUND) from None


def _saved_payload(
    request: MCPRequest,
    exposure: Exposure,
    saved: Model,
    head: dict[str, Any],
    messages: list[dict[str, str]],
    values: Collection[str],
) -> ToolResult:
    if messages:
        head["messages"] = messages
    go_to(request, exposure, "change", saved.pk)
    try:
        # Read anew: what the caller may see of it, with what the queryset adds.
        found = find_row(request, exposure, pk_text(saved.pk))
    except NotFound:
        head |= {"model": exposure.label, "pk": render(saved.pk), "note": GONE}
        return ToolResult(structured=head)
    # Who wrote a long text knows it; any other is read by get_record.
    shown = full_record(
        request, exposure, found.row, labels=found.labels, inlines=values, text_limit=settings.TEXT_CHARS
    )
    return ToolResult(structured={**head, **shown})


class CreateRecord(WriteTool):
    """``create_record``: a row added as on the admin's add page."""

    name = "create_record"
    title = "Create record"
    description = "Add a row. Fields that are left out get the defaults of the add page."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"model": MODEL, "values": VALUES, "idempotency_key": IDEMPOTENCY_KEY},
        "required": ["model", "values"],
    }
    permission = "add"
    destructive = False

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """See :meth:`Tool.call`."""
        given = taken(arguments, self.input_schema["properties"], required=["model", "values"])
        exposure = exposure_argument(request, given["model"])
        go_to(request, exposure, "add")
        self.check_allowed(request, exposure)
        values = as_object(given["values"], "values")
        with refusals(partial(broken_constraint, request, exposure)), one_transaction(exposure.model, request):
            messages: list[dict[str, str]] = []
            saved, changed = save_row(request, exposure, None, values, self.name, messages)
            return _saved_payload(request, exposure, saved, {"created": True, "changed": changed}, messages, values)


class UpdateRecord(WriteTool):
    """``update_record``: a row changed as on the admin's change page; fields that are not named stay as they are."""

    name = "update_record"
    title = "Update record"
    description = (
        "Change fields of one row, or many (pks or filters): many are shown first, then confirmed by confirm_token."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": MODEL,
            "pk": KEY,
            **PICKING,
            "values": CHANGES,
            "version": VERSION,
            "confirm_token": CONFIRM_TOKEN,
            "idempotency_key": IDEMPOTENCY_KEY,
        },
        "required": ["model", "values"],
    }
    permission = "change"

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """See :meth:`Tool.call`."""
        given = taken(arguments, {**self.input_schema["properties"], **QUERY}, required=["model", "values"])
        exposure = exposure_argument(request, given["model"])
        if picks_many(given):
            return update_rows(request, self, exposure, given)
        values = as_object(given["values"], "values")
        with refusals(partial(broken_constraint, request, exposure)), one_transaction(exposure.model, request):
            row = _locked_row(request, exposure, "change", given["pk"])
            self.check_allowed(request, exposure, row)
            check_version(request, exposure, row, given.get("version"))
            messages: list[dict[str, str]] = []
            saved, changed = save_row(request, exposure, row, values, self.name, messages)
            return _saved_payload(request, exposure, saved, {"updated": True, "changed": changed}, messages, values)


def _warning(deletion: Deletion) -> str:
    total = len(deletion.objects)
    return f"This deletes {total} object{'s' if total != 1 else ''}, which cannot be undone."


def _deletion_text(shown: Mapping[str, Any], deletion: Deletion) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in deletion.counts.items())
    return (
        f"{_warning(deletion)} With all that goes with it: {counts}.\n\n"
        f"{shown['model']} {quoted(shown['pk'])}: {quoted(shown['label'])}"
    )


class DeleteRecord(WriteTool):
    """``delete_record``: a preview first, then the deletion of exactly what was shown."""

    name = "delete_record"
    title = "Delete record"
    description = (
        "Delete one row, or many (pks or filters), and what depends on them: shown first, then confirmed by "
        "confirm_token."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": MODEL,
            "pk": KEY,
            **PICKING,
            "version": VERSION,
            "confirm_token": CONFIRM_TOKEN,
            "idempotency_key": IDEMPOTENCY_KEY,
        },
        "required": ["model"],
    }
    permission = "delete"

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """See :meth:`Tool.call`."""
        given = taken(arguments, {**self.input_schema["properties"], **QUERY}, required=["model"])
        exposure = exposure_argument(request, given["model"])
        if picks_many(given):
            return delete_rows(request, self, exposure, given)
        with refusals(), one_transaction(exposure.model, request):
            row = _locked_row(request, exposure, "delete", given["pk"])
            self.check_allowed(request, exposure, row)
            check_version(request, exposure, row, given.get("version"))
            deletion = plan_deletion(request, exposure, row)
            shown = {
                "model": exposure.label,
                "pk": render(row.pk),
                "label": label_of(exposure, row),
                "deletes": dict(deletion.counts),
            }
            bound = (self.name, {"model": exposure.label, "pk": pk_text(row.pk)}, deletion.objects)
            if "confirm_token" in given:
                redeem(request, given["confirm_token"], *bound)
            elif can_ask(request):
                confirm(request, _deletion_text(shown, deletion), deletion.objects)
            else:
                return self._preview(request, shown, deletion, bound)
            messages: list[dict[str, str]] = []
            with as_page(request, "POST", as_query([("post", "yes")]), messages):
                log_deletion(request, exposure, row, self.name)
                exposure.delete_model(request, row)
            said = {"messages": messages} if messages else {}
            return ToolResult(structured={"deleted": True, **shown, **said})

    def _preview(
        self, request: MCPRequest, shown: Mapping[str, Any], deletion: Deletion, bound: tuple[Any, ...]
    ) -> ToolResult:
        return ToolResult(
            structured={
                "confirmation_required": True,
                "message": _warning(deletion),
                **shown,
                "next": NEXT,
                "confirm_token": issue(request, *bound),
                "expires_in": settings.CONFIRMATION_MAX_AGE,
            }
        )

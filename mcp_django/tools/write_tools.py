"""``create_record``, ``update_record`` and ``delete_record``: rows written as the admin writes them.

Each call runs in one transaction together with its entry in the admin's history, so an error means that nothing was
changed. The row to change or delete is locked first, if the database supports that. Deleting one row calls
``delete_model``, and so the model's own ``delete()``; it deletes what the admin's confirmation page would list.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from django.db import connections, router
from django.db.models import Model

from ..conf import settings
from ..context.confirmation import Confirmation, quoted
from ..context.databases import reads_snapshots
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..emulation.bulk_writes import BulkWrite
from ..emulation.deleting import Deleting
from ..emulation.picked_rows import Selection
from ..emulation.saving import RowPage
from ..exceptions import NotFound, NotPermitted, ToolError, Unreadable
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import pk_text, render
from ..orm.database_writes import one_transaction, refusals
from ..orm.labels import label_of
from ..orm.row_finder import RowFinder
from ..orm.row_reading import FoundRow
from ..orm.tool_arguments import Arguments
from ..schema.value_types import FREE_OBJECT, KEY
from ..scopes import Scope
from .base import IDEMPOTENCY_KEY, Tool
from .record import Record

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
UNSTORED: Final = "The project has stored no row of this model. It may have stored something else instead."
GONE: Final = "It was saved, but is not among the rows that you can see."


class WriteTool(Tool):
    """Base of ``create_record``, ``update_record`` and ``delete_record``.

    ``permission`` is the one that the tool needs, and names its admin page.
    """

    permission: Literal["add", "change", "delete"]
    scopes = frozenset({Scope.WRITE})
    # A write runs the project's own code, and can wait for the lock of a row.
    slow = True
    takes_key = True

    def is_atomic(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        return True

    def may_repeat(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether a create, update or delete may run again: the caller may still write to the model and row."""
        if "model" not in arguments:
            return True
        try:
            model = access_of(request).get_model(arguments["model"])
            exposure = model.exposure
            if self.permission != "change" or arguments.get("pk") in (None, ""):
                return self.allows(model)
            pk = model.bare_pk(arguments["pk"])
            request.go_to(exposure, "change", pk)
            [row] = RowFinder(model).rows([pk], RowFinder.NOT_FOUND)
            return self.allows(model, row)
        except (NotFound, ToolError):
            return False

    def allows(self, model: ModelAccess, *obj: Model) -> bool:
        """Return whether the caller may use this tool (create, update or delete) on the model, or on this row."""
        return model.may_row(self.permission, *obj)

    def check_allowed(self, model: ModelAccess, *obj: Model) -> None:
        """Raise ``ToolError`` unless the caller has the permission."""
        if not self.allows(model, *obj):
            what = f"{'this row' if obj else 'rows'} of {model.exposure.label}"
            raise NotPermitted(f"You may view but not {self.permission} {what}. Nothing was changed.")

    def bulk(self, model: ModelAccess, given: Arguments) -> BulkWrite | None:
        """Return the write of many rows by ``update_record`` or ``delete_record``, None if ``pk`` names one row."""
        many = [name for name in Selection.QUERY if name in given]
        if many and "pk" in given:
            raise ToolError(f"Give either pk or {', '.join(many)}, not both. Nothing was changed.")
        if not many and "pk" not in given:
            raise ToolError("Missing argument: pk for one row, or pks, or filters or search for all rows that match.")
        if many and "version" in given:
            raise ToolError("version is for one row: give it with pk. Nothing was changed.")
        if many:
            return BulkWrite(model, given, self.name, self.permission)
        return None

    def row_to_write(self, model: ModelAccess, given: Mapping[str, Any]) -> Model:
        """Lock the row of ``update_record`` or ``delete_record`` until the transaction ends, and return the row."""
        request = model.request
        exposure = model.exposure
        pk = model.bare_pk(given["pk"])
        request.go_to(exposure, self.permission, pk)
        try:
            row = self._locked(model, pk)
        except NotFound:
            pk = RowFinder(model).key(pk, RowFinder.NOT_FOUND)
            request.go_to(exposure, self.permission, pk)
            row = self._locked(model, pk)
        self.check_allowed(model, row)
        RowPage(model, row).check_version(given.get("version"))
        return row

    def _locked(self, model: ModelAccess, pk: Any) -> Model:
        """Return the row to write, locked if the database can lock rows: by one query where all rows of the table may
        be written, or else by a query that locks between two that read."""
        exposure = model.exposure
        using = router.db_for_write(exposure.model)
        is_plain = exposure.options.has_every_row and not exposure.opts.parents and not router.routers
        if is_plain and connections[using].features.has_select_for_update:
            with suppress(Unreadable):
                return model.get_row(pk, lock=True)
        row = FoundRow.whole(model, pk).row
        using = router.db_for_write(exposure.model, instance=row)
        if connections[using].features.has_select_for_update:
            rows = exposure.model._base_manager.using(using).filter(pk=row.pk)
            list(rows.select_for_update().values_list("pk"))
            try:
                if reads_snapshots(using):
                    with suppress(Unreadable):
                        return model.get_row(pk, lock=True)
                row = FoundRow.whole(model, pk).row
            except NotFound:
                raise ToolError(RowFinder.NOT_FOUND) from None
        return row

    def saved(self, page: RowPage, values: Mapping[str, Any], done: str) -> ToolResult:
        """Save the row of ``create_record`` or ``update_record``, and return what the caller sees now: a new row as a
        whole, and of an updated row what the caller named and what hooks have changed."""
        saving = page.saving(values, self.name)
        request = saving.request
        exposure = saving.exposure
        before = dict(vars(saving.obj)) if saving.obj is not None else None
        row, changed = saving.save()
        head: dict[str, Any] = {done: True, "changed": changed}
        if saving.messages:
            head["messages"] = saving.messages
        if row.pk is None:
            return ToolResult(structured={**head, done: False, "model": exposure.label, "note": UNSTORED})
        request.go_to(exposure, "change", row.pk)
        try:
            # Read the row again as the caller sees it, with the annotations of the queryset.
            found = FoundRow.find(saving.model, pk_text(row.pk))
        except NotFound:
            head |= {"model": exposure.label, "pk": render(row.pk), "note": GONE}
            return ToolResult(structured=head)
        # Cut long texts: the caller knows those that it wrote, and can read others with get_record.
        record = Record(saving.model, found.row, found.labels, text_limit=settings.TEXT_CHARS)
        if before is None:
            return ToolResult(structured={**head, **record.full(inlines=saving.values)})
        return ToolResult(structured={**head, **record.changed(before, {*saving.values, *changed})})


class CreateRecord(WriteTool):
    """``create_record``: create a row as on the admin's add page."""

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
        given = Arguments.of_write(arguments, self.input_schema["properties"], required=["model", "values"])
        model = given.model(request)
        exposure = model.exposure
        request.go_to(exposure, "add")
        self.check_allowed(model)
        values = given.object("values")
        with RowPage.transaction(model):
            return self.saved(RowPage(model, None), values, "created")


class UpdateRecord(WriteTool):
    """``update_record``: update a row as on the admin's change page; fields that are not named stay as they are."""

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
            **Selection.PICKING,
            "values": CHANGES,
            "version": VERSION,
            "confirm_token": CONFIRM_TOKEN,
            "idempotency_key": IDEMPOTENCY_KEY,
        },
        "required": ["model", "values"],
    }
    permission = "change"

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        known = {**self.input_schema["properties"], **Selection.QUERY}
        given = Arguments.of_write(arguments, known, required=["model", "values"])
        model = given.model(request)
        if many := self.bulk(model, given):
            return many.update()
        values = given.object("values")
        with RowPage.transaction(model):
            row = self.row_to_write(model, given)
            return self.saved(RowPage(model, row), values, "updated")


class DeleteRecord(WriteTool):
    """``delete_record``: preview a deletion first, then delete exactly the rows of the preview."""

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
            **Selection.PICKING,
            "version": VERSION,
            "confirm_token": CONFIRM_TOKEN,
            "idempotency_key": IDEMPOTENCY_KEY,
        },
        "required": ["model"],
    }
    permission = "delete"

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        known = {**self.input_schema["properties"], **Selection.QUERY}
        given = Arguments.of_write(arguments, known, required=["model"])
        model = given.model(request)
        exposure = model.exposure
        if many := self.bulk(model, given):
            return many.delete()
        with refusals(model=exposure.model), one_transaction(exposure.model, request):
            row = self.row_to_write(model, given)
            deleting = Deleting(model, [row], self.name)

            # First show the row, and all that goes with it.
            pk = pk_text(row.pk)
            label = label_of(exposure, row)
            total = len(deleting.affected)
            shown = {"model": exposure.label, "pk": render(row.pk), "label": label, "deletes": deleting.counts}
            warning = deleting.warning(f"{total} object{'s' if total != 1 else ''}")
            confirmation = Confirmation(request, self.name, {"model": exposure.label, "pk": pk}, deleting.affected)
            named = f"{exposure.label} {quoted(shown['pk'])}: {quoted(label)}"
            told = f"{warning} With all that goes with it: {deleting.goes}.\n\n{named}"
            if asked := confirmation.confirm(given.get("confirm_token"), warning, told, shown):
                return asked

            # Then delete them.
            messages = deleting.delete_one()
            said = {"messages": messages} if messages else {}
            return ToolResult(structured={"deleted": True, **shown, **said})

"""``create_record``, ``update_record`` and ``delete_record``: rows written as the admin writes them.

Each call runs in one transaction together with its entry in the admin's history, so an error means that nothing was
changed. The row to change or delete is locked first, if the database supports that. Deleting one row calls
``delete_model``, and so the model's own ``delete()``; it deletes what the admin's confirmation page would list.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from django.db.models import Model

from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..differences.bulk_writes import BulkDeletion, BulkUpdate
from ..differences.named_rows import NamedRows
from ..differences.write_calls import WriteCall
from ..differences.writes import RowCreation, RowDeletion, RowUpdate, Write
from ..emulation.picked_rows import Selection
from ..exceptions import NotFound, ToolError
from ..orm.access import ModelAccess, access_of
from ..orm.row_finder import RowFinder
from ..orm.tool_arguments import Arguments
from ..schema.value_types import FREE_OBJECT, KEY
from ..scopes import Scope
from .base import IDEMPOTENCY_KEY, Tool

MODEL: Final = {"type": "string"}
VALUES: Final = {
    **FREE_OBJECT,
    "description": ("By field name; a relation by primary key, an inline as a list of rows, a file as {name, base64}"),
}
CHANGES: Final = {
    **VALUES,
    "description": "As in create_record; inline rows: {pk: 1, qty: 2}, {pk: 1, delete: true}, new without pk",
}
ROWS: Final = {
    "type": "array",
    "items": FREE_OBJECT,
    "description": "Each a key and values, such as {sku: A1, price: 3}",
}
BY: Final = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Unique field or fields that name rows (default pk)",
}
VERSION: Final = {"type": "string", "description": "Of get_record or dry_run: refuse if changed"}
DRY_RUN: Final = {"type": "boolean", "description": "Show what would change, and change nothing"}
CONFIRM_TOKEN: Final = {"type": "string", "description": "From its preview"}


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

    def write(self, model: ModelAccess, given: Arguments) -> Write:
        """Return the write that the arguments of ``update_record`` or ``delete_record`` ask for: of one row by ``pk``,
        or of many."""
        many = [name for name in ("rows", *Selection.QUERY) if name in given]
        if many and "pk" in given:
            raise ToolError(f"Give either pk or {', '.join(many)}, not both. Nothing was changed.")
        if not many and "pk" not in given:
            raise ToolError(f"Missing argument: pk for one row, {self.other_ways}.")
        if many and "version" in given:
            raise ToolError("version is for one row: give it with pk. Nothing was changed.")
        return self.bulk_write(model, given) if many else self.row_write(model, given)

    # What an error says of arguments that pick many rows.
    other_ways: str = "or pks, or filters or search for all rows that match"

    def row_write(self, model: ModelAccess, given: Arguments) -> Write:
        """Return the write of one row."""
        raise NotImplementedError

    def bulk_write(self, model: ModelAccess, given: Arguments) -> Write:
        """Return the write of many rows."""
        raise NotImplementedError


class CreateRecord(WriteTool):
    """``create_record``: create a row as on the admin's add page."""

    name = "create_record"
    title = "Create record"
    description = "Add a row. Fields that are left out get the defaults of the add page."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"model": MODEL, "values": VALUES, "dry_run": DRY_RUN, "idempotency_key": IDEMPOTENCY_KEY},
        "required": ["model", "values"],
    }
    permission = "add"
    destructive = False

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        given = Arguments.of_write(arguments, self.input_schema["properties"], required=["model", "values"])
        model = given.model(request)
        values = given.object("values")
        return WriteCall(lambda: RowCreation(model, self.name, values), given).run()


class UpdateRecord(WriteTool):
    """``update_record``: update rows as on the admin's change page; fields that are not named stay as they are."""

    name = "update_record"
    title = "Update record"
    description = (
        "Change fields of one row (pk, values), of rows with values of their own (rows, by), or of many alike (pks or "
        "filters, values). Many are shown first, then confirmed by confirm_token."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": MODEL,
            "pk": KEY,
            "rows": ROWS,
            "by": BY,
            "create_missing": {"type": "boolean"},
            **Selection.PICKING,
            "values": CHANGES,
            "version": VERSION,
            "dry_run": DRY_RUN,
            "confirm_token": CONFIRM_TOKEN,
            "idempotency_key": IDEMPOTENCY_KEY,
        },
        "required": ["model"],
    }
    permission = "change"
    other_ways = "rows with values of their own, or pks, filters or search for rows that get the same values"

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        known = {**self.input_schema["properties"], **Selection.QUERY}
        given = Arguments.of_write(arguments, known, required=["model"], keeping=["values"])
        model = given.model(request)
        return WriteCall(lambda: self.write(model, given), given).run()

    def row_write(self, model: ModelAccess, given: Arguments) -> Write:
        return RowUpdate(model, self.name, given["pk"], given.get("version"), self._values(given))

    def bulk_write(self, model: ModelAccess, given: Arguments) -> Write:
        if "rows" not in given:
            return BulkUpdate(model, self.name, given, self._values(given))
        if others := [name for name in ("values", *Selection.QUERY) if name in given]:
            raise ToolError(f"rows hold the keys and values: leave out {', '.join(others)}. Nothing was changed.")
        return NamedRows(model, self.name, given)

    def _values(self, given: Arguments) -> dict[str, Any]:
        if unfit := [name for name in ("by", "create_missing") if name in given]:
            raise ToolError(f"{', '.join(unfit)} belongs to rows. Nothing was changed.")
        if "values" not in given:
            raise ToolError("Missing argument: values, by field name. Nothing was changed.")
        return given.object("values")


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
            "dry_run": DRY_RUN,
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
        return WriteCall(lambda: self.write(model, given), given).run()

    def row_write(self, model: ModelAccess, given: Arguments) -> Write:
        return RowDeletion(model, self.name, given["pk"], given.get("version"))

    def bulk_write(self, model: ModelAccess, given: Arguments) -> Write:
        return BulkDeletion(model, self.name, given)

"""``create_record``, ``update_record`` and ``delete_record``: rows written as the admin writes them.

Each call runs in one transaction together with its entry in the admin's history, so an error means that nothing was
changed. The row to change or delete is locked first, if the database supports that. Deleting one row calls
``delete_model``, and so the model's own ``delete()``; it deletes what the admin's confirmation page would list.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from django.db.models import Model

from ..conf import settings
from ..context.confirmation import Confirmation
from ..context.person_consent import may_need_person, needs_person
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..differences.bulk_writes import BulkDeletion, BulkUpdate
from ..differences.named_rows import NamedRows
from ..differences.several_writes import SeveralWrites
from ..differences.write_calls import WriteCall
from ..differences.writes import RowCreation, RowDeletion, RowUpdate, Write
from ..emulation.picked_rows import Selection
from ..exceptions import NotFound, ToolError
from ..orm.access import ModelAccess, access_of
from ..orm.alternative_spellings import json_or_text
from ..orm.row_finder import RowFinder
from ..orm.tool_arguments import Arguments
from ..schema.value_types import FREE_OBJECT, KEY
from ..scopes import Scope
from .base import DRY_RUN, IDEMPOTENCY_KEY, Tool

MODEL: Final = {"type": "string"}
VALUES: Final = {
    **FREE_OBJECT,
    "description": ("By field name; a relation by primary key, an inline as a list of rows, a file as {name, base64}"),
}
CHANGES: Final = {
    **VALUES,
    "description": (
        "As in create_record; inline rows: {pk: 1, qty: 2}, {pk: 1, delete: true}, new without pk; "
        "computed from the row: {price: {field: 'price*1.05', round: '0.10'}}"
    ),
}
ROWS: Final = {
    "type": "array",
    "items": FREE_OBJECT,
    "description": "Such as {sku: A1, price: 3}",
}
BY: Final = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Unique fields; default pk",
}
VERSION: Final = {"type": "string", "description": "Of get_record or dry_run"}
CONFIRM_TOKEN: Final = {"type": "string"}


class WriteTool(Tool):
    """Base of ``create_record``, ``update_record`` and ``delete_record``.

    ``permission`` is the one that the tool needs, and names its admin page.
    """

    permission: Literal["add", "change", "delete"]
    scopes = frozenset({Scope.WRITE})
    # A write runs the project's own code, and can wait for the lock of a row.
    slow = True
    takes_key = True
    takes_reason = True

    def is_atomic(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        return True

    def may_need_person(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether a person has to confirm some creates, updates or deletions of the model."""
        try:
            return may_need_person(Arguments(arguments).model(request).exposure.confirm)
        except (NotFound, ToolError):
            return False

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

    def read(self, arguments: Mapping[str, Any]) -> Arguments:
        """Return the arguments of a call; raise ``ToolError`` for unknown and missing ones."""
        return Arguments.of_write(arguments, {**self.input_schema["properties"], **Selection.QUERY}, ["model"])

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        given = self.read(arguments)
        model = given.model(request)
        return WriteCall(lambda: self.write(model, given, self.name), given).run()

    def write(self, model: ModelAccess, given: Arguments, tool: str) -> Write:
        """Return the write that the arguments of ``update_record`` or ``delete_record`` ask for: of one row by ``pk``,
        or of many. ``tool`` is the one that is called."""
        many = [name for name in ("rows", *Selection.QUERY) if name in given]
        if many and "pk" in given:
            raise ToolError(f"Give either pk or {', '.join(many)}, not both. Nothing was changed.")
        if not many and "pk" not in given:
            raise ToolError(f"Missing argument: pk for one row, {self.other_ways}.")
        if many and "version" in given and not Confirmation.is_pin(given["version"]):
            raise ToolError("version is for one row: give it with pk. Nothing was changed.")
        return self.bulk_write(model, given, tool) if many else self.row_write(model, given, tool)

    # What an error says of arguments that pick many rows.
    other_ways: str = "or pks, or filters or search for all rows that match"

    def row_write(self, model: ModelAccess, given: Arguments, tool: str) -> Write:
        """Return the write of one row."""
        raise NotImplementedError

    def bulk_write(self, model: ModelAccess, given: Arguments, tool: str) -> Write:
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

    def read(self, arguments: Mapping[str, Any]) -> Arguments:
        return Arguments.of_write(arguments, self.input_schema["properties"], required=["model", "values"])

    def write(self, model: ModelAccess, given: Arguments, tool: str) -> Write:
        return RowCreation(model, tool, given.object("values"))


class UpdateRecord(WriteTool):
    """``update_record``: update rows as on the admin's change page; fields that are not named stay as they are."""

    name = "update_record"
    title = "Update record"
    description = (
        "Change one row (pk, values), rows with values of their own (rows, by), or many alike (pks or filters, "
        "values), shown first, confirmed by confirm_token. dry_run only shows."
    )
    description_by_person = (
        "Change fields of one row (pk, values), of rows with values of their own (rows, by), or of many alike (pks or "
        "filters, values). The user confirms many on a page."
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

    def read(self, arguments: Mapping[str, Any]) -> Arguments:
        known = {**self.input_schema["properties"], **Selection.QUERY}
        return Arguments.of_write(arguments, known, required=["model"], keeping=["values"])

    def row_write(self, model: ModelAccess, given: Arguments, tool: str) -> Write:
        return RowUpdate(model, tool, given["pk"], given.get("version"), self._values(given))

    def bulk_write(self, model: ModelAccess, given: Arguments, tool: str) -> Write:
        if "rows" not in given:
            return BulkUpdate(model, tool, given, self._values(given))
        if others := [name for name in ("values", *Selection.QUERY) if name in given]:
            raise ToolError(f"rows hold the keys and values: leave out {', '.join(others)}. Nothing was changed.")
        return NamedRows(model, tool, given)

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
        "Delete one row, or many (pks or filters), and what depends on them: shown first, confirmed by confirm_token."
    )
    description_by_person = (
        "Delete one row, or many (pks or filters), and what depends on them. The user confirms it on a page."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": MODEL,
            "pk": KEY,
            **Selection.PICKING,
            "version": {"type": "string"},
            "dry_run": DRY_RUN,
            "confirm_token": CONFIRM_TOKEN,
            "idempotency_key": IDEMPOTENCY_KEY,
        },
        "required": ["model"],
    }
    permission = "delete"

    def only_person_confirms(self) -> bool:
        """Return whether only a person can confirm a deletion."""
        return needs_person(deletes=True)

    def row_write(self, model: ModelAccess, given: Arguments, tool: str) -> Write:
        return RowDeletion(model, tool, given["pk"], given.get("version"))

    def bulk_write(self, model: ModelAccess, given: Arguments, tool: str) -> Write:
        return BulkDeletion(model, tool, given)


class WriteRecords(WriteTool):
    """``write_records``: several writes in one transaction, confirmed together."""

    name = "write_records"
    title = "Write records"
    description = (
        "Several writes in order, all or none: {op: create|update|delete, model, ...} with arguments of that tool. A "
        "created row is named by its ref in later relations: {customer: {ref: new}}."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "writes": {"type": "array", "items": FREE_OBJECT},
            "version": {"type": "string"},
            "dry_run": DRY_RUN,
            "confirm_token": CONFIRM_TOKEN,
            "idempotency_key": IDEMPOTENCY_KEY,
        },
        "required": ["writes"],
    }
    permission = "change"
    # Arguments that only a call of its own takes.
    OF_CALLS: ClassVar = ("dry_run", "confirm_token", "idempotency_key")

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may write in one way at least."""
        access = access_of(request)
        return not settings.READ_ONLY and any(map(access.may_any, PERMISSIONS))

    def may_need_person(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether a person has to confirm some of the writes."""
        writes = arguments.get("writes")
        steps = [step for step in writes if isinstance(step, Mapping)] if isinstance(writes, list) else []
        return any(super(WriteRecords, self).may_need_person(request, step) for step in steps)

    def may_repeat(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether the same writes may be made again: the caller may still make each of them."""
        writes = arguments.get("writes")
        if not isinstance(writes, list):
            return True
        steps = [step for step in writes if isinstance(step, Mapping) and step.get("op") in OPERATIONS]
        return all(OPERATIONS[step["op"]].may_repeat(request, step) for step in steps)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        given = Arguments.of_write(arguments, self.input_schema["properties"], required=["writes"])
        steps = self._steps(request, given)
        return WriteCall(lambda: SeveralWrites(steps, self.name), given).run()

    def _steps(self, request: MCPRequest, given: Arguments) -> list[SeveralWrites.Step]:
        """Return the writes to make; raise ``ToolError`` for what is none."""
        writes = json_or_text(given.get("writes"))
        most = SeveralWrites.MAX_STEPS
        if not isinstance(writes, list) or not 1 <= len(writes) <= most:
            raise ToolError(f"writes must be a list of 1 to {most} objects, such as {EXAMPLE}.")
        steps = []
        refs = set[str]()
        for number, item in enumerate(writes, 1):
            try:
                step = self._step(request, json_or_text(item))
            except ToolError as error:
                SeveralWrites.tell_place(error, number, len(writes))
                raise
            if step.ref and step.ref in refs:
                raise ToolError(f"Two writes have the ref {step.ref!r}. Nothing was changed.")
            refs.add(step.ref)
            steps.append(step)
        return steps

    def _step(self, request: MCPRequest, given: Any) -> SeveralWrites.Step:
        tool = OPERATIONS.get(str(given.get("op"))) if isinstance(given, Mapping) else None
        if tool is None:
            raise ToolError(f"op must be one of {', '.join(OPERATIONS)}: {EXAMPLE}. Nothing was changed.")
        rest = {name: value for name, value in given.items() if name not in ("op", "ref")}
        if wrong := [name for name in self.OF_CALLS if name in rest]:
            raise ToolError(f"{', '.join(wrong)} is for the whole call, beside writes. Nothing was changed.")
        arguments = tool.read(rest)
        model = arguments.model(request)
        if "values" in arguments:
            arguments["values"] = arguments.object("values")
        ref = given.get("ref", "")
        if not isinstance(ref, str) or (ref and tool.permission != "add"):
            raise ToolError("ref is a text that names the row of a create. Nothing was changed.")
        return SeveralWrites.Step(model, arguments, lambda now: tool.write(model, Arguments(now), self.name), ref)


# What a step of ``write_records`` does, by the tool that does it alone.
OPERATIONS: Final[Mapping[str, WriteTool]] = {
    "create": CreateRecord(),
    "update": UpdateRecord(),
    "delete": DeleteRecord(),
}
PERMISSIONS: Final = tuple(tool.permission for tool in OPERATIONS.values())
EXAMPLE: Final = '{"op": "update", "model": "shop.order", "pk": 1, "values": {...}}'

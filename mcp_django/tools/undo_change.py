"""``undo_change``: a change of the caller is taken back, with all that it did."""

from collections.abc import Mapping
from typing import Any, Final

from ..conf import settings
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..differences.kept_changes import Changes
from ..differences.undo import Undo, Withdrawal
from ..differences.write_calls import WriteCall
from ..exceptions import NotFound
from ..orm.access import access_of
from ..orm.tool_arguments import Arguments
from ..scopes import Scope
from .base import Tool

WRITES: Final = ("change", "add", "delete")


class UndoChange(Tool):
    """``undo_change``: take a change back, or withdraw one that waits for a yes."""

    name = "undo_change"
    title = "Take a change back"
    description = "Take back a write, by the change in its result"
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "change": {"type": "integer"},
            "dry_run": {"type": "boolean"},
            "confirm_token": {"type": "string"},
        },
        "required": ["change"],
    }
    scopes = frozenset({Scope.WRITE})
    # It can wait for the lock of a row.
    slow = True
    # It is taken, but not declared: a change is taken back once anyway.
    takes_key = True
    idempotent = True

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may write anything."""
        return not settings.READ_ONLY and any(map(access_of(request).may_any, WRITES))

    def is_atomic(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        return True

    def may_repeat(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether the result of an undo may be told again: the caller still sees the change."""
        try:
            Changes(request).own(arguments.get("change"))
        except NotFound:
            return False
        return True

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        # The version that a dry run gives is taken, too.
        known = (*self.input_schema["properties"], "version")
        given = Arguments.of_write(arguments, known, required=["change"])
        changes = Changes(request)
        kept = Undo.find(changes, given["change"])
        withdrawal = Withdrawal(kept)
        if withdrawal.is_possible:
            return ToolResult(structured=withdrawal.run(request, dry_run=given.flag("dry_run")))
        model = access_of(request).get_model(kept.change.model)
        return WriteCall(lambda: Undo(model, self.name, kept.change.pk, changes), given).run()

"""The error result of a refused call: why it was refused, and the right call if one is clearly meant.

The error has a repair that turns the refused call into the right one. The tool checks that call without running it.
"""

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, Final

import orjson

from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import ToolError
from ..operating.failure_causes import reason_of
from ..orm.query_limits import read_limits
from ..orm.tool_arguments import Arguments
from ..schema.arguments import ArgumentSchema
from .base import RecordTool, Tool

logger = logging.getLogger("mcp_django.tools")

# Share of a call's time that finding the right call can take.
PROPOSAL_SHARE: Final = 0.25
# Maximum number of repairs to one call.
MAX_REPAIRS: Final = 6


class RefusedCall:
    """A call that a tool refused with an error."""

    # Maximum characters of the right call as JSON.
    MAX_PROPOSAL: ClassVar = 600

    def __init__(self, request: MCPRequest, tool: Tool, arguments: Mapping[str, Any], error: ToolError) -> None:
        self.request = request
        self.tool = tool
        self.arguments = arguments
        self.error = error

    def result(self) -> dict[str, Any]:
        """Return the error result; the right call can end it: ``next: {"tool", "arguments"}``.

        A tool without an output schema also returns ``{"error", "next"}`` as structured content. With an output schema
        that would fail: the official TypeScript SDK checks structured content against it even if ``isError`` is true.
        """
        tool = self.tool
        error = self.error
        self.request.mcp.record.settle(error.outcome, reason_of(error.message))
        try:
            with read_limits(PROPOSAL_SHARE) if isinstance(tool, RecordTool) else nullcontext():
                call = self.proposal()
        except Exception:
            # Return the refusal even if the project's code or the database fails on the proposed call.
            logger.warning("No call could be proposed for one of %s", tool.name, exc_info=True)
            call = None
        if call is None:
            return ToolResult.of_error(error).to_wire()
        wire = ToolResult.of_error(error, f"\nnext: {orjson.dumps(call).decode()}").to_wire()
        structured = {"structuredContent": {"error": error.message[: ToolResult.MAX_ERROR], "next": call}}
        if tool.output_schema is None:
            return {**wire, **structured}
        return wire

    def proposal(self) -> dict[str, Any] | None:
        """Return the right call, None if none is clearly meant or the call is too long.

        In a call that writes, only the spelling of one name is repaired. A call that reads can be wrong in several
        places.
        """
        tool = self.tool
        given = self.arguments
        if isinstance(tool, RecordTool):
            given = Arguments.understood(given, tool.input_schema["properties"])
        refused: ToolError | None = self.error
        for _ in range(MAX_REPAIRS):
            repair = refused.repair if refused is not None else None
            if repair is None or not (tool.read_only or repair.is_spelling):
                return None
            mended = repair.mend(given)
            if mended is None or mended == given:
                return None
            given = mended
            refused = None
            if isinstance(tool, RecordTool):
                try:
                    tool.check(self.request, given)
                except ToolError as again:
                    refused = again
            if refused is None:
                break
        else:
            return None
        call = {
            "tool": tool.name,
            "arguments": {name: value for name, value in given.items() if name not in ArgumentSchema.IGNORED},
        }
        try:
            if len(orjson.dumps(call).decode()) <= self.MAX_PROPOSAL:
                return call
            return None
        except orjson.JSONEncodeError:
            return None

"""``get_task``: how a call stands that goes on without its request, for clients that know of no tasks.

It is offered only to callers with a tool that can go on so, because each listed tool costs every client tokens.
"""

from collections.abc import Mapping
from typing import Any

from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import ToolError
from ..orm.tool_arguments import Arguments
from .base import Tool


class GetTask(Tool):
    """``get_task``: the state of a task of the caller, or its result once there is one."""

    name = "get_task"
    title = "Get task"
    description = "How a task stands that a call has become, or its result."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"task": {"type": "string"}},
        "required": ["task"],
    }
    read_only = True

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether ``get_task`` is offered: one of the caller's tools can become a task, and its client could not
        ask for that task in another way."""
        site = request.mcp.site
        tasks = request.mcp.tasks
        if not site.declares_tasks or tasks is None or request.mcp.takes_tasks or not tasks.makes_tasks:
            return False
        makes: bool = site.makes_tasks(request)
        return makes

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return how the task stands, or its result; raise ``ToolError`` for what is no task of the caller."""
        given = Arguments.read(arguments, self.input_schema["properties"])
        task = given.get("task")
        if not isinstance(task, str):
            raise ToolError("Missing argument: task, as the call has answered it.")
        tasks = request.mcp.tasks
        assert tasks is not None
        return tasks.told(task)

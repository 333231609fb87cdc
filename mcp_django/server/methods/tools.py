"""``tools/list`` and ``tools/call``."""

from collections.abc import Awaitable, Mapping
from contextlib import nullcontext
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.db import DataError

from ...context.questions import untangled
from ...context.request import MCPRequest
from ...context.results import ToolResult, error_result
from ...exceptions import InputRequired, NotFound, ToolError
from ...functions.asking import RESERVED
from ...orm.query_limits import read_limits
from ...protocol.errors import InvalidParams, ProtocolError
from ...protocol.headers import check_param_headers, param_headers
from ...protocol.versions import MIRRORED, STRUCTURED
from ...tools.base import RecordTool, Tool
from ...tools.fallback import ask_by_result, take_direct_answers
from ...tools.functions import FunctionTool
from ..idempotency import Once, take_key
from .base import Later, log_failure, require_scopes

# How alike names are that are told instead of an unknown one, between 0 and 1, and characters that are compared.
NEAR: Final = 0.85
MAX_TOLD: Final = 100


def list_tools(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with every tool that the caller may use, in one page: half of the clients read no second one."""
    if params.get("cursor") is not None:
        raise InvalidParams("Invalid params: cursor")
    tools = [tool.for_caller(request) for tool in request.mcp.site.get_tools(request)]
    structured = request.mcp.version in STRUCTURED
    return {"tools": [tool.encoded(structured=structured) for tool in tools]}


def call_tool(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any] | Later:
    """Run one tool. A tool that the caller may not use is answered as one that does not exist."""
    name: str = params["name"]
    tool = request.mcp.site.get_tool(request, name)
    if tool is None:
        raise InvalidParams(f"Unknown tool: {name[:64]}{_nearest(request, name)}")
    require_scopes(request, tool.scopes)
    arguments = dict(params.get("arguments") or {})
    if request.mcp.version in MIRRORED and _mirrors(tool):
        check_param_headers(tool.input_schema, arguments, request.mcp.param_headers)
    try:
        key = take_key(tool, arguments)
        if isinstance(tool, FunctionTool) and not arguments.keys().isdisjoint(RESERVED):
            arguments = take_direct_answers(request, tool, arguments)
    except ToolError as error:
        return error_result(error).to_wire()
    if tool.is_async:
        return Later(lambda: _run_async(tool, request, arguments, key), is_async=True)
    if tool.slow:
        return Later(lambda: _run(tool, request, arguments, key))
    return _run(tool, request, arguments, key)


def _nearest(request: MCPRequest, name: str) -> str:
    """Return the tools of the caller whose names are so near that they may be meant, as the end of the message.

    The specification makes an unknown tool an error of the protocol in each revision (server/tools, Error Handling);
    most clients show its message to the model.
    """
    known = {tool.name: None for tool in request.mcp.site.get_tools(request)}
    # Some models repeat the name of the server, as their client shows it.
    plain = name[:MAX_TOLD].lower().rpartition("__")[2].replace("-", "_")
    near = get_close_matches(plain, known, n=3, cutoff=NEAR)
    return f". Did you mean {' or '.join(near)}?" if near else ""


@lru_cache(maxsize=1024)
def _mirrors(tool: Tool) -> bool:
    """Whether clients repeat arguments of the tool in headers."""
    return bool(param_headers(tool.input_schema))


def _run(tool: Tool, request: MCPRequest, arguments: dict[str, Any], key: str) -> dict[str, Any]:
    def work() -> ToolResult:
        with read_limits() if isinstance(tool, RecordTool) else nullcontext():
            result = tool.call(request, arguments)
        assert isinstance(result, ToolResult)
        return result

    try:
        return Once(request, tool, arguments, key).run(work) if key else work().to_wire()
    except InputRequired as asked:
        return ask_by_result(request, tool, arguments, asked).to_wire()
    except Exception as error:
        return _failure(tool, error)


async def _run_async(tool: Tool, request: MCPRequest, arguments: dict[str, Any], key: str) -> dict[str, Any]:
    async def work() -> ToolResult:
        result = tool.call(request, arguments)
        assert isinstance(result, Awaitable)
        return await result

    try:
        if key:
            return await (await sync_to_async(Once)(request, tool, arguments, key)).run_async(work)
        return (await work()).to_wire()
    except BaseException as raised:
        error = untangled(raised)
        if isinstance(error, InputRequired):
            return ask_by_result(request, tool, arguments, error).to_wire()
        if not isinstance(error, Exception):
            raise error from None
        return _failure(tool, error)


def _failure(tool: Tool, error: Exception) -> dict[str, Any]:
    """Tell the model what it can mend; anything else it learns only that it failed, and under which id."""
    if isinstance(error, ProtocolError):
        raise error
    if isinstance(error, ToolError):
        return error_result(error).to_wire()
    if isinstance(error, NotFound):
        return error_result(ToolError("Not found.")).to_wire()
    if isinstance(error, PermissionDenied):
        return error_result(ToolError("Permission denied.")).to_wire()
    if isinstance(tool, RecordTool) and isinstance(error, (DataError, OverflowError)):
        # A filter or a search of the project's own took a value that its column cannot be compared with.
        return error_result(ToolError("A value is out of range for its column.")).to_wire()
    identifier = log_failure(tool.name, error)
    return error_result(ToolError(f"The tool failed. Tell the operator the error id {identifier}.")).to_wire()

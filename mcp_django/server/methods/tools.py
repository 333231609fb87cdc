"""``tools/list`` and ``tools/call``."""

from collections.abc import Awaitable, Mapping
from contextlib import nullcontext, suppress
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.db import DataError

from ...conf import settings
from ...context.databases import heed_writes
from ...context.questions import untangled
from ...context.request import MCPRequest
from ...context.results import ToolResult, error_result
from ...exceptions import CallRefused, InputRequired, NotFound, ToolError
from ...functions.asking import RESERVED
from ...operating.budgets import check_writes
from ...orm.access import get_exposure
from ...orm.query_limits import read_limits
from ...orm.wording import singular
from ...protocol.errors import InvalidParams, ProtocolError
from ...protocol.headers import check_param_headers, param_headers
from ...protocol.messages import encode
from ...protocol.versions import MIRRORED, STRUCTURED
from ...tools.base import RecordTool, Tool
from ...tools.fallback import ask_by_result, take_direct_answers
from ...tools.functions import FunctionTool
from ...tools.proposals import MAX_PROPOSAL, refusal_of
from ..idempotency import ARGUMENT, Once, take_key
from .base import Later, log_failure, require_scopes

# How alike names are that are told instead of an unknown one, between 0 and 1, and characters that are compared.
NEAR: Final = 0.85
MAX_TOLD: Final = 100


def list_tools(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with every tool that the caller may use, in one page: half of the clients read no second one."""
    if params.get("cursor"):
        raise InvalidParams("Invalid params: cursor")
    tools = [tool.for_caller(request) for tool in request.mcp.site.get_tools(request)]
    structured = request.mcp.version in STRUCTURED
    return {"tools": [tool.encoded(structured=structured) for tool in tools]}


def call_tool(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any] | Later:
    """Run one tool. A tool that the caller may not use is answered as one that does not exist."""
    name: str = params["name"]
    tool = request.mcp.site.get_tool(request, name)
    if tool is None:
        if request.mcp.off is not None:
            _refuse_model(request, params.get("arguments"))
        if request.mcp.site.has_tool(request, name):
            request.mcp.record.settle("refused:permission")
        raise _unknown_tool(request, name, params.get("arguments"))
    record = request.mcp.record
    record.target, record.writes = tool.name, not tool.read_only
    if record.writes:
        heed_writes()
    require_scopes(request, tool.scopes)
    if (off := request.mcp.off) and (switched := off.tool(tool.name, read_only=tool.read_only)):
        raise switched.refusal()
    if record.writes and settings.BUDGETS:
        check_writes(request)
    arguments = dict(params.get("arguments") or {})
    if request.mcp.version in MIRRORED and _mirrors(tool):
        check_param_headers(tool.input_schema, arguments, request.mcp.param_headers)
    try:
        key = take_key(tool, arguments) if ARGUMENT in arguments else ""
        if isinstance(tool, FunctionTool) and not arguments.keys().isdisjoint(RESERVED):
            arguments = take_direct_answers(request, tool, arguments)
    except ToolError as error:
        return refusal_of(request, tool, arguments, error)
    if tool.is_async:
        return Later(lambda: _run_async(tool, request, arguments, key), is_async=True)
    if tool.slow:
        return Later(lambda: _run(tool, request, arguments, key))
    return _run(tool, request, arguments, key)


def _refuse_model(request: MCPRequest, arguments: Any) -> None:
    """Say of a tool that is not there, as the only model that it is for is switched off, what is off.

    Raises:
        CallRefused: it is.
    """
    with suppress(NotFound):
        get_exposure(request, arguments.get("model") if isinstance(arguments, Mapping) else None)


def _unknown_tool(request: MCPRequest, name: str, arguments: Any) -> InvalidParams:
    """Return the error, with the tools of the caller whose names are so near that they may be meant.

    The specification makes an unknown tool an error of the protocol in each revision (server/tools, Error Handling);
    most clients show its message to the model. ``data.next`` is the call that is meant, where one tool is.
    """
    known = {tool.name: None for tool in request.mcp.site.get_tools(request)}
    # Some models repeat the name of the server, as their client shows it.
    plain = name[:MAX_TOLD].rpartition("__")[2]
    same = [tool for tool in known if singular(tool) == singular(plain)]
    same = same or [tool for tool in known if tool.startswith(f"{plain.lower()}_")]
    near = same or get_close_matches(plain.lower().replace("-", "_"), known, n=3, cutoff=NEAR)
    meant = f". Did you mean {' or '.join(near)}?" if near else ""
    call = {"tool": near[0], "arguments": arguments or {}} if len(near) == 1 else None
    is_short = call is not None and len(encode(call)) <= MAX_PROPOSAL
    return InvalidParams(f"Unknown tool: {name[:64]}{meant}", data={"next": call} if is_short else None)


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
        return _failure(request, tool, _with_key(arguments, key), error)


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
        return _failure(request, tool, _with_key(arguments, key), error)


def _with_key(arguments: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {**arguments, ARGUMENT: key} if key else arguments


def _failure(request: MCPRequest, tool: Tool, arguments: Mapping[str, Any], error: Exception) -> dict[str, Any]:
    """Tell the model what it can mend; anything else it learns only that it failed, and under which id."""
    record = request.mcp.record
    if isinstance(error, (ProtocolError, CallRefused)):
        raise error
    if isinstance(error, ToolError):
        return refusal_of(request, tool, arguments, error)
    if isinstance(error, NotFound):
        return error_result(ToolError("Not found.")).to_wire()
    if isinstance(error, PermissionDenied):
        record.settle("refused:permission")
        return error_result(ToolError("Permission denied.")).to_wire()
    if isinstance(tool, RecordTool) and isinstance(error, (DataError, OverflowError)):
        # A filter or a search of the project's own took a value that its column cannot be compared with.
        return error_result(ToolError("A value is out of range for its column.")).to_wire()
    record.error_id = identifier = log_failure(tool.name, error, record.id)
    return error_result(ToolError(f"The tool failed. Tell the operator the error id {identifier}.")).to_wire()

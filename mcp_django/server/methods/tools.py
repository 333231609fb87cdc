"""Handlers of the methods ``tools/list`` and ``tools/call``."""

import re
from collections.abc import Awaitable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseUnavailable

from ...approvals.approval_check import CallApproval
from ...context.database_errors import Trouble, is_unfit
from ...context.databases import PRIMARY
from ...context.person_consent import PersonNeeded
from ...context.request import MCPRequest
from ...context.task_desk import BecomesTask
from ...context.tool_results import ToolResult
from ...exceptions import CallRefused, InputRequired, NotFound, ToolError
from ...functions.asked_parameters import AskedParameters
from ...operating.daily_budgets import Budgets
from ...orm.access import access_of
from ...orm.nearest_names import singular
from ...orm.query_limits import read_limits
from ...protocol.errors import InvalidParams, MissingClientCapability, ProtocolError
from ...protocol.headers import ParamHeader
from ...protocol.messages import encode
from ...protocol.tasks import EXTENSION
from ...protocol.versions import Revisions
from ...runtime.missing_migrations import MissingTables
from ...tools.base import Tool
from ...tools.function_tools import FunctionTool
from ...tools.refused_calls import RefusedCall
from ..approval_calls import ApprovalCall, take_reason
from ..idempotency_keys import ARGUMENT, Once, take_key
from ..person_requests import ConsentedCall, PersonRequest
from .handler_interface import Later, log_failure

# What is told of a server whose new tables are not there yet, with the id of the error.
UNMIGRATED: Final = (
    "The tool failed: tables of this server are missing. Tell the operator to run "
    f"{MissingTables.REMEDY}, with the error id {{}}."
)
# Minimum similarity, from 0 to 1, of the tools suggested for an unknown name, and maximum characters compared.
NEAR: Final = 0.85
# Minimum similarity of tools that are only listed, and how many are.
FAR: Final = 0.6
MOST: Final = 3
MAX_TOLD: Final = 100


def list_tools(request: MCPRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Handle ``tools/list``: all tools that the caller may use, in one page: half of the clients read only one."""
    if params.get("cursor"):
        raise InvalidParams("Invalid params: cursor")
    tools = request.mcp.site.get_tools(request)
    structured = request.mcp.version in Revisions.STRUCTURED
    explained = CallApproval.may_concern(request)
    listed = [tool.for_caller(request).encoded(structured=structured, explained=explained) for tool in tools]
    return {"tools": listed}


def call_tool(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any] | Later:
    """Handle ``tools/call``: run one tool. A tool that the caller may not use is answered as an unknown one."""
    name: str = params["name"]
    tool = request.mcp.site.get_tool(request, name)
    if tool is None:
        arguments = params.get("arguments")
        if request.mcp.off is not None:
            # If the tool is hidden because its only model is switched off, say so.
            with suppress(NotFound):
                access_of(request).get_model(arguments.get("model") if isinstance(arguments, Mapping) else None)
        if request.mcp.site.has_tool(request, name):
            request.mcp.record.settle("refused:permission")
        raise _unknown_tool(request, name, arguments)
    record = request.mcp.record
    record.target = tool.name
    record.writes = not tool.read_only
    if record.writes:
        PRIMARY.install()
    request.mcp.require_scopes(tool.scopes)
    if (off := request.mcp.off) and (switched := off.tool(tool.name, read_only=tool.read_only)):
        raise switched.refusal()
    if record.writes:
        Budgets(request).check_writes()
    arguments = dict(params.get("arguments") or {})
    _check_takes_task(request, tool, arguments)
    if request.mcp.version in Revisions.MIRRORED and _mirrors(tool):
        ParamHeader.check_all(tool.input_schema, arguments, request.mcp.param_headers)
    asking: PersonRequest | None = None
    reason = ""
    if record.writes:
        reason = take_reason(tool, arguments)
        request.mcp.approvals = CallApproval.of(request, tool, arguments)
    may_wait = request.mcp.approvals is not None or tool.may_need_person(request, arguments)
    if record.writes and request.mcp.consent is None and may_wait:
        asking = PersonRequest(request, tool, arguments)
        if request.mcp.approvals is not None:
            asking = ApprovalCall(request, tool, arguments, request.mcp.approvals, reason)
        try:
            known = asking.known()
        except ToolError as error:
            return RefusedCall(request, tool, arguments, error).result()
        if callable(known):
            return Later(known, is_async=True)
        if known is not None:
            return known
    try:
        key = take_key(tool, arguments) if ARGUMENT in arguments else ""
        record.is_keyed = bool(key)
        if isinstance(tool, FunctionTool) and not arguments.keys().isdisjoint(AskedParameters.ARGUMENTS):
            arguments = tool.take_answers(request, arguments)
    except ToolError as error:
        return RefusedCall(request, tool, arguments, error).result()
    call = ToolCall(request, tool, arguments, key, asking, params.get("arguments") or {})
    if key and request.mcp.tasks is not None:
        may_be_task = request.mcp.takes_tasks or tool.declared_task(request, arguments) is not None
        task = call.known_task() if may_be_task else None
        if task is not None:
            return task
    if tool.is_async:
        return Later(call.run_async, is_async=True)
    return Later(call.run) if tool.slow else call.run()


def _unknown_tool(request: MCPRequest, name: str, arguments: Any) -> InvalidParams:
    """Return the error of ``tools/call`` for an unknown tool, with the caller's tools of similar names.

    In every revision, an unknown tool is a protocol error (server/tools, Error Handling); most clients show its message
    to the model. ``data.next`` is the intended call, if exactly one tool is similar.
    """
    tools = request.mcp.site.get_tools(request)
    names = {tool.name: None for tool in tools}
    # Some models prefix the server's name, as their client shows it.
    plain = name[:MAX_TOLD].rpartition("__")[2]
    same = [tool for tool in names if singular(tool) == singular(plain)]
    same = same or [tool for tool in names if tool.startswith(f"{plain.lower()}_")]
    spelt = plain.lower().replace("-", "_")
    near = same or get_close_matches(spelt, names, n=3, cutoff=NEAR)
    if near:
        meant = f". Did you mean {' or '.join(near)}?"
    elif request.mcp.site.is_generic(plain) and all(tool.read_only for tool in tools):
        meant = ". You can only read here."
    else:
        verb = spelt.partition("_")[0]
        described = [tool.name for tool in tools if verb in re.findall(r"\w+", tool.description.lower())]
        nearest = list(dict.fromkeys([*described, *get_close_matches(spelt, names, n=MOST, cutoff=FAR)]))[:MOST]
        meant = f". The nearest are {', '.join(nearest)}." if nearest else ""
    call = {"tool": near[0], "arguments": arguments or {}} if len(near) == 1 else None
    is_short = call is not None and len(encode(call)) <= RefusedCall.MAX_PROPOSAL
    return InvalidParams(f"Unknown tool: {name[:64]}{meant}", data={"next": call} if is_short else None)


def _check_takes_task(request: MCPRequest, tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Raise unless the client takes tasks, where the author of the tool requires that."""
    mcp = request.mcp
    if mcp.takes_tasks or mcp.task is not None or mcp.consent is not None:
        return
    task = tool.declared_task(request, arguments)
    if task is None or not task.required:
        return
    if mcp.version in Revisions.MODERN:
        raise MissingClientCapability({"extensions": {EXTENSION: {}}})
    raise InvalidParams(f"{tool.name} needs a client that supports {EXTENSION}")


def _as_outcome(found: Any) -> Any:
    """Return the result of a call that is a task, or what waits for it on the event loop."""
    return Later(found, is_async=True) if callable(found) else found


@lru_cache(maxsize=1024)
def _mirrors(tool: Tool) -> bool:
    """Return whether clients repeat arguments of this tool in headers."""
    return bool(ParamHeader.of_schema(tool.input_schema))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Handler of one ``tools/call``, which runs the tool only once for an idempotency ``key``, if it has one.

    ``asking`` asks a person, where only they can confirm the call. ``given`` are the arguments as the client gave them.
    """

    request: MCPRequest
    tool: Tool
    arguments: dict[str, Any]
    key: str
    asking: PersonRequest | None
    given: Mapping[str, Any]

    def run(self) -> Mapping[str, Any] | Later:
        """Run the tool of ``tools/call`` and return its result, or the error that the AI model gets."""
        mcp = self.request.mcp

        def work() -> ToolResult:
            with read_limits() if self.tool.reads_rows else nullcontext():
                result = self.tool.call(self.request, self.arguments)
            assert isinstance(result, ToolResult)
            return result

        def once() -> dict[str, Any]:
            # A task is run once without a key of its own.
            if self.key and mcp.task is None:
                return Once(self.request, self.tool, self.arguments, self.key).run(work)
            return work().to_wire()

        try:
            if mcp.task is not None:
                return mcp.task.run(once)
            if mcp.consent is not None:
                return ConsentedCall(self.request, self.tool, self.arguments).run(once)
            return once()
        except PersonNeeded as needed:
            return self.ask_person(needed)
        except BecomesTask as begun:
            return self.become_task(begun)
        except (InputRequired, Exception) as error:
            return self.failed(error)

    def ask_person(self, needed: PersonNeeded) -> dict[str, Any]:
        """Keep the call until a person has confirmed it, and return what the client shows its user.

        Raises ``InputRequired`` if the client opens pages for its user.
        """
        arguments = {**self.arguments, ARGUMENT: self.key} if self.key else self.arguments
        asking = self.asking or PersonRequest(self.request, self.tool, arguments)
        try:
            waiting = asking.open(needed, arguments).to_wire()
            self._hold_key()
            return waiting
        except InputRequired:
            self._hold_key()
            raise
        except Exception as error:
            return self.failed(error)

    def become_task(self, begun: BecomesTask) -> Mapping[str, Any] | Later:
        """Keep the call as a task, and return what its client is given: the task, or what waits for its result."""
        tasks = self.request.mcp.tasks
        assert tasks is not None
        key, digest = self._keyed()
        try:
            return _as_outcome(tasks.open(begun, self.tool.name, self.given, key, digest))
        except Exception as error:
            return self.failed(error)

    def known_task(self) -> Mapping[str, Any] | Later | None:
        """Return what :meth:`become_task` has returned for a call with the same idempotency key, None for none."""
        tasks = self.request.mcp.tasks
        assert tasks is not None
        try:
            return _as_outcome(tasks.repeated(*self._keyed()))
        except Exception as error:
            return self.failed(error)

    def _keyed(self) -> tuple[str, str]:
        """Return the digests of the idempotency key, "" without one, and of the arguments."""
        once = Once(self.request, self.tool, self.arguments, self.key)
        return once.id if self.key else "", once.arguments

    def _hold_key(self) -> None:
        """Keep the idempotency key for the call that waits."""
        if self.key:
            Once(self.request, self.tool, self.arguments, self.key).wait()

    async def run_async(self) -> Mapping[str, Any] | Later:
        """Run an async tool on the event loop, like :meth:`run`."""
        mcp = self.request.mcp

        async def work() -> ToolResult:
            result = self.tool.call(self.request, self.arguments)
            assert isinstance(result, Awaitable)
            return await result

        async def once() -> dict[str, Any]:
            if self.key and mcp.task is None:
                stored = await sync_to_async(Once)(self.request, self.tool, self.arguments, self.key)
                return await stored.run_async(work)
            return (await work()).to_wire()

        try:
            if mcp.task is not None:
                return await mcp.task.run_async(once)
            if mcp.consent is not None:
                consented = await sync_to_async(ConsentedCall)(self.request, self.tool, self.arguments)
                return await consented.run_async(once)
            return await once()
        except BaseException as raised:
            error = InputRequired.merged(raised)
            if isinstance(error, PersonNeeded):
                return await sync_to_async(self.ask_person)(error)
            if isinstance(error, BecomesTask):
                return await sync_to_async(self.become_task)(error)
            if not isinstance(error, (InputRequired, Exception)):
                raise error from None
            return self.failed(error)

    def failed(self, error: BaseException) -> dict[str, Any]:
        """Return the result of ``tools/call`` for an exception: what the AI model can correct, or an opaque error id.

        Protocol errors are raised again, for the kernel to map (``Kernel``).
        """
        request = self.request
        tool = self.tool
        record = self.request.mcp.record
        match error:
            case InputRequired():
                if not isinstance(tool, FunctionTool):
                    raise error
                try:
                    return tool.ask(request, self.arguments, error).to_wire()
                except ToolError as refused:
                    return RefusedCall(request, tool, self.arguments, refused).result()
            case ProtocolError() | CallRefused():
                raise error
            case ToolError():
                arguments = {**self.arguments, ARGUMENT: self.key} if self.key else self.arguments
                return RefusedCall(request, tool, arguments, error).result()
            case NotFound():
                text = "Not found."
            case PermissionDenied():
                record.settle("refused:permission")
                text = "Permission denied."
            case Exception() if tool.reads_rows and is_unfit(error):
                # A filter or search of the project's own compared a column with a value out of its range.
                text = "A value is out of range for its column."
            case _:
                assert isinstance(error, Exception)
                identifier = log_failure(tool.name, error, record)
                trouble = Trouble.of(error) if isinstance(error, DatabaseUnavailable) else None
                if trouble is not None and tool.read_only:
                    text = f"Nothing was read: {trouble.cause}. {trouble.advice}"
                elif trouble is not None:
                    text = f"The tool failed: {trouble.cause}. Look at the data before you repeat the call."
                elif MissingTables(error).are_needed():
                    text = UNMIGRATED.format(identifier)
                else:
                    text = f"The tool failed. Tell the operator the error id {identifier}."
        return ToolResult.of_error(ToolError(text)).to_wire()

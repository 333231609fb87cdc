"""Tools that a project writes as functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
from django.core.exceptions import ImproperlyConfigured
from django.db import router

from ..conf import settings
from ..context.confirmation import quoted
from ..context.person_consent import confirmation_class, may_need_person, needs_person, wrong_confirmer
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import ToolError
from ..exposures.declared_approvals import Approval
from ..exposures.declared_tasks import TaskOptions
from ..functions.asked_parameters import AskedParameters, finished
from ..functions.project_function import ProjectFunction
from ..models import Task
from ..orm.database_writes import one_transaction, refusals
from ..orm.tool_arguments import Arguments
from ..protocol.content import Audio, Content, EmbeddedResource, Image, ResourceLink, Text
from ..schema.json_values import to_jsonable
from ..schema.return_types import ReturnType
from ..schema.secrets import clean_text
from ..scopes import Scope
from .asking_tools import AskingTool
from .base import DRY_RUN, UNTRIED

_BLOCKS: Final = (Text, Image, Audio, EmbeddedResource, ResourceLink)


class FunctionTool(AskingTool):
    """Function tool: a tool made of a project function ``(request, **arguments)``, sync or async.

    The schema comes from the signature and the docstring, or is ``input_schema``, sent unchanged. ``structured`` says
    whether the result is sent as structured content: by default when the return annotation is neither text nor
    content blocks. A call is confirmed first, unless the tool is ``read_only`` or declared harmless by
    ``destructive=False``. Without ``scopes`` a read-only tool needs "mcp:read" and any other "mcp:write". ``asks`` says
    that the function uses ``request.mcp.ask()``: the schema then has arguments for the answers of clients that cannot
    ask their user. A parameter of :class:`~mcp_django.functions.asked_parameters.Ask` implies ``asks``. ``confirm``
    says who confirms a call, in place of the setting ``CONFIRM``. ``approval`` says which calls wait for the yes of
    another person: an ``mcp.approval()``, or a list of them. ``dry_run`` says that the function may run in a
    transaction that is rolled back, to show what it would do: it does nothing that the database does not undo. Such a
    tool announces no schema of its results, which then have another form. ``task`` says that a call may go on as a task
    when its request has ended: True, or an ``mcp.task()``. Such a tool announces no schema either. If it is also
    ``idempotent``, its work may be run again by itself after its worker has died.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        title: str = "",
        description: str = "",
        read_only: bool = False,
        destructive: bool = True,
        idempotent: bool = False,
        open_world: bool = False,
        scopes: Iterable[str] | None = None,
        permissions: Collection[str] = (),
        permission: Callable[[MCPRequest], bool] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        asks: bool = False,
        confirm: Any = None,
        approval: Any = None,
        dry_run: bool = False,
        task: Any = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name or function.__name__
        self.function = ProjectFunction(
            function,
            name=self.name,
            description=description,
            permissions=permissions,
            permission=permission,
            input_schema=input_schema,
            is_tool=True,
        )
        self.title = title or self.name.replace("_", " ").strip().capitalize()
        self.description = self.function.description
        self.read_only = read_only
        self.destructive = destructive
        self.confirms = destructive and not read_only
        if wrong := wrong_confirmer(confirm):
            raise ImproperlyConfigured(f"confirm of the tool {self.name} is {confirm!r}. {wrong}")
        self.confirmed_by = confirm
        self.dry_run = dry_run and not read_only
        self.task = TaskOptions.read(task)
        self.input_schema = self._read_schema(asks)
        self.approval = approval
        self.function.approve = self._confirm
        if self.task is not None:
            self.function.begin = self._begin_work
        if self.confirms:
            self.function.confirm = self._confirm
        self.idempotent = idempotent
        self.open_world = open_world
        if scopes is None:
            scopes = {Scope.READ if read_only else Scope.WRITE}
        self.scopes = frozenset(scopes)
        self.meta = dict(meta or {})
        self.is_async = self.function.is_async
        self.slow = not self.is_async
        self.returns = ReturnType.of(function)
        is_plain = self.returns.annotation in (None, str, bytes) or self.returns.mentions((*_BLOCKS, ToolResult))
        self.structured = structured
        self.result_schema: Mapping[str, Any] | None = None
        if structured or (structured is None and not is_plain):
            self.result_schema = self.returns.schema
        if not self.dry_run and self.task is None:
            self.output_schema = self.result_schema

    def _read_schema(self, asks: bool) -> Mapping[str, Any]:
        """Return the input schema of the function tool, with arguments for answers if the function asks the user."""
        schema = self.function.arguments.schema
        own = schema.get("properties", {}).keys() | self.function.arguments.parameters.keys()
        self.takes_key = not self.read_only and "idempotency_key" not in own
        # The names of arguments that belong to answers, not to the function.
        self.reserved = AskedParameters.ARGUMENTS.keys() - own

        self.takes_dry_run = "dry_run" not in own
        if self.dry_run and not self.takes_dry_run:
            raise ImproperlyConfigured(f"{self.name} can be tried and cannot have a parameter named dry_run")
        if self.dry_run:
            schema = {**schema, "properties": {**schema.get("properties", {}), "dry_run": DRY_RUN}}

        more: Mapping[str, Any] = {}
        if asks or self.function.asked.of_user:
            more = AskedParameters.ARGUMENTS
        elif self.confirms:
            more = {"confirm_token": {"type": "string"}}
        if clashing := more.keys() - self.reserved:
            what = "needs confirmation, not being declared with destructive=False,"
            if more is AskedParameters.ARGUMENTS:
                what = "asks"
            raise ImproperlyConfigured(f"{self.name} {what} and cannot have a parameter named {min(clashing)}")
        if more:
            return {**schema, "properties": {**schema.get("properties", {}), **more}}
        return schema

    def _confirm(self, request: MCPRequest, arguments: Mapping[str, Any]) -> None:
        """Return once the client's user has confirmed the call of the function tool with these arguments."""
        given = "; ".join(f"{name} = {quoted(value)}" for name, value in arguments.items())
        told = f"\nWith {given}" if given else ""
        bound = {name: str(value) for name, value in arguments.items()}
        kind = confirmation_class(request, by_person=needs_person(self.confirmed_by))
        kind(request, self.name, bound, ()).ask(f"{self.title}: this cannot be undone by itself. Confirm it.{told}")

    def may_need_person(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether a person has to confirm calls of the function tool."""
        return self.confirms and may_need_person(self.confirmed_by)

    def declared_approvals(self, request: MCPRequest, arguments: Mapping[str, Any]) -> Sequence[Approval]:
        """Return the approvals that are declared beside the function tool."""
        return Approval.listed(self.approval)

    def only_person_confirms(self) -> bool:
        """Return whether only a person can confirm calls of the function tool."""
        return self.confirms and needs_person(self.confirmed_by)

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may use the function tool, by its permissions and its own condition."""
        return self.function.has_permission(request)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult | Awaitable[ToolResult]:
        """Call the function tool with validated arguments; an awaitable for an async function."""
        own = dict(arguments)
        if self.takes_dry_run and Arguments(dry_run=own.pop("dry_run", None)).flag("dry_run"):
            if not self.dry_run:
                raise ToolError(UNTRIED.format("tool"))
            return self._tried(request, own)
        if self.task is not None and self.task.atomic:
            with refusals(), one_transaction(Task, request):
                return self._run(request, own)
        return self._run(request, own)

    def is_atomic(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        return self.task is not None and self.task.atomic

    def _run(self, request: MCPRequest, arguments: Mapping[str, Any]) -> ToolResult | Awaitable[ToolResult]:
        return self.function.call(
            request, arguments, lambda value: self.bounded(request, self.to_result(finished(request, value)))
        )

    def _begin_work(self, request: MCPRequest) -> None:
        """Say that the function is about to do its work, which may go on as a task."""
        assert self.task is not None
        request.mcp.begin_work(self.task, using=router.db_for_write(Task) if self.task.atomic else "")

    def _tried(self, request: MCPRequest, arguments: Mapping[str, Any]) -> ToolResult:
        """Return what a call of the function tool would do, after it has been rolled back.

        It counts as a written row: else it would tell for nothing what is there.
        """
        # Imported here, because few tools can be tried.
        from ..differences.function_trials import try_function
        from ..differences.trials import Trial

        wire, failed = try_function(request, partial(self._run_unasked, request, arguments))
        request.mcp.record.settle("tried")
        request.mcp.record.rows_changed += 1
        if self.confirms:
            wire["next"] = Trial.WILL_ASK
        return self.bounded(request, ToolResult(structured=wire, is_error=failed))

    def _run_unasked(self, request: MCPRequest, arguments: Mapping[str, Any]) -> ToolResult:
        """Run the function without a confirmation."""
        result = self.function.call(
            request, arguments, lambda value: self.to_result(finished(request, value)), confirms=False
        )
        assert isinstance(result, ToolResult)
        return result

    def to_result(self, value: Any) -> ToolResult:
        """Turn a return value of the function into the tool result."""
        if isinstance(value, ToolResult):
            return value
        if self.result_schema is not None or self.structured:
            return self._structured(value)
        if isinstance(value, str | None):
            return ToolResult(content=[Text(clean_text(value or ""))])
        if isinstance(value, bytes):
            return ToolResult(content=[EmbeddedResource(f"tool:{self.name}", value, "application/octet-stream")])
        if blocks := as_blocks(value):
            return ToolResult(content=blocks)
        if self.structured is False:
            return ToolResult(content=[Text(orjson.dumps(to_jsonable(value)).decode())])
        return self._structured(value)

    def bounded(self, request: MCPRequest, result: ToolResult) -> ToolResult:
        """Return a function tool's result, as a file if it is longer than ``RESULT_CHARS``; raise ``ToolError`` where
        there are no files."""
        length = result.length
        if length <= settings.RESULT_CHARS:
            return result
        # Imported here, because few results are so long.
        from ..exports.result_files import as_file, how_to_get_one

        checked = self.output_schema is not None
        if filed := as_file(request, result, self.name, read_only=self.read_only, is_checked=checked):
            return filed
        bound = f"Its result has {length} characters; at most {settings.RESULT_CHARS} are sent"
        if self.read_only:
            raise ToolError(f"{bound}: ask for less.{how_to_get_one()}")
        if self.task is not None and self.task.atomic:
            raise ToolError(f"{bound}. Nothing was changed: ask for less.{how_to_get_one()}")
        raise ToolError(f"The tool has done its work; do not call it again. {bound}.{how_to_get_one()}")

    def _structured(self, value: Any) -> ToolResult:
        data = to_jsonable(value)
        if self.result_schema is not None and self.returns.is_wrapped:
            return ToolResult(structured=self.returns.wrap(data))
        if isinstance(data, dict):
            return ToolResult(structured=data)
        if self.result_schema is not None:
            raise TypeError(f"{self.name} announces an object and returned {type(value).__name__}")
        return ToolResult(structured=self.returns.wrap(data))


def as_blocks(value: Any) -> list[Content]:
    """Return the content blocks that a function tool returned, one or a list; [] for anything else."""
    if isinstance(value, _BLOCKS):
        return [value]
    if isinstance(value, (list, tuple)) and any(isinstance(item, _BLOCKS) for item in value):
        return list(map(_as_block, value))
    return []


def _as_block(item: Any) -> Content:
    if isinstance(item, _BLOCKS):
        return item
    return Text(clean_text(str(item)))

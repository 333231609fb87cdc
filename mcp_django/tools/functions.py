"""Tools that a project writes as functions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, get_args

import orjson
from django.core.exceptions import ImproperlyConfigured

from ..conf import settings
from ..context.tool_results import ToolResult
from ..exceptions import ToolError
from ..functions.asking import RESERVED, Ask, finished, result_annotation
from ..functions.declarations import check_tool_name, signature_of
from ..functions.signatures import ProjectFunction
from ..protocol.content import Audio, Content, EmbeddedResource, Image, ResourceLink, Text
from ..schema.annotations import RESULT, is_wrapped, output_schema, resolve_hint, unwrap
from ..schema.json_values import to_jsonable
from ..schema.secrets import clean_text
from ..scopes import READ, WRITE
from .base import Tool

if TYPE_CHECKING:
    from ..context.request import MCPRequest

_BLOCKS: Final = (Text, Image, Audio, EmbeddedResource, ResourceLink)


class FunctionTool(Tool):
    """A tool made of a function ``(request, **arguments)``, sync or async.

    The schema comes from the signature and the docstring, or is ``input_schema``, sent unchanged. ``structured`` says
    whether the result is sent as structured content: by default when the return annotation is neither text nor
    content blocks. Without ``scopes`` a read-only tool needs "mcp:read" and any other "mcp:write". ``asks`` says that
    the function uses ``request.mcp.ask()``: the schema then has the arguments with which clients that cannot ask their
    user answer; one with a parameter that is asked for (:class:`~mcp_django.functions.asking.Ask`) has them anyway.
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
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name or function.__name__
        check_tool_name(self.name)
        self.function = ProjectFunction(
            function,
            name=self.name,
            description=description,
            permissions=permissions,
            permission=permission,
            input_schema=input_schema,
        )
        self.title = title or self.name.replace("_", " ").strip().capitalize()
        self.description = self.function.description
        self.input_schema = self._read_schema(asks, read_only)
        self.read_only, self.destructive = read_only, destructive
        self.idempotent, self.open_world = idempotent, open_world
        self.scopes = frozenset(scopes if scopes is not None else {READ if read_only else WRITE})
        self.meta = dict(meta or {})
        self.is_async = self.function.is_async
        self.slow = not self.is_async
        annotation, signature = None, signature_of(function)
        if signature.return_annotation is not signature.empty:
            # What cannot be read promises nothing.
            with suppress(ImproperlyConfigured):
                scope = getattr(inspect.unwrap(function), "__globals__", {})
                annotation = result_annotation(resolve_hint(signature.return_annotation, scope))
        annotation = None if annotation is type(None) else annotation
        plain = annotation is None or unwrap(annotation).annotation in (str, bytes) or _holds_blocks(annotation)
        self.structured = structured
        self.wraps = is_wrapped(annotation)
        if structured is not False and not (plain and not structured):
            self.output_schema = output_schema(annotation)

    def _read_schema(self, asks: bool, read_only: bool) -> Mapping[str, Any]:
        """Return the input schema; a tool that is known to ask has the arguments that answer."""
        schema = self.function.arguments.schema
        clashing = self.function.arguments.parameters.keys() & RESERVED.keys()
        self.takes_answers = not clashing
        own = schema.get("properties", {}).keys() | self.function.arguments.parameters.keys()
        self.takes_key = not read_only and "idempotency_key" not in own
        if not asks and not any(isinstance(item.marker, Ask) for item in self.function.asked):
            return schema
        if clashing:
            raise ImproperlyConfigured(f"{self.name} asks and may not have a parameter named {min(clashing)}")
        return {**schema, "properties": {**schema.get("properties", {}), **RESERVED}}

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller has the permissions and the tool's own condition holds."""
        return self.function.has_permission(request)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult | Awaitable[ToolResult]:
        """Validate the arguments and call the function; an awaitable for an async one."""
        return self.function.call(
            request, arguments, lambda value: self.bounded(self.to_result(finished(request, value)))
        )

    def to_result(self, value: Any) -> ToolResult:
        """Return the tool result for what the function returned."""
        if isinstance(value, ToolResult):
            return value
        if self.output_schema is not None or self.structured:
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

    def bounded(self, result: ToolResult) -> ToolResult:
        """Return the result if its text fits into ``RESULT_CHARS``: half of a longer one would be misread."""
        length = sum(len(block.text) for block in result.content if isinstance(block, Text))
        if result.structured is not None:
            length += len(orjson.dumps(result.structured, default=str, option=orjson.OPT_NON_STR_KEYS))
        if length <= settings.RESULT_CHARS:
            return result
        bound = f"Its result has {length} characters and {settings.RESULT_CHARS} is the most that is sent"
        if self.read_only:
            raise ToolError(f"{bound}: ask for less.")
        raise ToolError(f"The tool has done its work; do not call it again. {bound}.")

    def _structured(self, value: Any) -> ToolResult:
        data = to_jsonable(value)
        if self.output_schema is not None and self.wraps:
            return ToolResult(structured={RESULT: data})
        if isinstance(data, dict):
            return ToolResult(structured=data)
        if self.output_schema is not None:
            raise TypeError(f"{self.name} announces an object and returned {type(value).__name__}")
        return ToolResult(structured={RESULT: data})


def as_blocks(value: Any) -> list[Content]:
    """Return content blocks for one block, or a list that holds one; an empty list for anything else."""
    if isinstance(value, _BLOCKS):
        return [value]
    if isinstance(value, (list, tuple)) and any(isinstance(item, _BLOCKS) for item in value):
        return [item if isinstance(item, _BLOCKS) else Text(clean_text(str(item))) for item in value]
    return []


def _holds_blocks(annotation: Any) -> bool:
    annotation = unwrap(annotation).annotation
    return annotation in (*_BLOCKS, ToolResult) or any(_holds_blocks(part) for part in get_args(annotation))

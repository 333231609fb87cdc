"""Base classes of tools (specification, server/tools)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import orjson

from ..conf import settings
from ..context.person_consent import may_need_person, needs_person
from ..context.tool_results import ToolResult
from ..scopes import Scope

if TYPE_CHECKING:
    from ..context.request import MCPRequest
    from ..exposures.declared_approvals import Approval
    from ..exposures.declared_tasks import TaskOptions

# The argument under which a client may repeat a call that writes (``mcp_django.server.idempotency_keys``).
IDEMPOTENCY_KEY: Final[Mapping[str, Any]] = {"type": "string", "description": "For safe retries"}
# The argument with which a call only shows what it would do, and what is said where that is not possible.
DRY_RUN: Final[Mapping[str, Any]] = {"type": "boolean"}
UNTRIED: Final = (
    "Not tried: the author of this {} does not say that it can be. Nothing was changed. Leave dry_run out to run it."
)
# The argument by which a model says why it makes a call that may have to wait for another person.
REASON: Final[Mapping[str, Any]] = {"type": "string"}
UNSAFE: Final = re.compile(r"[^a-z0-9_]")
MAX_NAME: Final = 40


def texts_of(value: Any) -> Any:
    """Return an argument of an example as plain schemas describe it: objects, also those in a list, as text."""
    if isinstance(value, list):
        return [texts_of(item) for item in value]
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return value


class Tool:
    """Base class of all tools. Subclasses set the attributes and write :meth:`call`.

    ``input_schema`` and ``output_schema`` are JSON Schemas of type "object". The four hints are always sent, because
    clients assume the worst of a missing one. ``slow`` runs the call in the thread pool for the project's own code;
    ``is_async`` says that :meth:`call` returns an awaitable, which runs on the event loop. With ``takes_key`` the
    kernel handles the argument ``idempotency_key``, and :meth:`call` does not get it. ``reads_rows`` gives its queries
    the time limit of reads. ``example`` has arguments to show at the end of the description, which is
    ``description_by_person`` where only a person confirms calls. ``takes_reason`` announces the argument ``reason`` to
    callers whose calls may have to wait for another person, who is told it. ``permission`` is what the caller must be
    allowed to do with at least one model: "view", "add", "change" or "delete" rows, or "run" actions. ``task`` says
    that calls of the tool may go on as tasks, and how.
    """

    name: str
    title: str = ""
    description: str = ""
    description_by_person: str = ""
    example: Mapping[str, Any] | None = None
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {}}
    output_schema: Mapping[str, Any] | None = None
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = False
    scopes: Iterable[str] = frozenset({Scope.READ})
    meta: Mapping[str, Any] = {}
    slow: bool = False
    is_async: bool = False
    takes_key: bool = False
    takes_reason: bool = False
    reads_rows: bool = False
    permission: str = ""
    task: TaskOptions | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "has_permission" in vars(cls):
            # Do not inherit ``permission``: the class decides by its own has_permission().
            cls.permission = vars(cls).get("permission", "")

    @staticmethod
    def safe_name(wanted: str) -> str:
        """Return the name of a tool: the wanted one if it has at most 40 of ``a-z0-9_``, else one with its digest."""
        safe = UNSAFE.sub("_", wanted.lower())
        if safe == wanted and len(safe) <= MAX_NAME:
            return safe
        return f"{safe[: MAX_NAME - 9]}_{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may see and call the tool; the base class checks ``permission``."""
        if not self.permission:
            return True
        if settings.READ_ONLY and not self.read_only:
            return False
        # Imported here, because a process that only declares tools does not need it.
        from ..orm.access import access_of

        return access_of(request).may_any(self.permission)

    def may_repeat(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether the caller may still see the result of an earlier call of the tool (base class: True)."""
        return True

    def may_need_person(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether there are calls of the tool that only a person can confirm."""
        return may_need_person()

    def only_person_confirms(self) -> bool:
        """Return whether only a person can confirm the calls of the tool that ask."""
        return not self.read_only and needs_person()

    def declared_approvals(self, request: MCPRequest, arguments: Mapping[str, Any]) -> Sequence[Approval]:
        """Return the approvals that are declared beside what a call of the tool runs, an action or a function."""
        return ()

    def declared_task(self, request: MCPRequest, arguments: Mapping[str, Any]) -> TaskOptions | None:
        """Return how a call of the tool may go on as a task, None if its author does not say so (base class:
        ``task``)."""
        return self.task

    def is_atomic(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether a tool's call runs in one transaction, undone when the call fails. The base class says no."""
        return False

    def for_caller(self, request: MCPRequest) -> Tool:
        """Return the tool as ``tools/list`` shows it to this caller; unchanged in the base class."""
        return self

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult | Awaitable[ToolResult]:
        """Run the tool; every subclass implements this.

        The method validates the client's ``arguments``; the text of a ``ToolError`` tells the AI model what to correct.
        """
        raise NotImplementedError

    def definition(self, *, explained: bool = False) -> dict[str, Any]:
        """Return the definition of any tool: the ``Tool`` object of ``tools/list``, without empty optional keys.

        If the setting ``SCHEMAS`` is "plain", free-form objects are declared as texts with JSON, and enums hold only
        texts. With ``explained`` calls have a reason, if the tool takes one.
        """
        wire: dict[str, Any] = {"name": self.name}
        if self.title:
            wire["title"] = self.title
        wire["description"] = self.description
        example = self.example
        wire["inputSchema"] = dict(self.input_schema)
        properties: Mapping[str, Any] = self.input_schema.get("properties", {})
        if self.only_person_confirms():
            wire["description"] = self.description_by_person or self.description
            if "answers" not in properties:
                properties = {name: schema for name, schema in properties.items() if name != "confirm_token"}
                wire["inputSchema"]["properties"] = properties
        if explained and self.takes_reason:
            properties = {**properties, "reason": REASON}
            wire["inputSchema"]["properties"] = properties
        if settings.SCHEMAS == "plain":
            from ..schema.value_types import plain_schema

            wire["inputSchema"]["properties"] = {name: plain_schema(schema) for name, schema in properties.items()}
            example = example and {name: texts_of(value) for name, value in example.items()}
        if example:
            wire["description"] += f" Example: {orjson.dumps(example).decode()}"
        if self.output_schema is not None:
            wire["outputSchema"] = dict(self.output_schema)
        wire["annotations"] = {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive and not self.read_only,
            "idempotentHint": self.idempotent or self.read_only,
            "openWorldHint": self.open_world,
        }
        if self.meta:
            wire["_meta"] = dict(self.meta)
        return wire

    def encoded(self, *, structured: bool = True, explained: bool = False) -> orjson.Fragment:
        """Return the definition of the tool as JSON, made once; with ``explained`` as :meth:`definition` does.

        Revisions without ``structured`` content get no output schema, because their clients would insist on the
        content that it promises.
        """
        by_person = not self.read_only and self.only_person_confirms()
        kind = (settings.SCHEMAS, structured, explained, by_person)
        if kind not in self._encoded:
            wire = self.definition(explained=explained)
            if not structured:
                wire.pop("outputSchema", None)
            self._encoded[kind] = orjson.Fragment(orjson.dumps(wire))
        return self._encoded[kind]

    @cached_property
    def _encoded(self) -> dict[tuple[str, bool, bool, bool], orjson.Fragment]:
        return {}


class RecordTool(Tool):
    """Base class of tools that read records, for every caller who may view some model."""

    read_only = True
    reads_rows = True
    permission = "view"

    def check(self, request: MCPRequest, arguments: Mapping[str, Any]) -> None:
        """Check the arguments of a record tool's call without reading rows; each record tool overrides this."""

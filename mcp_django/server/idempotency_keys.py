"""``idempotency_key`` of tool calls: a repeated call gets the kept result of the first one, and is not run again.

A key belongs to one user, one client, one endpoint and one tool, and stands for one set of arguments. What is kept
under it is a result, for a caller who may still do what the call did; a call that asked something, was refused, or
failed and left nothing behind is forgotten, and may be made again.

A tool that runs in one transaction runs within the transaction that holds the key: both are kept or neither is, where
the key's table and the tool's are in one database. Any other tool has its key set before it runs. If such a tool fails
half-way, or its worker dies, nobody knows what it has done: the key is then refused until it expires.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import orjson
from asgiref.sync import sync_to_async
from django.db import IntegrityError, models, router, transaction
from django.utils import timezone

from ..conf import settings
from ..context.questions import untangled
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import Cancelled, InputRequired, ToolError
from ..models import KeyedCall
from ..orm.database_writes import refusals
from ..orm.query_limits import write_transaction
from ..schema.value_types import is_empty
from ..tools.base import Tool

ARGUMENT: Final = "idempotency_key"
MAX_KEY: Final = 100
# Characters of a result that is kept.
MAX_RESULT: Final = 64 * 1024
# Calls of one user that are remembered.
MAX_CALLS: Final = 10_000
# What stays open from call to call of the same work.
UNBOUND: Final = frozenset({"confirm_token"})
# What a result says that asks before anything is done.
ASKING: Final = ("confirmation_required", "input_required")
TOO_LONG: Final = "The call with this idempotency_key was done before; it was not done again. Its result was too long."
OTHER: Final = (
    "This idempotency_key belongs to a call with other arguments. Nothing was changed. Use a new key for a new call."
)
CHANGED: Final = (
    "The call with this idempotency_key was done before; it was not done again. What you may do has changed since, so "
    "its result is not shown. Read the data instead."
)
UNKNOWN: Final = (
    "A call with this idempotency_key is still running, or it failed half-way. Nothing was done now. Look at the data "
    "to see what it has done; to do it again, use a new key."
)


def take_key(tool: Tool, arguments: dict[str, Any]) -> str:
    """Take the idempotency key, "" for none, out of the arguments of a tool call."""
    if not tool.takes_key:
        return ""
    key = arguments.pop(ARGUMENT, None)
    if key is None or is_empty(key):
        return ""
    if not isinstance(key, str) or len(key) > MAX_KEY or not key.isprintable():
        raise ToolError(f"{ARGUMENT} must be a text of at most {MAX_KEY} printable characters.")
    return key


def clear_keyed_calls() -> int:
    """Delete expired calls with idempotency keys; return how many."""
    return KeyedCall.objects.filter(created__lt=_horizon()).delete()[0]


def _horizon() -> Any:
    return timezone.now() - timedelta(seconds=settings.IDEMPOTENCY_MAX_AGE)


class Once:
    """One call of ``tool`` under a key."""

    def __init__(self, request: MCPRequest, tool: Tool, arguments: Mapping[str, Any], key: str) -> None:
        mcp, user = request.mcp, request.user
        self.request, self.tool = request, tool
        owner = [user._meta.label, str(user.pk)] if isinstance(user, models.Model) else ["anonymous"]
        self.user_pk = user.pk if isinstance(user, models.Model) else None
        self.id = _digest([owner, mcp.client_id, mcp.site.name, mcp.resource, tool.name, key])
        self.given = arguments
        self.arguments = _digest({name: value for name, value in arguments.items() if name not in UNBOUND})
        self.atomic = tool.is_atomic(request, arguments)
        self.using = router.db_for_write(KeyedCall)

    def run(self, work: Callable[[], ToolResult]) -> dict[str, Any]:
        """Run the tool under its idempotency key, or return the result that is kept under the key."""
        if self.atomic:
            # A database may refuse as late as when the outermost transaction ends.
            with refusals(), write_transaction(self.using):
                return self._run(work)
        return self._run(work)

    def _run(self, work: Callable[[], ToolResult]) -> dict[str, Any]:
        with refusals():
            known = self._claim()
        if known is not None:
            return known
        try:
            result = work()
            if self.atomic and self.request.mcp.cancelled:
                raise Cancelled
        except (ToolError, InputRequired):
            # Nothing has been done; within a transaction the key goes with all the rest.
            if not self.atomic:
                self._release()
            raise
        return self._keep(result)

    async def run_async(self, work: Callable[[], Any]) -> dict[str, Any]:
        with refusals():
            known = await sync_to_async(self._claim)()
        if known is not None:
            return known
        try:
            result = await work()
        except BaseException as error:
            if isinstance(untangled(error), (ToolError, InputRequired)):
                await sync_to_async(self._release)()
            raise
        return await sync_to_async(self._keep)(result)

    def _claim(self) -> dict[str, Any] | None:
        """Claim the idempotency key, or return the result kept under it; wait for a call that is about to claim it."""
        mine = KeyedCall.objects.using(self.using).filter(user_id=self.user_pk)  # type: ignore[misc]
        values = {"tool": self.tool.name, "arguments": self.arguments, "created": timezone.now()}
        values["authority"] = _authority(self.request)
        try:
            # Written before anything is read: SQLite cannot always turn a reader into a writer.
            with transaction.atomic(using=self.using):
                KeyedCall(id=self.id, user_id=self.user_pk, **values).save(using=self.using, force_insert=True)
        except IntegrityError:
            if not mine.filter(pk=self.id, created__lt=_horizon()).update(**values, result=""):
                return self._known()
        mine.filter(created__lt=_horizon()).delete()
        if mine.count() > MAX_CALLS:
            self._release()
            raise ToolError(f"{MAX_CALLS} calls with an {ARGUMENT} are kept: make this one without. Nothing was done.")
        return None

    def _known(self) -> dict[str, Any]:
        call = KeyedCall.objects.using(self.using).filter(pk=self.id).first()
        if call is not None and call.arguments != self.arguments:
            raise ToolError(OTHER)
        if call is None or not call.result:
            raise ToolError(UNKNOWN)
        is_same = call.authority in ("", _authority(self.request))
        if not is_same or not self.tool.may_repeat(self.request, self.given):
            raise ToolError(CHANGED)
        result: dict[str, Any] = orjson.loads(call.result)
        return result

    def _release(self) -> None:
        KeyedCall.objects.using(self.using).filter(pk=self.id).delete()

    def _keep(self, result: ToolResult) -> dict[str, Any]:
        wire = result.to_wire()
        structured = result.structured or {}
        if any(structured.get(name) is True for name in ASKING):
            self._release()
            return wire
        kept = orjson.dumps(wire).decode()
        if len(kept) > MAX_RESULT:
            # A client that checks results against the output schema of the tool does not check errors.
            is_checked = self.tool.output_schema is not None
            told = ToolResult(structured={"repeated": True, "note": TOO_LONG}, is_error=is_checked)
            kept = orjson.dumps(told.to_wire()).decode()
        KeyedCall.objects.using(self.using).filter(pk=self.id).update(result=kept)
        return wire


def _authority(request: MCPRequest) -> str:
    """Return a digest of the caller's permissions, kept with the idempotency key."""
    user: Any = request.user
    flags = [getattr(user, name, None) for name in ("is_active", "is_staff", "is_superuser")]
    permissions = sorted(user.get_all_permissions()) if hasattr(user, "get_all_permissions") else []
    return _digest([flags, permissions, sorted(request.mcp.scopes), dict(request.mcp.facts)])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()

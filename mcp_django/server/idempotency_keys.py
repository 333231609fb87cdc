"""``idempotency_key`` of tool calls: a repeated call gets the stored result of the first one, and is not run again.

A key belongs to one user, one client, one endpoint and one tool, and stands for one set of arguments. Its stored result
is only returned to a caller who may still do what the call did. The key of a call that asked a question, was refused,
or failed without leaving changes is deleted, and the call can be repeated; that of a call that waits for a person's yes
is kept for this very call.

A tool that runs in one transaction runs in the same transaction as its key: if both tables are in one database, either
both are committed or neither is. For any other tool, the key is committed before the tool runs. If such a tool fails
half-way, or its worker dies, nobody knows what it has done, so the key is refused until it expires.
"""

import secrets
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import orjson
from asgiref.sync import sync_to_async
from django.db import OperationalError, connections, models, router, transaction
from django.db.models import Q
from django.utils import timezone

from ..conf import settings
from ..context.caller_authority import authority, digest_of
from ..context.database_errors import Trouble
from ..context.person_consent import PersonNeeded
from ..context.request import MCPRequest
from ..context.task_desk import BecomesTask
from ..context.tool_results import ToolResult
from ..exceptions import Cancelled, InputRequired, ToolError
from ..models import KeyedCall
from ..orm.database_writes import refusals
from ..orm.own_tables import OwnTable
from ..orm.query_limits import OutcomeUnknown, write_transaction
from ..schema.value_types import is_empty
from ..tools.base import Tool

ARGUMENT: Final = "idempotency_key"
MAX_KEY: Final = 100
# Maximum characters of a stored result.
MAX_RESULT: Final = 64 * 1024
# Maximum number of stored calls of one user.
MAX_CALLS: Final = 10_000
# How often a call is tried whose transaction is undone, for a deadlock, before it has done anything.
TRIES: Final = 5
# Arguments that may differ between repetitions of the same call.
UNBOUND: Final = frozenset({"confirm_token"})
# Members of a result that asks before the tool does anything.
# Stands in place of the result of a call that waits for a person's yes.
WAITS: Final = "waits"
ASKING: Final = ("confirmation_required", "input_required", "dry_run")
TOO_LONG: Final = "The call with this idempotency_key was done before; it was not done again. Its result was too long."
OTHER: Final = (
    "This idempotency_key belongs to a call with other arguments. Nothing was changed. Use a new key for a new call."
)
CHANGED: Final = (
    "The call with this idempotency_key was done before; it was not done again. Your permissions have changed since, "
    "so its result is not shown. Read the data instead."
)
UNKNOWN: Final = (
    "A call with this idempotency_key is still running, or it failed half-way. Nothing was done now. Look at the data "
    "to see what it has done; to do it again, use a new key."
)


def take_key(tool: Tool, arguments: dict[str, Any]) -> str:
    """Remove the idempotency key from the arguments of a tool call and return it, "" if there is none."""
    if not tool.takes_key:
        return ""
    key = arguments.pop(ARGUMENT, None)
    if key is None or is_empty(key):
        return ""
    if not isinstance(key, str) or len(key) > MAX_KEY or not key.isprintable():
        raise ToolError(f"{ARGUMENT} must be a text of at most {MAX_KEY} printable characters.")
    return key


def _horizon() -> Any:
    return timezone.now() - timedelta(seconds=settings.IDEMPOTENCY_MAX_AGE)


class Once:
    """One call of ``tool`` under an idempotency key."""

    def __init__(self, request: MCPRequest, tool: Tool, arguments: Mapping[str, Any], key: str) -> None:
        mcp = request.mcp
        user = request.user
        self.request = request
        self.tool = tool
        owner = [user._meta.label, str(user.pk)] if isinstance(user, models.Model) else ["anonymous"]
        self.user_pk = user.pk if isinstance(user, models.Model) else None
        self.id = digest_of([owner, mcp.client_id, mcp.site.name, mcp.resource, tool.name, key])
        self.given = arguments
        self.arguments = digest_of({name: value for name, value in arguments.items() if name not in UNBOUND})
        self.atomic = tool.is_atomic(request, arguments)
        self.using = router.db_for_write(KeyedCall)
        self.is_victim = False

    def run(self, work: Callable[[], ToolResult]) -> dict[str, Any]:
        """Return the result of ``work``, or the result that is stored under the key."""
        if not self.atomic:
            return self._run(work)
        tries = 1 if connections[self.using].in_atomic_block else TRIES
        while True:
            tries -= 1
            try:
                # Some constraints are only checked when the outermost transaction commits.
                with refusals(), write_transaction(self.using):
                    return self._run(work)
            except OutcomeUnknown:
                return self._found_out()
            except ToolError:
                # Where the call that had the key was rolled back, those that waited for it deadlock on MySQL.
                if not self.is_victim or not tries:
                    raise

    def _found_out(self) -> dict[str, Any]:
        """Return the stored result if the transaction was stored after all; else keep the key, so that nothing runs
        twice. The key waits for a commit that is still on its way."""
        with refusals(), write_transaction(self.using):
            stored = self._claim()
        if stored is None:
            raise OutcomeUnknown
        return stored

    def _run(self, work: Callable[[], ToolResult]) -> dict[str, Any]:
        stored = self._claimed()
        if stored is not None:
            return stored
        try:
            result = work()
            if self.atomic and self.request.mcp.cancelled:
                raise Cancelled
        except OutcomeUnknown:
            # Something may have been changed: the key stays.
            raise
        except (ToolError, InputRequired, PersonNeeded, BecomesTask):
            # Nothing was changed, so delete the key; inside a transaction, the rollback does that.
            if not self.atomic:
                self._release()
            raise
        return self._keep(result)

    async def run_async(self, work: Callable[[], Any]) -> dict[str, Any]:
        with refusals():
            stored = await sync_to_async(self._claim)()
        if stored is not None:
            return stored
        try:
            result = await work()
        except BaseException as error:
            if isinstance(InputRequired.merged(error), (ToolError, InputRequired, PersonNeeded, BecomesTask)):
                await sync_to_async(self._release)()
            raise
        return await sync_to_async(self._keep)(result)

    @staticmethod
    def clear_expired() -> int:
        """Delete expired calls with idempotency keys; return how many."""
        return KeyedCall.objects.filter(created__lt=_horizon()).delete()[0]

    def _claimed(self) -> dict[str, Any] | None:
        """Claim the key as in :meth:`_claim`, and note whether the database has undone the transaction for others."""
        self.is_victim = False
        with refusals():
            try:
                return self._claim()
            except OperationalError as error:
                self.is_victim = Trouble.has_undone_all(error)
                raise

    def _claim(self) -> dict[str, Any] | None:
        """Claim the key, or return the result stored under it; wait for a call that is claiming it."""
        mine = KeyedCall.objects.using(self.using).filter(user_id=self.user_pk)  # type: ignore[misc]
        values = {"tool": self.tool.name, "arguments": self.arguments, "created": timezone.now()}
        values["authority"] = authority(self.request)
        owner = secrets.token_hex(16)
        with transaction.atomic(using=self.using, savepoint=False):
            # Write before reading: SQLite cannot always upgrade a read transaction to a write transaction.
            OwnTable(KeyedCall, self.using).insert(KeyedCall(id=self.id, user_id=self.user_pk, owner=owner, **values))
            # How many rows an INSERT reports differs by database, and a plain read may see an older state.
            call = KeyedCall.objects.using(self.using).select_for_update().filter(pk=self.id).first()
        is_mine = call is not None and call.owner == owner
        # A key that waits goes on with the call that it waits for.
        free = Q(created__lt=_horizon()) | Q(arguments=self.arguments, result=WAITS)
        if not is_mine and not mine.filter(free, pk=self.id).update(**values, owner=owner, result=""):
            return self._known(call)
        mine.filter(created__lt=_horizon()).delete()
        if mine.count() > MAX_CALLS:
            self._release()
            raise ToolError(f"{MAX_CALLS} calls with an {ARGUMENT} are kept: make this one without. Nothing was done.")
        return None

    def _known(self, call: KeyedCall | None) -> dict[str, Any]:
        if call is not None and call.arguments != self.arguments:
            raise ToolError(OTHER)
        if call is None or not call.result:
            raise ToolError(UNKNOWN)
        is_same = call.authority in ("", authority(self.request))
        if not is_same or not self.tool.may_repeat(self.request, self.given):
            raise ToolError(CHANGED)
        result: dict[str, Any] = orjson.loads(call.result)
        return result

    def wait(self) -> None:
        """Keep the key for a call that waits for a person's yes: no other call can have it, and the same one joins."""
        values = {"tool": self.tool.name, "arguments": self.arguments, "authority": authority(self.request)}
        waiting = KeyedCall(id=self.id, user_id=self.user_pk, created=timezone.now(), result=WAITS, **values)
        OwnTable(KeyedCall, self.using).insert(waiting)

    def _release(self) -> None:
        KeyedCall.objects.using(self.using).filter(pk=self.id).delete()

    def _keep(self, result: ToolResult) -> dict[str, Any]:
        wire = result.to_wire()
        structured = result.structured or {}
        if any(structured.get(name) is True for name in ASKING):
            self._release()
            return wire
        encoded = orjson.dumps(wire).decode()
        if len(encoded) > MAX_RESULT:
            # This note does not fit the tool's output schema, and clients do not validate errors against it.
            is_checked = self.tool.output_schema is not None
            replacement = ToolResult(structured={"repeated": True, "note": TOO_LONG}, is_error=is_checked)
            encoded = orjson.dumps(replacement.to_wire()).decode()
        KeyedCall.objects.using(self.using).filter(pk=self.id).update(result=encoded)
        return wire

"""Calls that wait for a person's yes: the request is kept, joined by the same call, and answered with its outcome.

A request is a :class:`~mcp_django.models.Change` that waits. Its number is what the caller gets, with the address of
the page on which the user decides. :mod:`~mcp_django.server.kept_calls` then makes the call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, ClassVar, Final

import orjson
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.utils import timezone
from django.utils.module_loading import import_string
from django.utils.translation import gettext_noop

from ..context.person_consent import PersonNeeded
from ..context.questions import Question
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..differences.kept_changes import Changes, KeptChange
from ..exceptions import Declined, InputRequired, ToolError
from ..models import ApprovalRequest, Change
from ..orm.database_writes import refusals
from ..orm.query_limits import OutcomeUnknown, write_transaction
from ..protocol.content import Text
from ..signin import FactName
from ..tools.base import Tool
from .stored_calls import StoredCall

State = Change.State
# The part of a page's address between that of the endpoint and the number of the request.
PAGE: Final = "confirm"
# Seconds for which a request can be decided, and maximum number of them that wait for one user.
WAITS_FOR: Final = 24 * 3600
MAX_WAITING: Final = 20
# Seconds for which a call waits for a person who has opened the page, and between two looks.
PATIENCE: Final = 20.0
LOOK_EVERY: Final = 1.0
# Maximum characters of a kept result.
MAX_RESULT: Final = 64 * 1024
# The key of the question by which a client opens the page.
KEY: Final = "person"
# Arguments that may differ between repetitions of the same call.
UNBOUND: Final = frozenset({"confirm_token"})

NEXT: Final = (
    "Nothing has been changed yet. Only the user can confirm this, on the page at url: show them the link. Repeat the "
    "same call later to get the outcome."
)
NOBODY: Final = (
    "This needs the yes of a person who is signed in to the site, and {} cannot give it. Nothing was changed. Tell the "
    "user."
)
TOO_MANY: Final = (
    f"{MAX_WAITING} calls wait for the user's yes. Nothing was changed. Ask the user to decide those first: "
    "query_records on mcp.change with state waiting lists them."
)
AGAIN: Final = "To ask for it again, if the user wants that, repeat the call with a new idempotency_key."
TOO_LONG: Final = "The call was confirmed and done. Its result was too long to be kept."
NO_LONGER: Final = "Change {} was done. Your permissions have changed since, so its result is not shown."
UNKNOWN: Final = "It stopped half-way, and nobody knows what it has done. Look at the data."
ASKS: Final = gettext_noop("It asks something on its way, and the application is no longer there to answer.")
DONE_BEFORE: Final = "The same call was made before: change {}."
TAKEN: Final = "Somebody has decided already."


class PersonRequest:
    """One call of ``tool`` that only a person can confirm, with the ``arguments`` of the client.

    :class:`~mcp_django.server.approval_calls.ApprovalCall` is one that another person has to approve.
    """

    # What is said of a call that ended without being done; and to whom the caller turns.
    REFUSED: ClassVar = "The user has said no to change {number}. Nothing was changed. {again}"
    FAILED: ClassVar = "The user has confirmed change {number}, but it was not made. {outcome} {again}"

    def __init__(self, request: MCPRequest, tool: Tool, arguments: Mapping[str, Any]) -> None:
        self.request = request
        self.tool = tool
        self.arguments = {name: value for name, value in arguments.items() if name not in UNBOUND}
        self.changes = Changes(request)
        self.digest = self.changes.digest(tool.name, self.arguments)

    def known(self) -> Mapping[str, Any] | Callable[[], Awaitable[dict[str, Any]]] | None:
        """Return the answer to a call that waits or was decided before, None for a call that is new; or a coroutine
        function that returns it after some seconds, for a user who is looking at the page.

        Raises:
            InputRequired: it waits, and the client opens its page for the user, who may have closed it.
            Declined: the user did not want to open the page; the request is then withdrawn.
        """
        found = self.changes.repeated(self.digest)
        if found is None or self._is_for_others(found):
            return None
        mcp = self.request.mcp
        question = self._question(found)
        if found.change.state != State.WAITING:
            return self.outcome(found)
        if mcp.answers.get(question) is None:
            if not mcp.can("elicitation.url"):
                return self.outcome(found)
            mcp.record.settle("asked")
            raise InputRequired([question])
        try:
            mcp.answers.settle(question, mcp.version, lambda content: None)
        except Declined as answer:
            if answer.action != "decline":
                # The page may be open already, from an earlier call: it still has the decision.
                return self.outcome(found)
            # Nobody has decided: the same call may ask again.
            found.claim(State.WAITING, State.WITHDRAWN, outcome="The user did not open the page.")
            raise
        except ToolError:
            # The client cannot open the page after all: it gets the link.
            return self.outcome(found)
        # The page was opened, which is no yes.
        return partial(self._wait, found)

    def open(self, needed: PersonNeeded, arguments: Mapping[str, Any]) -> ToolResult:
        """Keep the call, and return what the client shows its user; ``arguments`` are those to make the call with.

        Raises:
            InputRequired: the client opens pages for its user.
            ToolError: nobody can confirm the call, or it cannot be tried.
        """
        self._check_person()
        kept = self._keep(needed, arguments, WAITS_FOR)
        if self.request.mcp.can("elicitation.url"):
            raise InputRequired([self._question(kept)])
        return self._waiting(kept)

    def _keep(self, needed: PersonNeeded, arguments: Mapping[str, Any], seconds: int) -> KeptChange:
        """Keep the call as a change that waits for so many seconds."""
        preview = needed.preview
        columns = dict(preview.columns)
        digest = columns.pop("digest", needed.digest)
        kept = self.changes.keep(
            using=columns.pop("using", ""),
            tool=self.tool.name,
            labels=columns.pop("labels", ()),
            rows=columns.pop("rows", 0),
            cannot_undo=columns.pop("cannot_undo", KeptChange.NOT_RECORDED),
            state=State.WAITING,
            shown={"message": preview.message, **preview.shown},
            kept=self._kept(digest, arguments),
            digest=self.digest,
            expires=timezone.now() + timedelta(seconds=seconds),
            **columns,
        )
        self.request.mcp.record.settle("asked")
        return kept

    def outcome(self, kept: KeptChange) -> dict[str, Any]:
        """Return how the call stands, as its result."""
        number = kept.change.pk
        match State(kept.change.state):
            case State.WAITING:
                self.request.mcp.record.settle("asked")
                return self._waiting(kept).to_wire()
            case State.RUNNING:
                told = {"change": number, "state": "running", "next": "Repeat the same call in a few seconds."}
                return self._told(told).to_wire()
            case State.DONE:
                if not self.tool.may_repeat(self.request, self.arguments):
                    return _error(NO_LONGER.format(number))
                return dict(kept.result or {})
            case State.REFUSED:
                text = self.REFUSED.format(number=number, outcome=kept.change.outcome, again=AGAIN)
            case State.FAILED:
                text = self.FAILED.format(number=number, outcome=kept.change.outcome, again=AGAIN)
            case State.UNDONE:
                text = f"Change {number} was made and taken back. {AGAIN}"
            case _:
                text = f"Change {number}: {kept.change.outcome or UNKNOWN} {AGAIN}"
        self.request.mcp.record.settle("refused:confirmation")
        return _error(text)

    # What is kept

    def _kept(self, digest: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return all that is needed to make the call for its caller."""
        bound = {name: value for name, value in arguments.items() if name not in UNBOUND}
        call = StoredCall.of(self.request, self.tool.name, bound)
        return {**call.data, "digest": digest, "answers": self.request.mcp.answers.taken()}

    @staticmethod
    def _is_for_others(found: KeptChange) -> bool:
        """Return whether a call waits for the yes of another person, by a rule that no longer concerns this caller."""
        rows = ApprovalRequest.objects.using(found.change._state.db)
        return rows.filter(change=found.change.pk).exists()

    def _check_person(self) -> None:
        """Raise ``ToolError`` unless the user can decide on the page, and has not too much to decide."""
        mcp = self.request.mcp
        user: Any = self.request.user
        who = ""
        if "://" not in mcp.resource:
            who = "a call without HTTP"
        elif FactName.SERVICE_ACCOUNT in mcp.facts:
            who = "a service account"
        elif not isinstance(user, get_user_model()) or user.pk is None:
            who = "a caller who is no user of the site"
        elif not can_sign_in(user):
            who = "an account that cannot sign in"
        if who:
            raise ToolError(NOBODY.format(who))
        waiting = self.changes.rows.filter(state=State.WAITING.value, expires__gt=timezone.now())
        if waiting.count() >= MAX_WAITING:
            raise ToolError(TOO_MANY)

    # What is told

    def _url(self, kept: KeptChange) -> str:
        return f"{self.request.mcp.resource.rstrip('/')}/{PAGE}/{kept.change.pk}"

    def _question(self, kept: KeptChange) -> Question:
        message = f"Look at what this would do, and decide: {kept.change.summary}"
        params = {"mode": "url", "message": message, "url": self._url(kept)}
        return Question(key=KEY, method=Question.ELICITATION, params=params)

    def _waiting(self, kept: KeptChange) -> ToolResult:
        change = kept.change
        told = {"change": change.pk, "state": "waiting", "url": self._url(kept), "summary": change.summary}
        return self._told({**told, "next": NEXT})

    def _told(self, told: Mapping[str, Any]) -> ToolResult:
        if self.tool.output_schema is None:
            return ToolResult(structured=told)
        # Clients check structured content against the output schema.
        return ToolResult(content=[Text(orjson.dumps(told).decode())], is_error=True)

    async def _wait(self, kept: KeptChange) -> dict[str, Any]:
        """Return how the call stands once it is decided, or after some seconds; without a thread in between."""
        until = monotonic() + PATIENCE
        while True:
            state = await sync_to_async(self._look)(kept)
            if state not in (State.WAITING, State.RUNNING) or monotonic() >= until:
                return await sync_to_async(self.outcome)(kept)
            await asyncio.sleep(LOOK_EVERY)

    @staticmethod
    def _look(kept: KeptChange) -> str:
        kept.change.refresh_from_db(fields=["state", "outcome"])
        return kept.change.state


def _error(text: str) -> dict[str, Any]:
    return ToolResult.of_error(ToolError(text)).to_wire()


def can_sign_in(user: Any) -> bool:
    """Return whether a user could sign in to the site: actively, with a password or by another backend than Django's
    own."""
    if not user.is_active:
        return False
    if user.has_usable_password():
        return True
    backends = [import_string(name) for name in django_settings.AUTHENTICATION_BACKENDS]
    return any(backend.authenticate is not ModelBackend.authenticate for backend in backends)


class ConsentedCall:
    """One run of a call that a person has confirmed: once, whoever confirms it and however often.

    A write in one transaction runs in the same transaction as the change of the request's state: both are stored, or
    neither is. For any other call, and for rows in another database, it is noted first that the call runs.
    """

    def __init__(self, request: MCPRequest, tool: Tool, arguments: Mapping[str, Any]) -> None:
        self.request = request
        self.consent = request.mcp.consent
        self.call = request.mcp.record.id.hex
        self.using = Changes(request).using
        self.kept = KeptChange(Change.objects.using(self.using).get(pk=self.consent.change))
        self.atomic = tool.is_atomic(request, arguments) and self.kept.change.using == self.using

    def run(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the result of ``work``, which is kept with the request."""
        if self.atomic:
            with refusals(), write_transaction(self.using):
                self._begin()
                wire = work()
                self._end(wire)
                return wire
        try:
            self._begin()
            wire = work()
        except BaseException as error:
            self._stopped(error)
            raise
        self._end(wire)
        return wire

    async def run_async(self, work: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Run an async tool like :meth:`run`."""
        try:
            await sync_to_async(self._begin)()
            wire = await work()
        except BaseException as error:
            await sync_to_async(self._stopped)(InputRequired.merged(error))
            raise
        await sync_to_async(self._end)(wire)
        return wire

    def _begin(self) -> None:
        now = timezone.now()
        # From now on, the change is what this call writes, not what another one has asked for.
        values = {"time": now, "call": self.call, "decided": now, "by": self.consent.by}
        if not self.kept.claim(State.WAITING, State.RUNNING, **values):
            self.consent.is_late = True
            raise ToolError(TAKEN)
        # Two of the same calls at the same time may each have a request.
        same = Changes(self.request).repeated(self.kept.change.digest, besides=self.kept.change.pk)
        if same is not None and same.change.state in (State.RUNNING, State.DONE):
            raise ToolError(DONE_BEFORE.format(same.change.pk))

    def _end(self, wire: Mapping[str, Any]) -> None:
        result = wire
        if len(orjson.dumps(wire)) > MAX_RESULT:
            result = ToolResult(structured={"repeated": True, "note": TOO_LONG}).to_wire()
        done = {"footprint": b"", "cannot_undo": self.kept.change.cannot_undo, **self.consent.done}
        self.kept.claim(State.RUNNING, State.DONE, result=result, **done)

    def _stopped(self, error: BaseException) -> None:
        """Note how a call ended that was not in one transaction."""
        if self.consent.is_late:
            # It is the call of another decision that runs.
            return
        if isinstance(error, InputRequired):
            self.kept.claim(State.RUNNING, State.FAILED, outcome=ASKS)
        elif isinstance(error, ToolError) and not isinstance(error, OutcomeUnknown):
            self.kept.claim(State.RUNNING, State.FAILED, outcome=error.message)
        else:
            self.kept.claim(State.RUNNING, State.UNKNOWN, outcome=UNKNOWN)

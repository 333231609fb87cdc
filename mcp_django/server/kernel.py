"""The kernel: run one call from its method to its reply, within its steps, and map every error to an answer.

A method whose work runs elsewhere returns a :class:`Later`: a function tool or an admin action runs in the pool for the
project's own code, so that reads do not wait for it, and an async tool runs on the event loop. A call that has to ask
its client ends at the question, and runs again with the answers.
"""

from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import PermissionDenied

from ..conf import settings
from ..context.admin_page import OwnPlace
from ..context.call_middleware import CallMiddleware
from ..context.confirmation import CallState
from ..context.language import CallerLanguage
from ..context.questions import Answers, Question
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import CallRefused, Cancelled, InputRequired, InsufficientScope, MiddlewareFailed, NotFound, ToolError
from ..operating.failure_causes import reason_of
from ..operating.recorded_calls import RecordedCall, counted
from ..orm.access import access_of
from ..orm.permission_queries import load_permissions
from ..protocol.client_requests import Limits
from ..protocol.eras import Call, Rejected, classify
from ..protocol.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingClientCapability,
    ProtocolError,
)
from ..protocol.messages import encode
from .methods import METHODS
from .methods.handler_interface import Asked, Later, Listen, log_failure
from .methods.lifecycle_and_subscriptions import cache_ttl, identity
from .stored_calls import StoredCall


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a call: the encoded JSON-RPC response, and its HTTP status."""

    body: bytes
    status: int = 200
    ends: ClassVar[str] = "ok"

    @classmethod
    def to_rejected(cls, rejected: Rejected) -> "Reply":
        """Return the reply to a message that was rejected before it became a call."""
        body = encode(rejected.error.response(rejected.id, modern=rejected.era.modern))
        return cls(body, rejected.era.status(rejected.error))


# Outcome of a call or of a part of it; its ``ends`` is the outcome for the call's record, "" if another part follows.
Outcome = Reply | Later | Asked | Listen


class Kernel:
    """Takes one call and gives one reply: finds the method, runs it within a call's steps, and answers its errors.

    The steps wrap each part of a call that runs separately: they attribute log messages, queries and spans to the call,
    activate its language, count its queries, and give it its own page. ``CALL_MIDDLEWARE`` runs inside them.
    """

    def __init__(self, request: MCPRequest, call: Call) -> None:
        self.request = request
        self.call = call
        self.recorded = RecordedCall(request)

    def serve(self) -> Outcome:
        """Run the call; return its reply, or what remains: work elsewhere, questions, or changes to stream."""
        return self._run(self._begin)

    def resume(self, later: Later) -> Reply | Asked | Later:
        """Run the rest of a call in this thread: the ``Later`` that ``serve`` returned; return reply or questions.

        A call that has become a task may leave a ``Later`` that waits for it.
        """
        return self._finished(self._run(later.work))

    async def resume_async(self, later: Later) -> Reply | Asked | Later:
        """Run the rest of a call on the event loop, like :meth:`resume`: a ``Later`` with a coroutine function."""
        result = None
        error = None
        with self.recorded.underway(self.call), CallerLanguage(self.request).for_coroutine():
            try:
                result = await CallMiddleware(self.request).run_async(later.work)
            except BaseException as raised:
                error = InputRequired.merged(raised)
        if isinstance(error, CancelledError):
            raise error

        def produce() -> Any:
            if error is not None:
                raise error
            return result

        return self._finished(await sync_to_async(self._run)(produce, in_middleware=False))

    @classmethod
    def make(cls, request: MCPRequest, stored: StoredCall) -> Reply | Asked:
        """Make a stored call in this thread; return its reply, or its questions if it runs as a task."""
        call = classify(stored.body, None)
        assert isinstance(call, Call)
        load_permissions(request.user)
        kernel = cls(request, call)
        outcome = kernel.conclude(kernel.serve())
        assert isinstance(outcome, (Reply, Asked))
        return outcome

    def conclude(self, outcome: Outcome) -> Reply | Asked | Listen:
        """Run all that remains of the call in this thread, and return how it ends."""
        while isinstance(outcome, Later):
            outcome = async_to_sync(self.resume_async)(outcome) if outcome.is_async else self.resume(outcome)
        return outcome

    def _begin(self) -> Mapping[str, Any] | Later | Listen:
        request = self.request
        call = self.call
        mcp = self.request.mcp
        self.recorded.begin(call)
        handler = METHODS.get(call.method)
        if handler is None:
            raise MethodNotFound(f"Method not found: {call.method}")
        narrowing = mcp.narrowing
        if narrowing is not None and narrowing.named and call.method != "ping":
            # Report a misspelt app or model in the URL, which would otherwise go unnoticed.
            labels = {exposure.label for exposure in access_of(request).exposures}
            permitted = labels | {label.partition(".")[0] for label in labels}
            if unknown := [name for name in narrowing.named if name not in permitted]:
                raise InvalidRequest(f"models in the URL: there is no app or model {unknown[0]!r} here.")
        # Read the answers that came with the call; in the older era, the transport has already set them.
        if call.method not in call.MAY_ASK:
            mcp.live = False
        elif not call.era.modern:
            # Progress must increase from one run to the next, because both runs report it on the same stream.
            mcp.last_progress = mcp.answers.progress
        else:
            mcp.live = True
            state = None
            if call.request_state is not None:
                state = CallState(request, call.method, call.params).open(call.request_state)
            if state is not None or call.input_responses is not None:
                mcp.answers = Answers(call.input_responses, state)
        return handler(request, call.params)

    def pause(self, questions: Sequence[Question]) -> Mapping[str, Any] | Asked:
        """End a call that has questions: return its input-required result (2026-07-28, basic/patterns/mrtr).

        In the older era, return the questions, which the transport sends to the client; in a task, its client asks for
        them. Raises ``MissingClientCapability``, or ``InvalidParams`` in the older era, if the client cannot answer
        them.
        """
        call = self.call
        mcp = self.request.mcp
        if call.method not in call.MAY_ASK:
            raise TypeError(f"{call.method} cannot ask the client")
        required: dict[str, Any] = {}
        for question in questions:
            if not mcp.takes(question.method, question.params):
                for name, needed in question.required_capability().items():
                    required[name] = {**required.get(name, {}), **needed}
        if required:
            if call.era.modern:
                raise MissingClientCapability(required)
            raise InvalidParams(f"This needs a session with a client that supports {', '.join(required)}")
        try:
            state = mcp.answers.state(questions)
        except ToolError as error:
            if call.method != "tools/call":
                raise
            return ToolResult.of_error(error).to_wire()
        as_text = not Limits.of(mcp.client.name).shows_numbers
        questions = [replace(question, as_text=as_text) for question in questions]
        if not call.era.modern or mcp.task is not None:
            mcp.answers.progress = mcp.last_progress
            return Asked(tuple(questions))
        return {
            "resultType": "input_required",
            "inputRequests": {question.key: question.to_wire(call.version) for question in questions},
            "requestState": CallState(self.request, call.method, call.params).seal(state),
        }

    def _run(self, work: Callable[[], Any], *, in_middleware: bool = True) -> Outcome:
        """Run a part of the call within its steps, and finish the record if no part follows; return the outcome."""
        record = self.request.mcp.record
        if in_middleware and settings.CALL_MIDDLEWARE:
            work = partial(CallMiddleware(self.request).run, work)
        try:
            # Context variables that this part sets do not outlive it.
            outcome = copy_context().run(self._within_steps, work)
        except InsufficientScope:
            record.code = InvalidRequest.code
            self.recorded.finish("refused:scope")
            raise
        except Cancelled:
            self.recorded.finish("cancelled")
            raise
        if outcome.ends:
            body = getattr(outcome, "body", b"")
            if record.arguments is not None:
                record.result = body
            self.recorded.finish(outcome.ends, len(body))
        return outcome

    def _within_steps(self, work: Callable[[], Any]) -> Outcome:
        request = self.request
        record = self.request.mcp.record
        with self.recorded.underway(self.call):
            # Other calls of a batch share this request.
            try:
                if self.call.method == "ping":
                    # A ping needs no language, no queries and no page.
                    return self._answer(work)
                CallerLanguage(request).activate()
                with counted(record), OwnPlace(request):
                    return self._answer(work)
            finally:
                request.forget_session()

    def _answer(self, work: Callable[[], Any]) -> Outcome:
        try:
            try:
                result = work()
            except InputRequired as asked:
                result = self.pause(asked.questions)
            if isinstance(result, (Later, Asked, Listen)):
                return result
            return self._reply(result)
        except InsufficientScope:
            raise
        except Exception as error:
            return self._failed(error)

    def _finished(self, outcome: Outcome) -> Reply | Asked | Later:
        assert isinstance(outcome, (Reply, Asked, Later))
        return outcome

    def _reply(self, result: Mapping[str, Any]) -> Reply:
        call = self.call
        record = self.request.mcp.record
        assert call.id is not None
        if result.get("isError"):
            record.settle("tool_error", "" if record.outcome else reason_of(_told(result)))
        elif result.get("resultType") == "input_required":
            record.settle("asked")
        elif result.get("resultType") == "task":
            record.settle("task")
        # Results of the older era have neither the server's identity nor a TTL.
        server, ttl_ms = (identity(), cache_ttl(call.method)) if call.era.modern else ({}, 0)
        wire = call.era.shape(call, result, server=server, ttl_ms=ttl_ms)
        began = perf_counter()
        body = encode(call.response(wire))
        record.rendering = (perf_counter() - began) * 1000
        return Reply(body)

    def _failed(self, error: Exception) -> Reply:
        """Return the reply to a call that raised an exception; log internal errors under an opaque id."""
        call = self.call
        record = self.request.mcp.record
        mapped: ProtocolError
        match error:
            case CallRefused():
                record.settle(f"refused:{error.reason}", error.message)
                if call.method == "tools/call":
                    return self._reply(ToolResult.of_error(ToolError(error.message)).to_wire())
                mapped = InvalidRequest(error.message)
            case ProtocolError():
                mapped = error
            case ToolError():
                if error.outcome != ToolError.outcome:
                    record.settle(error.outcome)
                mapped = InvalidParams(error.message)
            case NotFound() | PermissionDenied():
                if isinstance(error, PermissionDenied):
                    record.settle("refused:permission")
                mapped = InvalidParams("Not found")
            case MiddlewareFailed():
                identifier = log_failure(call.method, error, record)
                if call.method == "tools/call":
                    text = f"{error.told} Tell the operator the error id {identifier}."
                    return self._reply(ToolResult.of_error(ToolError(text)).to_wire())
                mapped = InternalError(error.told, data={"errorId": identifier})
            case _:
                mapped = InternalError(data={"errorId": log_failure(call.method, error, record)})
        record.code = mapped.code
        # A failure of the server's own has its place as reason: what the client is told is the same for all of them.
        record.settle(f"error:{mapped.code}", "" if record.error_id else reason_of(mapped.message))
        return Reply(encode(mapped.response(call.id, modern=call.era.modern)), call.era.status(mapped))


def _told(result: Mapping[str, Any]) -> str:
    """Return the first text of a result, "" for one without text."""
    return next((str(block["text"]) for block in result.get("content", ()) if block.get("type") == "text"), "")

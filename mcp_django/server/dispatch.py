"""The kernel: one call in, one reply out; the one error mapping.

:func:`serve` runs a method in the calling thread. A method whose work belongs elsewhere gives back a :class:`Later`: a
function tool or an admin action runs in the pool for the project's own code, so that no read waits behind it, and an
async tool runs on the event loop. A call that has to ask its client ends there, and runs again with the answers.
"""

from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied

from ..conf import settings
from ..context.languages import in_own_context, own_locale
from ..context.middleware import through, through_async
from ..context.places import own_place
from ..context.questions import untangled
from ..context.request import MCPRequest
from ..context.results import error_result
from ..exceptions import CallRefused, InputRequired, InsufficientScope, NotFound, ToolError
from ..operating.calls import begin, underway, watched
from ..orm.access import visible_exposures
from ..protocol.eras import Call
from ..protocol.errors import InternalError, InvalidParams, InvalidRequest, MethodNotFound, ProtocolError
from ..protocol.inbound import Rejected
from ..protocol.messages import encode, error_response, result_response
from .methods import METHODS
from .methods.asking import ASKING, pause, take_answers
from .methods.base import Asked, Later, Listen, log_failure
from .methods.lifecycle import cache_ttl, identity


@dataclass(frozen=True, slots=True)
class Reply:
    """The JSON-RPC response of a call, encoded, and the HTTP status that carries it."""

    body: bytes
    status: int = 200
    ends: ClassVar[str] = "ok"


Outcome = Reply | Later | Asked | Listen


def serve(request: MCPRequest, call: Call) -> Outcome:
    """Answer a call, or say what has to run elsewhere first, what the client is asked, or what it wants to hear of.

    Raises:
        InsufficientScope: the token lacks scopes; the transport makes the challenge.
        Cancelled: the client has gone; there is nobody to answer.
    """

    def produce() -> Any:
        begin(request, call)
        handler = METHODS.get(call.method)
        if handler is None:
            raise MethodNotFound(f"Method not found: {call.method}")
        narrowing = request.mcp.narrowing
        if narrowing is not None and narrowing.named and call.method != "ping":
            _require(request, narrowing.named)
        if call.method in ASKING:
            take_answers(request, call)
        else:
            request.mcp.live = False
        return handler(request, call.params)

    return watched(request, call, lambda: _in_place(request, call, produce))


def _require(request: MCPRequest, named: Sequence[str]) -> None:
    """Require that the caller sees something of all that the address names: a slip of the pen would go unnoticed.

    Raises:
        InvalidRequest: they do not.
    """
    labels = {exposure.label for exposure in visible_exposures(request)}
    known = labels | {label.partition(".")[0] for label in labels}
    unknown = [name for name in named if name not in known]
    if unknown:
        raise InvalidRequest(f"models in the URL: there is no app or model {unknown[0]!r} here.")


def resume(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Do the work of a ``Later`` in this thread and answer the call, or say what the client is asked."""
    return _finished(watched(request, call, lambda: _in_place(request, call, later.work)))


async def resume_async(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Do the work of a ``Later`` that is a coroutine function and answer the call, or say what the client is asked."""
    with own_locale(request), underway(request, call):
        try:
            result, error = await through_async(request, later.work), None
        except BaseException as raised:
            result, error = None, untangled(raised)
        if isinstance(error, CancelledError):
            raise error

        def produce() -> Any:
            if error is not None:
                raise error
            return result

        return _finished(await sync_to_async(watched)(request, call, lambda: _guarded(request, call, produce)))


def _in_place(request: MCPRequest, call: Call, work: Callable[[], Any]) -> Outcome:
    def placed() -> Any:
        # Others of a batch have the same request.
        with own_place(request):
            return through(request, work) if settings.CALL_MIDDLEWARE else work()

    return in_own_context(request, lambda: _guarded(request, call, placed))


def _guarded(request: MCPRequest, call: Call, produce: Callable[[], Any]) -> Outcome:
    try:
        result = produce()
        return result if isinstance(result, (Later, Asked, Listen)) else _reply(request, call, result)
    except InputRequired as asked:
        questions = asked.questions
    except InsufficientScope:
        raise
    except Exception as error:
        return _failed(request, call, error)
    return _guarded(request, call, lambda: pause(request, call, questions))


def _finished(outcome: Outcome) -> Reply | Asked:
    assert isinstance(outcome, (Reply, Asked))
    return outcome


def _reply(request: MCPRequest, call: Call, result: Mapping[str, Any]) -> Reply:
    assert call.id is not None
    if result.get("isError"):
        request.mcp.record.settle("tool_error")
    elif result.get("resultType") == "input_required":
        request.mcp.record.settle("asked")
    # Results of the older era tell neither.
    server, ttl_ms = (identity(), cache_ttl(call.method)) if call.era.modern else ({}, 0)
    wire = call.era.shape(call, result, server=server, ttl_ms=ttl_ms)
    return Reply(encode(result_response(call.id, wire)))


def _failed(request: MCPRequest, call: Call, error: Exception) -> Reply:
    """Map an exception to the client's error; what is not the client's fault is logged under an opaque id."""
    record = request.mcp.record
    mapped: ProtocolError
    match error:
        case CallRefused():
            record.settle(f"refused:{error.reason}", error.message)
            if call.method == "tools/call":
                return _reply(request, call, error_result(ToolError(error.message)).to_wire())
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
        case _:
            record.error_id = log_failure(call.method, error, record.id)
            mapped = InternalError(data={"errorId": record.error_id})
    record.code = mapped.code
    record.settle(f"error:{mapped.code}")
    return Reply(encode(error_response(call.id, mapped, modern=call.era.modern)), call.era.status(mapped))


def rejection(rejected: Rejected) -> Reply:
    """Return the reply to a message that is no call."""
    body = encode(error_response(rejected.id, rejected.error, modern=rejected.era.modern))
    return Reply(body, rejected.era.status(rejected.error))

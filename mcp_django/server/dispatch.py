"""The kernel: one call in, one reply out; the one error mapping.

:func:`serve` runs a method in the calling thread. A method whose work belongs elsewhere gives back a :class:`Later`: a
function tool or an admin action runs in the pool for the project's own code, so that no read waits behind it, and an
async tool runs on the event loop. A call that has to ask its client ends there, and runs again with the answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied

from ..context.languages import in_own_context, own_locale
from ..context.middleware import through, through_async
from ..context.places import own_place
from ..context.questions import untangled
from ..context.request import MCPRequest
from ..exceptions import InputRequired, InsufficientScope, NotFound, ToolError
from ..protocol.eras import Call
from ..protocol.errors import InternalError, InvalidParams, MethodNotFound, ProtocolError
from ..protocol.inbound import Rejected
from ..protocol.messages import encode, error_response, result_response
from ..resources.caching import cache_ttl
from .methods import METHODS
from .methods.asking import pause, take_answers
from .methods.base import Asked, Later, Listen, log_failure
from .methods.lifecycle import identity


@dataclass(frozen=True, slots=True)
class Reply:
    """The JSON-RPC response of a call, encoded, and the HTTP status that carries it."""

    body: bytes
    status: int = 200


def serve(request: MCPRequest, call: Call) -> Reply | Later | Asked | Listen:
    """Answer a call, or say what has to run elsewhere first, what the client is asked, or what it wants to hear of.

    Raises:
        InsufficientScope: the token lacks scopes; the transport makes the challenge.
        Cancelled: the client has gone; there is nobody to answer.
    """

    def produce() -> Any:
        handler = METHODS.get(call.method)
        if handler is None:
            raise MethodNotFound(f"Method not found: {call.method}")
        take_answers(request, call)
        return handler(request, call.params)

    return in_own_context(request, lambda: _guarded(request, call, lambda: _placed(request, produce)))


def resume(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Do the work of a ``Later`` in this thread and answer the call, or say what the client is asked."""
    return in_own_context(request, lambda: _finished(_guarded(request, call, lambda: _placed(request, later.work))))


async def resume_async(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Do the work of a ``Later`` that is a coroutine function and answer the call, or say what the client is asked."""
    with own_locale(request):
        try:
            return _reply(call, await through_async(request, later.work))
        except BaseException as raised:
            error = untangled(raised)

            def produce() -> Any:
                raise error

            return _finished(_guarded(request, call, produce))


def _placed(request: MCPRequest, work: Callable[[], Any]) -> Any:
    # Others of a batch have the same request.
    with own_place(request):
        return through(request, work)


def _guarded(request: MCPRequest, call: Call, produce: Callable[[], Any]) -> Reply | Later | Asked | Listen:
    try:
        result = produce()
        return result if isinstance(result, (Later, Asked, Listen)) else _reply(call, result)
    except InputRequired as asked:
        questions = asked.questions
    except InsufficientScope:
        raise
    except Exception as error:
        return _failed(call, error)
    return _guarded(request, call, lambda: pause(request, call, questions))


def _finished(outcome: Reply | Later | Asked | Listen) -> Reply | Asked:
    assert isinstance(outcome, (Reply, Asked))
    return outcome


def _reply(call: Call, result: Mapping[str, Any]) -> Reply:
    assert call.id is not None
    wire = call.era.shape(call, result, server=identity(), ttl_ms=cache_ttl(call.method))
    return Reply(encode(result_response(call.id, wire)))


def _failed(call: Call, error: Exception) -> Reply:
    """Map an exception to the client's error; what is not the client's fault is logged under an opaque id."""
    match error:
        case ProtocolError():
            mapped = error
        case ToolError():
            mapped = InvalidParams(error.message)
        case NotFound() | PermissionDenied():
            mapped = InvalidParams("Not found")
        case _:
            mapped = InternalError(data={"errorId": log_failure(call.method, error)})
    return Reply(encode(error_response(call.id, mapped, modern=call.era.modern)), call.era.status(mapped))


def rejection(rejected: Rejected) -> Reply:
    """Return the reply to a message that is no call."""
    body = encode(error_response(rejected.id, rejected.error, modern=rejected.era.modern))
    return Reply(body, rejected.era.status(rejected.error))

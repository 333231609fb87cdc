"""The kernel: one call in, one reply out; the one sync/async boundary; the one error mapping.

:func:`serve` runs a method in the calling thread. A method whose work belongs elsewhere gives back a :class:`Later`: a
function tool or an admin action runs in the pool for the project's own code, so that no read waits behind it, and an
async tool runs on the event loop. A call that has to ask its client ends there, and runs again with the answers.
:func:`in_thread` is how coroutines get into a thread.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.core.signals import request_finished, request_started

from .conf import settings
from .context import MCPRequest
from .exceptions import InputRequired, InsufficientScope, NotFound, ToolError
from .languages import in_own_context, own_locale
from .methods import METHODS
from .methods.asking import pause, take_answers
from .methods.base import Asked, Later, Listen, log_failure
from .methods.lifecycle import identity
from .protocol.eras import Call
from .protocol.errors import InternalError, InvalidParams, MethodNotFound, ProtocolError
from .protocol.messages import encode, error_response, result_response
from .questions import untangled
from .resources.caching import cache_ttl

__all__ = ["Pool", "Reply", "in_thread", "resume", "resume_async", "serve"]

T = TypeVar("T")
Pool = Literal["reads", "slow"]


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

    return in_own_context(request, lambda: _guarded(request, call, produce))


def resume(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Do the work of a ``Later`` in this thread and answer the call, or say what the client is asked."""
    return in_own_context(request, lambda: _finished(_guarded(request, call, later.work)))


async def resume_async(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Do the work of a ``Later`` that is a coroutine function and answer the call, or say what the client is asked."""
    with own_locale(request):
        try:
            return _reply(call, await later.work())
        except BaseException as raised:
            error = untangled(raised)

            def produce() -> Any:
                raise error

            return _finished(_guarded(request, call, produce))


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


# The boundary


@cache
def _pool(name: Pool) -> ThreadPoolExecutor:
    threads = settings.THREADS if name == "reads" else settings.SLOW_THREADS
    return ThreadPoolExecutor(threads, thread_name_prefix=f"mcp-{name}")


def in_thread(pool: Pool, work: Callable[[], T], *, thread_sensitive: bool = False) -> asyncio.Future[T]:
    """Run ``work`` in a thread of the pool, with the context variables of the caller; return the future of its result.

    The threads keep their database connections as ``CONN_MAX_AGE`` says: the request signals, which Django sends
    around each request of its own, are sent around each piece of work. ``thread_sensitive`` work runs in the thread
    of Django's middleware instead, which may have left something there.
    """
    if thread_sensitive:
        return asyncio.ensure_future(sync_to_async(work, thread_sensitive=True)())
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            settle, outcome = future.set_result, context.run(_bracketed, work)
        except BaseException as error:
            settle, outcome = future.set_exception, error  # type: ignore[assignment]
        # The loop may be closed by now; then nobody waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, future, settle, outcome)

    # Settling the loop's own future in one step costs half of what run_in_executor's chain of two futures does.
    _pool(pool).submit(run)
    return future


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not future.done():
        settle(outcome)


def _bracketed(work: Callable[[], T]) -> T:
    request_started.send(sender=in_thread)
    try:
        return work()
    finally:
        request_finished.send(sender=in_thread)

"""One call over standard input and output: run, asked about, answered; and the relay of what changes."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from ...conf import settings
from ...context.questions import Answers
from ...context.request import MCPRequest
from ...exceptions import AuthenticationFailed, Cancelled, InsufficientScope, ToolError
from ...operating.refused import RATE, TOKEN, refused
from ...protocol import subscriptions
from ...protocol.eras import Call
from ...protocol.errors import InternalError, InvalidParams, InvalidRequest, ProtocolError
from ...protocol.messages import ClientResponse, Id, encode, error_response, notification, request
from ...runtime.threads import in_thread
from ...server.dispatch import Reply
from ...server.methods.base import Asked, Later, Listen, log_failure
from ...server.methods.lifecycle import identity
from ...server.sessions import add_uri
from ...subscriptions.subscriptions import Subscription
from ..calls import in_time, perform
from ..http.dispatch import begin, lane_of
from ..http.limits import LimitExceeded, concurrent, count_call, streaming
from ..notifications import LISTS, Mailbox, relay
from .pipes import Output

# These read what the session remembers before they write it: one after the other, in the order in which they came.
IN_TURN: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


@dataclass(slots=True)
class MemorySession:
    """What ``initialize`` agreed on, and what the client asked for since: one process is one session."""

    version: str
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    log_level: str | None = None
    uris: Sequence[str] = ()
    mailbox: Mailbox | None = None
    began: float = field(default_factory=time.monotonic)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _subscription: Subscription | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set_log_level(self, level: str) -> None:
        """Remember the least severe level of log messages that the client wants."""
        self.log_level = level

    def subscribe(self, uri: str) -> None:
        """Remember a resource that the client wants to hear of."""
        with self._lock:
            self._watch(add_uri(self.uris, uri))

    def unsubscribe(self, uri: str) -> None:
        """Forget a resource."""
        with self._lock:
            self._watch([item for item in self.uris if item != uri])

    def _watch(self, uris: Sequence[str]) -> None:
        if self._subscription is not None:
            self._subscription.set_uris(uris)
        self.uris = tuple(uris)

    def open(self, request: MCPRequest, mailbox: Mailbox) -> None:
        """Subscribe to the lists and to what the client asked for so far; in a worker thread."""
        with self._lock:
            self._subscription = mailbox.subscribe(request, uris=self.uris, lists=LISTS)

    def close(self) -> None:
        """Subscribe to nothing any more."""
        with self._lock:
            if self._subscription is not None:
                self._subscription.close()
            self._subscription = None


async def send_changes(output: Output, mailbox: Mailbox, render: Callable[[str, Mapping[str, Any]], Any]) -> None:
    """Send what changes, until the mailbox says that it is over."""

    async def deliver() -> bool:
        await output.room()
        waiting = mailbox.take()
        for method, params in waiting:
            output.send(encode(render(method, params)))
        return bool(waiting)

    await relay(mailbox, deliver)


class Server(Protocol):
    """The server that a call belongs to: see :class:`~mcp_django.transports.stdio.server.StdioServer`."""

    caller: str
    user_pk: Any
    output: Output
    session: MemorySession | None

    def new_request(self) -> MCPRequest: ...
    def authorize(self, request: MCPRequest) -> None: ...
    def expect_response(self) -> "tuple[Id, asyncio.Future[ClientResponse]]": ...
    def forget_questions(self, identifiers: Iterable[Id]) -> None: ...


class StdioCall:
    """One call. ``has_place`` says that it runs within something that holds the caller's place among calls."""

    def __init__(self, server: Server, call: Call, *, has_place: bool = False) -> None:
        self.server, self.call, self.has_place = server, call, has_place
        self.request: MCPRequest = server.new_request()
        self.session = None if call.era.modern else server.session
        self.mailbox: Mailbox | None = None
        self.is_asking = self.is_over = False
        self._loop = asyncio.get_running_loop()

    async def run(self) -> bytes | None:
        """Return the answer; None when the call was given up."""
        try:
            outcome = await self._in_turn()
            # What an async tool told last is still on its way through the loop.
            await asyncio.sleep(0)
            return outcome.body if isinstance(outcome, Reply) else await self._listen(outcome)
        except Cancelled:
            return None
        except InsufficientScope as error:
            return self._refusal(InvalidRequest(str(error)))
        except AuthenticationFailed:
            return self._refusal(InvalidRequest("The user of this server may not sign in any more"), TOKEN)
        except LimitExceeded as limit:
            return self._refusal(InvalidRequest("Too many calls", data={"retryAfter": limit.retry_after}), RATE)
        except ToolError as error:
            return self._refusal(InvalidParams(error.message))
        except ProtocolError as error:
            return self._refusal(error)
        except Exception as error:
            identifier = log_failure(self.call.method, error, self.request.mcp.record.id)
            return self._refusal(InternalError(data={"errorId": identifier}))
        finally:
            self.is_over = True

    def give_up(self) -> None:
        """Tell nothing more of the call, whose task is cancelled."""
        self.is_over = True

    def _refusal(self, error: ProtocolError, outcome: str = "") -> bytes:
        # One that has begun is in the log of calls already.
        self.request.mcp.record.user = str(self.server.user_pk)
        refused(self.request, outcome or f"error:{error.code}", error.message, method=self.call.method)
        return encode(error_response(self.call.id, error, modern=self.call.era.modern))

    # Running

    async def _in_turn(self) -> Reply | Listen:
        if self.session is not None and self.call.method in IN_TURN:
            async with self.session.turn:
                return await self._in_place()
        return await self._in_place()

    async def _in_place(self) -> Reply | Listen:
        if self.has_place:
            return await self._rounds()
        with concurrent(self.server.caller):
            return await self._rounds()

    async def _rounds(self) -> Reply | Listen:
        outcome = await self._round(None)
        while isinstance(outcome, Asked):
            outcome = await self._round(await self._ask(outcome))
        return outcome

    async def _round(self, answers: Answers | None) -> Reply | Asked | Listen:
        """Run the call from its beginning, with the answers there are, by the authority that its user has now."""
        self.request = self.server.new_request()
        context = self.request.mcp
        context.session, context.live = self.session, self.session is not None
        context.notify = self._notify
        if answers is not None:
            context.answers = answers
        return await in_time(self.request, self.call, settings.CALL_TIMEOUT, self._work())

    async def _work(self) -> Reply | Asked | Listen:
        outcome = await in_thread(lane_of(self.call.method), self._begin)
        return await perform(self.request, self.call, outcome) if isinstance(outcome, Later) else outcome

    def _begin(self) -> Reply | Later | Asked | Listen:
        self.server.authorize(self.request)
        count_call(self.server.caller)
        return begin(self.request, self.call)

    def _notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell the client something, from whatever thread."""
        message = encode(notification(method, params))
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._tell, message)

    def _tell(self, message: bytes) -> None:
        # Nothing may be sent for a call after its answer, or after it was cancelled; and while nobody reads, answers
        # are all that is kept.
        if not (self.is_over or self.server.output.is_full):
            self.server.output.send(message)

    # Asking (client/elicitation, client/sampling, client/roots of the handshake era)

    async def _ask(self, asked: Asked) -> Answers:
        """Send the questions as requests and return the answers to them."""
        answers = self.request.mcp.answers
        state = answers.state(asked.questions)
        waiting: dict[Id, asyncio.Future[ClientResponse]] = {}
        for question in asked.questions:
            wire = question.to_wire(self.call.version)
            identifier, future = self.server.expect_response()
            waiting[identifier] = future
            self.server.output.send(encode(request(identifier, wire["method"], wire.get("params", {}))))
        self.is_asking = True
        try:
            async with asyncio.timeout(settings.QUESTION_TIMEOUT):
                responses = await asyncio.gather(*waiting.values())
        except TimeoutError:
            raise InternalError("The question was not answered in time; nothing was changed") from None
        finally:
            self.is_asking = False
            self.server.forget_questions(waiting)
        keys = [question.key for question in asked.questions]
        given = {
            key: response.result if response.result is not None else {"error": response.error}
            for key, response in zip(keys, responses, strict=True)
        }
        return Answers(given, state)

    # Listening (2026-07-28, basic/patterns/subscriptions)

    async def _listen(self, wanted: Listen) -> bytes:
        """Acknowledge, then tell of changes; return the answer, which says that the stream ended in order."""
        assert self.call.id is not None
        identifier = self.call.id
        with streaming(self.server.caller):
            self.mailbox = mailbox = Mailbox()
            subscription = await mailbox.subscribed(self.request, uris=wanted.uris, lists=wanted.lists)
            try:
                honoured = subscriptions.acknowledged(identifier, subscription.lists, subscription.uris)
                self.server.output.send(encode(honoured))
                await send_changes(self.server.output, mailbox, partial(subscriptions.tagged, identifier))
            finally:
                subscription.close()
        return encode(subscriptions.ended(identifier, identity()))

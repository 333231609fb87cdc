"""The stdio server: a client on the same machine talks to it by standard input and output (basic/transports, stdio).

The process acts as one Django user, whose account and permissions are read again for each call. Messages are lines.
Calls run concurrently, so notifications are interleaved with answers. The server supports both eras: a request with the
``_meta`` of 2026-07-28 stands alone; ``initialize`` begins the only session of the handshake era in this process.
"""

import asyncio
import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from django.contrib.auth.base_user import AbstractBaseUser

from ...conf import settings
from ...context.questions import Answers
from ...context.request import MCPRequest
from ...exceptions import AuthenticationFailed, Cancelled, InsufficientScope, ToolError
from ...operating.recorded_calls import RecordedCall
from ...protocol.eras import LEGACY_ERA, Batch, Call, Rejected, classify
from ...protocol.errors import InternalError, InvalidParams, InvalidRequest, ProtocolError
from ...protocol.listen_messages import ListenMessages
from ...protocol.messages import ClientResponse, Id, Message, decode, encode
from ...runtime.cache_and_rate_limits import Caller, LimitExceeded
from ...runtime.thread_pools import in_thread
from ...server.kernel import Reply
from ...server.methods.handler_interface import Asked, Later, Listen, log_failure
from ...server.methods.lifecycle_and_subscriptions import identity
from ...server.sessions import ClientSession
from ...sites import MCPSite
from ...subscriptions.subscribers import Subscription
from ..call_execution import CallExecution
from ..local_client import LocalUser
from ..notification_queues import Mailbox, relay
from .pipes import Input, LineTooLong, Output

# These methods read the session's state before they change it, so they run one at a time, in the order of arrival.
IN_TURN: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
# Seconds for running calls to finish once the client is gone, then for streams, then for waiting output. Clients wait
# two seconds before they kill the process.
CALLS_END: Final = 1.0
STREAMS_END: Final = 0.3
OUTPUT_END: Final = 0.3
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class MemorySession:
    """The one session of the process, in memory: what ``initialize`` negotiated, log level, subscriptions."""

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
        self.log_level = level

    def subscribe(self, uri: str) -> None:
        with self._lock:
            self._watch(ClientSession.add_uri(self.uris, uri))

    def unsubscribe(self, uri: str) -> None:
        with self._lock:
            self._watch([item for item in self.uris if item != uri])

    def _watch(self, uris: Sequence[str]) -> None:
        if self._subscription is not None:
            self._subscription.set_uris(uris)
        self.uris = tuple(uris)

    def open(self, request: MCPRequest, mailbox: Mailbox) -> None:
        """Subscribe the session to lists and to its resources. Call it in a worker thread."""
        with self._lock:
            self._subscription = mailbox.subscribe(request, uris=self.uris, lists=Subscription.LISTS)

    def close(self) -> None:
        with self._lock:
            if self._subscription is not None:
                self._subscription.close()
            self._subscription = None


class StdioServer:
    """Serves one client as one user.

    The process acts as ``user``, with ``scopes`` as the upper limit of its rights. :meth:`run` returns when the input
    ends, when nobody reads the output, or on SIGTERM or SIGINT.
    """

    def __init__(self, site: MCPSite, user: AbstractBaseUser, scopes: Iterable[str], streams: tuple[int, int]) -> None:
        self.user = LocalUser(site, user, scopes)
        self.caller = Caller(f"user:{user.pk}")
        self.descriptors = streams
        self.session: MemorySession | None = None
        self.output: Output
        self._calls: dict[Id, tuple[StdioCall, asyncio.Task[bytes | None]]] = {}
        self._questions: dict[Id, asyncio.Future[ClientResponse]] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stop: asyncio.Event

    async def run(self) -> None:
        """Serve until the input ends or a signal arrives, then end running calls and streams."""
        descriptor, output = self.descriptors
        self._stop = asyncio.Event()
        self.output = Output(output, self._stop.set)
        self._input = Input(descriptor, settings.MAX_BODY_BYTES)
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            # Not every system supports this, and only the main thread may do it.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self._stop.set)
        try:
            reading = asyncio.ensure_future(self._read())
            stopping = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, stopping):
                task.cancel()
            await self._end()
        finally:
            for number in SIGNALS:
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.remove_signal_handler(number)
        if reading.done() and not reading.cancelled():
            reading.result()

    # Messages

    async def _read(self) -> None:
        while True:
            try:
                line = await self._input.line()
            except LineTooLong:
                self._refuse(InvalidRequest(f"The message is larger than {settings.MAX_BODY_BYTES} bytes"))
            else:
                if line is None:
                    return
                if line.strip():
                    await self._take(line)
            await self.output.room()

    async def _take(self, line: bytes) -> None:
        try:
            message = classify(line, None, session=self.session)
            self._check_begun(message)
        except Rejected as rejected:
            if rejected.id is not None or _wants_answer(line):
                self.output.send(self._rejection(rejected))
            return
        match message:
            case ClientResponse():
                self._take_response(message)
            case Batch():
                self._spawn(self._run_batch(message))
            case Call(id=None):
                self._take_notification(message)
            case Call(method="initialize"):
                await self._initialize(message)
            case Call():
                self._spawn(self._answer(message))

    def note(self, error: ProtocolError, status: int | None = None, call: "StdioCall | None" = None) -> None:
        """Record a message or call that was refused, so that the log of calls has it."""
        refusal = call.request if call is not None else self.user.new_request()
        refusal.mcp.record.user = str(self.user.user_pk)
        method = call.call.method if call is not None else ""
        outcome = f"error:{error.code}" if status is None else status
        RecordedCall(refusal).refuse(outcome, error.message, method=method)

    def _refuse(
        self, error: ProtocolError, status: int | None = None, call_id: Id | None = None, *, modern: bool = True
    ) -> None:
        self.note(error, status)
        self.output.send(encode(error.response(call_id, modern=modern)))

    def _rejection(self, rejected: Rejected) -> bytes:
        self.note(rejected.error)
        return Reply.to_rejected(rejected).body

    def _check_begun(self, message: Call | ClientResponse | Batch) -> None:
        if self.session is not None or isinstance(message, ClientResponse):
            return
        if isinstance(message, Batch):
            raise Rejected(InvalidRequest("Invalid request: the body must be one JSON-RPC object"), LEGACY_ERA, None)
        if message.id is not None and not message.era.modern and message.method not in ("initialize", "ping"):
            error = InvalidRequest("Invalid request: initialize must come first, or _meta must name the revision")
            raise Rejected(error, message.era, message.id)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Calls

    async def _answer(self, call: Call) -> None:
        body = await self._run(call)
        if body is not None:
            self.output.send(body)

    async def _run(self, call: Call, *, has_place: bool = False) -> bytes | None:
        """Run a call in its own task and return the answer, None if the call was cancelled."""
        assert call.id is not None
        if call.id in self._calls:
            error = InvalidRequest("Invalid request: a request with this id is running")
            self.note(error)
            return encode(error.response(call.id, modern=call.era.modern))
        running = StdioCall(self, call, has_place=has_place)
        task = asyncio.ensure_future(running.run())
        self._calls[call.id] = running, task
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            del self._calls[call.id]
        return None if task.cancelled() else task.result()

    async def _initialize(self, call: Call) -> None:
        """Begin the session; no other message is read before this one is answered."""
        if self.session is not None:
            self._refuse(InvalidRequest("Invalid request: the session is already initialized"), call_id=call.id)
            return
        body = await self._run(call)
        if body is None:
            return
        result = decode(body).get("result")
        if result is not None:
            self.session = MemorySession(result["protocolVersion"], call.client, call.capabilities)
        self.output.send(body)

    async def _run_batch(self, batch: Batch) -> None:
        """Run the messages of a batch, one after the other, and answer in one line (2025-03-26)."""
        bodies: list[bytes | None] = []
        try:
            with self.caller.hold_call():
                for item in batch.items:
                    match item:
                        case Rejected():
                            bodies.append(self._rejection(item))
                        case ClientResponse():
                            self._take_response(item)
                        case Call(id=None):
                            self._take_notification(item)
                        case Call():
                            bodies.append(await self._run(item, has_place=True))
        except LimitExceeded as limit:
            self._refuse(_too_many(limit), 429, modern=False)
        if answers := [body for body in bodies if body is not None]:
            self.output.send(b"[" + b",".join(answers) + b"]")

    # Questions to the client, and notifications

    def expect_response(self) -> tuple[Id, "asyncio.Future[ClientResponse]"]:
        """Return an id for a request to the client, and the future of its response."""
        identifier = f"ask-{next(self._numbers)}"
        self._questions[identifier] = asyncio.get_running_loop().create_future()
        return identifier, self._questions[identifier]

    def forget_questions(self, identifiers: Iterable[Id]) -> None:
        """Stop waiting for responses to these requests, and tell the client that they are cancelled."""
        for identifier in identifiers:
            future = self._questions.pop(identifier, None)
            if future is not None:
                future.cancel()
                self.output.send(Message("notifications/cancelled", {"requestId": identifier}).encode())

    def _take_response(self, response: ClientResponse) -> None:
        future = self._questions.pop(response.id, None)
        if future is not None and not future.done():
            future.set_result(response)

    def _take_notification(self, call: Call) -> None:
        if call.method == "notifications/cancelled":
            self._cancel(call.params.get("requestId"))
        elif call.method == "notifications/initialized" and self.session is not None and self.session.mailbox is None:
            self.session.mailbox = Mailbox()
            self._spawn(self._tell_changes(self.session, self.session.mailbox))

    def _cancel(self, identifier: Any) -> None:
        # True would match the key 1, and a list is not hashable.
        if not isinstance(identifier, (str, int)) or isinstance(identifier, bool) or identifier not in self._calls:
            return
        running, task = self._calls[identifier]
        # Send no more notifications of the call.
        running.is_over = True
        task.cancel()

    async def _tell_changes(self, session: MemorySession, mailbox: Mailbox) -> None:
        """Send notifications of changes, as the GET stream of a session does over HTTP."""
        request = self.user.new_request()

        def open_session() -> None:
            self.user.authorize(request)
            session.open(request, mailbox)

        try:
            await in_thread("reads", open_session)
            await self.send_changes(mailbox, lambda method, params: Message(method, params).encode())
        except AuthenticationFailed:
            return
        except Exception as error:
            log_failure("The subscription of the session", error)
        finally:
            session.close()

    async def send_changes(self, mailbox: Mailbox, render: Callable[[str, Mapping[str, Any]], bytes]) -> None:
        async def deliver() -> bool:
            await self.output.room()
            waiting = mailbox.take()
            for method, params in waiting:
                self.output.send(render(method, params))
            return bool(waiting)

        await relay(mailbox, deliver)

    # Shutdown

    async def _end(self) -> None:
        """End calls first, then streams, then waiting output, each within its time."""
        running = list(self._calls.values())
        for call, task in running:
            # The client can no longer answer questions.
            if call.is_asking:
                task.cancel()
        await _wait([task for call, task in running if call.mailbox is None], CALLS_END)
        mailboxes = [call.mailbox for call, _ in self._calls.values()]
        for mailbox in (*mailboxes, self.session.mailbox if self.session is not None else None):
            if mailbox is not None:
                mailbox.end()
        await _wait(self._tasks, STREAMS_END)
        for identifier in list(self._calls):
            self._cancel(identifier)
        for task in self._tasks:
            task.cancel()
        await _wait(self._tasks, STREAMS_END)
        await self.output.close(OUTPUT_END)
        if settings.TELEMETRY["opentelemetry"] and self.session is not None:
            from ...operating.opentelemetry_spans import session_ended

            session_ended(time.monotonic() - self.session.began, self.session.version, is_local=True)


async def _wait(tasks: Iterable[Any], timeout: float) -> None:
    waiting = list(tasks)
    if waiting:
        await asyncio.wait(waiting, timeout=timeout)


def _wants_answer(line: bytes) -> bool:
    """Return whether a refused line must be answered: not a notification or a response."""
    try:
        value = decode(line)
    except ProtocolError:
        return True
    return not isinstance(value, dict) or ("method" in value) == ("id" in value)


def _too_many(limit: LimitExceeded) -> InvalidRequest:
    return InvalidRequest("Too many calls", data={"retryAfter": limit.retry_after})


class StdioCall:
    """One call. ``has_place`` says that it is part of a batch that holds the caller's place."""

    def __init__(self, server: StdioServer, call: Call, *, has_place: bool = False) -> None:
        self.server = server
        self.call = call
        self.has_place = has_place
        self.request: MCPRequest = server.user.new_request()
        self.session = None if call.era.modern else server.session
        self.mailbox: Mailbox | None = None
        self.is_asking = False
        self.is_over = False
        self._loop = asyncio.get_running_loop()

    async def run(self) -> bytes | None:
        """Run the call to its end and return its answer, None if it was cancelled."""
        in_turn = self.session is not None and self.call.method in IN_TURN
        try:
            async with self.session.turn if self.session is not None and in_turn else contextlib.nullcontext():
                with contextlib.nullcontext() if self.has_place else self.server.caller.hold_call():
                    outcome = await self._round(None)
                    while isinstance(outcome, Asked):
                        outcome = await self._round(await self._ask(outcome))
            # Let the event loop send the last notification of an async tool first.
            await asyncio.sleep(0)
            if isinstance(outcome, Reply):
                return outcome.body
            return await self._listen(outcome)
        except Cancelled:
            return None
        except InsufficientScope as error:
            return self._refusal(InvalidRequest(str(error)))
        except AuthenticationFailed:
            return self._refusal(InvalidRequest("The user of this server can no longer sign in"), 401)
        except LimitExceeded as limit:
            return self._refusal(_too_many(limit), 429)
        except ToolError as error:
            return self._refusal(InvalidParams(error.message))
        except ProtocolError as error:
            return self._refusal(error)
        except Exception as error:
            identifier = log_failure(self.call.method, error, self.request.mcp.record)
            return self._refusal(InternalError(data={"errorId": identifier}))
        finally:
            self.is_over = True

    def _refusal(self, error: ProtocolError, status: int | None = None) -> bytes:
        self.server.note(error, status, self)
        return encode(error.response(self.call.id, modern=self.call.era.modern))

    async def _round(self, answers: Answers | None) -> Reply | Asked | Listen:
        """Run the call from its beginning, with the answers so far and the user's current permissions."""
        self.request = self.server.user.new_request()
        context = self.request.mcp
        context.session = self.session
        context.live = self.session is not None
        context.notify = self._notify
        if answers is not None:
            context.answers = answers
        execution = CallExecution(self.request, self.call)
        return await execution.in_time(settings.CALL_TIMEOUT, self._work(execution))

    async def _work(self, execution: CallExecution) -> Reply | Asked | Listen:
        outcome = await in_thread(execution.lane, partial(self._begin, execution))
        if isinstance(outcome, Later):
            return await execution.perform(outcome)
        return outcome

    def _begin(self, execution: CallExecution) -> Reply | Later | Asked | Listen:
        self.server.user.authorize(self.request)
        self.server.caller.count_call()
        return execution.begin()

    def _notify(self, method: str, params: Mapping[str, Any]) -> None:
        message = Message(method, params).encode()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._tell, message)

    def _tell(self, message: bytes) -> None:
        # Nothing may be sent for a call after its answer or its cancellation. While the client does not read, only
        # answers are queued.
        if not (self.is_over or self.server.output.is_full):
            self.server.output.send(message)

    # Questions (client/elicitation, client/sampling, client/roots of the handshake era)

    async def _ask(self, asked: Asked) -> Answers:
        state = self.request.mcp.answers.state(asked.questions)
        waiting: dict[Id, asyncio.Future[ClientResponse]] = {}
        for question in asked.questions:
            wire = question.to_wire(self.call.version)
            identifier, future = self.server.expect_response()
            waiting[identifier] = future
            self.server.output.send(Message(wire["method"], wire.get("params", {}), identifier).encode())
        self.is_asking = True
        try:
            async with asyncio.timeout(settings.QUESTION_TIMEOUT):
                responses = await asyncio.gather(*waiting.values())
        except TimeoutError:
            raise InternalError("The question was not answered in time; nothing was changed") from None
        finally:
            self.is_asking = False
            self.server.forget_questions(waiting)
        results: dict[str, Any] = {}
        for question, response in zip(asked.questions, responses, strict=True):
            results[question.key] = response.result if response.result is not None else {"error": response.error}
        return Answers(results, state)

    # Subscriptions (2026-07-28, basic/patterns/subscriptions)

    async def _listen(self, wanted: Listen) -> bytes:
        """Send changes for ``subscriptions/listen``; return the answer that ends the stream."""
        assert self.call.id is not None
        messages = ListenMessages(self.call)
        with self.server.caller.hold_stream():
            mailbox = Mailbox()
            self.mailbox = mailbox
            subscription = await mailbox.subscribed(self.request, uris=wanted.uris, lists=wanted.lists)
            with contextlib.closing(subscription):
                self.server.output.send(messages.acknowledged(subscription.lists, subscription.uris))
                await self.server.send_changes(mailbox, messages.tagged)
        return messages.ended(identity())

"""The server over standard input and output, for a client on the same machine (basic/transports, stdio).

The process acts as one Django user, whose account and permissions are read anew for each call. Messages are lines;
calls run at the same time, and what they tell is interleaved with the answers. Both eras are served: a request with the
``_meta`` of 2026-07-28 is complete in itself; ``initialize`` begins the process's one session of the handshake era.
"""

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import Iterable
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser

from ...conf import settings
from ...context.asgi_request import local_request
from ...context.request import MCPRequest
from ...exceptions import AuthenticationFailed
from ...oauth.scopes import expand
from ...operating.refused import RATE, refused
from ...protocol.eras import Call
from ...protocol.errors import InvalidRequest, ProtocolError
from ...protocol.inbound import LEGACY_ERA, Batch, Rejected, classify
from ...protocol.messages import ClientResponse, Id, decode, encode, error_response, notification
from ...runtime.threads import in_thread
from ...server.dispatch import rejection
from ...server.methods.base import log_failure
from ...signin import act_as
from ...sites import MCPSite
from ..http.limits import LimitExceeded, concurrent
from ..notifications import Mailbox
from .call import MemorySession, StdioCall, send_changes
from .pipes import Input, LineTooLong, Output

# Seconds that calls have to end when the client is gone, then streams, then what is left to be written. Clients wait
# two seconds before they use force.
CALLS_END: Final = 1.0
STREAMS_END: Final = 0.3
OUTPUT_END: Final = 0.3
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StdioServer:
    """Serves one client as one user.

    ``user`` is whom the process acts as, ``scopes`` what it may do at most. :meth:`run` returns when the input ends,
    when nobody reads the output, or on SIGTERM or SIGINT.
    """

    def __init__(self, site: MCPSite, user: AbstractBaseUser, scopes: Iterable[str], streams: tuple[int, int]) -> None:
        self.site, self.user_pk, self.scopes = site, user.pk, expand(scopes)
        self.caller = f"user:{user.pk}"
        self.descriptors = streams
        self.session: MemorySession | None = None
        self.output: Output
        self._calls: dict[Id, tuple[StdioCall, asyncio.Task[bytes | None]]] = {}
        self._questions: dict[Id, asyncio.Future[ClientResponse]] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stop: asyncio.Event

    async def run(self) -> None:
        """Serve, then end what is running, in the main thread or any other."""
        descriptor, output = self.descriptors
        self._stop = asyncio.Event()
        self.output = Output(output, self._stop.set)
        self._input = Input(descriptor, settings.MAX_BODY_BYTES)
        with self._signals():
            reading = asyncio.ensure_future(self._read())
            stopping = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, stopping):
                task.cancel()
            await self._end()
        if reading.done() and not reading.cancelled():
            reading.result()

    @contextlib.contextmanager
    def _signals(self) -> Any:
        loop = asyncio.get_running_loop()
        try:
            for number in SIGNALS:
                loop.add_signal_handler(number, self._stop.set)
        except (NotImplementedError, RuntimeError, ValueError):  # not on this system, or not the main thread
            yield
            return
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    # What a call is made of

    def new_request(self) -> MCPRequest:
        """Return the request of a call, without its user."""
        return local_request(self.site)

    def authorize(self, request: MCPRequest) -> None:
        """Give the request its user and what the user may do now; in a worker thread.

        Raises:
            AuthenticationFailed: there is no such user any more, or not an active one.
        """
        user = get_user_model()._default_manager.filter(pk=self.user_pk).first()
        if user is None or not user.is_active:
            raise AuthenticationFailed(invalid=True)
        act_as(request, user, self.scopes)

    def expect_response(self) -> tuple[Id, "asyncio.Future[ClientResponse]"]:
        """Return an id for a request to the client, and what will be its response."""
        identifier = f"ask-{next(self._numbers)}"
        self._questions[identifier] = asyncio.get_running_loop().create_future()
        return identifier, self._questions[identifier]

    def forget_questions(self, identifiers: Iterable[Id]) -> None:
        """Take no more responses to requests; the client is told which of them it need not answer."""
        for identifier in identifiers:
            future = self._questions.pop(identifier, None)
            if future is not None:
                future.cancel()
                self.output.send(encode(notification("notifications/cancelled", {"requestId": identifier})))

    # Messages

    async def _read(self) -> None:
        while True:
            try:
                line = await self._input.line()
            except LineTooLong:
                error = InvalidRequest(f"The message is larger than {settings.MAX_BODY_BYTES} bytes")
                self._note(error)
                self._send_error(error)
            else:
                if line is None:
                    return
                if line.strip():
                    await self._take(line)
            await self.output.room()

    def _send_error(self, error: ProtocolError, identifier: Id | None = None, *, modern: bool = True) -> None:
        self.output.send(encode(error_response(identifier, error, modern=modern)))

    async def _take(self, line: bytes) -> None:
        try:
            message = classify(line, None, session=self.session)
            self._check_begun(message)
        except Rejected as rejected:
            if rejected.id is not None or _wants_answer(line):
                self._note(rejected.error)
                self.output.send(rejection(rejected).body)
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

    def _note(self, error: ProtocolError, outcome: str = "") -> None:
        """Have the log of calls say that a message is refused, which is no call."""
        request = self.new_request()
        request.mcp.record.user = str(self.user_pk)
        refused(request, outcome or f"error:{error.code}", error.message)

    def _check_begun(self, message: Call | ClientResponse | Batch) -> None:
        """Check that a session has begun, where the message belongs to one (2025-11-25, lifecycle, Initialization).

        Raises:
            Rejected: it has not.
        """
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
        """Run a call in a task of its own, so that it can be cancelled; None when it was."""
        assert call.id is not None
        if call.id in self._calls:
            error = InvalidRequest("Invalid request: a request with this id is running")
            self._note(error)
            return encode(error_response(call.id, error, modern=call.era.modern))
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
        """Begin the session; no other message is read before the answer."""
        if self.session is not None:
            error = InvalidRequest("Invalid request: the session is initialized already")
            self._note(error)
            self._send_error(error, call.id)
            return
        body = await self._run(call)
        if body is None:
            return
        result = decode(body).get("result")
        if result is not None:
            self.session = MemorySession(result["protocolVersion"], call.client, call.capabilities)
        self.output.send(body)

    async def _run_batch(self, batch: Batch) -> None:
        """Answer the messages of a batch, one after the other, in one message (2025-03-26)."""
        bodies = []
        try:
            with concurrent(self.caller):
                for item in batch.items:
                    if (body := await self._run_member(item)) is not None:
                        bodies.append(body)
        except LimitExceeded as limit:
            error = InvalidRequest("Too many calls", data={"retryAfter": limit.retry_after})
            self._note(error, RATE)
            self._send_error(error, modern=False)
        if bodies:
            self.output.send(b"[" + b",".join(bodies) + b"]")

    async def _run_member(self, item: Call | ClientResponse | Rejected) -> bytes | None:
        match item:
            case Rejected():
                self._note(item.error)
                return rejection(item).body
            case ClientResponse():
                self._take_response(item)
            case Call(id=None):
                self._take_notification(item)
            case Call():
                return await self._run(item, has_place=True)
        return None

    # What has no answer

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
        # True is a key like 1, and a list is none.
        if not isinstance(identifier, (str, int)) or isinstance(identifier, bool) or identifier not in self._calls:
            return
        running, task = self._calls[identifier]
        running.give_up()
        task.cancel()

    async def _tell_changes(self, session: MemorySession, mailbox: Mailbox) -> None:
        """Tell the session of what changes, as its GET stream does over HTTP."""
        request = self.new_request()

        def open_session() -> None:
            self.authorize(request)
            session.open(request, mailbox)

        try:
            await in_thread("reads", open_session)
            await send_changes(self.output, mailbox, notification)
        except AuthenticationFailed:
            return
        except Exception as error:
            log_failure("The subscription of the session", error)
        finally:
            session.close()

    # The end

    async def _end(self) -> None:
        """Let calls end, then streams, then what is left; nothing waits for long."""
        running = list(self._calls.values())
        for call, task in running:
            # The client can answer nothing any more.
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
        if settings.OPENTELEMETRY and self.session is not None:
            from ...operating.spans import session_ended

            session_ended(time.monotonic() - self.session.began, self.session.version, is_local=True)


async def _wait(tasks: Iterable[Any], timeout: float) -> None:
    waiting = list(tasks)
    if waiting:
        await asyncio.wait(waiting, timeout=timeout)


def _wants_answer(line: bytes) -> bool:
    """Whether a message that was refused is neither a notification nor a response, which are never answered."""
    try:
        value = decode(line)
    except ProtocolError:
        return True
    if not isinstance(value, dict):
        return True
    return not ("method" in value and "id" not in value) and not ("method" not in value and "id" in value)

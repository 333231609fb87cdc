"""What every call goes through, over any transport: its caller's places, its beginning, its time, its work.

Calls without HTTP and tokens, such as those of ``manage.py`` commands or over stdio, run as one :class:`LocalUser`.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser

from ..conf import settings
from ..context.record import CallRecord
from ..context.request import Client, MCPRequest, local_request
from ..exceptions import AuthenticationFailed, InsufficientScope
from ..operating.calls import finish, outcome_of, refused
from ..operating.telemetry import gauge
from ..orm.permissions import load_permissions
from ..protocol.eras import Call, Rejected, classify, client_meta
from ..protocol.errors import InternalError
from ..protocol.messages import decode, encode, error_response
from ..runtime.cache import caller_of, hit_if_counted
from ..runtime.threads import BUSY, Busy, LaneName, in_thread
from ..scopes import expand
from ..server.dispatch import Kernel, Reply
from ..server.methods.base import Asked, Later, Listen
from ..signin import act_as
from ..sites import MCPSite

T = TypeVar("T")

# Where calls of a method run: those that read rows and run functions hold up nobody who asks for a list ("reads").
LANES: Final[Mapping[str, LaneName]] = dict.fromkeys(
    ("tools/call", "resources/read", "prompts/get", "completion/complete"), "queries"
)
# Seconds after which a caller who has no place left may try again.
RETRY_AFTER: Final = 1


# The limits of one caller: calls in a period, counted by all workers; what is held at once, in this worker.


class LimitExceeded(Exception):
    """The caller is over a limit, which ``setting`` sets; ``retry_after`` is in seconds."""

    def __init__(self, setting: str, retry_after: int = RETRY_AFTER) -> None:
        super().__init__(f"{setting}: retry after {retry_after} s")
        self.retry_after, self.setting = retry_after, setting


def count_call(who: str) -> None:
    """Count one call of a caller against ``CALL_RATE``.

    A cache that is out of order limits nothing: tokens and permissions are checked all the same.
    """
    retry_after = hit_if_counted("calls", who, settings.CALL_RATE)
    if retry_after is not None:
        raise LimitExceeded("CALL_RATE", retry_after)


class Held:
    """Something of a caller's, held until it is given back, or until the end of the block that it is the context of."""

    __slots__ = ("amount", "held", "who")

    def __init__(self, held: dict[str, int], who: str, amount: int = 1) -> None:
        self.held, self.who, self.amount = held, who, amount
        held[who] = held.get(who, 0) + amount

    def give_back(self) -> None:
        """Hold it no longer; once."""
        with _lock:
            self.held[self.who] -= self.amount
            if not self.held[self.who]:
                del self.held[self.who]

    def __enter__(self) -> None: ...

    def __exit__(self, *raised: object) -> None:
        self.give_back()


_calls: dict[str, int] = {}
_streams: dict[str, int] = {}
_bodies: dict[str, int] = {}
_lock = threading.Lock()
gauge("running_calls", "Calls that run now.", lambda: sum(_calls.values()))
gauge("open_streams", "Streams of changes that are open now.", lambda: sum(_streams.values()))


def concurrent(who: str) -> Held:
    """Hold one of the caller's ``MAX_CONCURRENT_CALLS`` in this worker, or raise :class:`LimitExceeded`."""
    with _lock:
        if _calls.get(who, 0) >= settings.MAX_CONCURRENT_CALLS:
            raise LimitExceeded("MAX_CONCURRENT_CALLS")
        return Held(_calls, who)


def streaming(who: str) -> Held:
    """Hold one of the caller's ``MAX_STREAMS``, and of the ``MAX_WORKER_STREAMS`` of all, or raise LimitExceeded."""
    with _lock:
        if _streams.get(who, 0) >= settings.MAX_STREAMS:
            raise LimitExceeded("MAX_STREAMS")
        if sum(_streams.values()) >= settings.MAX_WORKER_STREAMS:
            raise LimitExceeded("MAX_WORKER_STREAMS")
        return Held(_streams, who)


def body_room(who: str, size: int) -> Held:
    """Hold room for a long body of the caller in this worker."""
    total = settings.MAX_WORKER_BODY_BYTES
    with _lock:
        own = _bodies.get(who, 0)
        if sum(_bodies.values()) + size > total or (own and own + size > total // 4):
            raise LimitExceeded("MAX_WORKER_BODY_BYTES")
        return Held(_bodies, who, size)


# The work


def begin(request: MCPRequest, call: Call) -> Reply | Later | Asked | Listen:
    """Run a call, or as much of it as runs in this thread."""
    context = request.mcp
    if context.record.method:
        # Others of a batch have the same request.
        context.record = CallRecord()
    context.version, context.capabilities = call.version, call.capabilities
    context.client = Client(str(call.client.get("name", "")), str(call.client.get("version", "")))
    context.progress_token, context.log_level = call.progress_token, call.log_level
    context.trace = call.trace
    if call.method != "ping":
        load_permissions(request.user)
    return Kernel(request, call).serve()


def conclude(request: MCPRequest, call: Call, outcome: Reply | Later | Asked | Listen) -> Reply:
    """Return the reply of a call that has begun, its work done in this thread, as where nobody can be asked."""
    if isinstance(outcome, Later):
        kernel = Kernel(request, call)
        outcome = async_to_sync(kernel.resume_async)(outcome) if outcome.is_async else kernel.resume(outcome)
    assert isinstance(outcome, Reply)
    return outcome


async def perform(request: MCPRequest, call: Call, later: Later) -> Reply | Asked:
    """Do work that was put off where it belongs: on the loop, or in the pool for the project's own code."""
    if later.is_async:
        return await Kernel(request, call).resume_async(later)
    work = partial(Kernel(request, call).resume, later)
    sensitive = request.mcp.site.needs_middleware
    try:
        return await in_thread("slow", work, owner=caller_of(request), thread_sensitive=sensitive)
    except Busy:
        refused(request, outcome_of(503), BUSY)
        body = encode(error_response(call.id, InternalError(BUSY), modern=call.era.modern))
        return Reply(body, 503)


async def in_time(request: MCPRequest, call: Call, seconds: float, work: Coroutine[Any, Any, T]) -> T | Reply:
    """Return what comes of the work of a call, or the reply that it took longer than ``CALL_TIMEOUT``.

    The work is given ``seconds``. Who cancels this cancels the work, and it is waited for no longer: what goes on in a
    thread all the same stops at its next report.
    """
    task = asyncio.ensure_future(work)
    outcome = "cancelled"
    done: set[asyncio.Task[T]] = set()
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
        outcome = "error:timeout"
    finally:
        request.mcp.cancelled = True
        task.cancel()
        if not done:
            # It may never come to an end of its own.
            in_thread("streams", partial(finish, request, outcome))
    if done:
        return task.result()
    error = InternalError(f"The call took longer than {settings.CALL_TIMEOUT} s and was stopped")
    return Reply(encode(error_response(call.id, error, modern=call.era.modern)))


# What commands call themselves.
NAME: Final = "manage.py"


class Refused(Exception):
    """The call has no result. The text says why; ``data`` is what else the server says of it."""

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.data = data


class LocalUser:
    """A user of this machine who calls ``site`` with ``scopes``; account and permissions are read for each call."""

    def __init__(self, site: MCPSite, user: AbstractBaseUser, scopes: Iterable[str]) -> None:
        self.site, self.user_pk, self.scopes = site, user.pk, expand(scopes)

    def new_request(self) -> MCPRequest:
        return local_request(self.site)

    def authorize(self, request: MCPRequest) -> None:
        """Give the request its user and what the user may do now; in a worker thread."""
        user = get_user_model()._default_manager.filter(pk=self.user_pk).first()
        if user is None or not user.is_active:
            raise AuthenticationFailed(invalid=True)
        act_as(request, user, self.scopes)


class LocalClient:
    """A client of ``site`` that acts as ``user`` with ``scopes``, in the calling thread.

    ``facts`` is what a sign-in left, as :func:`~mcp_django.signin.keep` gives it. ``name`` is what the client calls
    itself, ``capabilities`` what it can be asked: without any, what would ask gives a confirmation token instead.
    ``is_signed_in`` says that the user is in front of a page, and not whoever calls from this machine.
    """

    def __init__(
        self,
        site: MCPSite,
        user: AbstractBaseUser,
        scopes: Iterable[str],
        facts: Mapping[str, Any] | None = None,
        *,
        name: str = NAME,
        capabilities: Mapping[str, Any] | None = None,
        is_signed_in: bool = False,
    ) -> None:
        self._user = LocalUser(site, user, scopes)
        self._facts = facts or {}
        self._kind = "person" if is_signed_in else ""
        self._meta = client_meta(name, capabilities=capabilities)

    def new_request(self) -> MCPRequest:
        """Return a request of the user, as hooks get it."""
        request = self._user.new_request()
        request.mcp.facts, request.mcp.record.kind = self._facts, self._kind
        try:
            self._user.authorize(request)
        except AuthenticationFailed:
            raise Refused("The user is not active.") from None
        return request

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of 2026-07-28 and return its result."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": self._meta}}
        try:
            call = classify(encode(message), None, session=None)
            assert isinstance(call, Call)
            request = self.new_request()
            outcome = begin(request, call)
            if not isinstance(outcome, Reply | Later):
                raise Refused(f"{method} goes on after its answer, which is not possible here.")
            answer = decode(conclude(request, call, outcome).body)
        except Rejected as rejected:
            raise Refused(rejected.error.message, rejected.error.data) from None
        except InsufficientScope as error:
            raise Refused(str(error)) from None
        if "error" in answer:
            raise Refused(answer["error"]["message"], answer["error"].get("data"))
        result: dict[str, Any] = answer["result"]
        return result

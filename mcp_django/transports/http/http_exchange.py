"""One HTTP exchange, request and response, without I/O: checks of host, origin, size and token, limits, and refusals.

Clients rely on the order of the checks: host, origin, size; then the token; then method, content type and the message
itself. So a request without a token always learns how to get one, whatever its method or version.
:mod:`~mcp_django.transports.http.streamable_http` handles the messages.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from django.conf import settings as django_settings
from django.core.exceptions import DisallowedHost, ImproperlyConfigured
from django.db import Error as DatabaseUnavailable
from django.db import connections
from django.utils.functional import cached_property

from ...conf import settings
from ...context.call_record import CallRecord
from ...context.call_restrictions import NarrowingQuery, UnreadableAddress
from ...context.database_errors import Trouble
from ...context.refused_request_log import report
from ...context.request import MCPRequest, read_scope
from ...context.untrusted_text import plain
from ...emulation.uploads import Upload
from ...exceptions import AuthenticationFailed, InsufficientScope, NotFound
from ...oauth.bearer import ProtectedResource
from ...oauth.endpoint_pages import EndpointPage
from ...operating.recorded_calls import RecordedCall
from ...problems import IS_IT_RIGHT, Problem
from ...protocol.eras import Call, Rejected
from ...protocol.errors import InternalError, InvalidRequest, ProtocolError
from ...protocol.headers import MediaType, RequestHeaders, cors_headers
from ...protocol.messages import Message, decode, encode
from ...protocol.versions import Revisions
from ...runtime.cache_and_rate_limits import Caller, Held, LimitExceeded
from ...runtime.thread_pools import Busy
from ...scopes import default_scopes, join
from ...server.kernel import Reply
from ...server.methods.handler_interface import log_failure
from ...server.sessions import ClientSession
from ...server.stored_streams import SessionStreams
from ...signin import SignIn
from ...sites import MCPSite
from ..client_configs import set_ups
from .stream_registry import registry

logger = logging.getLogger("mcp_django")

T = TypeVar("T")

# The key of the ASGI scope under which the Django views pass on Django's request.
DJANGOS_REQUEST: Final = "mcp_django.request"
# Maximum bytes of a body that are read before the caller is authenticated.
SHORT_BODY: Final = 8 * 1024
# Maximum characters of a client's header that an error repeats.
SHOWN: Final = 100
# Browsers name text/html first in Accept; programs that take anything do not name it.
HTML: Final = re.compile(r"\s*text/html\s*(?:[,;]|$)", re.IGNORECASE)
# The header that tells a client to try again in 5 seconds when the server is busy.
RETRY_AFTER: Final = {"Retry-After": "5"}
TWO_TOKENS: Final = Problem(
    "the request has two Authorization headers",
    "Perhaps the client and a proxy each add one.",
    "The Authorization header is given twice.",
)
NOT_SAID: Final = Problem("an authentication class refuses the credentials", "See its own rules.")
BASE_HEADERS: Final[tuple[tuple[str, str], ...]] = (
    ("Cache-Control", "no-store"),
    ("Vary", "Authorization, Origin"),
    ("X-Content-Type-Options", "nosniff"),
)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response: status, body, and headers in addition to ``BASE_HEADERS``."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def header_list(self) -> list[tuple[str, str]]:
        """Return all headers, in order."""
        headers = [*BASE_HEADERS, *self.headers.items()]
        if self.body:
            headers.append(("Content-Type", self.content_type))
        # RFC 9110, section 8.6: a 204 must not have Content-Length.
        if self.status != 204:
            headers.append(("Content-Length", str(len(self.body))))
        return headers


class Refused(Exception):
    """Raised to answer with this status and text; the log gets ``remedy``, and ``seen`` or else the text.

    ``remedy`` is a constant text for each cause.
    """

    def __init__(
        self, status: int, text: str, remedy: str, headers: Mapping[str, str] | None = None, *, seen: str = ""
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.remedy = remedy
        self.headers = dict(headers or {})
        self.seen = seen or text


class SessionNotFound(Refused):
    """Raised for a session that has ended, or that never was the caller's."""

    def __init__(self) -> None:
        text = "Session not found. Begin a new one with initialize"
        super().__init__(404, text, "It ended, was unused for a week, or belongs to another user.")


class Exchange:
    """One request to the endpoint and its response. A subclass takes the message (:meth:`take`).

    ``attributes`` are the attributes that the project's middleware set on Django's request, for hooks to use.
    ``can_stream`` is False under a server that cannot stream.
    """

    def __init__(
        self,
        site: MCPSite,
        scope: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        *,
        can_stream: bool = True,
    ) -> None:
        self.request: MCPRequest
        self.request, self.headers = read_scope(scope, site)
        # Returns the value of a header; None if it is absent or given more than once.
        self.header = {name: values[0] for name, values in self.headers.items() if len(values) == 1}.get
        self.version_header = self.header(RequestHeaders.VERSION)
        self.request.__dict__.update(attributes or {})
        self.request.mcp.can_stream = can_stream
        self.can_stream = can_stream
        # The endpoint for which tokens are issued.
        self.resource = ProtectedResource(self.request, self.request.path_info)
        # The query string may narrow what the call reaches; it is not part of the resource of a token.
        self.query = scope.get("query_string", b"").decode("latin1")
        self.original: Any = scope.get(DJANGOS_REQUEST)
        self.session: ClientSession | None = None
        self.began = time.monotonic()
        # Empty until the body has been read.
        self.body = b""
        # Whether a call continues after its connection closes, and closes this exchange itself.
        self.outlives_connection = False
        self._places: list[Held] = []
        self._is_closed = False
        self._is_admitted = False

    @cached_property
    def accepts_events(self) -> bool:
        """Whether the client takes an event stream."""
        return self.headers.accepts(MediaType.EVENTS)

    @property
    def wants_page(self) -> bool:
        """Whether a person visits the endpoint by browser; then the response is an HTML page."""
        is_client = self.request.method not in ("GET", "HEAD") or "authorization" in self.headers
        return not is_client and HTML.match(self.headers.accept or "") is not None

    @property
    def allowed(self) -> str:
        """The HTTP methods that the endpoint takes, as in the header ``Allow``.

        GET opens streams and DELETE ends sessions (2025-11-25, basic/transports).
        """
        if self.can_stream and self.version_header not in Revisions.SESSIONLESS:
            return "POST, GET, DELETE"
        return "POST"

    @property
    def time_left(self) -> float:
        """The seconds that are left of ``CALL_TIMEOUT``, counted from when the request came."""
        return max(0.0, settings.CALL_TIMEOUT - (time.monotonic() - self.began))

    @cached_property
    def caller(self) -> Caller:
        """The caller against whose limits the request counts."""
        return Caller.of(self.request)

    def close(self) -> None:
        """Give back the caller's place among running calls or open streams."""
        self._is_closed = True
        self._give_back()

    def _hold(self, held: Held) -> None:
        self._places.append(held)
        # A thread may still work on an abandoned request whose exchange is closed.
        if self._is_closed:
            self._give_back()

    def _give_back(self) -> None:
        # Two threads may give back places at the same time.
        with suppress(IndexError):
            while True:
                self._places.pop().give_back()

    def swap_place(self) -> None:
        """Swap the caller's place among running calls for one among open streams."""
        self._give_back()
        if registry.is_closing:
            raise Refused(503, "The server is about to stop", "Clients come back.", {"Retry-After": "1"})
        try:
            self._hold(self.caller.hold_stream())
        except LimitExceeded as limit:
            raise self._over(limit, "Too many open streams") from None

    # Checks on the event loop, before the body is read

    def front_door(self) -> Response | None:
        """Check host, origin and size; return the response if it needs no body and no database, otherwise None."""
        self.request.get_host()
        origins = self.headers.get("origin", [])
        allowed = not origins or origins[0] in [*settings.ALLOWED_ORIGINS, self.resource.origin]
        if len(origins) > 1 or not allowed:
            remedy = "Add the origin to ALLOWED_ORIGINS if its pages should call the endpoint."
            raise Refused(403, "Origin not allowed", remedy, seen=f"the Origin {', '.join(origins)!r} is not allowed")
        if self.request.method == "OPTIONS" and "access-control-request-method" in self.headers:
            return Response(204, headers=self.cors() | {"Access-Control-Max-Age": "600"})
        try:
            length = RequestHeaders.body_length(self.header("content-length"))
        except ValueError:
            raise Refused(400, "Content-Length is not a number", "The client or a proxy violates HTTP.") from None
        # For a chunked body, room would be held for the announced length, whatever its real length (RFC 9112, 6.3).
        if len([*self.headers.get("content-length", []), *self.headers.get("transfer-encoding", [])]) > 1:
            raise Refused(400, "The length of the body is given twice", "Perhaps the client and a proxy each add one.")
        if length is not None and length > settings.MAX_BODY_BYTES:
            raise self.too_large()
        # With session middleware, the page needs the database to know who is signed in: answer() returns it.
        if self.wants_page and not hasattr(self.original, "user"):
            return self._endpoint_page()
        return None

    def _endpoint_page(self) -> Response:
        """Return the HTML page for a person who visits the endpoint by browser.

        A user whom the project's middleware signed in sees what a client would see; otherwise no cookie is read.
        """
        elsewhere = self.resource.other_origin if django_settings.DEBUG else None
        if elsewhere is not None:
            base = self.resource.origin
            report(200, f"the page was opened at {elsewhere}, but BASE_URL sends clients to {base}", IS_IT_RIGHT)
        user = getattr(self.original, "user", None)
        visitor = self.original if user is not None and user.is_authenticated else None
        return _response(EndpointPage.of_set_up(self.resource, set_ups, visitor, elsewhere))

    # Steps in a worker thread

    def admit_body(self) -> None:
        """Authenticate a request with a long body, and reserve room for the body, before it is read."""
        self.admit()
        if self.request.method != "POST":
            raise self.not_allowed()
        length = self.header("content-length")
        self._hold(self.caller.hold_body(settings.MAX_BODY_BYTES if length is None else int(length)))
        self.check_types()

    def answer(self, body: bytes) -> Any:
        """Authenticate the request, take its message, and return a response or work that runs elsewhere."""
        self.body = body
        try:
            if self.wants_page:
                return self._endpoint_page()
            self.admit()
            return self.take()
        except Exception as error:
            return self.failed(error)

    def take(self) -> Any:
        """Return a response, or work that runs elsewhere; :meth:`answer` turns exceptions into responses."""
        raise NotImplementedError

    def admit(self) -> None:
        """Admit the request, once: authenticate it, count it against the rate limit, and hold a place for it."""
        if self._is_admitted:
            return
        self._is_admitted = True
        request = self.request
        context = self.request.mcp
        record = self.request.mcp.record
        began = time.perf_counter()
        record.waiting = (began - record.began) * 1000
        if settings.AUTHENTICATION_CLASSES and len(self.headers.get("authorization", [])) > 1:
            raise AuthenticationFailed(invalid=True, reason=TWO_TOKENS)
        try:
            self.resource.authenticate()
        except DatabaseUnavailable:
            # This is the call's first query, so nothing runs twice when it is repeated.
            if not _renew_connections():
                raise
            self.resource.authenticate()
        finally:
            record.token_check = (time.perf_counter() - began) * 1000
        request.META.pop("HTTP_AUTHORIZATION", None)
        if self.original is not None:
            # Middleware that kept Django's request may read the user from it when something is saved.
            self.original.user = request.user
            self.original._acached_user = request.user
        if self.query:
            context.facts = NarrowingQuery(self.query).facts(context.facts)
        SignIn(request).restore()
        self.caller.count_call()
        self._hold(self.caller.hold_call())

    # Messages of both transports

    def enter(self, text: str | None) -> None:
        """Check the content types of a POST, and find the session if ``text`` is an id."""
        if self.request.method == "POST":
            self.check_types()
        if text is None:
            return
        try:
            self.session = ClientSession.find(self.request, text)
        except NotFound:
            raise SessionNotFound from None
        self.request.mcp.session = self.session

    def take_notification(self, call: Call) -> None:
        """Take a notification: ``notifications/cancelled`` cancels a call of the session."""
        session = self.session
        request_id = call.params.get("requestId")
        if call.method == "notifications/cancelled" and session is not None and isinstance(request_id, (str, int)):
            logger.info("Call %r was given up by its client: %.200r", request_id, call.params.get("reason", ""))
            SessionStreams(session).cancel(request_id)

    def check_types(self) -> None:
        """Refuse a wrong ``Content-Type``, ``Content-Encoding`` or ``Accept``."""
        takes_answers = self.accepts_events or self.headers.accepts(MediaType.JSON)
        if not self.headers.has_json:
            content_type = plain(",".join(self.headers.get("content-type", ())), SHOWN) or "nothing"
            remedy = "The client's configuration or a proxy sends another Content-Type."
            raise Refused(415, f"The content type must be {MediaType.JSON}, not {content_type}", remedy)
        if self.headers.get("content-encoding"):
            raise Refused(415, "The body must not be encoded", "The client or a proxy compresses it.")
        if not takes_answers:
            raise self.not_acceptable(f"{MediaType.JSON} and {MediaType.EVENTS}")

    # Responses

    def respond(self, reply: Reply) -> Response:
        if reply.status >= 400:
            error = json.loads(reply.body)["error"]
            # There are few error codes, so there are few different remedies.
            report(reply.status, error["message"], f"The client's program sent it (JSON-RPC error {error['code']}).")
        return Response(reply.status, reply.body, headers=self.cors())

    def rejected(self, rejected: Rejected) -> Reply:
        error = rejected.error
        context = self.request.mcp
        if context.record.duration:
            # Other calls of a batch share this request.
            context.record = CallRecord()
        RecordedCall(self.request).refuse(f"error:{error.code}", error.message, method=self._asked_for())
        return Reply.to_rejected(rejected)

    def cors(self) -> dict[str, str]:
        """Return the headers that let pages of an allowed origin read the response (CORS; Fetch, section 3.2)."""
        origin_header = self.header("origin")
        if origin_header is None:
            return {}
        return cors_headers(origin_header, self.allowed)

    # Refusals

    def too_large(self) -> Refused:
        hint = "; create_upload gives a URL for a file" if Upload.storage() is not None else ""
        remedy = "Raise DATA_UPLOAD_MAX_MEMORY_SIZE if clients have to send more."
        return Refused(413, f"The body is larger than {settings.MAX_BODY_BYTES} bytes{hint}", remedy)

    def too_long(self) -> Refused:
        remedy = "Make what is called faster, or raise CALL_TIMEOUT."
        return Refused(503, f"The call took longer than {settings.CALL_TIMEOUT} s", remedy, RETRY_AFTER)

    def not_allowed(
        self, reason: str = "This endpoint takes POST", remedy: str = "Clients send POST.", allowed: str = ""
    ) -> Refused:
        seen = f"{plain(self.request.method, SHOWN)}: {reason}"
        return Refused(405, reason, remedy, {"Allow": allowed or self.allowed}, seen=seen)

    def not_acceptable(self, types: str) -> Refused:
        accepted = plain(self.headers.accept, SHOWN) or "nothing"
        remedy = "The client's configuration or a proxy sends another Accept."
        return Refused(406, f"Accept must allow {types}, but is {accepted}", remedy)

    def _over(self, limit: LimitExceeded, message: str = "Too many calls") -> Refused:
        text = f"{message}. Try again in {limit.retry_after} s"
        headers = {"Retry-After": str(limit.retry_after)}
        return Refused(429, text, limit.remedy, headers, seen=f"{self.caller}: {message}")

    # Mapping of exceptions to responses

    def guarded(self, work: Callable[[], T]) -> T | Response:
        """Return the result of ``work``, or the response for its exception."""
        try:
            return work()
        except Exception as error:
            return self.failed(error)

    def failed(self, error: Exception) -> Response:
        """Return the response for an exception; log internal errors under an id."""
        match error:
            case Refused():
                return self._refuse(error)
            case AuthenticationFailed():
                return self._unauthorized(error)
            case LimitExceeded():
                return self._refuse(self._over(error))
            case Rejected():
                return self.respond(self.rejected(error))
            case UnreadableAddress():
                return self._refuse(Refused(400, str(error), "Correct the URL in the client's configuration."))
            case DisallowedHost():
                remedy = "Add the host to ALLOWED_HOSTS if clients reach the server by it."
                return self._refuse(Refused(400, "Host not allowed", remedy, seen=str(error).partition(". You may")[0]))
            case Busy():
                return self._refuse(Refused(503, str(error), "Run more workers, or raise THREADS.", RETRY_AFTER))
        record = self.request.mcp.record
        log_failure("The request", error, record)
        trouble = Trouble.of(error) if isinstance(error, DatabaseUnavailable) else None
        text = f"Internal error: {trouble.cause}" if trouble is not None else None
        status = 503 if isinstance(error, DatabaseUnavailable) else 500
        # If a setting is wrong, it may be the one that the call log needs.
        with suppress(ImproperlyConfigured):
            RecordedCall(self.request).refuse(status, text or "", method=self._asked_for())
        body = encode(InternalError(text, data={"errorId": record.error_id}).response(None, modern=True))
        return Response(status, body, headers=RETRY_AFTER if status == 503 else {})

    def _refuse(self, refusal: Refused) -> Response:
        """Return the response for a refusal: a JSON-RPC error, or an HTML page for a browser."""
        report(refusal.status, refusal.seen, refusal.remedy)
        recorded = RecordedCall(self.request)
        recorded.refuse(refusal.status, refusal.text, method=self._asked_for(), cause=refusal.remedy)
        if self.wants_page:
            return _response(EndpointPage.of_refusal(self.request, refusal.status, refusal.text), refusal.status)
        # Some clients show an error only if it has the id of their request.
        body = encode(InvalidRequest(refusal.text).response(Message.readable_id(self._message()), modern=True))
        return Response(refusal.status, body, headers=refusal.headers)

    def _message(self) -> Any:
        if len(self.body) > SHORT_BODY:
            return None
        try:
            return decode(self.body)
        except ProtocolError:
            return None

    def _asked_for(self) -> str:
        """Return the JSON-RPC method of the message, or the HTTP method if it has none."""
        message = self._message() if self.request.method == "POST" else None
        method = message.get("method") if isinstance(message, dict) else None
        if isinstance(method, str):
            return method
        return self.request.method or ""

    # Challenges (RFC 6750, section 3; RFC 9728, section 5.1)

    def _unauthorized(self, error: AuthenticationFailed) -> Response:
        reason = error.reason or NOT_SAID
        seen = reason.what
        remedy = reason.remedy
        elsewhere = self.resource.other_origin
        if elsewhere is not None:
            seen += f"; its Host says {elsewhere}, BASE_URL {self.resource.origin}"
            remedy = IS_IT_RIGHT if django_settings.DEBUG and not error.invalid else remedy
        header = self.resource.challenge(
            default_scopes(),
            error="invalid_token" if error.invalid else None,
            description=reason.told,
        )
        headers = {"WWW-Authenticate": header, **self.cors()}
        return self._refuse(Refused(401, reason.told or "Authentication required", remedy, headers, seen=seen))

    def forbidden(self, call: Call, error: InsufficientScope) -> Response:
        """Return the 403 response to a call that needs more scopes than the token has (RFC 6750, section 3.1)."""
        # All scopes of the token, even if the URL narrows the call: clients lose the scopes that are not listed here.
        granted = getattr(self.request.auth, "scopes", self.request.mcp.scopes)  # type: ignore[attr-defined]
        text = f"This takes {join(error.required)}; the token has {join(granted) or 'none of them'}."
        header = self.resource.challenge(
            error.required | granted,
            error="insufficient_scope",
            description=text,
        )
        report(403, f"{call.method}: {text}", "The client asks the user for more; mcp_token has --scope.")
        body = encode(InvalidRequest(str(error)).response(call.id, modern=call.era.modern))
        return Response(403, body, headers={"WWW-Authenticate": header, **self.cors()})


def _renew_connections() -> bool:
    """Close the dead database connections of this thread, and return whether there were any."""
    kept = [found for found in connections.all(initialized_only=True) if found.connection is not None]
    dead = [found for found in kept if not (found.in_atomic_block or found.is_usable())]
    for connection in dead:
        connection.close()
    return bool(dead)


def _response(page: EndpointPage, status: int = 200) -> Response:
    headers = {**page.headers, "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin"}
    return Response(
        status, page.body, "text/html; charset=utf-8", headers | {"Vary": "Accept, Accept-Language, Cookie"}
    )

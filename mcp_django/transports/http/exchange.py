"""One HTTP request and its answer, without I/O of its own: what every road of the transport does, in one order.

:meth:`Exchange.front_door` needs no body and no database. What a request is about, which is found out in a worker
thread, is :mod:`~mcp_django.transports.http.dispatch`'s.
The order is the one clients rely on (a probe without a token is told how to get one, whatever its method or version):
host, origin, size; then the token; then method, content type, and the message itself.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from django.conf import settings as django_settings
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import DisallowedHost, ImproperlyConfigured
from django.db import Error as DatabaseUnavailable
from django.utils.functional import cached_property
from rest_framework.exceptions import APIException

from ...conf import settings
from ...context.asgi_request import build_request, headers_of
from ...context.narrowing import UnreadableAddress, narrowed_by
from ...context.record import CallRecord
from ...context.refusals import AMBIGUOUS, IS_IT_RIGHT, NO_TOKEN, NOT_ACTIVE, NOT_SAID, OTHER_SCHEME, TWO_TOKENS, report
from ...context.request import MCPRequest
from ...context.text import plain
from ...exceptions import AuthenticationFailed, InsufficientScope, Reason
from ...forms.uploads import upload_storage
from ...oauth.bearer import challenge
from ...oauth.resource import came_to, metadata_url, origin, own_resource
from ...oauth.scopes import default_scopes, expand, join
from ...oauth.usage import note_use
from ...operating.refused import outcome_of, refused
from ...protocol.eras import Call
from ...protocol.errors import InternalError, InvalidRequest, ProtocolError
from ...protocol.http import EVENTS, JSON, Response, accepts, allowed_methods, body_length, is_json, origin_allowed
from ...protocol.inbound import Rejected
from ...protocol.messages import Id, decode, encode, error_response, readable_id
from ...protocol.modern import VERSION_HEADER
from ...runtime.threads import BUSY, Busy, renew_connections
from ...runtime.throttling import caller_of
from ...scopes import ADMIN
from ...server.dispatch import Reply, rejection
from ...server.methods.base import log_failure
from ...server.sessions import ClientSession
from ...signin import restore
from ...sites import MCPSite
from .limits import Held, LimitExceeded, body_room, concurrent, count_call, streaming
from .pages import endpoint_page, error_page, wants_page

T = TypeVar("T")

# In the scope, the request that Django has made of it.
DJANGOS_REQUEST: Final = "mcp_django.request"
# Bytes of a body that are read before it is known who sends it.
SHORT_BODY: Final = 8 * 1024
CORS_REQUEST_HEADERS: Final = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, Last-Event-ID"
)
CORS_RESPONSE_HEADERS: Final = "Mcp-Session-Id, WWW-Authenticate"
# Characters of a client's header that it is told.
SHOWN: Final = 100


class Exchange:
    """One request to the endpoint.

    ``attributes`` are what the project's middleware put on the request that Django made, for hooks to find.
    ``can_stream`` is False under a server that cannot.
    """

    def __init__(
        self,
        site: MCPSite,
        scope: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        *,
        can_stream: bool = True,
    ) -> None:
        self.headers = headers_of(scope)
        # The value of a header, None when it is absent or given more than once.
        self.header = {name: values[0] for name, values in self.headers.items() if len(values) == 1}.get
        self.version_header = self.header(VERSION_HEADER)
        # Which may come in several lines.
        self.accept = ",".join(self.headers.get("accept", [])) or None
        # Whether the client takes an event stream.
        self.accepts_events = accepts(self.accept, EVENTS)
        self.request: MCPRequest = build_request(scope, self.headers, site)
        self.request.__dict__.update(attributes or {})
        self.request.mcp.can_stream = can_stream
        self.can_stream = can_stream
        # Where the URLconf has the endpoint that tokens are for.
        self.resource_path = self.request.path_info
        # It may narrow what the call reaches, and says nothing of what a token has to be for.
        self.query = scope.get("query_string", b"").decode("latin1")
        self.original: Any = scope.get(DJANGOS_REQUEST)
        self.session: ClientSession | None = None
        self.began = time.monotonic()
        self._places: list[Held] = []
        self._is_closed = False
        self._is_admitted = False
        # As far as it has been read.
        self.body = b""

    @property
    def wants_page(self) -> bool:
        """Whether a person opened the endpoint in a browser."""
        has_token = "authorization" in self.headers
        return self.request.method != "POST" and wants_page(self.request.method or "", self.accept, has_token=has_token)

    @property
    def allowed(self) -> str:
        """The methods that the endpoint takes, as in ``Allow``."""
        return allowed_methods(self.version_header, sessions=self.can_stream and settings.SESSIONS)

    @property
    def time_left(self) -> float:
        """The seconds that are left of ``CALL_TIMEOUT``; waiting for a thread counts."""
        return max(0.0, settings.CALL_TIMEOUT - (time.monotonic() - self.began))

    @cached_property
    def caller(self) -> str:
        """Whose limits the request counts against."""
        return caller_of(self.request)

    def close(self) -> None:
        """Give back the caller's place among those that run at once, or that have a stream."""
        self._is_closed = True
        self._give_back()

    def _hold(self, held: Held) -> None:
        self._places.append(held)
        # A thread may still be at a request that was given up.
        if self._is_closed:
            self._give_back()

    def _give_back(self) -> None:
        while self._places:
            try:
                self._places.pop().give_back()
            except IndexError:
                return

    def change_place(self) -> Response | None:
        """Give up the place of a call for that of an open stream, or return the refusal when there is none."""
        self._give_back()
        try:
            self._hold(streaming(self.caller))
        except LimitExceeded as limit:
            return self._over(limit, "Too many open streams")
        return None

    # Before the body

    def front_door(self) -> Response | None:
        """Return the answer that needs no body, or None when the request may come in."""
        try:
            self.request.get_host()
            return self._refusal_at_the_door()
        except DisallowedHost as error:
            remedy = "Add the host to ALLOWED_HOSTS if clients reach the server by it."
            return self.refuse(400, "Host not allowed", remedy, seen=str(error).partition(". You may")[0])
        except Exception as error:
            return self.failed(error)

    def _refusal_at_the_door(self) -> Response | None:
        origins = self.headers.get("origin", [])
        allowed = not origins or origin_allowed(origins[0], [*settings.ALLOWED_ORIGINS, origin(self.request)])
        if len(origins) > 1 or not allowed:
            given = ", ".join(origins)
            remedy = "Add the origin to ALLOWED_ORIGINS if pages of it may call the endpoint."
            return self.refuse(403, "Origin not allowed", remedy, seen=f"the Origin {given!r} is not allowed")
        if self.request.method == "OPTIONS" and "access-control-request-method" in self.headers:
            return Response(204, headers=self.cors() | {"Access-Control-Max-Age": "600"})
        try:
            length = body_length(self.header("content-length"))
        except ValueError:
            return self.refuse(400, "Content-Length is not a number", "The client or a proxy breaks HTTP.")
        if len(self.headers.get("content-length", [])) > 1:
            return self.refuse(400, "Content-Length is given twice", "The client and a proxy may add one each.")
        if length is not None and length > settings.MAX_BODY_BYTES:
            return self.too_large()
        return self._page() if self.wants_page else None

    def _page(self) -> Response:
        elsewhere = came_to(self.request) if django_settings.DEBUG else None
        if elsewhere is not None:
            named = origin(self.request)
            report(200, f"the page was opened at {elsewhere}, and BASE_URL sends clients to {named}", IS_IT_RIGHT)
        return endpoint_page(self.request, self.resource_path, elsewhere)

    def too_large(self) -> Response:
        """Return the answer to a body over ``MAX_BODY_BYTES``."""
        hint = "; create_upload gives a URL for a file" if upload_storage() is not None else ""
        remedy = "Raise MAX_BODY_BYTES if clients have to send more."
        return self.refuse(413, f"The body is larger than {settings.MAX_BODY_BYTES} bytes{hint}", remedy)

    def too_long(self) -> Response:
        """Return the answer to a read that took longer than ``CALL_TIMEOUT``."""
        remedy = "Make what is called faster, or raise CALL_TIMEOUT."
        return self.refuse(503, f"The call took longer than {settings.CALL_TIMEOUT} s", remedy, {"Retry-After": "5"})

    def busy(self) -> Response:
        """Return the answer to a call for which no thread was free within ``QUEUE_TIMEOUT``."""
        return self.refuse(503, BUSY, "Run more workers, or raise THREADS and SLOW_THREADS.", {"Retry-After": "5"})

    def too_slow(self) -> Response:
        """Return the answer to a body that did not arrive within ``BODY_TIMEOUT``."""
        remedy = "BODY_TIMEOUT bounds it; a proxy that holds bodies back must be faster."
        return self.refuse(408, "The body did not arrive in time", remedy, {"Connection": "close"})

    def cors(self) -> dict[str, str]:
        """Return the headers by which a browser lets a page of an allowed origin have the answer."""
        given = self.header("origin")
        if given is None:
            return {}
        return {
            "Access-Control-Allow-Origin": given,
            "Access-Control-Allow-Methods": self.allowed,
            "Access-Control-Allow-Headers": CORS_REQUEST_HEADERS,
            "Access-Control-Expose-Headers": CORS_RESPONSE_HEADERS,
        }

    def refuse(
        self, status: int, message: str, remedy: str, headers: Mapping[str, str] | None = None, *, seen: str = ""
    ) -> Response:
        """Answer a request that is not looked into as a message: by an error, or by a page to a browser.

        The log gets ``seen``, or else the message, and ``remedy``, which is one fixed text for each cause.
        """
        report(status, seen or message, remedy)
        refused(self.request, outcome_of(status), message, method=self._asked_for(), cause=remedy)
        if self.wants_page:
            return error_page(status, message, self.request)
        body = encode(error_response(self._identifier(), InvalidRequest(message), modern=True))
        return Response(status, body, headers=dict(headers or {}))

    def rejected(self, rejected: Rejected) -> Reply:
        """Return the reply to a message that is no call."""
        error, context = rejected.error, self.request.mcp
        if context.record.duration:
            # Others of a batch have the same request.
            context.record = CallRecord()
        refused(self.request, f"error:{error.code}", error.message, method=self._asked_for())
        return rejection(rejected)

    def _message(self) -> Any:
        """Return what is read of the message so far, None while that is nothing."""
        if len(self.body) > SHORT_BODY:
            return None
        try:
            return decode(self.body)
        except ProtocolError:
            return None

    def _identifier(self) -> Id | None:
        """Return the id of the request that is refused, if it was read: some clients show no error without it."""
        return readable_id(self._message())

    def _asked_for(self) -> str:
        """Return the method of the message, or of the request where it has none."""
        message = self._message() if self.request.method == "POST" else None
        method = message.get("method") if isinstance(message, dict) else None
        return method if isinstance(method, str) else self.request.method or ""

    @property
    def body_is_short(self) -> bool:
        """Whether the body may be read before it is known who sends it, as far as it is short indeed."""
        length = self.header("content-length")
        return length is None or int(length) <= SHORT_BODY

    # In a worker thread

    def admit_body(self) -> Response | None:
        """Authenticate who sends a long body, and return the refusal where it need not be read."""
        return self.guarded(self._admit_body)

    def _admit_body(self) -> Response | None:
        self.admit()
        if self.request.method != "POST":
            return self.not_allowed()
        length = self.header("content-length")
        self._hold(body_room(self.caller, settings.MAX_BODY_BYTES if length is None else int(length)))
        return self.check_types()

    def admit(self) -> None:
        """Find out who calls, once, and give the caller a place.

        Raises:
            AuthenticationFailed: the request carries no token, or none that is good here.
            LimitExceeded: the caller has to wait.
        """
        if self._is_admitted:
            return
        self._is_admitted = True
        self._authenticate()
        count_call(self.caller)
        note_use(self.request.auth, self.request.META.get("REMOTE_ADDR", ""))  # type: ignore[attr-defined]
        self._hold(concurrent(self.caller))

    def guarded(self, produce: Callable[[], T]) -> T | Response:
        """Return what ``produce`` gives, or the answer that its exception means to the client program."""
        try:
            return produce()
        except AuthenticationFailed as error:
            return self._unauthorized(error)
        except LimitExceeded as limit:
            return self._over(limit, "Too many calls")
        except Rejected as rejected:
            return self.respond(self.rejected(rejected))
        except UnreadableAddress as error:
            return self.refuse(400, str(error), "The URL in the client's configuration has it.")
        except Exception as error:
            return self.failed(error)

    def _over(self, limit: LimitExceeded, message: str) -> Response:
        told = f"{message}. Try again in {limit.retry_after} s"
        headers = {"Retry-After": str(limit.retry_after)}
        remedy = f"Raise {limit.setting} if this is fair use."
        return self.refuse(429, told, remedy, headers, seen=f"{self.caller}: {message}")

    def not_allowed(
        self, reason: str = "This endpoint takes POST", remedy: str = "Clients send POST.", allowed: str = ""
    ) -> Response:
        """Return the answer to a method that there is nothing for."""
        seen = f"{plain(self.request.method, SHOWN)}: {reason}"
        return self.refuse(405, reason, remedy, {"Allow": allowed or self.allowed}, seen=seen)

    def session_not_found(self) -> Response:
        """Return the answer to the id of a session that this caller does not have."""
        told = "Session not found. Begin a new one with initialize"
        return self.refuse(404, told, "It ended, was unused for SESSION_IDLE, or is another user's.")

    def failed(self, error: Exception) -> Response:
        """Answer for what failed outside of a call, such as a database that is not there; it is logged under an id."""
        if isinstance(error, Busy):
            return self.busy()
        record = self.request.mcp.record
        record.error_id = log_failure("The request", error, record.id)
        data = {"errorId": record.error_id}
        status = 503 if isinstance(error, DatabaseUnavailable) else 500
        # While a setting is wrong, nobody knows whether there is a log.
        with suppress(ImproperlyConfigured):
            refused(self.request, outcome_of(status), method=self._asked_for())
        body = encode(error_response(None, InternalError(data=data), modern=True))
        return Response(status, body, headers={"Retry-After": "5"} if status == 503 else {})

    def _authenticate(self) -> None:
        request, context = self.request, self.request.mcp
        resource = own_resource(request, self.resource_path)
        if resource is None:
            raise AuthenticationFailed(invalid=True, reason=AMBIGUOUS)
        context.resource = resource
        try:
            user, auth = self._credentials()
        except DatabaseUnavailable:
            # The first query of a call: nothing has run that would run twice.
            if not renew_connections():
                raise
            user, auth = self._credentials()
        request.META.pop("HTTP_AUTHORIZATION", None)
        request.user = user
        if self.original is not None:
            # Middleware that has kept the request asks it for the user when something is saved.
            self.original.user = self.original._acached_user = user
        request.auth = auth  # type: ignore[attr-defined]
        context.scopes = auth.scopes if hasattr(auth, "scopes") else expand([ADMIN])
        context.client_id = getattr(auth, "client_id", "")
        context.facts = getattr(auth, "facts", context.facts)
        if self.query:
            context.facts = narrowed_by(context.facts, self.query)
        restore(request)

    def _credentials(self) -> tuple[Any, Any]:
        classes = settings.AUTHENTICATION_CLASSES
        if not classes:
            return AnonymousUser(), None
        if len(self.headers.get("authorization", [])) > 1:
            raise AuthenticationFailed(invalid=True, reason=TWO_TOKENS)
        for authenticator in classes:
            try:
                found = authenticator().authenticate(self.request)
            except APIException as error:
                seen = f"{authenticator.__name__} refuses the credentials: {error.get_codes()}"
                reason = Reason(seen, "That authentication class has the rules.")
                raise AuthenticationFailed(invalid=True, reason=reason) from None
            if found is not None:
                if not found[0].is_active:
                    raise AuthenticationFailed(invalid=True, reason=NOT_ACTIVE)
                return found
        given = bool(self.headers.get("authorization"))
        raise AuthenticationFailed(invalid=given, reason=OTHER_SCHEME if given else NO_TOKEN)

    def check_types(self) -> Response | None:
        if not is_json(self.header("content-type")):
            given = plain(",".join(self.headers.get("content-type", ())), SHOWN) or "nothing"
            remedy = "The client's configuration or a proxy sends another Content-Type."
            return self.refuse(415, f"The content type must be {JSON}, not {given}", remedy)
        if self.headers.get("content-encoding"):
            return self.refuse(415, "The body must not be encoded", "The client or a proxy compresses it.")
        if not (self.accepts_events or accepts(self.accept, JSON)):
            return self.not_acceptable(f"{JSON} and {EVENTS}")
        return None

    def not_acceptable(self, types: str) -> Response:
        """Return the answer to a client that takes none of these media types."""
        given = plain(self.accept, SHOWN) or "nothing"
        remedy = "The client's configuration or a proxy sends another Accept."
        return self.refuse(406, f"Accept must admit {types}, and is {given}", remedy)

    def respond(self, reply: Reply) -> Response:
        """Return the HTTP answer that carries a reply."""
        if reply.status >= 400:
            error = json.loads(reply.body)["error"]
            # There are few codes.
            report(reply.status, error["message"], f"The client's program sent it (JSON-RPC error {error['code']}).")
        return Response(reply.status, reply.body, headers=self.cors())

    # Challenges (RFC 6750, section 3; RFC 9728, section 5.1)

    def _unauthorized(self, error: AuthenticationFailed) -> Response:
        reason = error.reason or NOT_SAID
        seen, remedy, elsewhere = reason.seen, reason.remedy, came_to(self.request)
        if elsewhere is not None:
            seen += f"; its Host says {elsewhere}, BASE_URL {origin(self.request)}"
            remedy = IS_IT_RIGHT if django_settings.DEBUG and not error.invalid else remedy
        header = challenge(
            metadata_url(self.request, self.resource_path),
            default_scopes(),
            error="invalid_token" if error.invalid else None,
            description=reason.told,
        )
        headers = {"WWW-Authenticate": header, **self.cors()}
        return self.refuse(401, reason.told or "Authentication required", remedy, headers, seen=seen)

    def forbidden(self, call: Call, error: InsufficientScope) -> Response:
        # All that the token has, whatever the call was narrowed to: what is not named here, a client loses.
        granted = getattr(self.request.auth, "scopes", self.request.mcp.scopes)  # type: ignore[attr-defined]
        told = f"This takes {join(error.required)}; the token has {join(granted) or 'none of them'}."
        header = challenge(
            metadata_url(self.request, self.resource_path),
            error.required | granted,
            error="insufficient_scope",
            description=told,
        )
        report(403, f"{call.method}: {told}", "The client asks the user for more; mcp_token has --scope.")
        body = encode(error_response(call.id, InvalidRequest(str(error)), modern=call.era.modern))
        return Response(403, body, headers={"WWW-Authenticate": header, **self.cors()})

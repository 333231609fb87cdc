"""One HTTP request and its answer, without I/O of its own: what every road of the transport does, in one order.

:meth:`Exchange.front_door` needs no body and no database; :meth:`Exchange.answer` runs in a worker thread, and what the
request is about is :mod:`~mcp_django.transports.dispatch`'s.
The order is the one clients rely on (a probe without a token is told how to get one, whatever its method or version):
host, origin, size; then the token; then method, content type, and the message itself.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import DisallowedHost
from django.db import Error as DatabaseUnavailable
from django.utils.functional import cached_property
from rest_framework.exceptions import APIException

from ..conf import settings
from ..context import MCPRequest
from ..exceptions import AuthenticationFailed, InsufficientScope
from ..methods.base import log_failure
from ..oauth.bearer import challenge
from ..oauth.resource import metadata_url, origin, own_resource
from ..oauth.scopes import ADMIN, default_scopes, expand
from ..oauth.usage import note_use
from ..protocol.eras import Call
from ..protocol.errors import InternalError, InvalidRequest
from ..protocol.http import Response, accepts, allowed_methods, body_length, is_json, origin_allowed
from ..protocol.inbound import Rejected
from ..protocol.messages import encode, error_response
from ..protocol.modern import VERSION_HEADER
from ..rates import caller_of
from ..server import Reply
from ..sessions import ClientSession
from ..signin import restore
from ..sites import MCPSite
from ..threads import BUSY, Busy, Handover, renew_connections
from ..uploads import upload_storage
from .dispatch import EVENTS, JSON, Outcome, rejection, take_delete, take_get, take_post
from .limits import LimitExceeded, body_room, concurrent, count_call, streaming
from .pages import endpoint_page, error_page, wants_page
from .request import build_request, headers_of

__all__ = ["DJANGOS_REQUEST", "SHORT_BODY", "Exchange"]

T = TypeVar("T")

# In the scope, the request that Django has made of it.
DJANGOS_REQUEST: Final = "mcp_django.request"
# Bytes of a body that are read before it is known who sends it.
SHORT_BODY: Final = 8 * 1024
CORS_REQUEST_HEADERS: Final = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, Last-Event-ID"
)
CORS_RESPONSE_HEADERS: Final = "Mcp-Session-Id, WWW-Authenticate"


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
        self.request: MCPRequest = build_request(scope, self.headers, site)
        self.request.__dict__.update(attributes or {})
        self.request.mcp.can_stream = can_stream
        self.can_stream = can_stream
        # Where the URLconf has the endpoint that tokens are for.
        self.resource_path = self.request.path_info
        self.original: Any = scope.get(DJANGOS_REQUEST)
        self.session: ClientSession | None = None
        self.began = time.monotonic()
        self._places = ExitStack()
        self._is_admitted = False

    def header(self, name: str) -> str | None:
        """Return the value of a header, None when it is absent or given more than once."""
        values = self.headers.get(name, [])
        return values[0] if len(values) == 1 else None

    @property
    def wants_page(self) -> bool:
        """Whether a person opened the endpoint in a browser."""
        return wants_page(self.request.method or "", self.accept, has_token="authorization" in self.headers)

    @property
    def allowed(self) -> str:
        """The methods that the endpoint takes, as in ``Allow``."""
        return allowed_methods(self.header(VERSION_HEADER), sessions=self.can_stream and settings.SESSIONS)

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
        self._places.close()

    def change_place(self) -> Response | None:
        """Give up the place of a call for that of an open stream, or return the refusal when there is none."""
        self._places.close()
        try:
            self._places.enter_context(streaming(self.caller))
        except LimitExceeded as limit:
            return self.refuse(429, "Too many open streams", {"Retry-After": str(limit.retry_after)})
        return None

    # Before the body

    def front_door(self) -> Response | None:
        """Return the answer that needs no body, or None when the request may come in."""
        try:
            self.request.get_host()
            return self._refusal_at_the_door()
        except DisallowedHost:
            return self.refuse(400, "Host not allowed")
        except Exception as error:
            return self.failed(error)

    def _refusal_at_the_door(self) -> Response | None:
        if len(self.headers.get("origin", [])) > 1 or not self._origin_allowed():
            return self.refuse(403, "Origin not allowed")
        if self.request.method == "OPTIONS" and "access-control-request-method" in self.headers:
            return Response(204, headers=self.cors() | {"Access-Control-Max-Age": "600"})
        try:
            length = body_length(self.header("content-length"))
        except ValueError:
            return self.refuse(400, "Content-Length is not a number")
        if len(self.headers.get("content-length", [])) > 1:
            return self.refuse(400, "Content-Length is given twice")
        if length is not None and length > settings.MAX_BODY_BYTES:
            return self.too_large()
        return endpoint_page(self.request, self.resource_path) if self.wants_page else None

    def too_large(self) -> Response:
        """Return the answer to a body over ``MAX_BODY_BYTES``."""
        hint = "; create_upload gives a URL for a file" if upload_storage() is not None else ""
        return self.refuse(413, f"The body is larger than {settings.MAX_BODY_BYTES} bytes{hint}")

    def too_long(self) -> Response:
        """Return the answer to a read that took longer than ``CALL_TIMEOUT``."""
        return self.refuse(503, f"The call took longer than {settings.CALL_TIMEOUT} s", {"Retry-After": "5"})

    def busy(self) -> Response:
        """Return the answer to a call for which no thread was free within ``QUEUE_TIMEOUT``."""
        return self.refuse(503, BUSY, {"Retry-After": "5"})

    def too_slow(self) -> Response:
        """Return the answer to a body that did not arrive within ``BODY_TIMEOUT``."""
        return self.refuse(408, "The body did not arrive in time", {"Connection": "close"})

    def _origin_allowed(self) -> bool:
        given = self.header("origin")
        if given is None:
            return True
        return origin_allowed(given, [*settings.ALLOWED_ORIGINS, origin(self.request)])

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

    def refuse(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
        """Answer a request that is no JSON-RPC message yet: an error without an id, or a page to a browser."""
        if self.wants_page:
            return error_page(status, message, self.request)
        body = encode(error_response(None, InvalidRequest(message), modern=True))
        return Response(status, body, headers=dict(headers or {}))

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
        self._places.enter_context(body_room(self.caller, settings.MAX_BODY_BYTES if length is None else int(length)))
        return self.check_types()

    def answer(self, body: bytes) -> Outcome | Handover[Outcome]:
        """Authenticate, read the message, run it: the whole answer, or what has to be done elsewhere first."""
        return self.guarded(lambda: self._answer(body))

    def _answer(self, body: bytes) -> Outcome | Handover[Outcome]:
        self.admit()
        take = {"POST": take_post, "GET": take_get, "DELETE": take_delete}.get(self.request.method or "")
        if take is None:
            return self.not_allowed()
        return take(self, body)

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
        note_use(self.request.auth)  # type: ignore[attr-defined]
        self._places.enter_context(concurrent(self.caller))

    def guarded(self, produce: Callable[[], T]) -> T | Response:
        """Return what ``produce`` gives, or the answer that its exception means to the client program."""
        try:
            return produce()
        except AuthenticationFailed as error:
            return self._unauthorized(error)
        except LimitExceeded as limit:
            return self.refuse(429, "Too many calls", {"Retry-After": str(limit.retry_after)})
        except Rejected as rejected:
            return self.respond(rejection(rejected))
        except Exception as error:
            return self.failed(error)

    def not_allowed(self, reason: str = "This endpoint takes POST") -> Response:
        """Return the answer to a method that there is nothing for."""
        return self.refuse(405, reason, {"Allow": self.allowed})

    def failed(self, error: Exception) -> Response:
        """Answer for what failed outside of a call, such as a database that is not there; it is logged under an id."""
        if isinstance(error, Busy):
            return self.busy()
        data = {"errorId": log_failure("The request", error)}
        body = encode(error_response(None, InternalError(data=data), modern=True))
        if isinstance(error, DatabaseUnavailable):
            return Response(503, body, headers={"Retry-After": "5"})
        return Response(500, body)

    def _authenticate(self) -> None:
        request, context = self.request, self.request.mcp
        resource = own_resource(request, self.resource_path)
        if resource is None:
            raise AuthenticationFailed(invalid=True)
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
        context.scopes = getattr(auth, "scopes", expand([ADMIN]))
        context.client_id = getattr(auth, "client_id", "")
        context.facts = getattr(auth, "facts", context.facts)
        restore(request)

    def _credentials(self) -> tuple[Any, Any]:
        classes = settings.AUTHENTICATION_CLASSES
        if not classes:
            return AnonymousUser(), None
        if len(self.headers.get("authorization", [])) > 1:
            raise AuthenticationFailed(invalid=True)
        for authenticator in classes:
            try:
                found = authenticator().authenticate(self.request)
            except APIException:
                raise AuthenticationFailed(invalid=True) from None
            if found is not None:
                if not found[0].is_active:
                    raise AuthenticationFailed(invalid=True)
                return found
        raise AuthenticationFailed(invalid=bool(self.headers.get("authorization")))

    def check_types(self) -> Response | None:
        if not is_json(self.header("content-type")):
            return self.refuse(415, f"The content type must be {JSON}")
        if self.headers.get("content-encoding"):
            return self.refuse(415, "The body must not be encoded")
        if not (accepts(self.accept, JSON) or self.accepts_events):
            return self.refuse(406, f"Accept must admit {JSON} and {EVENTS}")
        return None

    @cached_property
    def accept(self) -> str | None:
        """The ``Accept`` header, which may come in several lines."""
        return ",".join(self.headers.get("accept", [])) or None

    @property
    def accepts_events(self) -> bool:
        """Whether the client takes an event stream."""
        return accepts(self.accept, EVENTS)

    def respond(self, reply: Reply) -> Response:
        """Return the HTTP answer that carries a reply."""
        return Response(reply.status, reply.body, headers=self.cors())

    # Challenges (RFC 6750, section 3; RFC 9728, section 5.1)

    def _unauthorized(self, error: AuthenticationFailed) -> Response:
        header = challenge(
            metadata_url(self.request, self.resource_path),
            default_scopes(),
            error="invalid_token" if error.invalid else None,
        )
        return self.refuse(401, "Sign in first", {"WWW-Authenticate": header, **self.cors()})

    def forbidden(self, call: Call, error: InsufficientScope) -> Response:
        header = challenge(
            metadata_url(self.request, self.resource_path),
            error.required | self.request.mcp.scopes,
            error="insufficient_scope",
        )
        body = encode(error_response(call.id, InvalidRequest(str(error)), modern=call.era.modern))
        return Response(403, body, headers={"WWW-Authenticate": header, **self.cors()})

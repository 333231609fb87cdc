"""One HTTP request and its answer, without I/O of its own: what every road of the transport does, in one order.

:meth:`Exchange.front_door` needs no body and no database; :meth:`Exchange.answer` runs in a worker thread.
The order is the one clients rely on (a probe without a token is told how to get one, whatever its method or version):
host, origin, size; then the token; then method, content type, and the message itself.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import DisallowedHost
from django.db import Error as DatabaseUnavailable
from rest_framework.exceptions import APIException

from ..conf import settings
from ..context import Client, MCPRequest
from ..exceptions import AuthenticationFailed, InsufficientScope
from ..methods.base import Later, log_failure
from ..oauth.bearer import challenge
from ..oauth.resource import metadata_url, origin, resource_url
from ..oauth.scopes import ADMIN, default_scopes, expand
from ..permissions import load_permissions
from ..protocol.eras import Call
from ..protocol.errors import InternalError, InvalidRequest
from ..protocol.http import ALLOWED_METHODS, Response, accepts, body_length, is_json, origin_allowed
from ..protocol.inbound import Rejected, classify
from ..protocol.messages import encode, error_response
from ..server import Reply, resume, resume_async, serve
from ..sites import MCPSite
from .limits import LimitExceeded, concurrent, count_call
from .request import build_request, headers_of

__all__ = ["Exchange", "Pending"]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
CORS_REQUEST_HEADERS: Final = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, Last-Event-ID"
)
CORS_RESPONSE_HEADERS: Final = "Mcp-Session-Id, WWW-Authenticate"


@dataclass(frozen=True, slots=True)
class Pending:
    """A call whose work has to run elsewhere before it can be answered."""

    call: Call
    later: Later


class Exchange:
    """One request to the endpoint.

    ``attributes`` are what the project's middleware put on the request that Django made, for hooks to find.
    """

    def __init__(self, site: MCPSite, scope: Mapping[str, Any], attributes: Mapping[str, Any] | None = None) -> None:
        self.headers = headers_of(scope)
        self.request: MCPRequest = build_request(scope, self.headers, site)
        self.request.__dict__.update(attributes or {})
        self._places = ExitStack()

    def header(self, name: str) -> str | None:
        """Return the value of a header, None when it is absent or given more than once."""
        values = self.headers.get(name, [])
        return values[0] if len(values) == 1 else None

    def close(self) -> None:
        """Give back the caller's place among those that run at once."""
        self._places.close()

    # Before the body

    def front_door(self) -> Response | None:
        """Return the answer that needs no body, or None when the request may come in."""
        try:
            self.request.get_host()
            return self._refusal_at_the_door()
        except DisallowedHost:
            return self._refuse(400, "Host not allowed")
        except Exception as error:
            return self._failed(error)

    def _refusal_at_the_door(self) -> Response | None:
        if len(self.headers.get("origin", [])) > 1 or not self._origin_allowed():
            return self._refuse(403, "Origin not allowed")
        if self.request.method == "OPTIONS" and "access-control-request-method" in self.headers:
            return Response(204, headers=self.cors() | {"Access-Control-Max-Age": "600"})
        try:
            length = body_length(self.header("content-length"))
        except ValueError:
            return self._refuse(400, "Content-Length is not a number")
        if len(self.headers.get("content-length", [])) > 1:
            return self._refuse(400, "Content-Length is given twice")
        if length is not None and length > settings.MAX_BODY_BYTES:
            return self.too_large()
        return None

    def too_large(self) -> Response:
        """Return the answer to a body over ``MAX_BODY_BYTES``."""
        return self._refuse(413, f"The body is larger than {settings.MAX_BODY_BYTES} bytes")

    def too_long(self) -> Response:
        """Return the answer to a read that took longer than ``CALL_TIMEOUT``."""
        return self._refuse(503, f"The call took longer than {settings.CALL_TIMEOUT} s", {"Retry-After": "5"})

    def too_slow(self) -> Response:
        """Return the answer to a body that did not arrive within ``BODY_TIMEOUT``."""
        return self._refuse(408, "The body did not arrive in time", {"Connection": "close"})

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
            "Access-Control-Allow-Methods": ALLOWED_METHODS,
            "Access-Control-Allow-Headers": CORS_REQUEST_HEADERS,
            "Access-Control-Expose-Headers": CORS_RESPONSE_HEADERS,
        }

    def _refuse(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
        """Answer a request that is no JSON-RPC message yet: an error without an id."""
        body = encode(error_response(None, InvalidRequest(message), modern=True))
        return Response(status, body, headers=dict(headers or {}))

    # With the body, in a worker thread

    def answer(self, body: bytes) -> Response | Pending:
        """Authenticate, read the message, run it: the whole answer, or what has to run elsewhere first."""
        try:
            self._authenticate()
            self._limit()
            if self.request.method != "POST":
                return self._refuse(405, "This endpoint takes POST", {"Allow": ALLOWED_METHODS})
            refusal = self._check_types()
            if refusal is not None:
                return refusal
            call = classify(body, self.headers)
            return self._serve(call)
        except AuthenticationFailed as error:
            return self._unauthorized(error)
        except LimitExceeded as limit:
            return self._refuse(429, "Too many calls", {"Retry-After": str(limit.retry_after)})
        except Rejected as rejected:
            body = encode(error_response(rejected.id, rejected.error, modern=rejected.era.modern))
            return self.respond(Reply(body, rejected.era.status(rejected.error)))
        except Exception as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> Response:
        """Answer for what failed before the call was known, such as a database that is not there."""
        data = {"errorId": log_failure("The request", error)}
        body = encode(error_response(None, InternalError(data=data), modern=True))
        if isinstance(error, DatabaseUnavailable):
            return Response(503, body, headers={"Retry-After": "5"})
        return Response(500, body)

    def resume(self, pending: Pending) -> Response:
        """Do work that was put off, in the thread it was put off to."""
        return self.respond(resume(pending.call, pending.later))

    def resume_now(self, pending: Pending) -> Response:
        """Do work that was put off in this thread, whatever it is, as a WSGI server must."""
        if pending.later.is_async:
            return self.respond(async_to_sync(resume_async)(pending.call, pending.later))
        return self.resume(pending)

    def _authenticate(self) -> None:
        request, context = self.request, self.request.mcp
        context.resource = resource_url(request, request.path)
        user, auth = self._credentials()
        request.META.pop("HTTP_AUTHORIZATION", None)
        request.user = user
        request.auth = auth  # type: ignore[attr-defined]
        context.scopes = getattr(auth, "scopes", expand([ADMIN]))
        context.client_id = getattr(auth, "client_id", "")

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

    def _limit(self) -> None:
        user = self.request.user
        who = f"user:{user.pk}" if user.pk is not None else f"addr:{self.request.META['REMOTE_ADDR']}"
        count_call(who)
        self._places.enter_context(concurrent(who))

    def _check_types(self) -> Response | None:
        if not is_json(self.header("content-type")):
            return self._refuse(415, f"The content type must be {JSON}")
        if self.headers.get("content-encoding"):
            return self._refuse(415, "The body must not be encoded")
        if not (accepts(self.accept, JSON) or self.accepts_events):
            return self._refuse(406, f"Accept must admit {JSON} and {EVENTS}")
        return None

    @property
    def accept(self) -> str | None:
        """The ``Accept`` header, which may come in several lines."""
        return ",".join(self.headers.get("accept", [])) or None

    @property
    def accepts_events(self) -> bool:
        """Whether the client takes an event stream."""
        return accepts(self.accept, EVENTS)

    def _serve(self, call: Call) -> Response | Pending:
        if call.id is None:
            return Response(202)
        context = self.request.mcp
        context.version, context.capabilities = call.version, call.capabilities
        context.client = Client(str(call.client.get("name", "")), str(call.client.get("version", "")))
        context.progress_token, context.log_level = call.progress_token, call.log_level
        if call.method != "ping":
            load_permissions(self.request.user)
        try:
            outcome = serve(self.request, call)
        except InsufficientScope as error:
            return self._forbidden(call, error)
        return self.respond(outcome) if isinstance(outcome, Reply) else Pending(call, outcome)

    def respond(self, reply: Reply) -> Response:
        """Return the HTTP answer that carries a reply."""
        return Response(reply.status, reply.body, headers=self.cors())

    # Challenges (RFC 6750, section 3; RFC 9728, section 5.1)

    def _unauthorized(self, error: AuthenticationFailed) -> Response:
        header = challenge(
            metadata_url(self.request, self.request.path),
            default_scopes(),
            error="invalid_token" if error.invalid else None,
        )
        return self._refuse(401, "Sign in first", {"WWW-Authenticate": header, **self.cors()})

    def _forbidden(self, call: Call, error: InsufficientScope) -> Response:
        header = challenge(
            metadata_url(self.request, self.request.path),
            error.required | self.request.mcp.scopes,
            error="insufficient_scope",
        )
        body = encode(error_response(call.id, InvalidRequest(str(error)), modern=call.era.modern))
        return Response(403, body, headers={"WWW-Authenticate": header, **self.cors()})

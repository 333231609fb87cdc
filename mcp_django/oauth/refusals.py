"""Say in the log why the authorization server refuses a request, and what mends it."""

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, Final

from django.core.exceptions import BadRequest, SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.http.multipartparser import MultiPartParserError

from ..context.refusals import IS_IT_RIGHT, NO_DOCUMENT, report
from ..exceptions import Reason
from .assertions import InvalidAssertion, read_assertion
from .documents import is_document_id
from .hosts import takes_documents

# Among the headers that the toolkit makes of Django's request: no client can send one of this name.
NOTED: Final = "mcp_django.refused"
SENT: Final = "The client's program sent it."

# What mends an error of OAuth of which nothing else is known.
REMEDIES: Final = {
    "invalid_client": "Enter the client's secret again, or let the client register anew.",
    "invalid_client_metadata": "An administrator can add the application in the admin instead.",
    "invalid_grant": "The code_verifier is not that of the sign-in, or two processes of the client used one code.",
    "invalid_redirect_uri": "An administrator can add the application in the admin instead.",
    "invalid_scope": "The client asks for a scope that OAUTH2_PROVIDER['SCOPES'] lacks, or for more than was granted.",
    "invalid_target": IS_IT_RIGHT,
    "not_found": NO_DOCUMENT,
    "unauthorized_client": "In the admin, the application needs the grant type 'Authorization code'.",
    "unsupported_grant_type": "Clients get tokens by authorization_code and refresh_token alone.",
    "unsupported_response_type": "Clients sign in by response_type=code alone.",
}

AGAIN: Final = "The user disconnects the application in the client and connects it again."

UNKNOWN_CLIENT: Final = Reason("the client is not known here", f"It was deleted, or the database was reset. {AGAIN}")
WRONG_SECRET: Final = Reason("the client sends no secret or a wrong one", REMEDIES["invalid_client"])
DOCUMENTS_OFF: Final = Reason(
    "the client describes itself by a document, and CLIENT_DOCUMENTS takes none",
    "Set CLIENT_DOCUMENTS to 'all' or to the client's host. Where clients can register (REGISTRATION), the user can "
    "also remove this site in the client and add it again.",
    "This server takes no metadata documents of clients.",
)
NO_SIGNATURE: Final = Reason(
    "the client's metadata document says that it signs, and it sends no signed assertion",
    "The client's program has to send one (client_assertion), or its makers change the document.",
)
NO_KEYS: Final = "Only clients with keys in a metadata document sign here. Others send their secret, or nothing."
WRONG_KEY: Final = "Are the keys in the client's metadata document, or at its jwks_uri, those that it signs with?"
BLOCKED_HOST: Final = Reason(
    "the host of the client's metadata document is not let in (any more)",
    "CLIENT_DOCUMENTS, BLOCKED_CLIENT_HOSTS and the admin (hosts of applications) say which are.",
)
# Codes
UNKNOWN_CODE: Final = Reason(
    "the code is not known: it was used before, or made elsewhere",
    "A code is good once. Do all workers share one database?",
)
OLD_CODE: Final = Reason(
    "the code has expired", "AUTHORIZATION_CODE_EXPIRE_SECONDS is how long one lasts. Do the servers' clocks agree?"
)
OTHERS: Final = Reason("the code or refresh token is another client's", f"The client mixes up registrations. {AGAIN}")
WRONG_VERIFIER: Final = Reason("the code_verifier is not well-formed", "It has 43 to 128 letters, digits, or -._~")
# Refresh tokens
UNKNOWN_REFRESH: Final = Reason(
    "the refresh token is not known here", "It was removed, or the database was reset. The user signs in again."
)
GRANT_OVER: Final = Reason("the time that the user gave the client is over", "The user signs in again.")
SPENT: Final = Reason(
    "the refresh token was used before or was revoked, and all that came of it is revoked now",
    "Does the client run twice with one store of tokens? Else the user took access away. The user signs in again.",
)
UNUSED: Final = Reason(
    "the refresh token was not used for too long",
    "REFRESH_TOKEN_EXPIRE_SECONDS is how long one lasts unused. The user signs in again.",
)
SIGNED_OUT: Final = Reason(
    "the user's password or sign-in has changed since",
    "REVOKE_ON_PASSWORD_CHANGE ends such grants.",
)
# The page
CHANGED_FORM: Final = Reason("the form is not the one that was shown", "The user begins again in the client.")
# In the query of the page to which the login page sends the browser back.
SIGNED_IN: Final = "mcp_signed_in"
NO_SESSION: Final = Reason(
    "the browser comes back from the login page, and sends no session along",
    "SESSION_COOKIE_PATH and SESSION_COOKIE_DOMAIN have to include this page; SESSION_COOKIE_SECURE takes https.",
)
# Registration
NO_REGISTRATION: Final = Reason(
    "clients cannot register themselves",
    "REGISTRATION is 'off': add the application in the admin.",
)
TOKEN_TO_REGISTER: Final = Reason(
    "the registration has no token that is good", "REGISTRATION is 'authenticated': mcp_token makes a token for it."
)
MANY_CLIENTS: Final = Reason(
    "too many clients register",
    "REGISTRATION_RATE and REGISTRATION_TOTAL_RATE are the limits.",
)
NO_CACHE: Final = Reason(
    "the cache does not answer, and requests of strangers are counted in it",
    "Look at CACHES['default'], and at the server that it names.",
    "This server cannot count requests: its cache does not answer.",
)
MANY_REFUSALS: Final = Reason(
    "too many requests of this client or address were refused", "TOKEN_REFUSAL_RATE is the limit."
)
NO_DATABASE: Final = Reason("the database does not answer", "The error logged before this says why.")

View = Callable[..., HttpResponseBase]


def unknown_client(client_id: str | None) -> Reason:
    """Return why nothing is known of a client."""
    return DOCUMENTS_OFF if is_document_id(client_id or "") and not takes_documents() else UNKNOWN_CLIENT


class _Noted:
    """The cause that was noted last, and the seconds after which the request can come again, 0 for never."""

    reason: Reason | None = None
    wait: int = 0


def begin(request: HttpRequest) -> None:
    """Let causes be noted for the request."""
    request.META[NOTED] = _Noted()


def note(headers: Mapping[str, Any], reason: Reason, wait: int = 0) -> bool:
    """Note why the request with these headers, oauthlib's or Django's own, is refused if it is; return False."""
    noted = headers.get(NOTED)
    if noted is not None:
        noted.reason, noted.wait = reason, wait
    return False


def log_refusal(request: HttpRequest, status: int, error: str, description: str = "") -> None:
    """Log that a request was refused with an error of OAuth: the cause that was noted, or what the client is told."""
    noted = request.META.get(NOTED)
    reason = noted.reason if noted is not None and noted.reason is not None else None
    if reason is None:
        reason = Reason(description or error or "the request was refused", REMEDIES.get(error, SENT), cause=error)
    who = client_id(request) or request.GET.get("client_id", "")
    said = f"{request.method} {request.path}: {reason.seen.rstrip('.')}"
    report(status, f"{said} (client {who!r})" if who else said, reason.remedy, reason.cause)


def logged(view: View) -> View:
    """Decorate a view that answers in JSON: its refusals are logged."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        begin(request)
        try:
            response = view(request, *args, **kwargs)
        except (BadRequest, MultiPartParserError, SuspiciousOperation) as error:
            # Django answers it.
            report(400, f"{request.method} {request.path}: the body cannot be read ({type(error).__name__})", SENT)
            raise
        if response.status_code >= 400:
            log_refusal(request, response.status_code, *_told(response))
            if wait := request.META[NOTED].wait:
                response["Retry-After"] = str(wait)
        return response

    return wrapper


def client_id(request: HttpRequest) -> str:
    """Return as whom a client program asks, whether it is or not."""
    kind, _, encoded = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    if kind.lower() != "basic":
        return request.POST.get("client_id") or _signed_id(request.POST.get("client_assertion", ""))
    with suppress(ValueError):
        return base64.b64decode(encoded).partition(b":")[0].decode("latin-1")
    return ""


def _signed_id(raw: str) -> str:
    """Return as whom a client asks that signs for itself (RFC 7523, section 3)."""
    with suppress(InvalidAssertion):
        return read_assertion(raw).text("sub")
    return ""


def _told(response: HttpResponseBase) -> tuple[str, str]:
    """Return the error and its description."""
    with suppress(ValueError):
        body = json.loads(response.content if isinstance(response, HttpResponse) else "")
        return str(body.get("error", "")), str(body.get("error_description", ""))
    return "", response.reason_phrase

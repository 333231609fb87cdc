"""Dynamic client registration (RFC 7591): the throttled endpoint, and the rules for client metadata and redirect URIs.

Unknown metadata is ignored, and every client is registered for codes with refresh tokens. Redirect URIs that could send
a code to a stranger are refused; those of metadata documents follow the same rules.
"""

import hashlib
import json
import logging
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..context.request import MCPContext
from ..context.untrusted_text import plain
from ..exceptions import AuthenticationFailed
from ..problems import Problem
from ..runtime.cache_and_rate_limits import RateLimit, cache
from .bearer import BearerAuthentication
from .cors_and_refusals import cors, logged, note
from .document_fetcher import HOST
from .resource_urls import LOOPBACK, endpoints, is_loopback, resource_url
from .stored_tokens import hashed_secret

logger = logging.getLogger("mcp_django.oauth.client_registration")

MAX_URIS: Final = 10
MAX_URI: Final = 2000
AUTH_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
# Printable ASCII: URIs are stored separated by spaces, and look-alike letters must come in their ASCII form.
URI: Final = re.compile(r"[\x21-\x7e]+")
# A private-use scheme (RFC 8252, section 7.1): a domain name of the application's owner, reversed.
REVERSE_DOMAIN: Final = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+")
# Schemes that a browser runs or reads itself. No setting allows these.
NEVER: Final = frozenset(
    {"about", "blob", "chrome", "data", "file", "filesystem", "ftp", "javascript", "mailto", "resource", "vbscript"}
    | {"view-source", "ws", "wss"}
)
# Values that these members must include, if the client sends them.
NEEDED: Final = {"grant_types": "authorization_code", "response_types": "code"}


@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """The metadata of a client (RFC 7591, section 2). Its keys are at ``jwks_uri``, or else in ``public_key``."""

    redirect_uris: tuple[str, ...]
    name: str
    auth_method: str
    jwks_uri: str = ""
    public_key: str = ""


def is_app_scheme(scheme: str) -> bool:
    """Return whether a client may register redirect URIs of this scheme as an app's own: a reverse domain name."""
    return REVERSE_DOMAIN.fullmatch(scheme) is not None


def is_acceptable(uri: str, schemes: list[str]) -> bool:
    """Return whether a client may register a redirect URI: https, http on loopback, or an app's scheme."""
    if len(uri) > MAX_URI or "#" in uri or URI.fullmatch(uri) is None:
        return False
    try:
        parts = urlsplit(uri)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return False
    # As written: the toolkit does not ignore case in schemes.
    scheme = uri.partition(":")[0]
    if scheme in NEVER or "@" in parts.netloc or not (scheme in schemes or is_app_scheme(scheme)):
        return False
    if scheme not in ("http", "https"):
        # A path must follow, which cannot be another URI.
        return uri.startswith(f"{scheme}:/") and bool(parts.netloc or parts.path.strip("/"))
    # urlsplit returns the text in brackets as the host, whatever surrounds it.
    pattern = re.escape(f"[{host}]" if ":" in (host or "") else host or "")
    is_host = re.fullmatch(rf"{pattern}(:\d*)?", parts.netloc, re.IGNORECASE) is not None
    return bool(host and HOST.fullmatch(host)) and is_host and (scheme == "https" or host in LOOPBACK)


def left_out(data: dict[str, Any]) -> tuple[str, str] | None:
    """Return the member of the metadata that lacks a value which is needed, and that value."""
    for key, value in NEEDED.items():
        said = data.get(key)
        if said is not None and (not isinstance(said, list) or value not in said):
            return key, value
    return None


def are_texts(uris: Any) -> bool:
    return isinstance(uris, list) and bool(uris) and all(isinstance(uri, str) for uri in uris)


class InvalidMetadata(Exception):
    """Raised when a client is refused for its metadata; ``error`` is the code of RFC 7591, section 3.2.2."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


def read_metadata(data: Any, schemes: list[str]) -> ClientMetadata:
    """Return the metadata in a JSON object, or raise ``InvalidMetadata``; redirect URIs may have these ``schemes``."""
    wrong = "invalid_client_metadata"
    if not isinstance(data, dict):
        raise InvalidMetadata(wrong, "The request body must be a JSON object.")
    method: Any = data.get("token_endpoint_auth_method") or "none"
    uris: Any = data.get("redirect_uris")
    if method not in AUTH_METHODS:
        raise InvalidMetadata(wrong, f"token_endpoint_auth_method must be one of {', '.join(AUTH_METHODS)}.")
    if lack := left_out(data):
        raise InvalidMetadata(wrong, f"{lack[0]} must include {lack[1]}.")
    wrong = "invalid_redirect_uri"
    if not are_texts(uris):
        raise InvalidMetadata(wrong, "redirect_uris must be an array with at least one URI.")
    if len(uris) > MAX_URIS:
        raise InvalidMetadata(wrong, f"At most {MAX_URIS} redirect_uris.")
    if not all(is_acceptable(uri, schemes) for uri in uris):
        allowed = [scheme for scheme in schemes if scheme not in NEVER and scheme not in ("http", "https")]
        raise InvalidMetadata(
            wrong,
            "Redirect URIs must be https, http on loopback, a reverse domain name (com.example.app:/callback), or one "
            f"of the schemes {', '.join(allowed) or '(none)'} before a slash; no user, no fragment.",
        )
    return ClientMetadata(tuple(dict.fromkeys(uris)), plain(data.get("client_name")), method)


# The endpoint

MAX_BODY: Final = 16 * 1024
# Seconds during which a registration with the same metadata counts as a repetition.
REMEMBERED: Final = 3600
CACHE_DOWN: Final = 30
NOTHING: Final = ClientMetadata((), "", "")
# Reasons why a registration is refused.
NO_REGISTRATION: Final = Problem(
    "clients cannot register themselves", "REGISTRATION is 'off': add the application in the admin."
)
TOKEN_TO_REGISTER: Final = Problem(
    "the registration has no valid token", "REGISTRATION is 'authenticated': mcp_token makes a token for it."
)
MANY_CLIENTS: Final = Problem(
    "too many clients register", "RATES['registrations'] and RATES['registrations_total'] set the limits."
)
NO_CACHE: Final = Problem(
    "the cache does not answer, and it counts requests of strangers",
    "Check CACHES['default'], and the server that it names.",
    "This server cannot count requests: its cache does not answer.",
)


@csrf_exempt
@login_not_required
@cors("POST")
@logged
def register(request: HttpRequest) -> HttpResponseBase:
    """Store a client and answer 201 with its metadata (RFC 7591, section 3).

    ``MCP_DJANGO["REGISTRATION"]`` is "open", "authenticated" (the initial access token is one of this server's tokens),
    or "off".
    """
    if settings.REGISTRATION == "off":
        note(request.META, NO_REGISTRATION)
        return _error("not_found", "Clients are registered by the administrators of this server.", 404)
    if request.method != "POST":
        return _error("invalid_request", "Use POST.", 405, Allow="POST, OPTIONS")
    registration = Registration(request)
    wait = registration.throttle()
    if registration.is_uncounted:
        note(request.META, NO_CACHE)
        text = f"{NO_CACHE.told} Try again in {CACHE_DOWN} seconds."
        return _error("temporarily_unavailable", text, 503, Retry_After=str(CACHE_DOWN))
    if wait is not None:
        note(request.META, MANY_CLIENTS)
        minutes = f"{-(-wait // 60)} minutes" if wait > 60 else f"{wait} seconds"
        text = f"Too many clients were registered from this address, or in total. Try again in {minutes}."
        return _error("temporarily_unavailable", text, 429, Retry_After=str(wait))
    try:
        user = _registrant(request)
    except AuthenticationFailed as failure:
        note(request.META, TOKEN_TO_REGISTER)
        code = ', error="invalid_token"' if failure.invalid else ""
        described = "Registration needs an access token of this server."
        return _error("invalid_token", described, 401, WWW_Authenticate=f'Bearer realm="registration"{code}')
    if registration.invalid is not None:
        return _error(registration.invalid.error, registration.invalid.description, 400)
    return JsonResponse(registration.complete(user), status=201, headers={"Cache-Control": "no-store"})


class Registration:
    """One registration, compared with earlier ones from the same address.

    The address is the connection's: a header could claim any. Programs register again with each sign-in, hosted clients
    from few addresses, so a repetition does not count against its address. A public client then gets its existing id,
    which RFC 7591, section 3.2.1, allows; a confidential one gets a new id and secret.
    """

    def __init__(self, request: HttpRequest) -> None:
        self.address = request.META.get("REMOTE_ADDR", "")
        self.metadata = NOTHING
        self.invalid: InvalidMetadata | None = None
        same: list[str] = []
        try:
            metadata = read_metadata(_body(request), oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES)
            self.metadata = metadata
            same = [self.address, metadata.name, metadata.auth_method, *map(_portless, metadata.redirect_uris)]
        except InvalidMetadata as failure:
            self.invalid = failure
        self.is_public = self.metadata.auth_method == "none"
        # The public client that an earlier registration stored, if this one repeats it.
        self.client: Any = None
        self.is_uncounted = False
        self._who = json.dumps(same)
        self._key = f"mcp_django:registered:{hashlib.sha256(self._who.encode()).hexdigest()}"

    def throttle(self) -> int | None:
        """Count the registration against the rates of its address and in total; return the seconds to wait, or None."""
        try:
            client_id = cache.get(self._key) if self.invalid is None else None
            if client_id is not None and self.is_public and settings.REGISTRATION == "open":
                model = get_application_model()
                mine = {"registration_source": model.RegistrationSource.DCR, "client_type": model.CLIENT_PUBLIC}
                self.client = model._default_manager.filter(client_id=client_id, **mine).first()
            if self.client is not None:
                return None
            rates = settings.RATES
            who = self.address if client_id is None else self._who
            wait = RateLimit("registration", rates["registrations"]).hit(who)
            if wait is not None:
                return wait
            return RateLimit("registrations", rates["registrations_total"]).hit("")
        except DatabaseError:
            raise
        except Exception:  # whatever the cache's client library raises
            logger.exception("Registrations are refused: the cache cannot count them")
            self.is_uncounted = True
            return None

    def complete(self, user: AbstractBaseUser | None) -> dict[str, Any]:
        """Store the client, unless it is stored already, and return its metadata (RFC 7591, section 3.2.1)."""
        client = self.client
        secret = ""
        if client is None:
            model = get_application_model()
            client = model(
                user=user,
                name=self.metadata.name,
                redirect_uris=" ".join(self.metadata.redirect_uris),
                client_type=model.CLIENT_PUBLIC if self.is_public else model.CLIENT_CONFIDENTIAL,
                authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
                registration_source=model.RegistrationSource.DCR,
                # The secret is random and long. A slow hash would let anyone waste a fifth of a second per request.
                hash_client_secret=False,
            )
            if not self.is_public:
                secret = client.client_secret
                client.client_secret = hashed_secret(secret)
            client.save()
        with suppress(Exception):  # a repetition then counts as a new registration
            cache.set(self._key, client.client_id, timeout=REMEMBERED)
        answer = {
            "client_id": client.client_id,
            "client_id_issued_at": int(time.time()),
            "redirect_uris": list(self.metadata.redirect_uris),
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": self.metadata.auth_method,
        }
        if self.metadata.name:
            answer["client_name"] = self.metadata.name
        if secret:
            answer |= {"client_secret": secret, "client_secret_expires_at": 0}
        return answer


def _portless(uri: str) -> str:
    """Return a redirect URI without the port of loopback (RFC 8252, section 7.3), to compare registrations."""
    parts = urlsplit(uri)
    if not is_loopback(uri) or (parts.hostname == "localhost" and not oauth2_settings.ALLOW_LOCALHOST_LOOPBACK):
        return uri
    return parts._replace(netloc=parts.hostname or "").geturl()


def _registrant(request: HttpRequest) -> AbstractBaseUser | None:
    """Return the user of the initial access token, if registration needs one."""
    if settings.REGISTRATION == "open":
        return None
    for path, site in endpoints().items():
        request.mcp = MCPContext(site, resource_url(request, path))  # type: ignore[attr-defined]
        try:
            credentials = BearerAuthentication().authenticate(request)
        except AuthenticationFailed:
            continue
        if credentials is None:
            raise AuthenticationFailed(invalid=False)
        return credentials[0]
    raise AuthenticationFailed(invalid=True)


def _body(request: HttpRequest) -> Any:
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
        body = request.read(MAX_BODY + 1) if length <= MAX_BODY else b""
    except (ValueError, OSError):
        body = b""
        length = 0
    if length > MAX_BODY or len(body) > MAX_BODY:
        raise InvalidMetadata("invalid_client_metadata", f"The request body is larger than {MAX_BODY} bytes.")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidMetadata("invalid_client_metadata", "The request body must be JSON.") from None


def _error(error: str, description: str, status: int, **headers: str) -> JsonResponse:
    response = JsonResponse({"error": error, "error_description": description}, status=status)
    response["Cache-Control"] = "no-store"
    for name, value in headers.items():
        response[name.replace("_", "-")] = value
    return response

"""Client ID metadata documents: clients that describe themselves at an https URL, their client id (SEP-991).

Settings and the admin decide which *hosts* documents may come from; ``.example.com`` stands for a domain and all its
subdomains. The server fetches a *document* when a signed-in user is asked for consent, and stores it as an application
of the toolkit. It fetches an outdated document again; if that fails for a passing reason, the stored one serves for
another day. Token requests renew the document too, so that keys and the duty to sign are current; if that fails, a
public client continues with what was stored.

Such clients do not fall back to registration, so the server *announces* documents only while it can fetch them. It
tests this when somebody asks for metadata: it connects to a host whose documents it accepts, without sending a request.
The result is kept for a while, for all workers.
"""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from django.db import DatabaseError, router
from django.http import HttpRequest
from django.utils import timezone
from jwcrypto.jwk import JWK
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..context.databases import again_after_deadlocks, writing
from ..context.untrusted_text import plain
from ..models import ClientHost, ClientKeys
from ..problems import Problem
from ..runtime.cache_and_rate_limits import RateLimit, cache
from .assertions_and_keys import MAX_ID, PAUSE, FetchedLately, InvalidKeys, KeySource, keys_of, read_keys
from .client_registration import NO_CACHE, URI, ClientMetadata, are_texts, is_acceptable, left_out
from .cors_and_refusals import note
from .document_fetcher import FetchFailed, fetcher_for, is_domain
from .stored_tokens import find_client, hashed_secret, unused_clients

PREFIX: Final = "https://"
MAX_DOCUMENT_URIS: Final = 50
# Authentication methods that need a shared secret.
SHARED_SECRETS: Final = ("client_secret_basic", "client_secret_post", "client_secret_jwt")
# The authentication method without one: the client signs an assertion (RFC 7523).
SIGNED: Final = "private_key_jwt"
# Maximum number of waiting hosts that are recorded: anybody who can sign in can make hosts up.
MAX_WAITING: Final = 200
ALLOWED: Final = ClientHost.Decision.ALLOWED
BLOCKED: Final = ClientHost.Decision.BLOCKED
WAITING: Final = ClientHost.Decision.WAITING
# Hosts of the documents of widely used clients.
WELL_KNOWN: Final = ("claude.ai", "chatgpt.com", "vscode.dev")
DOCUMENTS_OFF: Final = Problem(
    "the client describes itself by a document, but CLIENT_DOCUMENTS['hosts'] allows none",
    "Set CLIENT_DOCUMENTS['hosts'] to 'all' or to the client's host. Where clients can register (REGISTRATION), the "
    "user can also remove this site in the client and add it again.",
    "This server accepts no metadata documents of clients.",
)


def takes_documents() -> bool:
    """Return whether any client may describe itself by a metadata document."""
    policy = _policy()
    return policy != "off" and bool(policy)


def _policy() -> Any:
    """Return whose documents are accepted: all, none, named hosts, or hosts that an administrator allows."""
    if settings.CLIENT_DOCUMENTS["hosts"] is None:
        return "all" if settings.REGISTRATION == "open" else "off"
    return settings.CLIENT_DOCUMENTS["hosts"]


def named_hosts() -> list[str]:
    """Return the hosts of which one is tried, to see whether this server can reach documents."""
    policy = _policy()
    if isinstance(policy, str):
        return [host for host in WELL_KNOWN if decision_on(host) != BLOCKED][:1]
    own = {host.partition(":")[0]: host for host in settings.CLIENT_DOCUMENTS["private"]}
    return [own.get(host, host) for host in (name.removeprefix(".") for name in policy)]


def decision_on(host: str) -> ClientHost.Decision:
    """Return whether the documents of a host are allowed, blocked, or wait for an administrator."""
    names = _names_of(host)
    hosts = ClientHost._default_manager.filter(host__in=names).values_list("host", "decision")
    # The database may ignore accents.
    decided = {decision for name, decision in hosts if name in names}
    if BLOCKED in decided or not names.isdisjoint(settings.CLIENT_DOCUMENTS["blocked"]) or not takes_documents():
        return BLOCKED
    policy = _policy()
    if policy == "ask":
        return ALLOWED if ALLOWED in decided else WAITING
    if policy == "all" or not names.isdisjoint(policy):
        return ALLOWED
    return BLOCKED


def _names_of(host: str) -> set[str]:
    """Return the names under which a host can be allowed or blocked: itself and its domains."""
    labels = host.split(".")
    return {host, *("." + ".".join(labels[start:]) for start in range(len(labels)))}


def ask_for(host: str, url: str, user: Any) -> None:
    """Record that a user wants to connect a client by its document at ``url``, for administrators to allow the host."""
    waiting = ClientHost._default_manager.filter(decision=WAITING)
    if waiting.filter(host=host).exists() or waiting.count() >= MAX_WAITING:
        return
    ClientHost._default_manager.get_or_create(host=host, defaults={"url": url, "user": user, "created": timezone.now()})


def is_admitted(client: Any) -> bool:
    """Return whether a stored client can still be used: one described by a document, only while its host is allowed.

    If the project lets the toolkit handle documents (``CIMD_ENABLED``), its own rules apply.
    """
    if client.registration_source != client.RegistrationSource.CIMD:
        return True
    if oauth2_settings.CIMD_ENABLED and not takes_documents():
        return True
    return decision_on(urlsplit(client.client_id).hostname or "") == ALLOWED


def is_verified(client: Any) -> bool:
    """Return whether somebody who runs this site has accepted a stored client, or the host of its document.

    Clients that registered themselves have not been looked at by anybody, nor have documents where any host will do.
    """
    if client.registration_source == client.RegistrationSource.MANUAL or client.skip_authorization:
        return True
    return client.registration_source == client.RegistrationSource.CIMD and _policy() != "all"


def forget_clients_of(host: str) -> int:
    """Delete all clients that documents of a host describe, with their tokens; return their number."""
    model = get_application_model()
    stored = model._default_manager.filter(registration_source=model.RegistrationSource.CIMD)
    keys = [
        pk
        for pk, client_id in stored.values_list("pk", "client_id")
        if host in _names_of(urlsplit(client_id).hostname or "")
    ]
    stored.filter(pk__in=keys).delete()
    return len(keys)


# Seconds for which the cache keeps that documents can be fetched, and that they cannot.
GOOD: Final = 900
BAD: Final = 300
# Seconds for which a worker itself remembers the result, in case the cache does not.
ALONE: Final = 60
# Maximum seconds that it takes to try the hosts, shared among them.
PATIENCE: Final = 3.0
MAX_HOSTS: Final = 3
REMEDY: Final = (
    "If this server needs a proxy, set CLIENT_DOCUMENTS['proxy']. If it has no access to the internet, set "
    "CLIENT_DOCUMENTS['hosts'] to 'off', and clients register instead."
)

# By cache key: the monotonic time until which this worker remembers the result, and the result.
_known: dict[str, tuple[float, str]] = {}
_looking = threading.Lock()


def announces_documents() -> bool:
    """Return whether the server announces to clients that it takes their documents.

    If clients cannot register instead, it always does: their users then see a page with the cause.
    """
    return takes_documents() and (settings.REGISTRATION != "open" or not why_not_fetched())


def why_not_fetched() -> str:
    """Return why documents are out of reach of this server, "" if they are not; cached."""
    key = _key()
    cause = _recall(key)
    if cause is None:
        with _looking:
            cause = _recall(key)
            if cause is None:
                cause = look()
                _keep(key, cause)
                if cause:
                    logging.getLogger("mcp_django").warning(
                        "Documents of clients are not announced: %s. %s", cause, REMEDY
                    )
    return cause


def look() -> str:
    """Return why documents cannot be accepted now (a host is out of reach), "" if they can be."""
    hosts = named_hosts()[:MAX_HOSTS]
    for host in hosts:
        url = f"https://{host}/"
        try:
            fetcher_for(url).reach(url, PATIENCE / len(hosts))
        except FetchFailed as failure:
            return f"this server cannot reach {host} ({failure.seen})"
    return ""


def forget() -> None:
    """Forget whether documents can be reached, after one could not be."""
    key = _key()
    _known.pop(key, None)
    with suppress(Exception):  # the cached result expires by itself
        cache.delete(key)


def _key() -> str:
    """Return the cache key for whether documents can be reached; it depends on the settings."""
    text = repr(sorted(settings.CLIENT_DOCUMENTS.items()))
    return f"mcp_django:outgoing:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _recall(key: str) -> str | None:
    cause: str | None = None
    with suppress(Exception):  # whatever the cache's client library raises
        cause = cache.get(key)
    if cause is None:
        until, known = _known.get(key, (0.0, ""))
        cause = known if time.monotonic() < until else None
    return cause


def _keep(key: str, found: str) -> None:
    _known[key] = time.monotonic() + ALONE, found
    with suppress(Exception):
        cache.set(key, found, timeout=BAD if found else GOOD)


logger = logging.getLogger("mcp_django.oauth.described")

# Time for which an outdated document serves while a new one cannot be fetched.
STALE: Final = timedelta(days=1)
# Seconds before the server tries again to fetch a document that it could not fetch.
FAILED: Final = 60
MAX_CLIENTS: Final = 1_000
# Limits how many documents one worker fetches at the same time.
SLOTS: Final = threading.BoundedSemaphore(4)

# By kind of refusal: the status of the page, and the remedy for the log.
REFUSALS: Final = {
    "address": (400, "The client's makers have to give it another client_id."),
    "document": (400, "The client's makers have to correct its metadata document."),
    "away": (400, REMEDY),
    "unreachable": (400, "Its server has a problem; the user can try again later."),
    "blocked": (403, "See CLIENT_DOCUMENTS, and hosts of applications in the admin."),
    "off": (403, DOCUMENTS_OFF.remedy),
    "waiting": (403, "An administrator can allow or block the host in the admin, under hosts of applications."),
    "busy": (429, "RATES['documents'] sets the limit."),
    "uncounted": (503, NO_CACHE.remedy),
}
# Kinds of refusal that may be over in a moment.
PASSING: Final = frozenset({"away", "unreachable", "uncounted", "busy"})


class InvalidDocument(Exception):
    """Raised when a document, or its URL, breaks a rule; the text says which, in English."""


def is_document_id(client_id: str) -> bool:
    """Return whether a client id is meant as the URL of the client's metadata document."""
    return client_id[: len(PREFIX)].lower() == PREFIX


def check_url(url: str, named: frozenset[str]) -> SplitResult:
    """Return the parts of a document's URL, which is the client id; raise ``InvalidDocument`` if it breaks a rule.

    ``named`` are the project's own hosts, which may have a port or a name without a dot.
    """
    if len(url) > MAX_ID or URI.fullmatch(url) is None or "\\" in url:
        raise InvalidDocument(f"A client_id is at most {MAX_ID} characters of printable ASCII; a host is in punycode.")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        raise InvalidDocument("The client_id is not a URL.") from None
    if not url.startswith(PREFIX) or parts.netloc != parts.netloc.lower():
        raise InvalidDocument("The client_id has to be an https URL, with scheme and host in lower case.")
    if "@" in parts.netloc or "#" in url:
        raise InvalidDocument("The client_id must have no user and no fragment.")
    if parts.netloc not in named and (port is not None or ":" in parts.netloc or not is_domain(host)):
        raise InvalidDocument("The host of the client_id has to be a domain name, without a port.")
    if not parts.path.strip("/"):
        raise InvalidDocument("The client_id has to be a URL with a path.")
    if any(unquote(segment) in (".", "..") for segment in parts.path.split("/")):
        raise InvalidDocument("The path of the client_id must have no dot segments.")
    return parts


def read_document(url: str, data: Any, schemes: list[str]) -> ClientMetadata:
    """Return the metadata in a document: name, redirect URIs, keys; ``schemes`` are those allowed for redirect URIs."""
    if not isinstance(data, dict):
        raise InvalidDocument("The document is not a JSON object.")
    if data.get("client_id") != url:
        raise InvalidDocument(f"The client_id in the document is {_shown(data.get('client_id'))}, not its own URL.")
    if "client_secret" in data or "client_secret_expires_at" in data:
        raise InvalidDocument("The document has a client_secret, which anyone can read there.")
    name = plain(data.get("client_name"))
    uris: Any = data.get("redirect_uris")
    if not name:
        raise InvalidDocument("The document has no client_name.")
    if lack := left_out(data):
        raise InvalidDocument(f"In the document, {lack[0]} has to include {lack[1]}.")
    method, keys = _signs(data)
    if not are_texts(uris):
        raise InvalidDocument("In the document, redirect_uris has to be an array with at least one URI.")
    if len(uris) > MAX_DOCUMENT_URIS:
        raise InvalidDocument(f"The document has more than {MAX_DOCUMENT_URIS} redirect_uris.")
    # Drop the others instead of refusing the document: they may be for other servers.
    acceptable = tuple(dict.fromkeys(uri for uri in uris if is_acceptable(uri, schemes)))
    if not acceptable:
        raise InvalidDocument("None of the document's redirect_uris is https, loopback, or a scheme of a known client.")
    return ClientMetadata(acceptable, name, method, **keys)


def _signs(data: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return how the client authenticates, "none" or "private_key_jwt", and its keys."""
    several = data.get("token_endpoint_auth_methods_supported")
    one = data.get("token_endpoint_auth_method")
    if one in SHARED_SECRETS:
        raise InvalidDocument(f"The document's token_endpoint_auth_method is {one}: there is no secret to share.")
    offered = ["none" if one is None else one, *(several if isinstance(several, list) else [])]
    keys = _keys(data) if SIGNED in offered else {}
    if "none" in offered:
        return "none", keys
    if SIGNED not in offered:
        raise InvalidDocument(
            f"The document's token_endpoint_auth_method is {_shown(one)}; this server takes none and {SIGNED}."
        )
    if not keys:
        raise InvalidDocument(f"The document offers only {SIGNED}, but has no keys (jwks or jwks_uri) for it.")
    return SIGNED, keys


def _keys(data: dict[str, Any]) -> dict[str, str]:
    """Return the keys in a document, or their URL (RFC 7591, section 2); nothing if unusable."""
    uri = data.get("jwks_uri")
    own = data.get("jwks")
    if isinstance(uri, str) and own is None:
        if uri.startswith(PREFIX) and is_acceptable(uri, ["https"]):
            return {"jwks_uri": uri}
        return {}
    if isinstance(own, dict) and uri is None:
        text = json.dumps(own)
        with suppress(InvalidKeys):
            read_keys(text)
            return {"public_key": text}
    return {}


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(plain(value))
    if value is None:
        return "missing"
    return "no text"


class DocumentRefused(Exception):
    """Raised when a document is refused; ``kind`` is a key of ``REFUSALS``, ``detail`` in English."""

    def __init__(self, kind: str, url: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.status, remedy = REFUSALS[kind]
        # Escape letters that look like others.
        self.url = plain(url, MAX_ID).encode("ascii", "backslashreplace").decode()
        self.reason = Problem(f"the metadata document {self.url}: {detail}", remedy)


class Document:
    """The document at ``url``, during one request: admitted, fetched, stored and renewed."""

    def __init__(self, url: str, request: HttpRequest) -> None:
        self.url = url
        self.request = request
        self.host = urlsplit(url).hostname or ""

    def refused(self, kind: str, detail: str) -> DocumentRefused:
        return DocumentRefused(kind, self.url, detail)

    def require_admitted(self) -> None:
        """Raise ``DocumentRefused`` unless the host is allowed; record a host that waits for an administrator."""
        if not takes_documents():
            raise self.refused("off", DOCUMENTS_OFF.told)
        decision = decision_on(self.host)
        if decision == WAITING:
            ask_for(self.host, self.url, self.request.user)
            raise self.refused("waiting", f"{self.host} has not been allowed yet.")
        if decision != ALLOWED:
            raise self.refused("blocked", f"{self.host} is not allowed.")

    def current(self, stored: Any) -> Any:
        """Return the stored client if it is up to date, else fetch the document; a stale one serves for a day."""
        now = timezone.now()
        if stored is not None and stored.cimd_expires_at is not None and now <= stored.cimd_expires_at:
            return stored
        try:
            return self.fetched()
        except DocumentRefused as refused:
            if stored is None or refused.kind not in PASSING:
                raise
            if stored.cimd_expires_at is None or now > stored.cimd_expires_at + STALE:
                raise
            return stored

    def fetched(self) -> Any:
        """Fetch the document, store the client and return it; a failure is cached for a minute."""
        key = f"mcp_django:document:{hashlib.sha256(self.url.encode()).hexdigest()}"
        failure = None
        with suppress(Exception):  # without the cache, fetch again
            failure = cache.get(key)
        if failure is not None:
            raise self.refused(failure[0], failure[1])
        self._count()
        try:
            metadata, age = self._read()
        except DocumentRefused as refused:
            if refused.kind not in ("busy", "uncounted"):
                with suppress(Exception):
                    cache.set(key, (refused.kind, refused.detail), timeout=FAILED)
            raise
        # Other workers may store the same client now.
        using = router.db_for_write(get_application_model())
        return again_after_deadlocks(using, partial(self._store, metadata, age))

    def _count(self) -> None:
        """Count the fetch against the rates of the requesting address and of the host."""
        rate = settings.RATES["documents"]
        address = self.request.META.get("REMOTE_ADDR", "")
        try:
            wait = RateLimit("documents", rate).hit(address)
            if wait is None:
                wait = RateLimit("document_hosts", rate).times(5).hit(self.host)
        except DatabaseError:
            raise
        except Exception:  # whatever the cache's client library raises
            logger.exception("Documents are refused: the cache cannot count them")
            raise self.refused("uncounted", NO_CACHE.told) from None
        if wait is not None:
            raise self.refused("busy", f"Try again in {wait} seconds.")

    def _read(self) -> tuple[ClientMetadata, int]:
        """Read the document from its URL; return the metadata, and for how many seconds to keep them."""
        if not SLOTS.acquire(blocking=False):
            raise self.refused("busy", "Other documents are being fetched.")
        try:
            response = fetcher_for(self.url).fetch(self.url)
        except FetchFailed as failure:
            if failure.is_away:
                forget()
                raise self.refused("away", f"This server cannot reach {self.host}: {failure.seen}.") from None
            kind = "unreachable" if failure.is_passing else "document"
            raise self.refused(kind, f"The document cannot be used: {failure.seen}.") from None
        finally:
            SLOTS.release()
        try:
            return read_document(self.url, response.data, oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES), response.age
        except InvalidDocument as error:
            raise self.refused("document", str(error)) from None

    def _store(self, metadata: ClientMetadata, age: int) -> Any:
        model = get_application_model()
        source = model.RegistrationSource.CIMD
        url = self.url
        stored = model._default_manager.filter(registration_source=source)
        if not stored.filter(client_id=url).exists() and stored.count() >= MAX_CLIENTS:
            # Delete unused clients, those that were fetched longest ago first.
            unused = unused_clients(source).order_by("updated").values_list("pk", flat=True)
            stored.filter(pk__in=list(unused[: MAX_CLIENTS // 10])).delete()
            if stored.count() >= MAX_CLIENTS:
                raise self.refused("busy", "This server knows too many clients.")
        values = {
            "user": None,
            "name": metadata.name,
            "redirect_uris": " ".join(metadata.redirect_uris),
            "client_type": model.CLIENT_CONFIDENTIAL if metadata.auth_method == SIGNED else model.CLIENT_PUBLIC,
            "authorization_grant_type": model.GRANT_AUTHORIZATION_CODE,
            "registration_source": source,
            "cimd_expires_at": timezone.now() + timedelta(seconds=age),
            # The client has no secret: this one is random, and nobody knows it.
            "client_secret": hashed_secret(model().client_secret),
            "hash_client_secret": False,
        }
        keys = {"jwks_uri": metadata.jwks_uri, "public_key": metadata.public_key}
        with writing(router.db_for_write(model)):
            if any(keys.values()):
                ClientKeys._default_manager.update_or_create(client_id=url, defaults=keys)
            else:
                ClientKeys._default_manager.filter(client_id=url).delete()
            client = model._default_manager.update_or_create(client_id=url, defaults=values)[0]
            # The database may ignore case: leave another client as it is.
            if client.client_id != url:
                raise self.refused("address", "This server knows another client, by the same URL in another case.")
            return client

    def kept_keys(self) -> ClientKeys | None:
        row = ClientKeys._default_manager.filter(client_id=self.url).first()
        # The database may ignore case.
        if row is not None and row.client_id == self.url:
            return row
        return None

    def keys(self, again: bool) -> Iterable[JWK]:
        """Return the keys in the document, to check signatures of the client.

        Keys within the document itself are renewed by fetching the document again, when none of them fits.
        """
        row = self.kept_keys()
        if again and row is not None and not row.jwks_uri:
            key = f"mcp_django:keys:{hashlib.sha256(self.url.encode()).hexdigest()}"
            if not cache.add(key, 1, timeout=PAUSE):
                raise FetchedLately(PAUSE)
            with suppress(DocumentRefused):
                self.fetched()
            row = self.kept_keys()
        return [] if row is None else keys_of(row)(again)


def find_described(url: str, request: HttpRequest) -> Any:
    """Return the client (application) for a document's URL, fetching the document if needed.

    An application that administrators added under this id is returned as it is; nothing is fetched for it.
    """
    model = get_application_model()
    stored = find_client(url) if url.isprintable() else None
    if stored is not None and stored.registration_source != model.RegistrationSource.CIMD:
        return stored
    try:
        check_url(url, frozenset(settings.CLIENT_DOCUMENTS["private"]))
    except InvalidDocument as error:
        raise DocumentRefused("address", url, str(error)) from None
    document = Document(url, request)
    document.require_admitted()
    return document.current(stored)


def renewed(client: Any, request: HttpRequest) -> Any:
    """Return a stored client as its document describes it now, None if that cannot be known.

    Nobody has to be signed in for this, so only documents that were fetched before are fetched again, once outdated. A
    public client continues with what is stored: users can remove its access, administrators can block its host.
    """
    if client.registration_source != client.RegistrationSource.CIMD or not takes_documents():
        return client
    try:
        return Document(client.client_id, request).current(client)
    except DocumentRefused as refused:
        if client.client_type == client.CLIENT_PUBLIC:
            return client
        note(request.META, refused.reason)
        return None


def keys_of_client(client: Any, request: HttpRequest) -> KeySource | None:
    """Return the source of the keys in a client's document, None if it has none."""
    document = Document(client.client_id, request)
    is_described = client.registration_source == client.RegistrationSource.CIMD
    if is_described and document.kept_keys() is not None:
        return document.keys
    return None

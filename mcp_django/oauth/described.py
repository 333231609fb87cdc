"""Clients that describe themselves by a document at an https URL, which is their id (SEP-991).

A document is fetched when a signed-in user is asked for consent, and what it says is stored as an application of the
toolkit. It is fetched again when it is out of date; where that fails for reasons that pass, the stored one is good for
another day. Requests for tokens look at it again too, so that keys and the need to sign are those of now; a client that
needs no proof goes on with what was stored.
"""

import hashlib
import logging
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.db import DatabaseError, router
from django.http import HttpRequest
from django.utils import timezone
from jwcrypto.jwk import JWK
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..context.text import plain
from ..exceptions import Reason
from ..models import ClientKeys
from ..runtime.cache import cache
from ..runtime.throttling import hit, times_as_many
from ..runtime.transactions import writing
from .assertions import KeySource
from .clients import ClientMetadata
from .credentials import keys_of
from .documents import MAX_ID, SIGNED, InvalidDocument, check_url, read_document
from .fetching import FetchFailed
from .hosts import ALLOWED, WAITING, ask_for, decision_on, takes_documents
from .keys import PAUSE, FetchedLately
from .outgoing import REMEDY, fetcher_for, forget
from .refusals import DOCUMENTS_OFF, NO_CACHE, note
from .secrets import hashed_secret
from .unused import unused_clients

logger = logging.getLogger(__name__)

# For which a document that is out of date is good where a new one cannot be had.
STALE: Final = timedelta(days=1)
# Seconds in which one that could not be had is not asked for again.
FAILED: Final = 60
MAX_CLIENTS: Final = 1_000
# Fetched at the same time by one worker.
SLOTS: Final = threading.BoundedSemaphore(4)

# By what is wrong: the status of the page, and what mends it.
REFUSALS: Final = {
    "address": (400, "The makers of the client give it another client_id."),
    "document": (400, "The makers of the client mend its metadata document."),
    "away": (400, REMEDY),
    "unreachable": (400, "Its server is in trouble, and the user tries again later."),
    "blocked": (403, "CLIENT_DOCUMENTS, BLOCKED_CLIENT_HOSTS or the admin (hosts of applications) says so."),
    "off": (403, DOCUMENTS_OFF.remedy),
    "waiting": (403, "An administrator allows or blocks the host in the admin, under hosts of applications."),
    "busy": (429, "CLIENT_DOCUMENT_RATE is the limit."),
    "uncounted": (503, NO_CACHE.remedy),
}
# What may be otherwise in a moment.
PASSING: Final = frozenset({"away", "unreachable", "uncounted", "busy"})


class DocumentRefused(Exception):
    """The client is not let in; ``kind`` is a key of ``REFUSALS``, ``detail`` says more, in English."""

    def __init__(self, kind: str, url: str, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail
        self.status, remedy = REFUSALS[kind]
        # Letters that look like others are shown as what they are.
        self.url = plain(url, MAX_ID).encode("ascii", "backslashreplace").decode()
        self.reason = Reason(f"the metadata document {self.url}: {detail}", remedy)


def find_described(url: str, request: HttpRequest) -> Any:
    """Return the application for a client id that is the URL of a document, fetched where it has to be.

    One that administrators added themselves under this id is theirs, and nothing is fetched.

    Raises:
        DocumentRefused: it is not let in.
    """
    model = get_application_model()
    stored = model._default_manager.filter(client_id=url).first() if url.isprintable() else None
    if stored is not None and stored.registration_source != model.RegistrationSource.CIMD:
        return stored
    try:
        host = check_url(url, frozenset(settings.PRIVATE_CLIENT_HOSTS)).hostname or ""
    except InvalidDocument as error:
        raise DocumentRefused("address", url, str(error)) from None
    _require_admitted(host, url, request.user)
    return _current(stored, url, host, request)


def renewed(client: Any, request: HttpRequest) -> Any:
    """Return a client that is stored and let in as its document describes it now; None where that cannot be known.

    Nobody has to be signed in for it, so it is what was fetched before that is fetched again, when it is out of date.
    One that needs no proof goes on with what is stored: users take access away, and administrators block hosts.
    """
    if client.registration_source != client.RegistrationSource.CIMD or not takes_documents():
        return client
    try:
        return _current(client, client.client_id, urlsplit(client.client_id).hostname or "", request)
    except DocumentRefused as refused:
        if client.client_type == client.CLIENT_PUBLIC:
            return client
        note(request.META, refused.reason)
        return None


def _current(stored: Any, url: str, host: str, request: HttpRequest) -> Any:
    """Return what is stored while it is up to date, else what is fetched, or stored for a day more."""
    now = timezone.now()
    if stored is not None and stored.cimd_expires_at is not None and now <= stored.cimd_expires_at:
        return stored
    try:
        return _store(url, *_fetch(url, host, request))
    except DocumentRefused as refused:
        if stored is None or refused.kind not in PASSING:
            raise
        if stored.cimd_expires_at is None or now > stored.cimd_expires_at + STALE:
            raise
        return stored


def _require_admitted(host: str, url: str, user: Any) -> None:
    if not takes_documents():
        raise DocumentRefused("off", url, DOCUMENTS_OFF.told)
    decision = decision_on(host)
    if decision == WAITING:
        ask_for(host, url, user)
        raise DocumentRefused("waiting", url, f"Nobody has allowed {host} yet.")
    if decision != ALLOWED:
        raise DocumentRefused("blocked", url, f"{host} is not let in.")


def _fetch(url: str, host: str, request: HttpRequest) -> tuple[ClientMetadata, int]:
    """Return what the document says, and the seconds for which that may be kept."""
    key = f"mcp_django:document:{hashlib.sha256(url.encode()).hexdigest()}"
    known = None
    with suppress(Exception):  # it is fetched again
        known = cache.get(key)
    if known is not None:
        raise DocumentRefused(known[0], url, known[1])
    _count(url, host, request.META.get("REMOTE_ADDR", ""))
    try:
        return _fetched(url, host)
    except DocumentRefused as refused:
        if refused.kind not in ("busy", "uncounted"):
            with suppress(Exception):
                cache.set(key, (refused.kind, refused.detail), timeout=FAILED)
        raise


def _count(url: str, host: str, address: str) -> None:
    """Count a document for the address that asks, which is the connection's, and for the host."""
    rate = settings.CLIENT_DOCUMENT_RATE
    try:
        wait = hit("documents", address, rate) or hit("document_hosts", host, times_as_many(rate, 5))
    except DatabaseError:
        raise
    except Exception:  # whatever the cache's client library raises
        logger.exception("The cache does not count documents: refused until it does")
        raise DocumentRefused("uncounted", url, NO_CACHE.told) from None
    if wait is not None:
        raise DocumentRefused("busy", url, f"Try again in {wait} seconds.")


def _fetched(url: str, host: str) -> tuple[ClientMetadata, int]:
    if not SLOTS.acquire(blocking=False):
        raise DocumentRefused("busy", url, "Other documents are being fetched.")
    try:
        found = fetcher_for(url).fetch(url)
    except FetchFailed as failure:
        if failure.is_away:
            forget()
            raise DocumentRefused("away", url, f"This server cannot reach {host}: {failure.seen}.") from None
        kind = "unreachable" if failure.is_passing else "document"
        raise DocumentRefused(kind, url, f"The document cannot be used: {failure.seen}.") from None
    finally:
        SLOTS.release()
    try:
        return read_document(url, found.data, oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES), found.age
    except InvalidDocument as error:
        raise DocumentRefused("document", url, str(error)) from None


def _store(url: str, metadata: ClientMetadata, age: int) -> Any:
    model = get_application_model()
    stored = model._default_manager.filter(registration_source=model.RegistrationSource.CIMD)
    if not stored.filter(client_id=url).exists() and stored.count() >= MAX_CLIENTS:
        # Of those that nobody uses, the ones that were looked at longest ago.
        unused = unused_clients(model.RegistrationSource.CIMD).order_by("updated").values_list("pk", flat=True)
        stored.filter(pk__in=list(unused[: MAX_CLIENTS // 10])).delete()
        if stored.count() >= MAX_CLIENTS:
            raise DocumentRefused("busy", url, "This server knows too many clients.")
    values = {
        "user": None,
        "name": metadata.name,
        "redirect_uris": " ".join(metadata.redirect_uris),
        "client_type": model.CLIENT_CONFIDENTIAL if metadata.auth_method == SIGNED else model.CLIENT_PUBLIC,
        "authorization_grant_type": model.GRANT_AUTHORIZATION_CODE,
        "registration_source": model.RegistrationSource.CIMD,
        "cimd_expires_at": timezone.now() + timedelta(seconds=age),
        # There is none: nobody knows what is made up.
        "client_secret": hashed_secret(model().client_secret),
        "hash_client_secret": False,
    }
    kept = {"jwks_uri": metadata.jwks_uri, "public_key": metadata.public_key}
    with writing(router.db_for_write(model)):
        if any(kept.values()):
            ClientKeys._default_manager.update_or_create(client_id=url, defaults=kept)
        else:
            ClientKeys._default_manager.filter(client_id=url).delete()
        return model._default_manager.update_or_create(client_id=url, defaults=values)[0]


def keys_of_client(client: Any, request: HttpRequest) -> KeySource | None:
    """Return the keys that a client may sign with which describes itself, None where its document has none.

    Those that stand in the document itself are fetched again as others are: with it, and when none of them fits.
    """
    url = client.client_id
    if client.registration_source != client.RegistrationSource.CIMD or _kept_keys(url) is None:
        return None

    def keys(again: bool) -> Iterable[JWK]:
        kept = _kept_keys(url)
        if again and kept is not None and not kept.jwks_uri:
            key = f"mcp_django:keys:{hashlib.sha256(url.encode()).hexdigest()}"
            if not cache.add(key, 1, timeout=PAUSE):
                raise FetchedLately(PAUSE)
            with suppress(DocumentRefused):
                _store(url, *_fetch(url, urlsplit(url).hostname or "", request))
            kept = _kept_keys(url)
        return [] if kept is None else keys_of(kept)(again)

    return keys


def _kept_keys(url: str) -> ClientKeys | None:
    kept = ClientKeys._default_manager.filter(client_id=url).first()
    # A database may take letters of another case for the same.
    return kept if kept is not None and kept.client_id == url else None


def clear_keys() -> None:
    """Delete the keys of clients that are not known any more."""
    known = get_application_model()._default_manager.values_list("client_id", flat=True)
    gone = set(ClientKeys._default_manager.values_list("client_id", flat=True)).difference(known)
    ClientKeys._default_manager.filter(client_id__in=gone).delete()

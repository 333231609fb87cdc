"""Clients that describe themselves by a document at an https URL, which is their id (SEP-991).

A document is fetched when a signed-in user is asked for consent, and what it says is stored as an application of the
toolkit. It is fetched again when it is out of date; where that fails for reasons that pass, the stored one is good for
another day. Tokens go on with what was stored: each consent is a new one, with what the document then says.
"""

import hashlib
import logging
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from django.db import DatabaseError, router
from django.http import HttpRequest
from django.utils import timezone
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..context.text import plain
from ..exceptions import Reason
from ..models import ClientKeys
from ..runtime.cache import cache
from ..runtime.throttling import hit, times_as_many
from ..runtime.transactions import writing
from .addresses import is_private_or_public, is_public
from .assertions import KeySource
from .clients import ClientMetadata
from .credentials import keys_of
from .documents import MAX_ID, SIGNED, InvalidDocument, check_url, read_document
from .fetching import Fetcher, FetchFailed
from .hosts import ALLOWED, WAITING, ask_for, decision_on
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
    "unreachable": (400, "Can this server reach it? CLIENT_DOCUMENTS = 'off' lets clients register instead."),
    "blocked": (403, "CLIENT_DOCUMENTS, BLOCKED_CLIENT_HOSTS or the admin (hosts of applications) says so."),
    "waiting": (403, "An administrator allows or blocks the host in the admin, under hosts of applications."),
    "busy": (429, "CLIENT_DOCUMENT_RATE is the limit."),
}


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
    now = timezone.now()
    if stored is not None and stored.cimd_expires_at is not None and now <= stored.cimd_expires_at:
        return stored
    try:
        return _store(url, *_fetch(url, host, request))
    except DocumentRefused as refused:
        if stored is None or refused.kind not in ("unreachable", "busy"):
            raise
        if stored.cimd_expires_at is None or now > stored.cimd_expires_at + STALE:
            raise
        return stored


def _require_admitted(host: str, url: str, user: Any) -> None:
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
        return _fetched(url)
    except DocumentRefused as refused:
        if refused.kind != "busy":
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
        raise DocumentRefused("busy", url, "The server cannot count requests.") from None
    if wait is not None:
        raise DocumentRefused("busy", url, f"Try again in {wait} seconds.")


def fetcher_for(url: str) -> Fetcher:
    """Return what fetches an https URL that a stranger names: from the public network, or a host of the project's."""
    is_own, authorities = url.split("/")[2] in settings.PRIVATE_CLIENT_HOSTS, settings.CLIENT_DOCUMENT_CA
    return Fetcher(is_private_or_public if is_own else is_public, authorities and str(authorities))


def _fetched(url: str) -> tuple[ClientMetadata, int]:
    if not SLOTS.acquire(blocking=False):
        raise DocumentRefused("busy", url, "Other documents are being fetched.")
    try:
        found = fetcher_for(url).fetch(url)
    except FetchFailed as failure:
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


def keys_of_client(client: Any) -> KeySource | None:
    """Return the keys that a client may sign with which describes itself, None where its document has none."""
    if client.registration_source != client.RegistrationSource.CIMD:
        return None
    kept = ClientKeys._default_manager.filter(client_id=client.client_id).first()
    if kept is None or kept.client_id != client.client_id:
        return None
    return keys_of(kept, fetcher_for(kept.jwks_uri)) if kept.jwks_uri else keys_of(kept)


def clear_keys() -> None:
    """Delete the keys of clients that are not known any more."""
    known = get_application_model()._default_manager.values_list("client_id", flat=True)
    gone = set(ClientKeys._default_manager.values_list("client_id", flat=True)).difference(known)
    ClientKeys._default_manager.filter(client_id__in=gone).delete()

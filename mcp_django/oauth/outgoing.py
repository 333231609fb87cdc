"""What this server asks of others by itself: documents of clients and keys of signers; and whether it can.

Clients that describe themselves do not fall back to registration, so documents are announced only while they can be
fetched. Whether they can is looked at when metadata is asked for: the server connects to a host whose documents it
takes, and asks it for nothing. What it saw is kept for a while, for all workers.
"""

import hashlib
import logging
import threading
import time
from contextlib import suppress
from typing import Final

from ..conf import settings
from ..runtime.cache import cache
from .addresses import is_private_or_public, is_public
from .fetching import Fetcher, FetchFailed
from .hosts import named_hosts, takes_documents

logger = logging.getLogger("mcp_django")

# Seconds for which what was seen is kept: that documents can be fetched, and that they cannot.
GOOD: Final = 900
BAD: Final = 300
# Seconds for which a worker knows it by itself, where the cache does not.
ALONE: Final = 60
# Seconds that a look takes at most.
PATIENCE: Final = 3.0
MAX_HOSTS: Final = 3
REMEDY: Final = (
    "If this server needs a proxy, set CLIENT_DOCUMENT_PROXY. If it has no access to the internet, set "
    "CLIENT_DOCUMENTS to 'off', and clients register instead."
)

# By the key of the cache: until when it is known here, and what.
_known: dict[str, tuple[float, str]] = {}
_looking = threading.Lock()


def fetcher_for(url: str, *, is_operators: bool = False) -> Fetcher:
    """Return what fetches an https URL: from the public network, or from a host that the project names.

    ``is_operators``: the project's settings have the URL, which may be within its network.
    """
    is_own = url.split("/")[2] in settings.PRIVATE_CLIENT_HOSTS
    admits = is_private_or_public if is_own or is_operators else is_public
    authorities, proxy = settings.CLIENT_DOCUMENT_CA, None if is_own else settings.CLIENT_DOCUMENT_PROXY
    return Fetcher(admits, authorities and str(authorities), proxy)


def announces_documents() -> bool:
    """Return whether metadata says that clients can describe themselves by a document.

    Where clients cannot register instead it says so in any case: their users then see a page with the cause.
    """
    return takes_documents() and (settings.REGISTRATION != "open" or not why_not_fetched())


def why_not_fetched() -> str:
    """Return why documents of clients cannot be fetched, "" where they can."""
    key = _key()
    found = _recall(key)
    if found is None:
        with _looking:
            found = _recall(key)
            if found is None:
                found = look()
                _keep(key, found)
                if found:
                    logger.warning("Documents of clients are not announced: %s. %s", found, REMEDY)
    return found


def look() -> str:
    """Try to connect to the hosts whose documents are taken; return what fails, "" for nothing."""
    hosts = named_hosts()[:MAX_HOSTS]
    for host in hosts:
        url = f"https://{host}/"
        try:
            fetcher_for(url).reach(url, PATIENCE / len(hosts))
        except FetchFailed as failure:
            return f"this server cannot reach {host} ({failure.seen})"
    return ""


def forget() -> None:
    """Have the next one who asks for metadata look again: a document could not be fetched."""
    key = _key()
    _known.pop(key, None)
    with suppress(Exception):  # it is looked at again when its time is over
        cache.delete(key)


def _key() -> str:
    """Return the key of the cache, which is another one after a change of settings."""
    names = "CLIENT_DOCUMENTS", "PRIVATE_CLIENT_HOSTS", "CLIENT_DOCUMENT_CA", "CLIENT_DOCUMENT_PROXY"
    told = repr([getattr(settings, name) for name in names])
    return f"mcp_django:outgoing:{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def _recall(key: str) -> str | None:
    found: str | None = None
    with suppress(Exception):  # whatever the cache's client library raises
        found = cache.get(key)
    if found is None:
        until, known = _known.get(key, (0.0, ""))
        found = known if time.monotonic() < until else None
    return found


def _keep(key: str, found: str) -> None:
    _known[key] = time.monotonic() + ALONE, found
    with suppress(Exception):
        cache.set(key, found, timeout=BAD if found else GOOD)

"""Files on their way: sent to an upload URL, and kept in a private storage until a record takes them.

They lie in the storage ``STORAGES["mcp_uploads"]``; without one there are no upload URLs. Their names are derived from
the user, the client, the site and a handle, so that a handle is good for nobody else.
"""

import contextlib
import logging
import secrets
import time
from datetime import timedelta
from typing import Any, Final

from django.core.files.storage import Storage, storages
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from ..context.request import MCPRequest
from ..runtime.cache import cache

logger = logging.getLogger("mcp_django")

ALIAS: Final = "mcp_uploads"
FOLDER: Final = "mcp_uploads"
# Seconds for which a record may take what was sent.
KEPT: Final = 3600
MAX_HANDLE: Final = 64
# Of the digest: a model has to repeat the URL that holds the name.
DIGITS: Final = 40


def upload_storage() -> Storage | None:
    """Return the storage of what is sent, None where the project has none."""
    return storages[ALIAS] if ALIAS in storages.backends else None


def new_handle() -> str:
    """Return the handle of a file that is to be sent."""
    return f"{int(time.time()):x}-{secrets.token_urlsafe(12)}"


def name_of_upload(request: MCPRequest, handle: Any) -> str | None:
    """Return the name in the storage that the handle means for this caller, None for no handle or one that is over."""
    if not isinstance(handle, str) or len(handle) > MAX_HANDLE:
        return None
    try:
        made = int(handle.partition("-")[0], 16)
    except ValueError:
        return None
    if time.time() - made > KEPT:
        return None
    user = request.user
    owner = "" if user.pk is None else f"{user._meta.label} {user.pk}"
    bound = "\x1f".join([owner, request.mcp.client_id, request.mcp.site.name, handle])
    digest = salted_hmac("mcp_django.forms.uploads", bound, algorithm="sha256").hexdigest()
    return f"{FOLDER}/{digest[:DIGITS]}"


def open_upload(request: MCPRequest, handle: Any) -> Any:
    """Return the file that was sent under the handle, open for reading, None if there is none for this caller.

    It stays until :func:`uploads_taken`, so that a refused call can be repeated.
    """
    storage, name = upload_storage(), name_of_upload(request, handle)
    if storage is None or name is None or not storage.exists(name):
        return None
    request.__dict__.setdefault("_mcp_uploads", set()).add(name)
    return storage.open(name, "rb")


def was_sent(name: str) -> bool:
    """Return whether a file of this name was sent before, also when a record has taken it since.

    Without the cache nobody knows; a second file is then the same user's, who gets a place for as many as they like.
    """
    try:
        return bool(cache.get(_sent_key(name)))
    except Exception:
        return False


def remember_sent(name: str) -> None:
    """Let :func:`was_sent` know, for as long as there can be a URL for the name."""
    with contextlib.suppress(Exception):
        cache.set(_sent_key(name), True, KEPT)


def _sent_key(name: str) -> str:
    return f"mcp_django:upload:{name}"


def uploads_taken(request: MCPRequest, using: str) -> None:
    """Delete what this request has opened, once the transaction of the database ``using`` is committed."""
    names: set[str] = request.__dict__.pop("_mcp_uploads", set())
    storage = upload_storage()
    if storage is not None and names:
        transaction.on_commit(lambda: _delete(storage, names), using=using, robust=True)


def _delete(storage: Storage, names: set[str]) -> None:
    for name in names:
        storage.delete(name)


def clear_uploads() -> int:
    """Delete what was sent and never taken, and return how many files that were."""
    storage = upload_storage()
    if storage is None:
        return 0
    try:
        names = [f"{FOLDER}/{name}" for name in storage.listdir(FOLDER)[1]]
        old = [name for name in names if _is_old(storage, name)]
    except FileNotFoundError:
        return 0
    except NotImplementedError:
        logger.warning("The storage %r cannot list what it holds: delete old uploads by its own means", ALIAS)
        return 0
    _delete(storage, set(old))
    return len(old)


def _is_old(storage: Storage, name: str) -> bool:
    return timezone.now() - storage.get_modified_time(name) > timedelta(seconds=KEPT)

"""Files that callers send to an upload URL, for a record that uses them later.

They stay in the storage ``STORAGES["mcp_uploads"]`` until then; without this storage there are no upload URLs. Their
names in the storage are derived from the user, the client, the site and the handle, so that a handle is useless to
anybody else.
"""

import logging
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.core.files.storage import Storage, storages
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac

from ..context.request import MCPRequest
from ..runtime.cache_and_rate_limits import cache

logger = logging.getLogger("mcp_django")

ALIAS: Final = "mcp_uploads"
FOLDER: Final = "mcp_uploads"
# Seconds for which a record can use an upload.
KEPT: Final = 3600
MAX_HANDLE: Final = 64
# Hex digits of the digest in an upload's name, which is short because an AI model has to repeat the URL with it.
DIGITS: Final = 40
# Attribute of a request with the names of the uploads that it has opened.
OPENED: Final = "_mcp_uploads"


@dataclass(frozen=True, slots=True)
class Upload:
    """One upload: its ``name`` in the storage, and the ``handle`` by which its caller uses it in a record."""

    name: str
    handle: str = ""

    @staticmethod
    def storage() -> Storage | None:
        """Return the storage of uploads, None where the project has none."""
        return storages[ALIAS] if ALIAS in storages.backends else None

    @classmethod
    def new(cls, request: MCPRequest) -> "Upload":
        """Return an upload that the caller can send now."""
        handle = f"{int(time.time()):x}-{secrets.token_urlsafe(12)}"
        return cls(_name_of(request, handle), handle)

    @classmethod
    def of(cls, request: MCPRequest, handle: Any) -> "Upload | None":
        """Return the caller's upload with this handle, None for an expired or unknown handle."""
        if not isinstance(handle, str) or len(handle) > MAX_HANDLE:
            return None
        try:
            made = int(handle.partition("-")[0], 16)
        except ValueError:
            return None
        if time.time() - made > KEPT:
            return None
        return cls(_name_of(request, handle), handle)

    @property
    def was_sent(self) -> bool:
        """Whether a file was sent under this name before; False without a cache, which does no harm: the second file is
        from the same user, who can create any number of uploads."""
        with suppress(Exception):
            return bool(cache.get(f"mcp_django:upload:{self.name}"))
        return False

    def remember(self) -> None:
        """Remember that the file was sent, for as long as its URL is valid."""
        with suppress(Exception):
            cache.set(f"mcp_django:upload:{self.name}", True, KEPT)

    @classmethod
    def clear(cls) -> int:
        """Delete the files that no record used, and return how many."""
        storage = cls.storage()
        if storage is None:
            return 0
        age = timedelta(seconds=KEPT)
        try:
            names = [f"{FOLDER}/{name}" for name in storage.listdir(FOLDER)[1]]
            old = [name for name in names if timezone.now() - storage.get_modified_time(name) > age]
        except FileNotFoundError:
            return 0
        except NotImplementedError:
            logger.warning("The storage %r cannot list what it holds: delete old uploads by its own means", ALIAS)
            return 0
        _delete(storage, old)
        return len(old)


def _name_of(request: MCPRequest, handle: str) -> str:
    user = request.user
    owner = "" if user.pk is None else f"{user._meta.label} {user.pk}"
    bound = "\x1f".join([owner, request.mcp.client_id, request.mcp.site.name, handle])
    digest = salted_hmac("mcp_django.emulation.uploaded_files", bound, algorithm="sha256").hexdigest()
    return f"{FOLDER}/{digest[:DIGITS]}"


def open_upload(request: MCPRequest, handle: Any) -> Any:
    """Open the file that the caller uploaded under the handle, None if there is none. The file is kept until
    :func:`uploads_taken`, so that a refused call can be repeated."""
    storage = Upload.storage()
    upload = Upload.of(request, handle)
    if storage is None or upload is None or not storage.exists(upload.name):
        return None
    vars(request).setdefault(OPENED, set()).add(upload.name)
    return storage.open(upload.name, "rb")


def uploads_taken(request: MCPRequest, using: str) -> None:
    """Delete the uploaded files that this request used, once its transaction is committed."""
    names: set[str] = vars(request).pop(OPENED, set())
    storage = Upload.storage()
    if storage is not None and names:
        transaction.on_commit(lambda: _delete(storage, names), using=using, robust=True)


def _delete(storage: Storage, names: Iterable[str]) -> None:
    for name in names:
        storage.delete(name)

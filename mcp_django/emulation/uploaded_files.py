"""Files that a client gives as values: in the call itself, or by the handle of a file sent to an upload URL.

The form's own field validates them as it validates a browser's uploads. The name of a file is never a path; its content
type is guessed from the name. Uploads stay in the storage ``STORAGES["mcp_uploads"]`` until a record uses them; without
this storage there are no upload URLs. Their names in the storage are derived from the user, the client, the site and
the handle, so that a handle is useless to anybody else.
"""

import base64
import logging
import mimetypes
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.files.storage import Storage, storages
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.forms import Field
from django.utils import timezone
from django.utils.crypto import salted_hmac

from ..conf import settings
from ..context.request import MCPRequest
from ..orm.alternative_spellings import json_or_text
from ..runtime.cache_and_rate_limits import cache
from .html_forms import Pair, unwrapped

logger = logging.getLogger("mcp_django")

ALIAS: Final = "mcp_uploads"
FOLDER: Final = "mcp_uploads"
# Seconds for which a record can use an upload.
KEPT: Final = 3600
MAX_HANDLE: Final = 64
# Hex digits of the digest in an upload's name, which is short because an AI model has to repeat the URL with it.
DIGITS: Final = 40
BINARY: Final = "application/octet-stream"
FILE_WORDS: Final = 'write {"name", "base64"} or {"name", "text"}'
USAGE: Final = (
    'Give {"name": "manual.pdf", "base64": "..."} or {"name": "notes.txt", "text": "..."}; leave the field out to keep '
    "the file."
)
UNSENT: Final = "There is no such upload: nothing was sent to its URL, or it has ended. Call create_upload again."
BOMB: Final = "The image has too many pixels."
# Names of Windows devices, with any file extension.
DEVICE: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
# Attribute of a request with the names of the uploads that it has opened.
OPENED: Final = "_mcp_uploads"
SEPARATOR: Final = re.compile(r"[/\\]")
DATA_URL: Final = re.compile(r"data:[\w.+/;=-]{0,200},")


# Values


def file_entries(request: MCPRequest, field: Field, html_name: str, value: Any) -> list[Pair]:
    """Return the entries of a browser where a person uploads a file, or ticks the box that removes the file."""
    if value is not None:
        return [(html_name, read_file_value(request, value))]
    if field.required:
        raise ValidationError(field.error_messages["required"], code="required")
    widget = unwrapped(field.widget)
    if not hasattr(widget, "clear_checkbox_name"):
        raise ValidationError("The file can be replaced, but not removed.")
    return [(widget.clear_checkbox_name(html_name), "on")]


def read_file_value(request: MCPRequest, value: Any) -> SimpleUploadedFile:
    """Return the file that a client's JSON value describes."""
    value = json_or_text(value)
    if not isinstance(value, dict) or len(value) != 2 or "name" not in value:
        raise ValidationError(USAGE)
    [(source, content)] = ((key, part) for key, part in value.items() if key != "name")
    if source not in ("base64", "text", "upload"):
        raise ValidationError(USAGE)
    name = safe_name(value["name"])
    if source == "upload":
        sent = open_upload(request, content)
        if sent is None:
            raise ValidationError(UNSENT)
        with sent:
            data: bytes = sent.read(settings.MAX_FILE_BYTES + 1)
    elif not isinstance(content, str):
        raise ValidationError(f"{source} must be a text.")
    elif source == "text":
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise ValidationError("text has half a character (a lone surrogate).") from None
    else:
        text = "".join((content[len(match[0]) :] if (match := DATA_URL.match(content)) else content).split())
        _check_size(len(text) * 3 // 4 - 2)
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            raise ValidationError("base64 is not valid: it has other characters, or is cut off.") from None
    _check_size(len(data))
    return SimpleUploadedFile(name, data, mimetypes.guess_type(name)[0] or BINARY)


def _check_size(size: int) -> None:
    if size > settings.MAX_FILE_BYTES:
        raise ValidationError(f"The file has {size} bytes; the limit is {settings.MAX_FILE_BYTES}.")


def safe_name(value: Any) -> str:
    """Return the name of an uploaded file: the last part of a path, without control characters."""
    last = SEPARATOR.split(value)[-1] if isinstance(value, str) else ""
    # A leading dot would hide the file, or make it a server's configuration file such as .htaccess.
    name = "".join(character for character in last if character.isprintable()).strip(" .")
    if not name:
        raise ValidationError("Give the name of the file, such as manual.pdf.")
    return f"_{name}" if DEVICE.match(name) else name


def is_bomb(error: ValidationError) -> bool:
    """Return whether an uploaded file was refused as an image with too many pixels."""
    return type(error.__cause__).__name__.startswith("DecompressionBomb")


# Uploads


def upload_storage() -> Storage | None:
    """Return the storage of uploaded files, None where the project has none."""
    return storages[ALIAS] if ALIAS in storages.backends else None


def new_handle() -> str:
    return f"{int(time.time()):x}-{secrets.token_urlsafe(12)}"


def name_of_upload(request: MCPRequest, handle: Any) -> str | None:
    """Return an uploaded file's name in its storage for a handle of this caller, None for an expired or unknown one."""
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
    digest = salted_hmac("mcp_django.emulation.uploaded_files", bound, algorithm="sha256").hexdigest()
    return f"{FOLDER}/{digest[:DIGITS]}"


def open_upload(request: MCPRequest, handle: Any) -> Any:
    """Open the file that the caller uploaded under the handle, None if there is none. The file is kept until
    :func:`uploads_taken`, so that a refused call can be repeated."""
    storage = upload_storage()
    name = name_of_upload(request, handle)
    if storage is None or name is None or not storage.exists(name):
        return None
    vars(request).setdefault(OPENED, set()).add(name)
    return storage.open(name, "rb")


def uploads_taken(request: MCPRequest, using: str) -> None:
    """Delete the uploaded files that this request used, once its transaction is committed."""
    names: set[str] = vars(request).pop(OPENED, set())
    storage = upload_storage()
    if storage is not None and names:
        transaction.on_commit(lambda: _delete(storage, names), using=using, robust=True)


def was_sent(name: str) -> bool:
    """Return whether a file was uploaded under this name before; False without a cache, which does no harm: the second
    file is from the same user, who can create any number of uploads."""
    with suppress(Exception):
        return bool(cache.get(f"mcp_django:upload:{name}"))
    return False


def remember_sent(name: str) -> None:
    """Remember that a file was uploaded under this name, for as long as its URL is valid."""
    with suppress(Exception):
        cache.set(f"mcp_django:upload:{name}", True, KEPT)


def clear_uploads() -> int:
    """Delete uploaded files that no record used, and return how many."""
    storage = upload_storage()
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


def _delete(storage: Storage, names: Iterable[str]) -> None:
    for name in names:
        storage.delete(name)

"""Files of rows as resources: bytes through the storage, bounded, and never by a path of the client's."""

import base64
import mimetypes
import os
import stat
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import SuspiciousOperation
from django.core.files.storage import FileSystemStorage
from django.core.files.utils import validate_file_name

from ..addresses import Address
from ..conf import settings
from ..context import MCPRequest
from ..exceptions import NotFound
from ..kinds import kind_of
from ..protocol.errors import InvalidParams
from ..serializers import resolve_column
from ..visibility import get_exposure, get_row, visible_fields

if TYPE_CHECKING:
    from django.db.models.fields.files import FieldFile

    from ..exposures import ModelExposure

__all__ = ["file_type", "is_file", "read_file"]

BINARY: Final = "application/octet-stream"
# What a browser would run, or a viewer would fetch from, is handed out as plain text.
ACTIVE: Final = ("html", "xml", "svg", "javascript", "ecmascript", "x-sh", "x-python")
MAX_NAME: Final = 1024


def file_type(name: str) -> str:
    """Return the MIME type that the name of a file suggests; what could be run is ``text/plain``."""
    kind, encoding = mimetypes.guess_type(name, strict=True)
    if kind is None or encoding is not None:
        return BINARY
    return "text/plain" if any(word in kind for word in ACTIVE) else kind


def is_file(exposure: "ModelExposure", name: str) -> bool:
    """Return whether the column is a field of the model's own that holds files."""
    column = resolve_column(exposure, name) if "__" not in name else None
    return column is not None and column.kind == "field" and kind_of(column.field).word in ("file", "image")


def read_file(request: MCPRequest, uri: str, address: Address) -> dict[str, Any]:
    """Return the contents object of the file that a row's field holds.

    Raises:
        NotFound: there is no such row, field or file for this caller.
        InvalidParams: the file is longer than ``MAX_FILE_BYTES``.
    """
    exposure = get_exposure(request, address.label)
    row = get_row(request, exposure, address.pk)
    name = address.field_name or ""
    if name not in visible_fields(request, exposure, row) or not is_file(exposure, name):
        raise NotFound
    file = getattr(row, name)
    data = _read(file)
    kind = file_type(file.name or "")
    contents: dict[str, Any] = {"uri": uri, "mimeType": kind}
    text = _as_text(data) if kind.startswith("text/") or kind == "application/json" else None
    if text is not None:
        contents["text"] = text
    else:
        contents["mimeType"] = BINARY if kind == "text/plain" else kind
        contents["blob"] = base64.b64encode(data).decode("ascii")
    return contents


def _as_text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _read(file: "FieldFile") -> bytes:
    """Return the bytes of the file.

    Raises:
        NotFound: there is no file of that name within its storage.
        InvalidParams: it is too long.
    """
    most = settings.MAX_FILE_BYTES
    try:
        name = _checked_name(file)
        size = file.storage.size(name)
        if size > most:
            raise InvalidParams(f"The file is too long: {size} bytes, of which at most {most} can be read.")
        with file.storage.open(name, "rb") as stream:
            data: bytes = stream.read(most + 1)
    except (OSError, SuspiciousOperation, ValueError, NotImplementedError):
        raise NotFound from None
    if len(data) > most:
        raise InvalidParams(f"The file is too long: at most {most} bytes can be read.")
    return data


def _checked_name(file: "FieldFile") -> str:
    """Return the stored name; refuse one that could lead out of the storage: anything may have written the rows."""
    name = file.name or ""
    if not name or len(name) > MAX_NAME or "\\" in name or any(ord(character) < 32 for character in name):
        raise NotFound
    validate_file_name(name, allow_relative_path=True)
    if not isinstance(file.storage, FileSystemStorage):
        # No directory of this machine: there is nothing to lead out of.
        return name
    path, root = os.path.realpath(file.storage.path(name)), os.path.realpath(file.storage.location)
    if os.path.commonpath([path, root]) != root:
        raise NotFound
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise NotFound
    return name

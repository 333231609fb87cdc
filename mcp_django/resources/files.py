"""Files of rows as resources: bytes through the storage, bounded, and never by a path of the client's."""

import base64
import mimetypes
import os
import re
import stat
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import SuspiciousOperation
from django.core.files.storage import FileSystemStorage
from django.core.files.utils import validate_file_name

from ..conf import settings
from ..context.page import go_to
from ..context.request import MCPRequest
from ..context.signing import MAX_AGE
from ..exceptions import NotFound
from ..orm.access import access_of
from ..orm.columns import is_file
from ..orm.uris import Address, download_url
from ..protocol.errors import InvalidParams

if TYPE_CHECKING:
    from django.db.models.fields.files import FieldFile


BINARY: Final = "application/octet-stream"
# What is shown and not run, by a browser or by the program that a system opens it with. Of the rest, text is handed out
# as plain text, and anything else as bytes.
PASSIVE: Final = re.compile(
    r"(image|audio|video|font)/.+"
    r"|text/(plain|csv|tab-separated-values|markdown|calendar|vcard)"
    r"|application/(pdf|json|rtf|zip|gzip|x-tar|x-7z-compressed|x-bzip2|x-xz|epub\+zip|msword)"
    r"|application/vnd\.(ms-excel|ms-powerpoint|openxmlformats-officedocument\..+|oasis\.opendocument\..+)"
)
WRITTEN: Final = re.compile(r"text/.+|.*(xml|html|javascript|ecmascript|json|rfc822|hta|x-sh|x-python).*")
MAX_NAME: Final = 1024
# What storages raise for what is not there.
MISSING: Final = (OSError, SuspiciousOperation, ValueError, NotImplementedError)


class FileTooLong(Exception):
    """The file has more than ``MAX_FILE_BYTES``; the text is for the caller."""


def file_type(name: str) -> str:
    """Return the MIME type that the name of a file suggests; what could be run is ``text/plain``, or bytes."""
    kind, encoding = mimetypes.guess_type(name, strict=True)
    if kind is None or encoding is not None:
        return BINARY
    if PASSIVE.fullmatch(kind) and "xml" not in kind.partition("/")[2].partition(".")[0]:
        return kind
    return "text/plain" if WRITTEN.fullmatch(kind) else BINARY


def read_file(request: MCPRequest, uri: str, address: Address) -> dict[str, Any]:
    """Return the contents object of the file that a row's field holds.

    Raises:
        NotFound: there is no such row, field or file for this caller.
        InvalidParams: the file is longer than ``MAX_FILE_BYTES``.
    """
    file = find_file(request, address)
    try:
        data = _read(file)
    except FileTooLong as error:
        raise InvalidParams(f"{error} {_elsewhere(request, address)}".strip()) from None
    kind = file_type(file.name or "")
    contents: dict[str, Any] = {"uri": uri, "mimeType": kind}
    text = _as_text(data) if kind.startswith("text/") or kind == "application/json" else None
    if text is not None:
        contents["text"] = text
    else:
        contents["mimeType"] = BINARY if kind == "text/plain" else kind
        contents["blob"] = base64.b64encode(data).decode("ascii")
    return contents


def find_file(request: MCPRequest, address: Address) -> "FieldFile":
    """Return the file that a row's field names; that there is one is not said.

    Raises:
        NotFound: there is no such row or field for this caller.
    """
    exposure = access_of(request).get_exposure(address.label)
    go_to(request, exposure, "change", address.pk)
    row = access_of(request)[exposure].get_row(address.pk)
    name = address.field_name or ""
    if name not in access_of(request)[exposure].fields_of(row) or not is_file(exposure, name):
        raise NotFound
    file: FieldFile = getattr(row, name)
    return file


def open_file(file: "FieldFile") -> Any:
    """Return the file, open for reading.

    Raises:
        NotFound: there is no file of that name within its storage.
    """
    try:
        return file.storage.open(_checked_name(file), "rb")
    except MISSING:
        raise NotFound from None


def _elsewhere(request: MCPRequest, address: Address) -> str:
    url = download_url(request, address)
    return "" if url is None else f"It can be downloaded for {MAX_AGE // 60} minutes from {url}"


def _as_text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _read(file: "FieldFile") -> bytes:
    """Return the bytes of the file.

    Raises:
        NotFound: there is no file of that name within its storage.
        FileTooLong: it is.
    """
    most = settings.MAX_FILE_BYTES
    try:
        name = _checked_name(file)
        size = file.storage.size(name)
        if size > most:
            raise FileTooLong(f"The file is too long: {size} bytes, of which at most {most} can be read.")
        with file.storage.open(name, "rb") as stream:
            data: bytes = stream.read(most + 1)
    except MISSING:
        raise NotFound from None
    if len(data) > most:
        raise FileTooLong(f"The file is too long: at most {most} bytes can be read.")
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

"""Files of rows as resources: bytes through the storage, bounded, and never by a path of the client's."""

import base64
import mimetypes
import os
import re
import stat
from contextlib import suppress
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


def file_type(name: str) -> str:
    """Return the MIME type that the name of a file suggests; what could be run is ``text/plain``, or bytes."""
    kind, encoding = mimetypes.guess_type(name, strict=True)
    if kind is None or encoding is not None:
        return BINARY
    if PASSIVE.fullmatch(kind) and "xml" not in kind.partition("/")[2].partition(".")[0]:
        return kind
    return "text/plain" if WRITTEN.fullmatch(kind) else BINARY


class RowFile:
    """The file that a field of a row names; that there is one is not said."""

    def __init__(self, request: MCPRequest, address: Address) -> None:
        self.request, self.address = request, address
        exposure = access_of(request).get_exposure(address.label)
        go_to(request, exposure, "change", address.pk)
        access = access_of(request)[exposure]
        row = access.get_row(address.pk)
        name = address.field_name or ""
        if name not in access.fields_of(row) or not is_file(exposure, name):
            raise NotFound
        self.file: FieldFile = getattr(row, name)
        self.type = file_type(self.file.name or "")

    def open(self) -> Any:
        """Return the file, open for reading."""
        try:
            return self.file.storage.open(_checked_name(self.file), "rb")
        except MISSING:
            raise NotFound from None

    def contents(self, uri: str) -> dict[str, Any]:
        """Return the contents object of the file."""
        most = settings.MAX_FILE_BYTES
        try:
            size = self.file.storage.size(_checked_name(self.file))
        except MISSING:
            raise NotFound from None
        if size > most:
            raise self._too_long(f"{size} bytes, of which at most {most} can be read.")
        with self.open() as stream:
            try:
                data: bytes = stream.read(most + 1)
            except MISSING:
                raise NotFound from None
        if len(data) > most:
            raise self._too_long(f"at most {most} bytes can be read.")
        if self.type.startswith("text/") or self.type == "application/json":
            with suppress(UnicodeDecodeError):
                return {"uri": uri, "mimeType": self.type, "text": data.decode("utf-8")}
        kind = BINARY if self.type == "text/plain" else self.type
        return {"uri": uri, "mimeType": kind, "blob": base64.b64encode(data).decode("ascii")}

    def _too_long(self, text: str) -> InvalidParams:
        url = download_url(self.request, self.address)
        elsewhere = "" if url is None else f" It can be downloaded for {MAX_AGE // 60} minutes from {url}"
        return InvalidParams(f"The file is too long: {text}{elsewhere}")


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

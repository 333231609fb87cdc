"""Model resources: a page of rows, one row, a model's description and a row's file, each with its URI."""

import base64
import mimetypes
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import orjson
from django.core.exceptions import SuspiciousOperation
from django.core.files.storage import FileSystemStorage
from django.core.files.utils import validate_file_name

from ..conf import settings
from ..context.request import MCPRequest
from ..context.tickets import Ticket
from ..emulation.record import Record
from ..exceptions import NotFound, ToolError
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import pk_text
from ..orm.pagination import Cursor
from ..orm.row_reading import FoundRow
from ..orm.serializer_columns import represented
from ..orm.uris import Address, ParsedURI
from ..protocol.errors import InvalidParams
from ..tools.model_description import Description
from ..tools.own_texts import OwnText
from ..tools.query_records import RecordCall
from .completions import ModelTemplate

if TYPE_CHECKING:
    from django.db.models.fields.files import FieldFile

# Models on one page of the list. Clients read all pages when they start, and some stop after 64 pages.
LIST_PAGE: Final = 100
JSON: Final = "application/json"
PURPOSE: Final = "resources/list"
Objects = list[dict[str, Any]]


class Resources:
    """The model resources that one caller can read, with the resources that are functions of the project."""

    def __init__(self, request: MCPRequest) -> None:
        self.request = request

    def _functions(self, *, template: bool) -> Objects:
        resources = self.request.mcp.site.resources.values()
        found = (item for item in resources if item.is_template is template and item.has_scopes(self.request))
        return [item.definition() for item in found if item.has_permission(self.request)]

    def list(self, cursor: str | None) -> tuple[Objects, str | None]:
        """Return one page of definitions of model resources, preceded by those of functions, and the next cursor.

        Each model's schema resource follows the model.
        """
        last = Cursor(self.request, PURPOSE).read_name(cursor) if cursor else ""
        visible = sorted(access_of(self.request).models, key=attrgetter("exposure.label"))
        models = [model for model in visible if model.exposure.label > last]
        found: Objects = []
        for model in models[:LIST_PAGE]:
            exposure = model.exposure
            address = Address(model)
            title = str(exposure.opts.verbose_name_plural)
            about = {"description": exposure.description.strip()} if exposure.description else {}
            found.append({"uri": address.page(), "name": exposure.label, "title": title, **about, "mimeType": JSON})
            found.append({"uri": address.schema(), "name": f"{exposure.label} schema", "mimeType": JSON})
        if found and not cursor:
            found.append(dict(OwnText.GUIDE))
        own = [] if cursor else self._functions(template=False)
        if len(models) <= LIST_PAGE:
            return [*own, *found], None
        return [*own, *found], Cursor(self.request, PURPOSE).write_name(models[LIST_PAGE - 1].exposure.label)

    def templates(self) -> Objects:
        """Return the templates of model resources, the same for all callers, preceded by those of functions."""
        own = self._functions(template=True)
        if not access_of(self.request).exposures:
            return own
        return [
            *own,
            {"uriTemplate": Address.RECORD_TEMPLATE, "name": "record", "title": "One record", "mimeType": JSON},
            {"uriTemplate": Address.PAGE_TEMPLATE, "name": "records", "title": "A page of records", "mimeType": JSON},
            {"uriTemplate": Address.SCHEMA_TEMPLATE, "name": "schema", "title": "What a model holds", "mimeType": JSON},
            {"uriTemplate": Address.FILE_TEMPLATE, "name": "file", "title": "A file of a record"},
        ]

    def completer(self, uri: str) -> ModelTemplate | None:
        """Return what completes this URI as a template of model resources, None if it is none that the caller has."""
        if not access_of(self.request).exposures:
            return None
        return ModelTemplate.read(uri)

    def find(self, uri: str) -> "ModelResource | OwnText":
        """Find the model resource of a URI that the caller may view; its row or file is read later.

        Explanatory texts, exports and files made by actions are found too.
        """
        if OwnText.is_at(uri):
            try:
                return OwnText.at(self.request, uri)
            except ToolError as error:
                raise InvalidParams(error.message) from None
        address = ParsedURI.read(uri)
        if address.label != address.label.lower():
            raise NotFound
        return ModelResource(uri, address, access_of(self.request).get_model(address.label))


@dataclass(frozen=True, slots=True)
class ModelResource:
    """One resource of a model, for one caller."""

    uri: str
    address: ParsedURI
    model: ModelAccess

    @property
    def cache_hints(self) -> dict[str, Any]:
        """The caching hints that ``resources/read`` adds to the contents of the model resource."""
        ttl_ms = self.model.exposure.cache_ttl_ms
        return {"ttlMs": ttl_ms} if ttl_ms is not None else {}

    def read(self) -> Objects:
        """Return the contents."""
        if self.address.field_name is not None:
            return [RowFile(self.model.request, self.address).contents(self.uri)]
        return [{"uri": self.uri, "mimeType": JSON, "text": orjson.dumps(self._payload(), default=str).decode()}]

    def _payload(self) -> Mapping[str, Any]:
        model = self.model
        request = model.request
        exposure = model.exposure
        pk = self.address.pk
        request.mcp.record.model = exposure.label
        if self.address.is_schema:
            return Description(model).in_lines()
        request.go_to(exposure, "changelist" if pk is None else "change", pk)
        if pk is None:
            try:
                call = RecordCall(model, self.address.query)
                payload = call.payload(call.query())
            except ToolError as error:
                raise InvalidParams(error.message) from None
            following = payload.pop("next_cursor", None)
            if following is None:
                return payload
            query = {name: value for name, value in self.address.query.items() if name != "cursor"}
            # Put it before the rows, because some clients cut off the end of long texts.
            following_page = Address(model).page(cursor=following, **query)
            return {"next": following_page, **payload}
        found = FoundRow.find(model, pk)
        request.mcp.record.touch(exposure.label, pk_text(found.row.pk))
        return Record(model, found.row, found.labels).payload()


# Files of rows: read through the storage, up to a maximum size, and never by a path from the client

BINARY: Final = "application/octet-stream"
# Types that a browser, or the program that the system opens them with, shows but does not run. Other textual types are
# sent as plain text, and all others as bytes.
PASSIVE: Final = re.compile(
    r"(image|audio|video|font)/.+"
    r"|text/(plain|csv|tab-separated-values|markdown|calendar|vcard)"
    r"|application/(pdf|json|rtf|zip|gzip|x-tar|x-7z-compressed|x-bzip2|x-xz|epub\+zip|msword)"
    r"|application/vnd\.(ms-excel|ms-powerpoint|openxmlformats-officedocument\..+|oasis\.opendocument\..+)"
)
WRITTEN: Final = re.compile(r"text/.+|.*(xml|html|javascript|ecmascript|json|rfc822|hta|x-sh|x-python).*")
MAX_NAME: Final = 1024
# Exceptions that storages raise for missing files.
MISSING: Final = (OSError, SuspiciousOperation, ValueError, NotImplementedError)


def file_type(name: str) -> str:
    """Return the MIME type of a row's file, by its name; types that could be run become ``text/plain`` or bytes."""
    kind, encoding = mimetypes.guess_type(name, strict=True)
    if kind is None or encoding is not None:
        return BINARY
    if PASSIVE.fullmatch(kind) and "xml" not in kind.partition("/")[2].partition(".")[0]:
        return kind
    return "text/plain" if WRITTEN.fullmatch(kind) else BINARY


class RowFile:
    """Model resource of the file in a field of a row, also for download; reading it shows whether the file exists."""

    def __init__(self, request: MCPRequest, address: ParsedURI) -> None:
        self.request = request
        self.address = address
        model = access_of(request).get_model(address.label)
        exposure = model.exposure
        request.go_to(exposure, "change", address.pk)
        row = model.get_row(address.pk)
        name = address.field_name or ""
        if name not in model.fields_of(row) or not model.is_file(name):
            raise NotFound
        if exposure.serializer_class is not None and not represented(request, exposure, [row])[0].get(name):
            # The serializer hides the file of this row.
            raise NotFound
        request.mcp.record.touch(exposure.label, pk_text(row.pk))
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
        url = self.address.download_url(self.request)
        elsewhere = "" if url is None else f" It can be downloaded for {Ticket.MAX_AGE // 60} minutes from {url}"
        return InvalidParams(f"The file is too long: {text}{elsewhere}")


def _checked_name(file: "FieldFile") -> str:
    """Return the stored name of a row's file for its resource; refuse paths that could lead out of the storage."""
    name = file.name or ""
    if not name or len(name) > MAX_NAME or "\\" in name or any(ord(character) < 32 for character in name):
        raise NotFound
    validate_file_name(name, allow_relative_path=True)
    if not isinstance(file.storage, FileSystemStorage):
        # The storage is not a local directory, so a path cannot lead out of it.
        return name
    path = os.path.realpath(file.storage.path(name))
    root = os.path.realpath(file.storage.location)
    if os.path.commonpath([path, root]) != root:
        raise NotFound
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise NotFound
    return name

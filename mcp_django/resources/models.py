"""Models as resources: a page of rows, one row, a description, a file; each has its URI."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import orjson

from ..context.page import go_to
from ..context.request import MCPRequest
from ..exceptions import NotFound, ToolError
from ..exposures.base import ModelExposure
from ..orm.access import access_of
from ..orm.pages import find_row
from ..orm.paging import Cursor
from ..orm.uris import (
    FILE_TEMPLATE,
    PAGE_TEMPLATE,
    RECORD_TEMPLATE,
    SCHEMA_TEMPLATE,
    Address,
    page_uri,
    parse_uri,
    schema_uri,
)
from ..protocol.content import EmbeddedResource
from ..protocol.errors import InvalidParams
from ..tools.asking import TYPE, URI, is_text, text_of
from ..tools.models import Description
from ..tools.query import RecordCall, page_payload
from ..tools.record import Record
from .files import RowFile

# Models of one page of the list. Clients read all pages when they start, and some stop at 64.
LIST_PAGE: Final = 100
JSON: Final = "application/json"
PURPOSE: Final = "resources/list"
Objects = list[dict[str, Any]]


class Resources:
    """The resources of the site of a call for its caller: those of the project's functions, and those of models."""

    def __init__(self, request: MCPRequest) -> None:
        self.request = request

    def _functions(self, *, template: bool) -> Objects:
        resources = self.request.mcp.site.resources.values()
        found = (item for item in resources if item.is_template is template and item.has_scopes(self.request))
        return [item.definition() for item in found if item.has_permission(self.request)]

    def list(self, cursor: str | None) -> tuple[Objects, str | None]:
        """Return the definitions of one page, functions first, and the cursor of the next.

        Each model has its description beside it.
        """
        last = Cursor(self.request, PURPOSE).read_name(cursor) if cursor else ""
        visible = sorted(access_of(self.request).exposures, key=attrgetter("label"))
        exposures = [exposure for exposure in visible if exposure.label > last]
        found: Objects = []
        for exposure in exposures[:LIST_PAGE]:
            title = str(exposure.opts.verbose_name_plural)
            about = {"description": exposure.description.strip()} if exposure.description else {}
            found.append({"uri": page_uri(exposure), "name": exposure.label, "title": title, **about, "mimeType": JSON})
            found.append({"uri": schema_uri(exposure), "name": f"{exposure.label} schema", "mimeType": JSON})
        if found and not cursor:
            about = {"title": "How to ask", "description": "All that filters and aggregates can ask"}
            found.append({"uri": URI, "name": "asking", **about, "mimeType": TYPE})
        own = [] if cursor else self._functions(template=False)
        if len(exposures) <= LIST_PAGE:
            return [*own, *found], None
        return [*own, *found], Cursor(self.request, PURPOSE).write_name(exposures[LIST_PAGE - 1].label)

    def templates(self) -> Objects:
        """Return the definitions of all templates; those of models are the same for all who may view any."""
        own = self._functions(template=True)
        if not access_of(self.request).exposures:
            return own
        return [
            *own,
            {"uriTemplate": RECORD_TEMPLATE, "name": "record", "title": "One record", "mimeType": JSON},
            {"uriTemplate": PAGE_TEMPLATE, "name": "records", "title": "A page of records", "mimeType": JSON},
            {"uriTemplate": SCHEMA_TEMPLATE, "name": "schema", "title": "What a model holds", "mimeType": JSON},
            {"uriTemplate": FILE_TEMPLATE, "name": "file", "title": "A file of a record"},
        ]

    def find(self, uri: str) -> "ModelResource | OwnText":
        """Return the resource of a model that the caller may view; its row or file is looked for when it is read.

        A text that explains, and a file that an action made, are found beside them.
        """
        if is_text(uri):
            return OwnText(text_of(self.request, uri))
        address = parse_uri(uri)
        if address.label != address.label.lower():
            raise NotFound
        return ModelResource(self.request, uri, address, access_of(self.request).get_exposure(address.label))


@dataclass(frozen=True, slots=True)
class OwnText:
    """A resource that is not of a model."""

    found: EmbeddedResource
    cache_hints: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> Objects:
        """Return the contents."""
        return [self.found.contents()]


@dataclass(frozen=True, slots=True)
class ModelResource:
    """One resource of a model, for one caller."""

    request: MCPRequest
    uri: str
    address: Address
    exposure: ModelExposure

    @property
    def cache_hints(self) -> dict[str, Any]:
        """What goes with the contents in the result of ``resources/read``."""
        ttl_ms = self.exposure.cache_ttl_ms
        return {"ttlMs": ttl_ms} if ttl_ms is not None else {}

    def read(self) -> Objects:
        """Return the contents."""
        if self.address.field_name is not None:
            return [RowFile(self.request, self.address).contents(self.uri)]
        return [{"uri": self.uri, "mimeType": JSON, "text": orjson.dumps(self._payload(), default=str).decode()}]

    def _payload(self) -> Mapping[str, Any]:
        request, exposure, pk = self.request, self.exposure, self.address.pk
        request.mcp.record.model = exposure.label
        if self.address.is_schema:
            return Description(access_of(request)[exposure]).in_lines()
        go_to(request, exposure, "changelist" if pk is None else "change", pk)
        if pk is None:
            try:
                payload = page_payload(RecordCall(access_of(request)[exposure], self.address.query).query())
            except ToolError as error:
                raise InvalidParams(error.message) from None
            following = payload.pop("next_cursor", None)
            if following is None:
                return payload
            query = {name: value for name, value in self.address.query.items() if name != "cursor"}
            # Before the rows, as some clients cut the end of a long text.
            return {"next": page_uri(exposure, cursor=following, **query), **payload}
        found = find_row(request, exposure, pk)
        return Record(access_of(request)[exposure], found.row, found.labels).payload()

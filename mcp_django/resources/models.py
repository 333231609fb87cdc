"""Models as resources: a page of rows, one row, a description, a file; each has its URI."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import orjson

from ..context.places import go_to
from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound, ToolError
from ..orm.access import get_exposure, visible_exposures
from ..orm.pagination import list_cursor, read_list_cursor
from ..orm.rows import find_row
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
from ..tools.models import describe
from ..tools.query import page_payload, read_query
from ..tools.record import record_payload
from .files import read_file

# Models of one page of the list. Clients read all pages when they start, and some stop at 64.
LIST_PAGE: Final = 100
JSON: Final = "application/json"
PURPOSE: Final = "resources/list"
Objects = list[dict[str, Any]]


class ModelResources:
    """The resources of every model that the caller may view."""

    def list(self, request: MCPRequest, cursor: str | None) -> tuple[Objects, str | None]:
        """Return the definitions of one page of models, each with its description, and the cursor of the next page.

        Raises:
            InvalidParams: the cursor is not one of this list for this caller.
        """
        last = read_list_cursor(request, PURPOSE, cursor) if cursor else ""
        visible = sorted(visible_exposures(request), key=attrgetter("label"))
        exposures = [exposure for exposure in visible if exposure.label > last]
        found = []
        for exposure in exposures[:LIST_PAGE]:
            title = str(exposure.opts.verbose_name_plural)
            about = {"description": exposure.description.strip()} if exposure.description else {}
            found.append({"uri": page_uri(exposure), "name": exposure.label, "title": title, **about, "mimeType": JSON})
            found.append({"uri": schema_uri(exposure), "name": f"{exposure.label} schema", "mimeType": JSON})
        if found and not cursor:
            about = {"title": "How to ask", "description": "All that filters and aggregates can ask"}
            found.append({"uri": URI, "name": "asking", **about, "mimeType": TYPE})
        more = len(exposures) > LIST_PAGE
        return found, list_cursor(request, PURPOSE, exposures[LIST_PAGE - 1].label) if more else None

    def templates(self, request: MCPRequest) -> Objects:
        """Return the definitions of the templates; they are the same for all who may view anything."""
        if not visible_exposures(request):
            return []
        return [
            {"uriTemplate": RECORD_TEMPLATE, "name": "record", "title": "One record", "mimeType": JSON},
            {"uriTemplate": PAGE_TEMPLATE, "name": "records", "title": "A page of records", "mimeType": JSON},
            {"uriTemplate": SCHEMA_TEMPLATE, "name": "schema", "title": "What a model holds", "mimeType": JSON},
            {"uriTemplate": FILE_TEMPLATE, "name": "file", "title": "A file of a record"},
        ]

    def find(self, request: MCPRequest, uri: str) -> "ModelResource | OwnText":
        """Return the resource of a model that the caller may view; its row or file is looked for when it is read.

        A text that explains, and a file that an action made, are found beside them.

        Raises:
            NotFound: there is none of that URI for this caller.
        """
        if is_text(uri):
            return OwnText(text_of(request, uri))
        address = parse_uri(uri)
        if address.label != address.label.lower():
            raise NotFound
        return ModelResource(request, uri, address, get_exposure(request, address.label))

    def read(self, request: MCPRequest, uri: str) -> Objects:
        """Return the contents of a resource; see :meth:`ModelResource.read`."""
        return self.find(request, uri).read()


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
    exposure: Exposure

    @property
    def cache_hints(self) -> dict[str, Any]:
        """What goes with the contents in the result of ``resources/read``."""
        ttl_ms = self.exposure.cache_ttl_ms
        return {"ttlMs": ttl_ms} if ttl_ms is not None else {}

    def read(self) -> Objects:
        """Return the contents.

        Raises:
            NotFound: there is no such row or file for this caller.
            InvalidParams: a member of a page's query is not what the caller may ask, or a file is too long.
        """
        if self.address.field_name is not None:
            return [read_file(self.request, self.uri, self.address)]
        return [{"uri": self.uri, "mimeType": JSON, "text": orjson.dumps(self._payload(), default=str).decode()}]

    def _payload(self) -> Mapping[str, Any]:
        request, exposure, pk = self.request, self.exposure, self.address.pk
        request.mcp.record.model = exposure.label
        if self.address.is_schema:
            return describe(request, exposure)
        go_to(request, exposure, "changelist" if pk is None else "change", pk)
        if pk is None:
            return self._page()
        found = find_row(request, exposure, pk)
        return record_payload(request, exposure, found.row, labels=found.labels)

    def _page(self) -> dict[str, Any]:
        try:
            payload = page_payload(self.request, read_query(self.request, self.exposure, self.address.query))
        except ToolError as error:
            raise InvalidParams(error.message) from None
        following = payload.pop("next_cursor", None)
        if following is None:
            return payload
        query = {name: value for name, value in self.address.query.items() if name != "cursor"}
        # Before the rows, as some clients cut the end of a long text.
        return {"next": page_uri(self.exposure, cursor=following, **query), **payload}

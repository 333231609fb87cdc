"""``get_record``: one row in full."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..context.request import MCPRequest
from ..context.tickets import Ticket
from ..context.tool_results import ToolResult
from ..emulation.record import Record
from ..exceptions import NotFound, ToolError
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import pk_text
from ..orm.row_finder import RowFinder
from ..orm.row_reading import FoundRow
from ..orm.suggestions import with_argument
from ..orm.tool_arguments import Arguments
from ..orm.uris import ParsedURI
from ..protocol.content import Text
from ..schema.secrets import clean_text
from ..schema.value_types import KEY
from .base import RecordTool
from .own_texts import OwnText
from .query_records import NAMES


class GetRecord(RecordTool):
    """One row in full."""

    name = "get_record"
    title = "Get record"
    description = "One record in full. pk can be its uri, without model."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "pk": KEY,
            "fields": NAMES,
            "related": {**NAMES, "description": "Related rows, orders:5"},
            "history": {"type": "boolean", "description": "Also who changed what"},
        },
        "required": ["pk"],
    }

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the row."""
        given = Arguments.read(arguments, (*self.input_schema["properties"], "uri"))
        if "model" not in given and OwnText.is_at(uri := given.get("uri") or given.get("pk")):
            # The URI is that of a text or file, not of a record.
            try:
                text = OwnText.at(request, uri).found
            except NotFound:
                raise ToolError(RowFinder.NOT_FOUND) from None
            if isinstance(text.body, bytes):
                return ToolResult(content=[text])
            return ToolResult(content=[Text(clean_text(text.body, request.mcp.result_chars))])
        model, found = self._find(request, given)
        request.mcp.record.touch(model.exposure.label, pk_text(found.row.pk))
        record = Record(model, found.row, found.labels)
        payload = record.chosen(given)
        # Add a download URL for each file, if the site has such URLs.
        links = {
            name: url
            for name, value in payload["fields"].items()
            if value and model.is_file(name)
            if (url := replace(ParsedURI.read(payload["uri"]), field_name=name).download_url(request)) is not None
        }
        if links:
            payload["downloads"] = {"expires_in": Ticket.MAX_AGE, **links}
        if given.get("related") is not None:
            payload["related"] = record.related(given)
        if given.flag("history"):
            payload["history"] = record.page.history()
        return ToolResult(structured=payload)

    def _find(self, request: MCPRequest, given: Arguments) -> tuple[ModelAccess, FoundRow]:
        key = given.get("pk")
        uri = given.get("uri")
        if "model" not in given and isinstance(key, str) and key.startswith(ParsedURI.SCHEME):
            uri = key
        if uri is not None:
            try:
                return find_row_by_uri(request, uri)
            except NotFound:
                raise ToolError(RowFinder.NOT_FOUND) from None
        if key is None:
            raise ToolError("Name the record by model and pk, or by its uri as pk.")
        model = given.model(request)
        exposure = model.exposure
        key = model.bare_pk(key)
        request.go_to(exposure, "change", key)
        try:
            return model, FoundRow.find(model, key)
        except NotFound:
            pass
        key = RowFinder(model).key(key, RowFinder.NOT_FOUND, partial(with_argument, "pk"))
        request.go_to(exposure, "change", key)
        return model, FoundRow.find(model, key)


def find_row_by_uri(request: MCPRequest, uri: Any) -> tuple[ModelAccess, FoundRow]:
    """Find the row to get by the URI of its record, and move the request to the row's admin page. Raises ``NotFound``
    if the URI is not that of a record, or the caller cannot see the row."""
    address = ParsedURI.read(uri)
    model = access_of(request).get_model(address.label)
    if address.pk is None or address.field_name is not None:
        raise NotFound
    request.go_to(model.exposure, "change", address.pk)
    return model, FoundRow.find(model, address.pk)

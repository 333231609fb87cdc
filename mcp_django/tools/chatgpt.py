"""``search`` and ``fetch``: the two tools that ChatGPT's connectors and deep research look for.

A result is a row: its ``id`` is the URI of its resource, and its ``url`` is its admin page if the caller can open that.
``site.add_chatgpt_tools()`` adds them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
from django.db.models import Model

from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..emulation.record import Record
from ..exceptions import NotFound, ToolError
from ..exposures.model_exposure import ModelExposure
from ..orm.access import ModelAccess, access_of
from ..orm.alternative_spellings import is_short_text
from ..orm.column_values import pk_text
from ..orm.labels import label_of
from ..orm.pagination import narrowed
from ..orm.row_finder import RowFinder
from ..orm.tool_arguments import Arguments
from ..orm.undecodable_values import all_readable
from ..orm.uris import Address
from .base import RecordTool
from .get_record import find_row_by_uri
from .model_search import found_models, stem, telling_words

# Maximum number of models that one call searches, of rows from one model, and of rows in a result.
MAX_MODELS: Final = 20
MAX_ROWS: Final = 5
MAX_RESULTS: Final = 20
TEXT: Final[Mapping[str, Any]] = {"type": "string"}


class Search(RecordTool):
    """Rows of all models by words."""

    name = "search"
    title = "Search"
    description = "Search the records of all models by words. Use fetch to read a result by its id."
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {"query": TEXT}, "required": ["query"]}
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {
            "results": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"id": TEXT, "title": TEXT, "url": TEXT},
                    "required": ["id", "title", "url"],
                },
            }
        },
        "required": ["results"],
    }

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Run ChatGPT's ``search``: rows of all models, first of those that the query names."""
        query = Arguments.read(arguments, self.input_schema["properties"]).get("query")
        if not is_short_text(query, Arguments.MAX_SEARCH) or not str(query).strip():
            raise ToolError(f"query must be a text of at most {Arguments.MAX_SEARCH} characters.")
        text = str(query).strip()
        models = [model for model in access_of(request).models if model.exposure.options.has_search(request)]
        best = found_models(models, text)
        found: list[dict[str, str]] = []
        for model in [*best, *(model for model in models if model not in best)][:MAX_MODELS]:
            found += [_result(model, row) for row in _rows(model, text)]
            if len(found) >= MAX_RESULTS:
                break
        request.mcp.record.rows_read += len(found)
        return ToolResult(structured={"results": found[:MAX_RESULTS]})


def _rows(model: ModelAccess, text: str) -> list[Model]:
    """Search one model for ChatGPT's ``search``, by all words and then by all except the model's name."""
    request = model.request
    exposure = model.exposure
    request.go_to(exposure, "changelist")
    for term in _terms(exposure, text):
        try:
            with all_readable():
                rows = list(narrowed(model, (), term).order_by("pk")[:MAX_ROWS])
        except ToolError:
            # The search of this model refuses these words.
            continue
        if seen := [row for row in rows if model.may_row("view", row)]:
            return seen
    return []


def _terms(exposure: ModelExposure, text: str) -> Iterator[str]:
    words = text.split()
    if len(words) <= Arguments.MAX_SEARCH_WORDS:
        yield text
    opts = exposure.opts
    named = {stem(word) for word in telling_words(f"{opts.verbose_name} {opts.verbose_name_plural} {opts.object_name}")}
    telling = [word.strip(",.;:!?\"'()") for word in words if any(stem(w) not in named for w in telling_words(word))]
    if telling and telling != words and len(telling) <= Arguments.MAX_SEARCH_WORDS:
        yield " ".join(telling)


def _result(model: ModelAccess, row: Model) -> dict[str, str]:
    exposure = model.exposure
    address = Address(model)
    uri = address.row(row.pk)
    title = f"{exposure.opts.verbose_name}: {label_of(exposure, row) or row.pk}"
    return {"id": uri, "title": title, "url": address.admin_url(row) or uri}


class Fetch(RecordTool):
    """One row as a text."""

    name = "fetch"
    title = "Fetch"
    description = "Read one record in full, by the id that search gave."
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {"id": TEXT}, "required": ["id"]}
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {"id": TEXT, "title": TEXT, "text": TEXT, "url": TEXT, "metadata": {"type": "object"}},
        "required": ["id", "title", "text", "url"],
    }

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the row."""
        uri = Arguments.read(arguments, self.input_schema["properties"]).get("id")
        try:
            model, found = find_row_by_uri(request, uri)
        except NotFound:
            raise ToolError(f"{RowFinder.NOT_FOUND} id is one that search gave.") from None
        request.mcp.record.touch(model.exposure.label, pk_text(found.row.pk))
        request.mcp.record.model = model.exposure.label
        payload = Record(model, found.row, found.labels).full()
        members = {**payload["fields"], **payload.get("inlines", {})}
        shown = {name: value for name, value in members.items() if value not in (None, "", [])}
        lines = []
        for name, value in shown.items():
            if not isinstance(value, str):
                value = orjson.dumps(value, default=str).decode()
            lines.append(f"{name}: {value}")
        text = "\n".join(lines)
        metadata = {name: payload[name] for name in ("model", "pk", "hint") if name in payload}
        return ToolResult(structured={**_result(model, found.row), "text": text, "metadata": metadata})

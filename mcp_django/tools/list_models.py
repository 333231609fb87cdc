"""``list_models``: the models that the caller sees, or that match a query."""

from collections.abc import Mapping
from typing import Any, Final

from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import ToolError
from ..orm.access import access_of
from ..orm.tool_arguments import Arguments
from ..schema.secrets import clean_text
from .base import RecordTool
from .model_overview import MAX_LINE, Overview
from .model_search import found_models
from .query_records import ALWAYS_LOAD

# Maximum characters that are read of a query.
MAX_QUERY: Final = 500


class ListModels(RecordTool):
    """The models that the caller may view."""

    name = "list_models"
    title = "List models"
    description = "Models you may see, or that match a query, and what you may do there."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "In any words"}},
    }
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {
            "columns": {"type": "array", "items": {"type": "string"}},
            "rows": {"type": "array", "items": {"type": "array"}},
        },
        "required": ["columns", "rows"],
    }
    meta = ALWAYS_LOAD

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether ``list_models`` has a model to list, or a reason to tell why there is none."""
        return access_of(request).may_any("view") or bool(access_of(request).refusal)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return a row for each model."""
        access = access_of(request)
        if refused := access.refusal:
            raise ToolError(refused)
        query = Arguments.read(arguments, self.input_schema["properties"]).get("query") or ""
        if not isinstance(query, str):
            raise ToolError("query must be a text.")
        found = found_models(access.models, query[:MAX_QUERY]) if query.strip() else []
        rows: list[list[str]] = []
        used = 0
        for model in found or access.models:
            exposure = model.exposure
            about = clean_text(exposure.description.strip().partition("\n")[0], MAX_LINE)
            row = [exposure.label, str(exposure.opts.verbose_name_plural), Overview(model).may, about]
            used += sum(map(len, row)) + 16
            if used > request.mcp.result_chars:
                break
            rows.append(row)
        hint = "Next: describe_model (several models in one call)."
        if not rows:
            hint = "You may not view any model."
        elif query.strip() and not found:
            hint = "No model matches, so these are all: use the nearest, or try other words."
        elif found and len(found) < len(access.models):
            hint = f"Best first. {hint} Not among them? leave query out to see all {len(access.models)}."
        if len(rows) < len(found or access.models):
            hint = "There are more models: say in query what you need."
        columns = ["model", "title", "may", "description"]
        return ToolResult(structured={"returned": len(rows), "hint": hint, "columns": columns, "rows": rows})

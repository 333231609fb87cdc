"""``describe_model``: models, their fields, filters and actions, in few words or in full."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

import orjson

from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import ToolError
from ..orm.access import ModelAccess
from ..orm.alternative_spellings import json_or_text
from ..orm.tool_arguments import Arguments
from .base import RecordTool
from .example_calls import Examples
from .model_description import Description
from .model_overview import Overview
from .query_records import ALWAYS_LOAD

# Maximum number of models that one call can name.
MAX_MODELS: Final = 50


class DescribeModel(RecordTool):
    """``describe_model``: describe models, their fields, filters and actions, in few words or in full."""

    name = "describe_model"
    title = "Describe model"
    description = (
        "Before the first query or write on a model: its fields (* required, ro read-only), choices, filters, actions."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string", "description": "shop.order, or several by commas"},
            "detail": {"type": "boolean", "description": "Also lookups, help texts, schemas"},
        },
        "required": ["model"],
    }
    meta = ALWAYS_LOAD

    def check(self, request: MCPRequest, arguments: Mapping[str, Any]) -> None:
        self._read(request, arguments)

    def _read(self, request: MCPRequest, arguments: Mapping[str, Any]) -> tuple[list[ModelAccess], bool]:
        """Read the arguments of ``describe_model``: the models, each once, and whether they are described in full."""
        given = Arguments.read(arguments, self.input_schema["properties"])
        labels = json_or_text(given.get("model"))
        if isinstance(labels, str):
            labels = [part.strip() for part in labels.split(",")]
        if not isinstance(labels, list):
            labels = [labels]
        elif not 0 < len(labels) <= MAX_MODELS:
            raise ToolError(f"model names 1 to {MAX_MODELS} models.")
        models = []
        for number, label in enumerate(labels, 1):
            # With several names, the error says which of them is wrong.
            try:
                models.append(Arguments(model=label).model(request))
            except ToolError as error:
                which = f"Name {number} of {len(labels)}: " if len(labels) > 1 else ""
                raise ToolError(f"{which}{error.message}", repair=error.repair) from None
        return list(dict.fromkeys(models)), given.flag("detail")

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the description of the model, or those of several models as ``models``."""
        models, detail = self._read(request, arguments)
        if detail:
            described = [Description(model).in_full() for model in models]
        else:
            described = [Overview(model).in_short() for model in models]
        if detail or len(described) == 1:
            for payload, model in zip(described, models, strict=True):
                payload["examples"] = Examples(model).calls()
        if len(described) == 1:
            return ToolResult(structured=described[0])
        # Return as many descriptions as fit into a result, but at least one.
        sizes = accumulate(len(orjson.dumps(entry, default=str)) for entry in described)
        kept = max(1, sum(size <= request.mcp.result_chars for size in sizes))
        hint = {"hint": "Ask for the others separately."} if kept < len(described) else {}
        return ToolResult(structured={"returned": kept, **hint, "models": described[:kept]})

"""``connection_info``: who the caller is, what it may do, what is switched off for it, and what is left of its budget.

It is offered only if budgets or switches give it something to tell, because each listed tool costs every client tokens.
"""

from collections.abc import Iterator
from typing import Any

from ..conf import settings
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..models import Switch
from ..operating.daily_budgets import Budgets
from ..orm.access import access_of
from ..orm.tool_arguments import Arguments
from .base import Tool
from .model_overview import may_write


class ConnectionInfo(Tool):
    """``connection_info``: tell callers about their connection, where there are budgets or something is off."""

    name = "connection_info"
    title = "Connection info"
    description = "Who you are here, what you may do, and what is left of your budget."
    read_only = True

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether ``connection_info`` is offered: for budgets, or switches other than those on callers."""
        off = request.mcp.off
        return bool(settings.BUDGETS) or (off is not None and not off.kinds <= off.CALLERS)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return who the caller is, what it may do, what is switched off, and what is left of its budget."""
        Arguments.read(arguments, self.input_schema["properties"])
        context = request.mcp
        record = request.mcp.record
        found: dict[str, Any] = {
            "user": record.username,
            "kind": record.kind,
            "client": {"id": record.client_id, "name": record.client_name},
            "endpoint": context.resource,
            "protocol": context.version,
            "scopes": sorted(context.scopes),
            "writes": may_write(request) and not (context.narrowing is not None and context.narrowing.read_only),
        }
        if context.narrowing is not None and context.narrowing.labels is not None:
            found["only"] = sorted(context.narrowing.labels)
        if switched := [item.text for item in self._switched(request)]:
            found["switched_off"] = switched
        if budgets := Budgets(request).left() if settings.BUDGETS else {}:
            found["left_today"] = budgets
            found["resets_in"] = Budgets.resets_in()
        return ToolResult(structured=found)

    def _switched(self, request: MCPRequest) -> Iterator[Switch]:
        """Yield the switches for ``connection_info``: off for this connection, and known to the caller."""
        off = request.mcp.off
        if off is None:
            return
        access = access_of(request)
        # Models that are switched off are among them.
        models = [access[exposure] for exposure in request.mcp.site.exposures_by_label.values()]
        known = [model for model in models if model.may("view")]
        for item in off.switched:
            if item.kind == Switch.Kind.TOOL:
                is_known = request.mcp.site.get_tool(request, item.target) is not None
            elif item.kind == Switch.Kind.MODEL:
                is_known = any(off.model(model.exposure.label) is item for model in known)
            elif item.kind == Switch.Kind.ACTION:
                is_known = any(
                    off.action(model.exposure.label, name) is item
                    for model in known
                    for name in model.permitted_actions
                )
            else:
                is_known = item.kind not in off.CALLERS
            if is_known:
                yield item

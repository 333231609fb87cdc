"""One declaration of each kind."""

from typing import Any

import mcp_django as mcp
from mcp_django.context.request import MCPRequest

from ..models import Order


@mcp.register(Order)
class OrderExposure(mcp.ModelExposure):
    """An exposure with an action of its own."""

    fields = ("id", "number")
    actions = ("ship",)

    @mcp.action(destructive=False)
    def ship(self, request: MCPRequest, queryset: Any, *, carrier: str = "DHL") -> None:
        """Ship the orders."""


@mcp.tool(read_only=True)
def revenue(request: MCPRequest, year: int) -> dict[str, int]:
    """Return the revenue of a year."""
    return {}


@mcp.prompt
def triage(request: MCPRequest, order: Order) -> str:
    """Look at an order."""
    return ""


@mcp.resource("shop://policy/{part}")
def policy(request: MCPRequest, part: str) -> str:
    """Return a part of the policy."""
    return ""

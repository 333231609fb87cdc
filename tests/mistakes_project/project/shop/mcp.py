import mcp_django as mcp

from .models import Order


@mcp.register(Order)
class OrderExposure(mcp.ModelExposure):
    fields = ["number", "status"]
    search_fields = ["number"]
    filter_fields = {"status": ["exact", "in"]}
    ordering = ["-number"]
    actions = ["mark_shipped"]

    @mcp.action(permissions=["change"])
    def mark_shipped(self, request, queryset) -> str:
        """Mark orders as shipped."""
        return f"{queryset.update(status='shipped')} orders shipped."


@mcp.tool(read_only=True, permissions=["shop.view_order"])
def revenue(request, year: int) -> int:
    """Revenue of a year."""
    return year

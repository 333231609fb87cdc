"""A URLconf with two endpoints, one below the other."""

from django.http import HttpRequest
from django.urls import path

import mcp_django

staff = mcp_django.MCPSite("staff")


@mcp_django.tool(site=staff, read_only=True)
def motto(request: HttpRequest) -> str:
    """What the staff lives by."""
    return "For the staff."


urlpatterns = [path("mcp", mcp_django.site.urls), path("mcp/staff", staff.urls)]

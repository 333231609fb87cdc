"""Tools that tell what is activated where they run."""

from django.urls import get_script_prefix, get_urlconf, reverse
from django.utils import timezone, translation

import mcp_django as mcp
from mcp_django.context.request import MCPRequest


def surroundings(request: MCPRequest) -> list[str | None]:
    """What depends on the request in Django's own views."""
    zone, language = timezone.get_current_timezone_name(), translation.get_language()
    places = [get_script_prefix(), reverse("admin:index"), request.build_absolute_uri("x")]
    return [zone, language, get_urlconf(), *places, request.path, request.path_info]


@mcp.tool(read_only=True)
def surroundings_sync(request: MCPRequest) -> list[str | None]:
    """Tells it from a thread, and changes it there."""
    found = surroundings(request)
    timezone.activate("Africa/Cairo")
    translation.activate("fr")
    return found


@mcp.tool(read_only=True)
async def surroundings_async(request: MCPRequest) -> list[str | None]:
    """Tells it from the event loop."""
    return surroundings(request)

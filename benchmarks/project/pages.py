"""The address of a page deep in the table of events."""

from urllib.parse import quote

from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import override_settings


def uri_after(row: int) -> str:
    """Return the URI of the page that begins after event ``row``, as a client that went there page by page has it.

    The cursor is the one that the endpoint gives after a page of that many rows, which only the settings of this call
    allow.
    """
    from mcp_django.testing import MCPClient

    no_bounds = {**settings.MCP_DJANGO, "MAX_PAGE_SIZE": row, "RESULT_CHARS": 1_000_000_000}
    with override_settings(MCP_DJANGO=no_bounds):
        client = MCPClient(get_user_model().objects.get(username="reader"))
        page = client.call("query_records", model="bench.event", fields=["id"], limit=row)
    return f"django://bench/event?cursor={quote(page.structured['next_cursor'], safe='')}"

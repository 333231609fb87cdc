"""Exports for tests: a storage in memory, and a file of books."""

from typing import Any

from django.core.files.storage import storages

from mcp_django.testing import MCPClient, ToolCall

MEMORY = {"BACKEND": "django.core.files.storage.InMemoryStorage"}


def with_storage(settings: Any) -> Any:
    """Give the project a storage of exports, and return it."""
    settings.STORAGES = {**settings.STORAGES, "mcp_exports": MEMORY}
    return storages["mcp_exports"]


def export_of(user: Any, **arguments: Any) -> ToolCall:
    """Export books as a user, and return what the tool says."""
    asked = {"model": "testapp.book", "fields": ["title", "price"], **arguments}
    told = MCPClient(user).call("export_records", **asked)
    assert not told.is_error, told.text
    return told

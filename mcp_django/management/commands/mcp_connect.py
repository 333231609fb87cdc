"""``manage.py mcp_connect``: the same as ``mcp_install``, by the name that the console's page has."""

from .mcp_install import Command

__all__ = ["Command"]

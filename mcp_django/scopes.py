"""The scopes of the endpoint. What each implies is :mod:`mcp_django.oauth.scopes`'s to say."""

from typing import Final

READ: Final = "mcp:read"
WRITE: Final = "mcp:write"
ADMIN: Final = "mcp:admin"

"""The protocol's own types: ``mcp-types``, a pydantic model for each message of each revision.

They take a quarter of a second and 25 MB. So no module imports this one at its top, and only a process that serves has
it: ``asgi.py`` from its start, any other from its first message.
"""

from mcp_types.methods import validate_client_request, validate_client_result
from pydantic import ValidationError

__all__ = ["ValidationError", "validate_client_request", "validate_client_result"]

"""What a caller may do, as a digest: it is kept with a result that may be returned later."""

import hashlib
import json
from typing import Any

from .request import MCPRequest


def authority(request: MCPRequest) -> str:
    """Return a digest of what the caller may do, which is stored with a result that may be returned later."""
    user: Any = request.user
    flags = [getattr(user, name, None) for name in ("is_active", "is_staff", "is_superuser")]
    permissions = sorted(user.get_all_permissions()) if hasattr(user, "get_all_permissions") else []
    return digest_of([flags, permissions, sorted(request.mcp.scopes), dict(request.mcp.facts)])


def digest_of(value: Any) -> str:
    """Return a digest of a value for JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()

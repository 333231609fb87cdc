"""Calls of tools that are kept, and made later for their caller: once a person has confirmed them, or as a task.

A call is made as if it came then: user, grant, client, switches, settings, budgets and permissions are those of that
moment.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.urls import get_script_prefix
from django.utils import timezone, translation
from django.utils.translation import gettext_noop

from ..conf import settings
from ..context.request import Client, MCPRequest, read_scope
from ..exceptions import ToolError
from ..oauth.bearer import Token
from ..oauth.stored_tokens import family_of, still_granted
from ..protocol.eras import client_meta
from ..protocol.messages import encode
from ..routing import ENDPOINTS
from ..signin import SignIn, is_current

NO_USER: Final = "The user who asked for it is not active."
NO_GRANT: Final = gettext_noop("The access of the application that asked for it has ended.")


class StoredCall:
    """A call of a tool with all that it needs to be made for its caller, as a value for JSON (:attr:`data`)."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    @classmethod
    def of(cls, request: MCPRequest, tool: str, arguments: Mapping[str, Any]) -> "StoredCall":
        """Return the call of a request with these arguments."""
        mcp = request.mcp
        checksum = getattr(getattr(request, "auth", None), "checksum", "")
        family = family_of(checksum) if checksum else None
        return cls(
            {
                "tool": tool,
                "arguments": dict(arguments),
                "version": mcp.version,
                "client": mcp.client.name,
                "client_id": mcp.client_id,
                "checksum": checksum,
                "family": None if family is None else str(family),
                "scopes": sorted(mcp.scopes),
                "facts": dict(mcp.facts),
                "resource": mcp.resource,
                "path": _path(mcp.resource),
                "language": translation.get_language(),
            }
        )

    def user(self, key: Any, *, outlives_token: bool = False) -> Any:
        """Return the user with this primary key, who made the call; an anonymous one for None, where the site is open
        to all.

        Raises ``ToolError`` if they are not active, or have taken the access back; or if the token has expired, unless
        the call ``outlives_token``.
        """
        data = self.data
        if key is None:
            if settings.AUTHENTICATION_CLASSES:
                raise ToolError(NO_USER)
            return AnonymousUser()
        user: Any = get_user_model()._default_manager.filter(pk=key).first()
        if user is None or not user.is_active:
            raise ToolError(NO_USER)
        facts = data["facts"]
        scopes = frozenset(data["scopes"])
        granted = still_granted(data["checksum"], data["family"], facts, user, scopes, outlives_token=outlives_token)
        if not (granted and is_current(user, facts)):
            raise ToolError(NO_GRANT)
        return user

    def request(
        self, scope: Mapping[str, Any], site: Any, user: Any, attributes: Mapping[str, Any] | None = None
    ) -> MCPRequest:
        """Return a request as the caller's was, with the server, client address and headers of an ASGI scope, and with
        the ``attributes`` that middleware has set."""
        data = self.data
        request, _ = read_scope(scope, site)
        for name in ("HTTP_AUTHORIZATION", "HTTP_ACCEPT_LANGUAGE"):
            request.META.pop(name, None)
        request.__dict__.update(attributes or {})
        request.method = "POST"
        request.path_info = data["path"]
        request.path = request.META["SCRIPT_NAME"] + request.path_info
        request.META.update(REQUEST_METHOD="POST", PATH_INFO=request.path_info)
        request.resolver_match = ENDPOINTS.match(request.path_info)
        mcp = request.mcp
        mcp.version = data["version"]
        mcp.resource = data["resource"]
        mcp.client = Client(data["client"])
        mcp.client_id = data["client_id"]
        mcp.facts = data["facts"]
        mcp.param_headers = None
        SignIn(request).act_as(user, frozenset(data["scopes"]))
        if data["checksum"]:
            request.auth = Token(mcp.scopes, mcp.client_id, timezone.now(), data["checksum"], mcp.facts)  # type: ignore[attr-defined]
        return request

    @property
    def body(self) -> bytes:
        """The call as a client sends it."""
        data = self.data
        params = {"name": data["tool"], "arguments": data["arguments"], "_meta": client_meta(data["client"])}
        return encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def _path(resource: str) -> str:
    """Return the path of an endpoint below the script prefix. The request itself may stand at a page of the admin."""
    return "/" + urlsplit(resource).path.removeprefix(get_script_prefix())

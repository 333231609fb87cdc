"""Settings of django-oauth-toolkit for MCP: the whole of ``OAUTH2_PROVIDER``.

The project's settings module imports this module, so nothing here may need loaded apps.
"""

import copy
from typing import Any, Final

from ..scopes import Scope

HOUR = 3600
DAY = 24 * HOUR
# Marks texts that the pages translate. Django's own function needs the settings, which import this module.
_ = str


PROVIDER: Final[dict[str, Any]] = {
    "OAUTH2_VALIDATOR_CLASS": "mcp_django.oauth.validator.MCPValidator",
    # This server accepts the code and refresh grants only; the default also accepts password and client credentials.
    "OAUTH2_SERVER_CLASS": "oauthlib.oauth2.WebApplicationServer",
    "SCOPES": {
        Scope.READ: _("See the data that you can see"),
        Scope.WRITE: _("Make changes and run admin actions that you are allowed to"),
        Scope.ADMIN: _("Use administrative tools that you are allowed to use"),
    },
    # The toolkit's default is all scopes.
    "DEFAULT_SCOPES": [Scope.READ],
    "ACCESS_TOKEN_EXPIRE_SECONDS": HOUR,
    # Counted from the end of the access token, so it slides while the client is in use.
    "REFRESH_TOKEN_EXPIRE_SECONDS": 30 * DAY,
    "ROTATE_REFRESH_TOKEN": True,
    "REFRESH_TOKEN_REUSE_PROTECTION": True,
    # The toolkit's grace returns the stored token, which is hashed here. The validator has a grace of its own.
    "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0,
    # A minute, and a minute and a half by which the clocks of two hosts can differ. A code works once, with PKCE.
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": 150,
    "PKCE_REQUIRED": True,
    "REQUEST_APPROVAL_PROMPT": "force",
    # Command-line clients listen on http://localhost:<any port>/callback.
    "ALLOW_LOCALHOST_LOOPBACK": True,
    # Registration accepts http for loopback only. The last six are private-use schemes of known clients; registration
    # also accepts reverse domain names (RFC 8252, section 7.1).
    "ALLOWED_REDIRECT_URI_SCHEMES": ["https", "http", "cursor", "kiro", "raycast", "warp", "windsurf", "zed"],
    "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": True,
    "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": True,
    "COMPLIANT_BCP_RFC9700_PKCE_METHOD": True,
    "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": True,
    "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": True,
    "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": True,
    "COMPLIANT_BCP_RFC9700_REFRESH_TOKEN": True,
    "COMPLIANT_BCP_RFC9700_REDIRECT_URI_MATCHING": True,
    "COMPLIANT_BCP_RFC9700_PKCE_REQUIRED": True,
    # Explicit, because if the toolkit's default became True, loopback redirects would fail the deployment checks.
    "COMPLIANT_BCP_RFC9700_REDIRECT_URI_SCHEME": False,
    "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
    "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
    "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": ["none", "client_secret_basic", "client_secret_post"],
    # This app has a registration view of its own; the toolkit's leaves a usable token behind with each client.
    "DCR_ENABLED": False,
    "CIMD_ENABLED": False,
    "OIDC_ENABLED": False,
    "APPLICATION_ADMIN_CLASS": "mcp_django.oauth.application_and_token_admin.ApplicationAdmin",
    "ACCESS_TOKEN_ADMIN_CLASS": "mcp_django.oauth.application_and_token_admin.AccessTokenAdmin",
}


def provider_settings(*, base_url: str | None = None, **overrides: Any) -> dict[str, Any]:
    """Return the settings of django-oauth-toolkit (``OAUTH2_PROVIDER``) for an MCP endpoint.

    ``base_url`` is the same as ``MCP_DJANGO["BASE_URL"]`` (scheme, host and port), and becomes the issuer.
    ``overrides`` are keys of ``OAUTH2_PROVIDER`` that replace those given here; system checks report unsafe ones. To
    ``SCOPES`` of a project that is an authorization server already, those of MCP are added, unless it names some.
    """
    made = {
        **copy.deepcopy(PROVIDER),
        # One issuer for the whole origin, whatever the request's Host header is (RFC 8414, section 2).
        "OIDC_ISS_ENDPOINT": (base_url or "").rstrip("/"),
        **overrides,
    }
    if not PROVIDER["SCOPES"].keys() & made["SCOPES"].keys():
        made["SCOPES"] = {**PROVIDER["SCOPES"], **made["SCOPES"]}
    return made

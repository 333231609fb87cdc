"""Well-known metadata: of the endpoint (RFC 9728), of the authorization server (RFC 8414), and the AI catalog.

Clients look for these documents in many places, and take anything but JSON for a broken server. So every path below
``/.well-known/`` that could be such a document answers in JSON.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import reverse
from django.views.decorators.http import conditional_page
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..problems import NO_DOCUMENT, Problem
from ..routing import ENDPOINTS, mounted_sites
from ..scopes import default_scopes, join
from .assertions_and_keys import KINDS
from .client_documents import SIGNED, announces_documents
from .cors_and_refusals import SENT, cors, logged, note
from .program_grants import PROGRAM_GRANTS
from .resource_urls import endpoints, is_endpoint, issuer, mounted_path, origin, resource_url

# Seconds for which a document may be cached: it saves clients requests at their start, yet changes soon arrive.
MAX_AGE: Final = 300
# Clients of protocol version 2025-03-26 take the token endpoint for the issuer.
TOKEN_PATHS: Final = frozenset({"/token", "/oauth/token", "/oauth"})
# Identity assertions as this server takes them, where IDENTITY_PROVIDERS are set up.
IDENTITY_PROFILE: Final = "urn:ietf:params:oauth:grant-profile:id-jag"


def resource_document(request: HttpRequest, path: str) -> dict[str, Any] | None:
    """Return the metadata of the protected resource at ``path`` (RFC 9728, section 2), None if none is there.

    "" and "/" stand for the first endpoint if no endpoint is mounted there.
    """
    mounted = endpoints()
    path = mounted_path(path)
    if path.removesuffix("/") not in mounted and not is_endpoint(path):
        if path not in ("", "/") or not mounted:
            return None
        path = next(iter(mounted))
    return {
        "resource": resource_url(request, path),
        "resource_name": settings.SERVER["title"] or settings.SERVER["name"],
        "authorization_servers": [issuer(request)],
        "scopes_supported": join(default_scopes()).split(),
        "bearer_methods_supported": ["header"],
    }


def used_scopes() -> set[str]:
    """Return ``scopes_supported``: the default scopes, and those that some tool needs."""
    tools = (tool for site in mounted_sites() for tool in site.function_tools())
    return {*default_scopes(), *{scope for tool in tools for scope in tool.scopes}} & oauth2_settings.SCOPES.keys()


def server_document(request: HttpRequest, path: str = "") -> dict[str, Any] | None:
    """Return the metadata of the authorization server (RFC 8414, section 2), None for a ``path`` that has none."""
    endpoint_path = mounted_path(path).removesuffix("/")
    if (
        endpoint_path
        and endpoint_path not in TOKEN_PATHS
        and endpoint_path not in endpoints()
        and not is_endpoint(endpoint_path)
    ):
        return None
    methods = list(oauth2_settings.OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED)
    document: dict[str, Any] = {
        "issuer": issuer(request),
        "authorization_endpoint": _url(request, "authorize"),
        "token_endpoint": _url(request, "token"),
        "revocation_endpoint": _url(request, "revoke-token"),
        "scopes_supported": join(used_scopes()).split(),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "authorization_response_iss_parameter_supported": True,
    }
    if announces_documents():
        # A client with a document is public, or signs with the keys in the document.
        document["client_id_metadata_document_supported"] = True
        for endpoint in ("token", "revocation"):
            document[f"{endpoint}_endpoint_auth_methods_supported"] = list(dict.fromkeys(["none", *methods, SIGNED]))
            document[f"{endpoint}_endpoint_auth_signing_alg_values_supported"] = list(KINDS)
    document["grant_types_supported"] += [name for name, grant in PROGRAM_GRANTS.items() if grant.is_enabled]
    if settings.SERVICE_ACCOUNTS or any(entry.get("client_keys") for entry in settings.IDENTITY_PROVIDERS):
        methods = [*document["token_endpoint_auth_methods_supported"], "client_secret_basic", SIGNED]
        document["token_endpoint_auth_methods_supported"] = list(dict.fromkeys(methods))
        document["token_endpoint_auth_signing_alg_values_supported"] = list(KINDS)
    if settings.IDENTITY_PROVIDERS:
        document["authorization_grant_profiles_supported"] = [IDENTITY_PROFILE]
    if settings.REGISTRATION != "off":
        document["registration_endpoint"] = _url(request, "register")
    return document


def _url(request: HttpRequest, name: str) -> str:
    return origin(request) + reverse(f"mcp_oauth:{name}")


DOCUMENTS: Final = {
    "oauth-protected-resource": resource_document,
    "oauth-authorization-server": server_document,
    "openid-configuration": server_document,
}


CARD: Final = "application/mcp-server-card+json"
OWN_CARD: Final = re.compile(r"/?server-card/?\Z")
# Paths where clients look for the catalog: that of the extension now, and its first one.
CATALOGS: Final = {"ai-catalog.json": "application/ai-catalog+json", "mcp/catalog.json": "application/json"}


@login_not_required
@cors("GET", "HEAD")
def catalog(request: HttpRequest, name: str) -> HttpResponseBase:
    """Answer with the AI catalog of all endpoints and their server cards, if ``SERVER['card']`` allows it."""
    if not settings.SERVER["card"] or request.method not in ("GET", "HEAD"):
        status = 405 if settings.SERVER["card"] else 404
        return JsonResponse({"error": "not_found" if status == 404 else "method_not_allowed"}, status=status)
    host = urlsplit(origin(request)).hostname
    paths = [path for path in endpoints() if path in ENDPOINTS.by_path()]
    entries = [
        {
            "identifier": f"urn:air:{host}:mcp:{path.strip('/').replace('/', '-') or 'mcp'}",
            "type": CARD,
            "url": f"{resource_url(request, path)}/server-card",
        }
        for path in paths
    ]
    document = {"specVersion": "1.0", "entries": entries}
    return JsonResponse(document, content_type=CATALOGS[name], headers={"Cache-Control": f"public, max-age={MAX_AGE}"})


def card_view(read: Callable[[HttpRequest, str], Mapping[str, Any]]) -> Callable[..., HttpResponseBase]:
    """Return the view of an endpoint's server card, where ``SERVER['card']`` lets anyone read it.

    ``read`` returns the card of the endpoint at a path.
    """

    @login_not_required
    @cors("GET", "HEAD")
    @conditional_page
    def view(request: HttpRequest, **parameters: Any) -> HttpResponseBase:
        if not settings.SERVER["card"]:
            return JsonResponse({"error": "not_found"}, status=404, headers={"Cache-Control": "no-store"})
        if request.method not in ("GET", "HEAD"):
            return JsonResponse({"error": "method_not_allowed"}, status=405, headers={"Allow": "GET, HEAD, OPTIONS"})
        document = read(request, OWN_CARD.sub("", request.path_info))
        return JsonResponse(document, content_type=CARD, headers={"Cache-Control": f"public, max-age={MAX_AGE}"})

    return view


@login_not_required
@cors("GET", "HEAD")
@logged
def well_known(request: HttpRequest, name: str, path: str = "") -> HttpResponseBase:
    """Answer with a metadata document; errors (404 and 405) are JSON too."""
    if request.method not in ("GET", "HEAD"):
        note(request.META, Problem("Use GET", SENT))
        return JsonResponse({"error": "method_not_allowed"}, status=405, headers={"Allow": "GET, HEAD, OPTIONS"})
    document = DOCUMENTS[name](request, path)
    if document is None:
        mounted = " and ".join(endpoints()) or "nowhere"
        note(request.META, Problem(f"there is no endpoint {path or '/'}; it is at {mounted}", NO_DOCUMENT))
        return JsonResponse({"error": "not_found"}, status=404, headers={"Cache-Control": "no-store"})
    return JsonResponse(document, headers={"Cache-Control": f"public, max-age={MAX_AGE}"})

"""An ASGI scope to the Django request that hooks get: the same facts, no cookie, no body."""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.http import HttpRequest, QueryDict
from django.utils.datastructures import MultiValueDict

from ..conf import settings
from ..protocol.headers import PARAM_PREFIX
from .request import MCPContext, MCPRequest

# What stands where HTTP has the URL of the endpoint: no token is for it, and no cursor of another transport fits it.
RESOURCE: Final = "stdio:"
# Never given to hooks: no cookie is authority here, and the token belongs to the authenticator alone.
DROPPED = frozenset({"cookie", "cookie2"})
# What Django or its middleware puts on a request that is authority or belongs to that request alone.
WITHHELD = frozenset({"user", "auser", "session", "_cached_user", "_acached_user", "_messages", "csrf_processing_done"})
# What an ASGI request has of its own.
ASGI_ATTRIBUTES = frozenset({"scope", "environ", "script_name", "headers", "encoding", "urlconf"})


# As a number: bytes look for bytes by way of an exception.
UNDERSCORE = ord("_")
# Names of headers up to this length are worth keeping.
USUAL_NAME = 64


class EmptyRequest(MCPRequest):
    """A request with no query, form and files, which are made when a hook asks for them: few do.

    As Django's own subclasses of ``HttpRequest``, it sets the attributes itself.
    """

    def __init__(self) -> None:
        self.COOKIES = {}
        self.resolver_match = None
        self.content_type = None
        self.content_params = None

    @cached_property
    def GET(self) -> QueryDict:  # type: ignore[override]
        return QueryDict("")

    @cached_property
    def POST(self) -> QueryDict:  # type: ignore[override]
        return QueryDict(mutable=True)

    @cached_property
    def FILES(self) -> MultiValueDict[str, Any]:  # type: ignore[override]
        return MultiValueDict()


def headers_of(scope: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the headers by lower-case name, each with all its values.

    A name with an underscore is dropped: WSGI and CGI cannot tell it from the one with a dash, and some servers pass
    it on (Django's security release for CVE-2015-0219 has the reason).
    """
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        if UNDERSCORE not in name:
            lower = _lower(name) if len(name) <= USUAL_NAME else name.decode("latin1").lower()
            text = value.decode("latin1").strip()
            if lower in found:
                found[lower].append(text)
            else:
                found[lower] = [text]
    return found


# Clients send the same few names with every request.
@lru_cache(maxsize=512)
def _lower(name: bytes) -> str:
    return name.decode("latin1").lower()


@lru_cache(maxsize=512)
def _meta_key(name: str) -> str:
    key = name.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


def split_path(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Return the path that the whole project is below, "" at the root, and the rest, which the URLconf matches.

    As for Django's own requests, ``FORCE_SCRIPT_NAME`` goes before the server's word. A proxy may have taken the first
    part off or not.
    """
    prefix = (django_settings.FORCE_SCRIPT_NAME or scope.get("root_path") or "").rstrip("/")
    path: str = scope["path"]
    if path == prefix or path.startswith(f"{prefix}/"):
        path = path[len(prefix) :]
    return prefix, path or "/"


def build_request(scope: Mapping[str, Any], headers: Mapping[str, list[str]], site: Any) -> MCPRequest:
    """Return the request of one call; ``user`` and the rest of ``mcp`` are filled in as they become known."""
    request = EmptyRequest()
    request.method = scope["method"]
    prefix, request.path_info = split_path(scope)
    request.path = prefix + request.path_info
    client = scope.get("client") or ("", 0)
    server = scope.get("server") or ("unknown", 0)
    request.META = meta = {
        "REQUEST_METHOD": scope["method"],
        "PATH_INFO": request.path_info,
        "SCRIPT_NAME": prefix,
        "QUERY_STRING": "",
        "REMOTE_ADDR": client[0],
        "REMOTE_HOST": client[0],
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1] or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
    }
    if client[1]:
        meta["REMOTE_PORT"] = str(client[1])
    mirrored = {}
    for name, values in headers.items():
        if name not in DROPPED:
            key = _meta_key(name) if len(name) <= USUAL_NAME else _meta_key.__wrapped__(name)
            meta[key] = values[0] if len(values) == 1 else ",".join(values)
        if name.startswith(PARAM_PREFIX):
            mirrored[name] = values
    request.connection_scheme = scope.get("scheme", "http")
    request.mcp = MCPContext(site=site, param_headers=mirrored)
    return request


def read_scope(scope: Mapping[str, Any], site: Any) -> tuple[MCPRequest, dict[str, list[str]]]:
    """Return the request of one call and its headers, which hooks see without those that are authority."""
    headers = headers_of(scope)
    return build_request(scope, headers, site), headers


def local_request(site: Any) -> MCPRequest:
    """Return the request of a call that came over no network, without its user.

    It seems to come to the project's own address.
    """
    base = urlsplit(settings.BASE_URL or "http://localhost")
    scheme, host = base.scheme or "http", base.hostname or "localhost"
    port = base.port or (443 if scheme == "https" else 80)
    scope = {"type": "http", "method": "POST", "path": "/", "root_path": "", "scheme": scheme, "server": (host, port)}
    request = build_request(scope, {}, site)
    request.META["HTTP_HOST"] = base.netloc or host
    request.mcp.resource, request.mcp.param_headers = RESOURCE, None
    return request


def middleware_attributes(request: HttpRequest) -> Mapping[str, Any]:
    """Return what the project's middleware added to the request, for hooks to find on theirs."""
    own = vars(HttpRequest()).keys() | WITHHELD
    return {
        name: value
        for name, value in vars(request).items()
        if name not in own and not name.startswith("_") and name not in ASGI_ATTRIBUTES
    }


def scope_from_wsgi(original: HttpRequest) -> dict[str, Any]:
    """Return the scope that a request of Django's amounts to, for the plain road under a WSGI server."""
    found = {key[5:]: str(value) for key, value in original.META.items() if key.startswith("HTTP_")}
    found |= {key: original.META[key] for key in ("CONTENT_TYPE", "CONTENT_LENGTH") if original.META.get(key)}
    return {
        "type": "http",
        "method": original.method or "",
        "path": original.path,
        "root_path": original.META.get("SCRIPT_NAME", ""),
        "scheme": original.scheme,
        "http_version": original.META.get("SERVER_PROTOCOL", "HTTP/1.1").removeprefix("HTTP/"),
        "query_string": original.META.get("QUERY_STRING", "").encode("latin1", "replace"),
        "client": (original.META.get("REMOTE_ADDR", ""), 0),
        "server": (original.META.get("SERVER_NAME", ""), int(original.META.get("SERVER_PORT") or 0)),
        "headers": [
            (key.replace("_", "-").lower().encode("latin1"), value.encode("latin1", "replace"))
            for key, value in found.items()
        ],
    }

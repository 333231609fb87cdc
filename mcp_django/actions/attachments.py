"""Files that actions and views made: kept for some minutes, for the user and client of the call alone."""

import logging
import secrets
from typing import Final

from ..context.confirmation import identify
from ..context.request import MCPRequest
from ..context.signing import MAX_AGE
from ..exceptions import NotFound
from ..orm.access import get_exposure
from ..protocol.content import EmbeddedResource
from ..runtime.cache import cache

logger = logging.getLogger("mcp_django.actions")

SCHEME: Final = "attachment:"


def keep(request: MCPRequest, about: str, name: str, mime_type: str, body: str | bytes) -> str:
    """Return the URI by which the caller can read the file, "" where the cache does not hold it.

    ``about`` is what made it: ``shop.order/export``, where that is of a model.
    """
    uri = f"{SCHEME}{secrets.token_urlsafe(16)}/{about}/{name}"
    try:
        cache.set(_key(request, uri), (mime_type, body), MAX_AGE)
        # Some backends hold nothing, and some nothing so long, without a word.
        return uri if cache.has_key(_key(request, uri)) else ""
    except Exception as error:
        logger.warning("A file goes with its result, as the cache does not keep it: %s", type(error).__name__)
        return ""


def kept(request: MCPRequest, uri: str) -> EmbeddedResource:
    """Return the file of a URI.

    Raises:
        NotFound: it is not the caller's, is too old, or is of a model that they may not view any more.
    """
    _, _, about = uri.partition("/")
    if "." in (label := about.partition("/")[0]):
        get_exposure(request, label)
    found = cache.get(_key(request, uri))
    if found is None:
        raise NotFound
    mime_type, body = found
    return EmbeddedResource(uri, body, mime_type)


def _key(request: MCPRequest, uri: str) -> str:
    return f"mcp_django:attachment:{identify([request.user, request.mcp.client_id, request.mcp.site.name, uri])}"

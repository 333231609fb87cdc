"""Files that actions and views hand out: short ones in the result, long ones kept in the cache, to be read by a URI."""

import hashlib
import json
import logging
import secrets
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.db.models import Model

from ..context.request import MCPRequest
from ..exceptions import NotFound
from ..orm.access import access_of
from ..protocol.content import Content, EmbeddedResource, ResourceLink
from ..runtime.cache_and_rate_limits import cache

logger = logging.getLogger("mcp_django.actions")

# Seconds for which files are kept.
MAX_AGE: Final = 600
# Maximum characters of text, or bytes of another file, that a result contains itself.
SHOWN: Final = 2_000
NOTE: Final = "Read the uri as a resource, or give it to get_record as pk."


@dataclass(frozen=True, slots=True)
class Download:
    """A file: ``body`` is text or bytes."""

    # Scheme of the URIs of files that are kept in the cache.
    SCHEME: ClassVar = "attachment:"

    name: str
    mime_type: str
    body: str | bytes

    def result(self, request: MCPRequest, about: str) -> tuple[dict[str, Any], list[Content]]:
        """Return the file in an action's response as structured result, and a content block if the file is long.

        The result has the contents once: a short text in its structured part, a short binary file in a block. A long
        file is kept in the cache, and the block links to it. ``about`` names its origin, such as ``shop.order/export``.
        """
        raw = self.body.encode() if isinstance(self.body, str) else self.body
        said: dict[str, Any] = {"name": self.name, "mime_type": self.mime_type, "bytes": len(raw)}
        is_long = len(self.body) > SHOWN
        if isinstance(self.body, str) and not is_long:
            return {**said, "text": self.body}, []
        uri = f"{self.SCHEME}{secrets.token_urlsafe(16)}/{about}/{self.name}"
        if is_long and self._is_kept(request, uri):
            link = ResourceLink(uri, self.name, mime_type=self.mime_type)
            return {**said, "uri": uri, "expires_in": MAX_AGE, "note": NOTE}, [link]
        return said, [EmbeddedResource(f"{self.SCHEME}{about}/{self.name}", self.body, self.mime_type)]

    def _is_kept(self, request: MCPRequest, uri: str) -> bool:
        key = _key(request, uri)
        try:
            cache.set(key, (self.mime_type, self.body), MAX_AGE)
            # Some cache backends silently drop every value, or values of this size.
            return bool(cache.has_key(key))
        except Exception as error:
            logger.warning("A file is sent with its result: the cache does not keep it (%s)", type(error).__name__)
            return False

    @staticmethod
    def kept(request: MCPRequest, uri: str) -> EmbeddedResource:
        """Return the file kept for a URI; raise ``NotFound`` if it has expired or the caller cannot see its model."""
        _, _, about = uri.partition("/")
        if "." in (label := about.partition("/")[0]):
            access_of(request).get_model(label)
        file = cache.get(_key(request, uri))
        if file is None:
            raise NotFound
        mime_type, body = file
        return EmbeddedResource(uri, body, mime_type)


def _key(request: MCPRequest, uri: str) -> str:
    user = request.user
    owner = [user._meta.label, str(user.pk)] if isinstance(user, Model) else []
    told = json.dumps([owner, request.mcp.client_id, request.mcp.site.name, uri])
    return f"mcp_django:attachment:{hashlib.sha256(told.encode()).hexdigest()}"

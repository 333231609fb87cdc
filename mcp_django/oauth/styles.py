"""Styles of the pages. They are inlined, so that pages look right under every server, with or without static files."""

import base64
import hashlib
from functools import lru_cache
from urllib.parse import urlsplit

from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe

from ..conf import settings


def stylesheet() -> SafeString:
    """Return the text of the style element; a project can have its own ``mcp_django/oauth/styles.css``."""
    return mark_safe(render_to_string("mcp_django/oauth/styles.css"))


def content_security_policy() -> str:
    """Return the policy of a page that loads the site's icon alone, runs no script, and has styles of its own."""
    # No form-action: browsers apply it to the redirect after the form as well, which goes to the client.
    image = f" img-src {_source(str(settings.SERVER_ICON))};" if settings.SERVER_ICON else ""
    return f"default-src 'none'; style-src '{_digest(stylesheet())}';{image} base-uri 'none'; frame-ancestors 'none'"


def _source(url: str) -> str:
    """Return the source of an image as policies name it (CSP 3, section 2.3.1)."""
    parts = urlsplit(url)
    if parts.netloc:
        return f"{parts.scheme}://{parts.netloc}"
    return f"{parts.scheme}:" if parts.scheme else "'self'"


@lru_cache(maxsize=4)
def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

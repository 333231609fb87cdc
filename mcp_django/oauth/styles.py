"""How pages look. The styles stand in the page, so that it is right under every server, static files or not."""

import base64
import hashlib
from functools import lru_cache

from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe

__all__ = ["content_security_policy", "stylesheet"]


def stylesheet() -> SafeString:
    """Return the text of the style element; a project can have its own ``mcp_django/oauth/styles.css``."""
    return mark_safe(render_to_string("mcp_django/oauth/styles.css"))


def content_security_policy() -> str:
    """Return the policy of a page that loads nothing, runs no script, and has the styles that are its own."""
    # No form-action: browsers apply it to the redirect after the form as well, which goes to the client.
    return f"default-src 'none'; style-src '{_digest(stylesheet())}'; base-uri 'none'; frame-ancestors 'none'"


@lru_cache(maxsize=4)
def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

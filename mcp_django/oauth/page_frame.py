"""The frame of the OAuth pages: styles, Content-Security-Policy, context, and the mixin of the views of pages.

Styles are inlined, so that pages look right under every server, with or without static files.
"""

import base64
import hashlib
import logging
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from django.apps import apps
from django.contrib.admin import site as admin_site
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.templatetags.static import static
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve, reverse
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language_info
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_deny
from django.views.decorators.csrf import csrf_protect

from ..conf import settings
from ..context.database_errors import Trouble
from ..context.language import CallerLanguage
from ..runtime.missing_migrations import MissingTables

logger = logging.getLogger("mcp_django")

# What a page says of a server whose new tables are not there yet.
UNMIGRATED: Final = f"The page cannot be shown: tables are missing. The operator has to run {MissingTables.REMEDY}.\n"

# Seconds after which a browser may try again when the database does not answer.
RETRY_AFTER = 5


def stylesheet() -> SafeString:
    """Return the CSS of the pages: the template ``mcp_django/oauth/styles.css``, which a project can override."""
    return mark_safe(render_to_string("mcp_django/oauth/styles.css"))


def content_security_policy(script: str = "") -> str:
    """Return the Content-Security-Policy of a page: own styles, the site's icon, and the ``script``, if any."""
    sources = {"img-src": str(settings.SERVER["icon"] or ""), "script-src": script}
    allowed = "".join(f" {name} {_source(url)};" for name, url in sources.items() if url)
    # No form-action: browsers also apply it to the redirect after the form, which leads to the client.
    return f"default-src 'none'; style-src '{_digest(stylesheet())}';{allowed} base-uri 'none'; frame-ancestors 'none'"


def _source(url: str) -> str:
    """Return the source expression for a URL in the policy (CSP 3, section 2.3.1)."""
    parts = urlsplit(url)
    if parts.netloc:
        return f"{parts.scheme}://{parts.netloc}"
    return f"{parts.scheme}:" if parts.scheme else "'self'"


def copy_script() -> str:
    """Return the URL of the script of copy buttons, "" where no static files are served."""
    with suppress(ImproperlyConfigured, ValueError):  # such as a manifest that collectstatic has not written yet
        if apps.is_installed("django.contrib.staticfiles"):
            return static("mcp_django/copy.js")
        return ""
    return ""


@lru_cache(maxsize=4)
def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def frame(request: HttpRequest | None = None) -> dict[str, Any]:
    """Return the template context that every page needs, in the active language.

    ``request`` is that of a person who is signed in or about to be. Without it, the context is the same for everybody.
    """
    language = CallerLanguage.shown()
    try:
        is_rtl = bool(get_language_info(language)["bidi"])
    except KeyError:
        is_rtl = False
    host = urlsplit(str(settings.BASE_URL or "")).netloc
    if not host and request is not None:
        host = request.get_host()
    context: dict[str, Any] = {
        "styles": stylesheet(),
        "site_title": str(settings.SERVER["title"] or settings.SERVER["name"]),
        "site_host": host,
        "site_icon": str(settings.SERVER["icon"] or ""),
        "page_language": language,
        "page_direction": "rtl" if is_rtl else "ltr",
    }
    if request is not None and request.user.is_authenticated:
        names = {"tokens": "authorized-token-list", "access": "access", "sign_out": "sign-out"}
        context |= {key: url_of(name) for key, name in names.items()}
        context |= {"person": request.user, "back": _way_back(request)}
    return context


def url_of(name: str) -> str:
    """Return the path of a page by its URL name, "" where it is not mounted."""
    try:
        return reverse(f"mcp_oauth:{name}")
    except NoReverseMatch:
        return ""


def _way_back(request: HttpRequest) -> tuple[str, str] | None:
    """Return path and text of the link back: to the admin for its users, else to the site."""
    may_enter = False
    with suppress(Exception):  # there may be no admin, and the project's hook may fail
        may_enter = bool(admin_site.has_permission(request))
    try:
        if may_enter:
            return reverse("admin:index"), _("The admin")
        resolve("/")
    except (NoReverseMatch, Resolver404):
        return None
    return get_script_prefix(), _("The site")


def _unavailable(error: DatabaseError) -> HttpResponse:
    """Return the page for a database that is away, busy, full or without tables; raise any other error again."""
    missing = MissingTables(error)
    if missing.are_needed():
        logger.error("A page was not shown: tables are missing", exc_info=error)
        missing.log()
        return HttpResponse(UNMIGRATED, status=503, content_type="text/plain; charset=utf-8")
    trouble = Trouble.of(error)
    if trouble is None:
        raise error
    logger.error("A page was not shown: %s", trouble.cause, exc_info=error)
    # A page with the site's frame would ask the same database who is signed in.
    text = f"The page cannot be shown at the moment: {trouble.cause}. Try again in {RETRY_AFTER} seconds.\n"
    headers = {"Retry-After": str(RETRY_AFTER)}
    return HttpResponse(text, status=503, content_type="text/plain; charset=utf-8", headers=headers)


class PageMixin:
    """Mixin for views of pages for people: frame, language, no caching, no embedding, no scripts."""

    request: HttpRequest

    @method_decorator(never_cache)
    @method_decorator(xframe_options_deny)
    @method_decorator(csrf_protect)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        with CallerLanguage(request).for_page():
            try:
                response = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
                if isinstance(response, TemplateResponse):
                    response.render()
            except DatabaseError as error:
                response = _unavailable(error)
        # A file has stricter ones.
        response.setdefault("Content-Security-Policy", content_security_policy())
        response.setdefault("Referrer-Policy", "same-origin")
        return response

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        """Render the page with the context of the frame."""
        response: HttpResponse = super().render_to_response({**context, **frame(self.request)}, **kwargs)  # type: ignore[misc]
        return response

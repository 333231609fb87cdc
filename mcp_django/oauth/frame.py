"""The frame of the pages for people: the site, the signed-in user, and the links onwards and back."""

from typing import Any
from urllib.parse import urlsplit

from django.contrib.admin import site as admin_site
from django.http import HttpRequest
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve, reverse
from django.utils.translation import get_language_info
from django.utils.translation import gettext as _

from ..conf import settings
from ..context.languages import shown_language
from .styles import stylesheet


def frame(request: HttpRequest | None = None) -> dict[str, Any]:
    """Return the context that every page needs, in the language that is active.

    ``request`` is that of a person who is signed in or about to be; without it nothing depends on who asks.
    """
    language = shown_language()
    context: dict[str, Any] = {
        "styles": stylesheet(),
        "site_title": str(settings.SERVER_TITLE or settings.SERVER_NAME),
        "site_host": _host(request),
        "site_icon": str(settings.SERVER_ICON or ""),
        "page_language": language,
        "page_direction": "rtl" if _is_rtl(language) else "ltr",
    }
    if request is not None and request.user.is_authenticated:
        names = {"tokens": "authorized-token-list", "access": "access", "sign_out": "sign-out"}
        context |= {key: url_of(name) for key, name in names.items()}
        context |= {"person": request.user, "back": _way_back(request)}
    return context


def url_of(name: str) -> str:
    """Return the path of a page of the authorization server, "" where the project does not mount it."""
    try:
        return reverse(f"mcp_oauth:{name}")
    except NoReverseMatch:
        return ""


def _host(request: HttpRequest | None) -> str:
    if settings.BASE_URL:
        return urlsplit(str(settings.BASE_URL)).netloc
    return "" if request is None else request.get_host()


def _is_rtl(language: str) -> bool:
    try:
        return bool(get_language_info(language)["bidi"])
    except KeyError:
        return False


def _way_back(request: HttpRequest) -> tuple[str, str] | None:
    """Return path and name of where a person comes from: the admin of who may enter it, else the site."""
    try:
        if _may_enter_admin(request):
            return reverse("admin:index"), _("The admin")
        resolve("/")
    except (NoReverseMatch, Resolver404):
        return None
    return get_script_prefix(), _("The site")


def _may_enter_admin(request: HttpRequest) -> bool:
    # There may be no admin, and its hook is the project's own.
    try:
        return bool(admin_site.has_permission(request))
    except Exception:
        return False

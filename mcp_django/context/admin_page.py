"""The page of the admin at which a call's request stands, for hooks that read its path and URL match.

At the endpoint, these would say nothing about the operation. Only the address changes here; ``emulation/page_requests``
adds what else a page's request has (method, form data, messages), for hooks that save or run an action.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Literal

from django.conf import settings as django_settings
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, Resolver404, ResolverMatch, get_script_prefix, get_urlconf, resolve, reverse

PageName = Literal["changelist", "add", "change", "delete"]
# Stands for the primary key in cached paths. The admin's ``quote()`` leaves all of its characters as they are.
PLACEHOLDER: Final = "mcp-object-id"
ATTRIBUTES: Final = ("path", "path_info", "resolver_match")


class OwnPlace:
    """Context manager that restores a request's path and resolver match after the request visited admin pages."""

    __slots__ = ("before", "request")

    def __init__(self, request: HttpRequest) -> None:
        self.request = request

    def __enter__(self) -> None:
        state = vars(self.request)
        self.before = [state.get(name) for name in ATTRIBUTES]

    def __exit__(self, *raised: object) -> None:
        vars(self.request).update(zip(ATTRIBUTES, self.before, strict=True))


def move_to(request: HttpRequest, exposure: Any, page: PageName, pk: Any = None) -> None:
    """Move the request to an admin page of a model or a row; change nothing where the URLconf has no such page."""
    # Only the endpoint's parameters, not those of another page that the request was moved to before.
    given = _given(request)
    found = _place(exposure, page, tuple(given.items()), pk is not None, *_where(request))
    if found is None:
        return
    path, path_info, place = found
    if pk is not None:
        key = str(quote(str(pk)))
        path = path.replace(PLACEHOLDER, key)
        path_info = path_info.replace(PLACEHOLDER, key)
        place = _copied(place, {**place.kwargs, "object_id": key}, given)
    request.path = path
    request.path_info = path_info
    request.resolver_match = place


def path_of(request: HttpRequest, exposure: Any, pk: Any) -> str | None:
    """Return the path of the admin page of the row with this key, None where the URLconf has no such page."""
    found = _place(exposure, "change", tuple(_given(request).items()), True, *_where(request))
    if found is not None:
        return found[0].replace(PLACEHOLDER, str(quote(str(pk))))
    return None


def _given(request: HttpRequest) -> Mapping[str, Any]:
    """Return the endpoint's URL parameters, even while the request is moved to an admin page."""
    here = request.resolver_match
    given: Mapping[str, Any] = getattr(here, "mcp_given", here.kwargs if here is not None else {})
    return given


def _where(request: HttpRequest) -> tuple[Any, str]:
    """Return URLconf and script prefix, with which the request's admin pages are resolved."""
    kept: tuple[Any, str] | None = request.__dict__.get("_mcp_where")
    if kept is None:
        kept = request.__dict__["_mcp_where"] = get_urlconf() or django_settings.ROOT_URLCONF, get_script_prefix()
    return kept


@lru_cache(maxsize=4096)
def _place(
    exposure: Any, page: PageName, given: tuple[tuple[str, Any], ...], is_row: bool, urlconf: Any, prefix: str
) -> tuple[str, str, ResolverMatch] | None:
    """Resolve an admin page: its path, its path below the script prefix, and its match; None for no such page.

    If the admin is mounted below the same URL parameters as the endpoint, the page has the endpoint's values.
    """
    name = f"{exposure.admin_site_name}:{exposure.opts.app_label}_{exposure.opts.model_name}_{page}"
    row = {"object_id": PLACEHOLDER} if is_row else {}
    for kwargs in (dict(given), {}) if given else ({},):
        with suppress(NoReverseMatch, Resolver404):
            path_info = "/" + reverse(name, urlconf, kwargs=kwargs | row).removeprefix(prefix)
            match = resolve(path_info, urlconf)
            return prefix + path_info[1:], path_info, _copied(match, {**dict(given), **match.kwargs}, dict(given))
    return None


def _copied(match: ResolverMatch, kwargs: Mapping[str, Any], given: Mapping[str, Any]) -> ResolverMatch:
    # ResolverMatch refuses copy(), so copy its attributes.
    place: Any = ResolverMatch.__new__(ResolverMatch)
    place.__dict__.update(match.__dict__)
    place.kwargs = place.captured_kwargs = dict(kwargs)
    place.mcp_given = given
    return place

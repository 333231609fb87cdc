"""Give requests the path of the admin page that matches the call, for admin hooks that look at it.

A hook reads ``request.path`` and ``request.resolver_match``; at the endpoint they would say nothing of the operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from inspect import isfunction
from typing import TYPE_CHECKING, Any, Final, Literal

from django.conf import settings as django_settings
from django.contrib.admin.utils import quote
from django.urls import (
    NoReverseMatch,
    Resolver404,
    ResolverMatch,
    get_script_prefix,
    get_urlconf,
    resolve,
    reverse,
)

if TYPE_CHECKING:
    from .request import Exposure, MCPRequest

# The attribute of a request that holds the fields of the pages that it shows.
PAGE_FIELDS: Final = "_mcp_page_fields"
PageName = Literal["changelist", "add", "change", "delete"]
# A key that stands for others: the admin escapes nothing of it.
PLACEHOLDER: Final = "mcp-object-id"
ATTRIBUTES: Final = ("path", "path_info", "resolver_match")


class own_place:
    """A context after which the request is where it was before, wherever it went meanwhile."""

    __slots__ = ("before", "request")

    def __init__(self, request: MCPRequest) -> None:
        self.request = request

    def __enter__(self) -> None:
        state = vars(self.request)
        self.before = [state.get(name) for name in ATTRIBUTES]

    def __exit__(self, *raised: object) -> None:
        vars(self.request).update(zip(ATTRIBUTES, self.before, strict=True))


def go_to(request: MCPRequest, exposure: Exposure, page: PageName, pk: Any = None) -> None:
    """Put the request on the admin's page of the model, or of the row with this key; nothing changes without one.

    What the URL of the endpoint names, such as a tenant, stays in ``resolver_match.kwargs``.
    """
    if not exposure.asks_where:
        return
    # Another page's own arguments do not go with it.
    given = _given(request)
    found = _place(exposure, page, tuple(given.items()), pk is not None, *_where(request))
    if found is None:
        return
    path, path_info, place = found
    if pk is not None:
        key = str(quote(str(pk)))
        path, path_info = path.replace(PLACEHOLDER, key), path_info.replace(PLACEHOLDER, key)
        place = _copied(place, {**place.kwargs, "object_id": key}, given)
    request.path, request.path_info, request.resolver_match = path, path_info, place


def admin_path(request: MCPRequest, exposure: Exposure, pk: Any) -> str | None:
    """Return the path of the admin's page of the row with this key, None where the URLconf has none."""
    found = _place(exposure, "change", tuple(_given(request).items()), True, *_where(request))
    return found[0].replace(PLACEHOLDER, str(quote(str(pk)))) if found is not None else None


def _given(request: MCPRequest) -> Mapping[str, Any]:
    """Return what the URL of the endpoint names, wherever the request is now."""
    here = request.resolver_match
    given: Mapping[str, Any] = getattr(here, "mcp_given", here.kwargs if here is not None else {})
    return given


def _where(request: MCPRequest) -> tuple[Any, str]:
    """Return URLconf and script prefix of the request, which are the same as long as it lasts."""
    kept: tuple[Any, str] | None = request.__dict__.get("_mcp_where")
    if kept is None:
        kept = request.__dict__["_mcp_where"] = get_urlconf() or django_settings.ROOT_URLCONF, get_script_prefix()
    return kept


@lru_cache(maxsize=4096)
def _place(
    exposure: Any, page: PageName, given: tuple[tuple[str, Any], ...], is_row: bool, urlconf: Any, prefix: str
) -> tuple[str, str, ResolverMatch] | None:
    """Return path, the path below the prefix and the match of a page, None where the URLconf has none.

    It is below the same prefix as the endpoint where the admin is mounted there.
    """
    name = f"{exposure.admin_site_name}:{exposure.opts.app_label}_{exposure.opts.model_name}_{page}"
    row = {"object_id": PLACEHOLDER} if is_row else {}
    for kwargs in (dict(given), {}) if given else ({},):
        with suppress(NoReverseMatch, Resolver404):
            path = reverse(name, urlconf, kwargs=kwargs | row)
            path_info = "/" + path.removeprefix(prefix)
            match = resolve(path_info, urlconf)
            return prefix + path_info[1:], path_info, _copied(match, {**dict(given), **match.kwargs}, dict(given))
    return None


def _copied(match: ResolverMatch, kwargs: Mapping[str, Any], given: Mapping[str, Any]) -> ResolverMatch:
    # Django's own refuses to be copied.
    place: Any = ResolverMatch.__new__(ResolverMatch)
    place.__dict__.update(match.__dict__)
    place.kwargs = place.captured_kwargs = dict(kwargs)
    place.mcp_given = given
    return place


class at_page(own_place):
    """A context in which the request is on a page of the admin; see :func:`go_to`."""

    __slots__ = ("page",)

    def __init__(self, request: MCPRequest, exposure: Exposure, page: PageName, pk: Any = None) -> None:
        super().__init__(request)
        self.page = exposure, page, pk

    def __enter__(self) -> None:
        super().__enter__()
        go_to(self.request, *self.page)


def is_placed(request: MCPRequest) -> bool:
    """Return whether the request is on a page of the admin already."""
    return hasattr(request.resolver_match, "mcp_given")


def asks_where(*items: Any, permissions: bool = False) -> bool:
    """Return whether the objects or classes have code of the project's own, which could ask: Django's does not.

    With ``permissions`` only code counts that takes part in what a caller may do.
    """
    kinds = (item if isinstance(item, type) else type(item) for item in items)
    classes = (owner for kind in kinds for owner in kind.__mro__ if owner.__module__.split(".")[0] != "django")
    owned = (named for item in (*items, *classes) for named in vars(item).items())
    return any(isfunction(getattr(value, "__func__", value)) for name, value in owned if _counts(name, permissions))


def _counts(name: str, permissions: bool) -> bool:
    return not permissions or name.startswith(("has_", "get_action", "get_permission", "__getattr"))

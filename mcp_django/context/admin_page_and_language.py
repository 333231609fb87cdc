"""Make a call's request look like one to a page of the admin, and activate the caller's language.

Hooks read ``request.path`` and ``request.resolver_match``, which at the endpoint would say nothing about the operation.
Labels, help texts and error messages are in the client's language if it names one, as the admin uses that of a person's
browser; stored values are not translated.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from inspect import isfunction
from typing import Any, Final, Literal

from django.conf import settings as django_settings
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, Resolver404, ResolverMatch, get_script_prefix, get_urlconf, resolve, reverse
from django.utils import timezone, translation

from .request import MCPRequest

# Name of the request attribute that holds the fields of the admin pages that the request shows.
PAGE_FIELDS: Final = "_mcp_page_fields"
PageName = Literal["changelist", "add", "change", "delete"]
# Stands for the primary key in cached paths. The admin's ``quote()`` leaves all of its characters as they are.
PLACEHOLDER: Final = "mcp-object-id"
# Characters beyond which an Accept-Language header is ignored.
MAX_HEADER: Final = 500
ATTRIBUTES: Final = ("path", "path_info", "resolver_match")


class own_place:
    """Context manager that restores a request's path and resolver match after the request visited admin pages."""

    __slots__ = ("before", "request")

    def __init__(self, request: MCPRequest) -> None:
        self.request = request

    def __enter__(self) -> None:
        state = vars(self.request)
        self.before = [state.get(name) for name in ATTRIBUTES]

    def __exit__(self, *raised: object) -> None:
        vars(self.request).update(zip(ATTRIBUTES, self.before, strict=True))


def go_to(request: MCPRequest, exposure: Any, page: PageName, pk: Any = None) -> None:
    """Move the request to the admin page of a model, or of the row with this key, if hooks of the admin could read it.

    The endpoint's URL parameters, such as a tenant, stay in ``resolver_match.kwargs``.
    """
    if exposure.options.asks_where:
        move_to(request, exposure, page, pk)


def move_to(request: MCPRequest, exposure: Any, page: PageName, pk: Any = None) -> None:
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


def admin_path(request: MCPRequest, exposure: Any, pk: Any) -> str | None:
    """Return the path of the admin page of the row with this key, None where the URLconf has no such page."""
    found = _place(exposure, "change", tuple(_given(request).items()), True, *_where(request))
    if found is not None:
        return found[0].replace(PLACEHOLDER, str(quote(str(pk))))
    return None


def _given(request: MCPRequest) -> Mapping[str, Any]:
    """Return the endpoint's URL parameters, even while the request is moved to an admin page."""
    here = request.resolver_match
    given: Mapping[str, Any] = getattr(here, "mcp_given", here.kwargs if here is not None else {})
    return given


def _where(request: MCPRequest) -> tuple[Any, str]:
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


class at_page(own_place):
    """Context manager that moves the request to an admin page; see :func:`go_to`."""

    __slots__ = ("page",)

    def __init__(self, request: MCPRequest, exposure: Any, page: PageName, pk: Any = None) -> None:
        super().__init__(request)
        self.page = exposure, page, pk

    def __enter__(self) -> None:
        super().__enter__()
        go_to(self.request, *self.page)


def is_placed(request: MCPRequest) -> bool:
    """Return whether the request has been moved to an admin page already."""
    return hasattr(request.resolver_match, "mcp_given")


def asks_where(*items: Any, permissions: bool = False) -> bool:
    """Return whether objects or classes, such as a ModelAdmin, have code of the project that could read the admin page.

    With ``permissions``, only code counts that helps to decide what a caller may do.
    """
    kinds = (item if isinstance(item, type) else type(item) for item in items)
    classes = (owner for kind in kinds for owner in kind.__mro__ if owner.__module__.split(".")[0] != "django")
    owned = (named for item in (*items, *classes) for named in vars(item).items())
    return any(isfunction(getattr(value, "__func__", value)) for name, value in owned if _counts(name, permissions))


def _counts(name: str, permissions: bool) -> bool:
    return not permissions or name.startswith(("has_", "get_action", "get_permission", "__getattr"))


# Language


def language_of(request: HttpRequest) -> str | None:
    """Return the caller's language, as on an admin page, by ``Accept-Language``; None for the active one. It is one of
    ``settings.LANGUAGES``. A language that the project's middleware chose stays."""
    asked = request.META.get("HTTP_ACCEPT_LANGUAGE")
    if not asked or len(asked) > MAX_HEADER or not django_settings.USE_I18N:
        return None
    if translation.get_language() != django_settings.LANGUAGE_CODE:
        return None
    return translation.get_language_from_request(request)


def activate_language(request: HttpRequest) -> None:
    """Activate the caller's language, as an admin page does for a browser, in a context that ends with the call."""
    if language := language_of(request):
        translation.activate(language)


@contextmanager
def own_locale(request: HttpRequest) -> Iterator[None]:
    """Activate the caller's language for a coroutine, and restore language and time zone afterwards."""
    language = translation.get_language()
    zone = timezone.get_current_timezone()
    if wanted := language_of(request):
        translation.activate(wanted)
    try:
        yield
    finally:
        if translation.get_language() != language:
            _restore(language)
        if timezone.get_current_timezone() is not zone:
            timezone.activate(zone)


def _restore(language: str | None) -> None:
    if language is None:
        translation.deactivate_all()
    elif language == django_settings.LANGUAGE_CODE:
        translation.deactivate()
    else:
        translation.activate(language)


# Pages


@contextmanager
def page_language(request: HttpRequest | None) -> Iterator[None]:
    """Activate the language in which an admin page would appear: the browser's, if the pages are translated into it.

    Without a request, the active language stays.
    """
    wanted = None if request is None else language_of(request)
    with translation.override(wanted or translation.get_language()), translation.override(shown_language()):
        yield


def shown_language() -> str:
    """Return the language that translated pages have now: the active one, or the catalogue's fallback."""
    # Ask the catalogue for its language, because Django falls back from one catalogue to another.
    catalogue = translation.pgettext("the code of the language of these texts", "en")
    active = translation.get_language() or catalogue
    if active.partition("-")[0] == catalogue or active == catalogue:
        return active
    return catalogue

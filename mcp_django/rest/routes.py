"""The routes of a ViewSet as a router of REST framework makes them: they decide what a URL can contain."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, Resolver404, ResolverMatch, URLResolver, get_script_prefix, resolve, reverse
from django.urls.resolvers import RegexPattern
from rest_framework.routers import SimpleRouter

from ..exceptions import NotFound
from ..tools.base import Tool

STANDARD: Final = ("list", "retrieve", "create", "update", "partial_update", "destroy")
UNSAFE: Final = re.compile(r"[^a-z0-9_]+")
# A parameter in a router's prefix, as a regular expression or as a path.
PARAMETER: Final = re.compile(r"\(\?P<\w+>(?:[^()]|\([^()]*\))*\)|<[^<>]+>")
UNUSED_METHODS: Final = frozenset({"head", "options", "trace"})


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered ViewSet with its options. ``name`` ends the names of its tools and begins its URIs.

    ``namespace`` is that of its URLs for REST clients; ``kwargs`` are URL parameters that are the same for all calls.
    ``actions`` become tools (None: all); those in ``confirm`` need confirmation before they run, as deleting always
    does. ``parameters`` has query parameters by action: for ``list`` those in addition to filters and paginator, for an
    extra action all that it has.
    """

    prefix: str
    viewset: Any
    name: str
    basename: str
    namespace: str = ""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    actions: frozenset[str] | None = None
    confirm: frozenset[str] = frozenset()
    parameters: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """One action of a ViewSet under one HTTP method.

    ``callback`` is its view function in the URLconf. ``parameters`` are those of its URL, in order, without the fixed
    ones. ``alone`` says that no other HTTP method leads to the same action.
    """

    registration: Registration
    resolver: URLResolver
    callback: Any
    url_name: str
    method: str
    action: str
    parameters: tuple[str, ...]
    alone: bool = True

    @property
    def viewset(self) -> Any:
        """The ViewSet class."""
        return self.registration.viewset

    @property
    def is_standard(self) -> bool:
        """Whether the route is one of the six that REST framework's routers make for every ViewSet."""
        return self.action in STANDARD

    @property
    def handler(self) -> Any:
        """The method of the ViewSet class to which this route leads."""
        return getattr(self.viewset, self.action)

    def view_without_request(self) -> Any:
        """Return the view of the action as REST framework makes it, before there is a request."""
        view = self.viewset(**self.callback.initkwargs)
        view.args = ()
        view.kwargs = {}
        view.request = None
        view.action = self.action
        view.format_kwarg = None
        return view

    @cached_property
    def name(self) -> str:
        """The name of its tool, such as ``list_orders``."""
        action = self.action if self.alone else f"{self.method}_{self.action}"
        return Tool.safe_name(f"{action}_{self.registration.name}")

    def match(self, given: Mapping[str, str]) -> ResolverMatch:
        """Return the match of the URL with these parameters; raise ``NotFound`` for values that no such URL has."""
        values = {**self.registration.kwargs, **given}
        try:
            path = self.resolver.reverse(self.url_name, **values)
            match: ResolverMatch = self.resolver.resolve("/" + unquote(path))
        except (NoReverseMatch, Resolver404):
            raise NotFound from None
        if match.func is not self.callback:
            raise NotFound
        return match

    def path(self, kwargs: Mapping[str, Any]) -> str:
        """Return the path of the URL, as REST clients have it."""
        name = ":".join(part for part in (self.registration.namespace, self.url_name) if part)
        try:
            path = reverse(name, kwargs=dict(kwargs))
            view = resolve("/" + unquote(path).removeprefix(get_script_prefix())).func
            if getattr(view, "cls", None) is self.viewset:
                return path
        except (NoReverseMatch, Resolver404):
            pass
        local: str = self.resolver.reverse(self.url_name, **kwargs)
        return get_script_prefix() + local


def base_name(prefix: str) -> str:
    """Return the name for tools and URIs that follows from the prefix of the routes."""
    name = UNSAFE.sub("_", PARAMETER.sub("", prefix).lower()).strip("_")
    if not name:
        raise ImproperlyConfigured(f"The prefix {prefix!r} has no name in it: give one.")
    return name


def routes_of(registration: Registration) -> list[Route]:
    """Return the routes, the standard actions first."""
    prefix = registration.prefix
    viewset = registration.viewset
    router = SimpleRouter(use_regex_path="<" not in prefix or "(?P<" in prefix)
    router.register(prefix, viewset, registration.basename)
    urls = router.urls
    resolver = URLResolver(RegexPattern(r"^/"), urls)
    routes = [route for pattern in urls for route in _routes(registration, resolver, pattern)]
    actions = {route.action for route in routes}
    if unknown := sorted({*(registration.actions or ()), *registration.confirm, *registration.parameters} - actions):
        raise ImproperlyConfigured(f"{viewset.__name__} has no action {unknown[0]!r}: {', '.join(sorted(actions))}")
    chosen = [route for route in routes if registration.actions is None or route.action in registration.actions]
    if not chosen:
        raise ImproperlyConfigured(f"{viewset.__name__} has no action that could be a tool.")
    return sorted(chosen, key=_place)


def _place(route: Route) -> int:
    return STANDARD.index(route.action) if route.is_standard else len(STANDARD)


def _routes(registration: Registration, resolver: URLResolver, pattern: Any) -> Iterator[Route]:
    actions: Mapping[str, str] = dict(pattern.callback.actions)
    names: Iterable[str] = pattern.pattern.converters or pattern.pattern.regex.groupindex
    parameters = tuple(name for name in names if name not in registration.kwargs)
    allowed = {method for method in actions if method in registration.viewset.http_method_names} - UNUSED_METHODS
    for method in (method for method in actions if method in allowed):
        alone = sum(actions[other] == actions[method] for other in allowed) == 1
        yield Route(
            registration, resolver, pattern.callback, pattern.name, method, actions[method], parameters, alone=alone
        )

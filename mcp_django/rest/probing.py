"""A ViewSet's instance before anything is run: what it would say to this caller."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework.exceptions import APIException

from ..context.request import MCPRequest
from .requests import RestRequest, rest_request
from .routes import Route

logger = logging.getLogger("mcp_django")


class Undecided(Exception):
    """What was asked depends on the parameters of a URL or on a body, which are not there yet."""


class Unknown(dict[str, Any]):
    """Values that only a call has, beside those that are known: reading one of them is :class:`Undecided`."""

    def _refuse(self, *args: Any) -> NoReturn:
        raise Undecided

    def __missing__(self, key: str) -> Any:
        raise Undecided

    def get(self, key: str, default: Any = None) -> Any:
        """Return a known value."""
        return self[key]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._refuse()

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    keys = values = items = pop = copy = __len__ = _refuse


def view_for(route: Route, request: RestRequest, kwargs: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
    """Return an instance of the class that is ready to be asked; nothing of the project's has decided anything yet.

    ``kwargs`` and ``data`` are what the view finds as parameters of the URL and as the body.
    """
    view = route.viewset(**route.callback.initkwargs)
    view.action_map = {route.method: route.action}
    view.args, view.kwargs, view.format_kwarg = (), kwargs, None
    view.request = request
    view.headers = {}
    asked = view.initialize_request(request)
    asked._full_data = asked._data = data
    view.request = asked
    asked.accepted_renderer, asked.accepted_media_type = view.perform_content_negotiation(asked, force=True)
    try:
        asked.version, asked.versioning_scheme = view.determine_version(asked)
    except (APIException, Http404):
        asked.version, asked.versioning_scheme = view.settings.DEFAULT_VERSION, None
    return view


def probe(request: MCPRequest, route: Route) -> Any:
    """Return an instance for a call whose parameters are not known."""
    fixed = route.registration.kwargs
    kwargs = Unknown(fixed) if route.parameters else dict(fixed)
    data = {} if route.method == "get" else Unknown()
    return view_for(route, rest_request(request, route, fixed), kwargs, data)


def is_permitted(request: MCPRequest, route: Route) -> bool:
    """Return whether the view's permissions admit the caller to the route, as far as they need no parameters.

    What depends on those is decided by the call; a permission that fails admits nobody.
    """
    try:
        view = probe(request, route)
        view.check_permissions(view.request)
    except Undecided:
        return True
    except (APIException, PermissionDenied, Http404):
        return False
    except Exception:
        logger.warning("The permissions of %s failed", route.name, exc_info=True)
        return False
    return True

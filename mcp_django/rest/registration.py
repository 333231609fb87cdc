"""A ViewSet's registration to its tools and resources."""

from collections.abc import Collection, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from rest_framework.viewsets import ViewSetMixin

from ..resources.base import FunctionResource
from .resources import resources_of
from .routes import Registration, base_name, routes_of
from .tools import ViewSetTool


def declare(
    prefix: str,
    viewset: Any,
    basename: str | None = None,
    *,
    name: str = "",
    namespace: str = "",
    kwargs: Mapping[str, Any] | None = None,
    actions: Collection[str] | None = None,
    confirm: Collection[str] = (),
    parameters: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
) -> tuple[list[ViewSetTool], list[FunctionResource]]:
    """Return the tools and the resources; see :meth:`mcp_django.sites.MCPSite.register_viewset`.

    Raises:
        ImproperlyConfigured: the class is no ViewSet, or the options do not fit it.
    """
    if not (isinstance(viewset, type) and issubclass(viewset, ViewSetMixin)):
        raise ImproperlyConfigured(f"{viewset!r} is no ViewSet of REST framework.")
    for option, value in (("actions", actions), ("confirm", confirm)):
        if isinstance(value, str):
            raise ImproperlyConfigured(f'{option} is a list such as ["list", "retrieve"].')
    chosen = name or base_name(prefix)
    queryset = getattr(viewset, "queryset", None)
    registration = Registration(
        prefix=prefix,
        viewset=viewset,
        name=base_name(chosen),
        # As routers of REST framework name the URLs.
        basename=basename or (queryset.model._meta.object_name.lower() if queryset is not None else chosen),
        namespace=namespace,
        kwargs=dict(kwargs or {}),
        actions=None if actions is None else frozenset(actions),
        confirm=frozenset(confirm),
        parameters=dict(parameters or {}),
    )
    routes = routes_of(registration)
    readers = {route.parameters: route for route in routes if route.action == "retrieve"}
    tools = [ViewSetTool(route, readers.get(route.parameters)) for route in routes]
    return tools, [resource for tool in tools for resource in resources_of(tool)]

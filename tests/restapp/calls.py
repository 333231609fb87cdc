"""The same call over MCP and over REST, by the same user."""

from typing import Any

from django.contrib.auth.models import User
from rest_framework import permissions, viewsets
from rest_framework.decorators import action
from rest_framework.test import APIClient

from mcp_django import MCPSite
from mcp_django.rest.routes import Registration, Route, routes_of
from mcp_django.testing import MCPClient, ToolCall
from tests.restapp.models import Order
from tests.restapp.site import site
from tests.tool_calls import request_of


def mcp(user: User, **options: Any) -> MCPClient:
    """Return a client of the site at `/rest`."""
    return MCPClient(user, path="/rest", **options)


def rest(user: User, method: str, path: str, data: Any = None) -> Any:
    """Return the response of the REST API."""
    client = APIClient(raise_request_exception=False)
    client.force_authenticate(user)
    return getattr(client, method)(f"/api/{path}", data, format="json")


def confirmed(client: MCPClient, tool: str, **arguments: Any) -> ToolCall:
    """Call a tool that asks first, and confirm it."""
    preview = client.call(tool, **arguments)
    if preview.is_error:
        return preview
    assert preview.structured["confirmation_required"] is True
    return client.call(tool, **arguments, confirm_token=preview.structured["confirm_token"])


def names(client: MCPClient) -> list[str]:
    """Return the names of the listed tools."""
    return [tool["name"] for tool in client.tools()]


def schema(client: MCPClient, name: str) -> dict[str, Any]:
    """Return the input schema of a tool."""
    (found,) = [tool["inputSchema"] for tool in client.tools() if tool["name"] == name]
    return found


def make_order(owner: User, number: str, **values: Any) -> Order:
    return Order.objects.create(owner=owner, number=number, **values)


def registration(viewset: Any, prefix: str = "things", **options: Any) -> Registration:
    """Return what declares a ViewSet of a test."""
    return Registration(**{"prefix": prefix, "viewset": viewset, "name": "things", "basename": "thing", **options})


def route_of(viewset: Any, action: str, **options: Any) -> Route:
    """Return the route of an action."""
    (found,) = [route for route in routes_of(registration(viewset, **options)) if route.action == action]
    return found


def fresh_site(prefix: str, viewset: Any, *arguments: Any, **options: Any) -> MCPSite:
    """Return a site that has this ViewSet."""
    made = MCPSite()
    made.register_viewset(prefix, viewset, *arguments, **options)
    return made


def tool_of(site: MCPSite, name: str, user: Any) -> Any:
    """Return a tool and a request for it."""
    request = request_of(user, site)
    return site.get_tool(request, name), request


def answering(make: Any, method: str = "get", detail: bool = False, paged: bool = False) -> Any:
    """Return a tool whose view answers with what `make` makes."""

    class Answering(viewsets.ViewSet):
        permission_classes = [permissions.AllowAny]

        @action(detail=detail, methods=[method])
        def answer(self, request, pk=None):
            return make()

        answer.mcp_destructive = False

    paged = {"page": {"type": "integer"}} if paged else {}
    site = fresh_site("things", Answering, parameters={"answer": paged})
    return site._tools["answer_things"], request_of(User(pk=1), site)


def raising(error: Exception) -> Any:
    """Return what makes no response, but raises."""

    def make():
        raise error

    return make


__all__ = [
    "answering",
    "confirmed",
    "fresh_site",
    "make_order",
    "mcp",
    "names",
    "raising",
    "registration",
    "rest",
    "route_of",
    "schema",
    "site",
    "tool_of",
]

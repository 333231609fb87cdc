"""Calls of tools that write, below the protocol: a request of a user, and the structured result of a tool."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_django import MCPSite, ModelExposure, ToolError
from mcp_django import site as default_site
from mcp_django.context.request import Client, MCPContext, MCPRequest
from mcp_django.context.tool_results import ToolResult
from mcp_django.tools.base import Tool


def request_of(user: Any, site: MCPSite = default_site, **options: Any) -> MCPRequest:
    """Return what the kernel gives to a tool."""
    request = MCPRequest()
    request.method = "POST"
    request.path = request.path_info = "/mcp"
    request.META = {"SERVER_NAME": "testserver", "SERVER_PORT": "80", "HTTP_AUTHORIZATION": "Bearer secret"}
    request.user = user
    options.setdefault("client", Client("Claude", "1"))
    options.setdefault("client_id", "client-1")
    answers = options.pop("answers", None)
    request.mcp = MCPContext(site=site, **options)
    if answers is not None:
        request.mcp.answers = answers
    return request


def site_with(*models: Any, **options: Any) -> MCPSite:
    """Return a site that exposes the models, with all of their fields unless ``options`` say otherwise."""
    site = MCPSite()
    for model in models:
        site.register(model, ModelExposure, **{"fields": "__all__", **options})
    return site


def result_of(tool: Tool, request: MCPRequest, **arguments: Any) -> Any:
    """Call the tool; its result must be sendable."""
    result = tool.call(request, arguments)
    assert isinstance(result, ToolResult)
    assert result.to_wire()["content"]
    return result


def call(tool: Tool, request: MCPRequest, **arguments: Any) -> dict[str, Any]:
    """Call the tool and return its structured content."""
    result = result_of(tool, request, **arguments)
    assert not result.is_error
    assert result.structured is not None
    return dict(result.structured)


def refusal(tool: Tool, request: MCPRequest, **arguments: Any) -> str:
    """Return the text of the error that the call must give."""
    with pytest.raises(ToolError) as error:
        tool.call(request, arguments)
    assert len(error.value.message) < 1500
    return error.value.message


def history_page(client: Any, user: User, obj: Any) -> str:
    """Return the admin's history page of the row, as the user's browser gets it."""
    client.force_login(user)
    opts = obj._meta
    response = client.get(f"/admin/{opts.app_label}/{opts.model_name}/{obj.pk}/history/")
    assert response.status_code == 200
    return response.content.decode()

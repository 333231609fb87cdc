"""`subscriptions/listen`: the filter is read, the transport opens the stream."""

import pytest
from django.test import override_settings

from mcp_django import site
from mcp_django.context.request import MCPContext, MCPRequest
from mcp_django.exceptions import InsufficientScope
from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.methods.handler_interface import Listen
from mcp_django.server.methods.lifecycle_and_subscriptions import listen
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_superuser


def make_request(*scopes: str) -> MCPRequest:
    request = MCPRequest()
    request.mcp = MCPContext(site=site, scopes=frozenset(scopes))
    return request


FILTER = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}}


def test_the_filter_says_what_the_stream_is_of() -> None:
    assert listen(make_request("mcp:read"), FILTER) == Listen(frozenset({"tools"}), ("a:b",))


def test_a_filter_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidParams):
        listen(make_request("mcp:read"), {"notifications": {"toolsListChanged": 1}})


def test_179_it_needs_the_scope_to_read() -> None:
    with pytest.raises(InsufficientScope):
        listen(make_request(), FILTER)


@override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "EVENTS": False})
def test_without_events_nothing_is_honoured() -> None:
    assert listen(make_request("mcp:read"), FILTER) == Listen(frozenset(), ())


@pytest.mark.django_db
def test_under_wsgi_there_is_no_stream_to_open() -> None:
    with pytest.raises(MCPError) as caught:
        MCPClient(make_superuser()).request("subscriptions/listen", **FILTER)
    assert caught.value.status == 406

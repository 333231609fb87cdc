"""Where endpoints are mounted."""

from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings

from mcp_django import site
from mcp_django.routing import ENDPOINTS, SSE_ENDPOINTS, mounted_sites
from mcp_django.testing import MCPClient
from tests.oauth_flow import Flow


def test_the_endpoint_is_found_where_the_urlconf_mounts_it() -> None:
    assert ENDPOINTS.by_path() == {"/mcp": site}
    assert ENDPOINTS.prefixes() == ["/mcp"]
    assert SSE_ENDPOINTS.by_path() == {}


@override_settings(ROOT_URLCONF="tests.sse_urls")
def test_the_older_transport_is_a_mount_of_its_own() -> None:
    assert ENDPOINTS.by_path() == {"/mcp": site}
    assert SSE_ENDPOINTS.by_path() == {"/sse": site}
    assert ENDPOINTS.prefixes() == ["/mcp"]


def test_a_path_is_matched_with_and_without_its_slash_and_nothing_else_is() -> None:
    assert not ENDPOINTS.has_parameters()
    for path in ("/mcp", "/mcp/"):
        match = ENDPOINTS.match(path)
        assert match is not None
        assert (match.view_name, match.kwargs) == ("mcp_django:endpoint", {})
    for path in ("/", "/admin/", "/mcp//", "/mcpx", "mcp", "/MCP"):
        assert ENDPOINTS.match(path) is None


@override_settings(ROOT_URLCONF="tests.sitesapp.urls")
def test_a_mount_with_parameters_has_many_paths_and_is_found_at_each() -> None:
    assert ENDPOINTS.has_parameters()
    assert list(ENDPOINTS.by_path()) == ["/front/mcp", "/back/mcp", "/tenants/mcp"]
    assert "/t/<slug:tenant>/mcp" in ENDPOINTS.prefixes()
    assert [site.name for site in mounted_sites()] == ["front", "back", "by_header", "by_url"]
    for path in ("/t/acme/mcp", "/t/acme/mcp/", "/r/acme/mcp", "/s/acme/mcp"):
        match = ENDPOINTS.match(path)
        assert match is not None
        assert (match.view_name, match.kwargs) == ("by_url:endpoint", {"tenant": "acme"})


@override_settings(ROOT_URLCONF="tests.sitesapp.urls")
def test_a_path_that_another_view_has_is_not_a_mount() -> None:
    for path in ("/t/closed/mcp", "/t/a b/mcp", "/t//mcp", "/r/9/mcp", "/t/acme", "/t/acme/mcp/x"):
        assert ENDPOINTS.match(path) is None


def by_host(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that serves one host by a URLconf of its own."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.get_host() == "testserver":
            request.urlconf = "tests.urls"  # type: ignore[attr-defined]
        return get_response(request)

    return middleware


@pytest.mark.django_db(transaction=True)
def test_an_endpoint_of_one_host_is_found_and_signed_in_to_there_alone(settings: Any) -> None:
    settings.ROOT_URLCONF = "django.contrib.auth.urls"
    settings.MIDDLEWARE = ["tests.unit.test_routing.by_host", *settings.MIDDLEWARE]
    assert ENDPOINTS.by_path() == {}
    assert Client().post("/mcp", headers={"host": "localhost"}).status_code == 404
    refused = Client().post("/mcp", "{}", content_type="application/json")
    where = refused["WWW-Authenticate"].split('resource_metadata="http://testserver')[1].split('"')[0]
    assert Client().get(where).json()["resource"] == "http://testserver/mcp"
    client = MCPClient()
    # The client names no endpoint: there is one, at this host.
    flow = Flow()
    token = flow.exchange(flow.code(resource=None), resource=None).json()["access_token"]
    client.headers["Authorization"] = f"Bearer {token}"
    assert client.request("server/discover")["resultType"] == "complete"


def test_without_a_request_the_settings_say_which_urlconfs_have_endpoints(settings: Any) -> None:
    settings.ROOT_URLCONF = "django.contrib.auth.urls"
    assert (ENDPOINTS.by_path(), mounted_sites()) == ({}, [])
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"URLCONFS": ["tests.urls"]}
    assert (ENDPOINTS.by_path(), ENDPOINTS.prefixes(), mounted_sites()) == ({"/mcp": site}, ["/mcp"], [site])
    # Which of the hosts a request is for, only the middleware knows.
    assert ENDPOINTS.match("/mcp") is None

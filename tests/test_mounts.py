"""Where endpoints are mounted."""

from django.test import override_settings

from mcp_django import site
from mcp_django.mounts import (
    endpoint_match,
    has_parameters,
    mounted_endpoints,
    mounted_prefixes,
    mounted_sites,
    mounted_sse,
)


def test_the_endpoint_is_found_where_the_urlconf_mounts_it() -> None:
    assert mounted_endpoints() == {"/mcp": site}
    assert mounted_prefixes() == ["/mcp"]
    assert mounted_sse() == {}


@override_settings(ROOT_URLCONF="tests.sse_urls")
def test_the_older_transport_is_a_mount_of_its_own() -> None:
    assert mounted_endpoints() == {"/mcp": site}
    assert mounted_sse() == {"/sse": site}
    assert mounted_prefixes() == ["/mcp"]


def test_a_path_is_matched_with_and_without_its_slash_and_nothing_else_is() -> None:
    assert not has_parameters()
    for path in ("/mcp", "/mcp/"):
        match = endpoint_match(path)
        assert match is not None
        assert (match.view_name, match.kwargs) == ("mcp_django:endpoint", {})
    for path in ("/", "/admin/", "/mcp//", "/mcpx", "mcp", "/MCP"):
        assert endpoint_match(path) is None


@override_settings(ROOT_URLCONF="tests.sitesapp.urls")
def test_a_mount_with_parameters_has_many_paths_and_is_found_at_each() -> None:
    assert has_parameters()
    assert list(mounted_endpoints()) == ["/front/mcp", "/back/mcp", "/tenants/mcp"]
    assert "/t/<slug:tenant>/mcp" in mounted_prefixes()
    assert [site.name for site in mounted_sites()] == ["front", "back", "by_header", "by_url"]
    for path in ("/t/acme/mcp", "/t/acme/mcp/", "/r/acme/mcp", "/s/acme/mcp"):
        match = endpoint_match(path)
        assert match is not None
        assert (match.view_name, match.kwargs) == ("by_url:endpoint", {"tenant": "acme"})


@override_settings(ROOT_URLCONF="tests.sitesapp.urls")
def test_a_path_that_another_view_has_is_not_a_mount() -> None:
    for path in ("/t/closed/mcp", "/t/a b/mcp", "/t//mcp", "/r/9/mcp", "/t/acme", "/t/acme/mcp/x"):
        assert endpoint_match(path) is None

"""Where endpoints are mounted."""

from django.test import override_settings

from mcp_django import site
from mcp_django.mounts import mounted_endpoints, mounted_prefixes, mounted_sse


def test_the_endpoint_is_found_where_the_urlconf_mounts_it() -> None:
    assert mounted_endpoints() == {"/mcp": site}
    assert mounted_prefixes() == ["/mcp"]
    assert mounted_sse() == {}


@override_settings(ROOT_URLCONF="tests.sse_urls")
def test_the_older_transport_is_a_mount_of_its_own() -> None:
    assert mounted_endpoints() == {"/mcp": site}
    assert mounted_sse() == {"/sse": site}
    assert mounted_prefixes() == ["/mcp"]

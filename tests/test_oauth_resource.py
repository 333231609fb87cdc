from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory

from mcp_django.oauth.resource import (
    canonical,
    default_resource,
    endpoints,
    metadata_url,
    origin,
    resource_url,
    same_resource,
)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("https://a/mcp", "https://a/mcp", True),
        ("https://a/mcp", "https://a/mcp/", True),
        ("https://a/mcp", "HTTPS://A:443/mcp", True),
        ("http://a:80/", "http://a", True),
        ("https://a/mcp", "https://a/mcp//", False),
        ("https://a/mcp", "https://a/MCP", False),
        ("https://a/mcp", "https://a", False),
        ("https://a/mcp", "https://a/mcp/x", False),
        ("https://a/mcp", "https://a:8443/mcp", False),
        ("https://a/mcp", "http://a/mcp", False),
        ("https://a/mcp", "https://a/mcp?x", False),
        ("https://a/mcp", "https://a/mcp?", False),
        ("https://a/mcp", "https://a/mcp#", False),
        ("https://a/mcp", "https://x@a/mcp", False),
        ("https://a/mcp", "https://@a/mcp", False),
        ("https://a/mcp", "https://a/%6dcp", False),
        ("https://a/mcp", "https://a/x/../mcp", False),
        ("https://a/mcp", "https://a/m\tcp", False),
        ("https://a/mcp", " https://a/mcp", False),
        ("https://a/mcp", "https://a:x/mcp", False),
        ("mcp", "mcp", False),
        ("urn:x:y", "urn:x:y", False),
        ("", "", False),
    ],
)
def test_resources_are_compared_as_a_whole(a: str, b: str, same: bool) -> None:
    assert same_resource(a, b) is same
    assert same_resource(b, a) is same


def test_the_origin_is_the_setting_whatever_the_request_says(settings: Any) -> None:
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example/"}
    request = RequestFactory().get("/", HTTP_HOST="localhost", HTTP_X_FORWARDED_HOST="evil.example")
    assert origin(request) == "https://shop.example"
    assert origin(None) == "https://shop.example"
    assert resource_url(request, "/mcp/") == "https://shop.example/mcp/"
    assert metadata_url(request, "/mcp") == "https://shop.example/.well-known/oauth-protected-resource/mcp"


def test_without_the_setting_the_request_decides_while_developing_only(settings: Any) -> None:
    settings.MCP_DJANGO = {}
    request = RequestFactory().get("/", HTTP_HOST="localhost:8000", secure=True)
    with pytest.raises(ImproperlyConfigured):
        origin(request)
    settings.DEBUG = True
    assert origin(request) == "https://localhost:8000"
    with pytest.raises(ImproperlyConfigured):
        origin(None)


def test_endpoints_have_one_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.mounts.mounted_endpoints", lambda: {"/mcp/": "a", "/x": "b"})
    assert dict[str, object](endpoints()) == {"/mcp": "a", "/x": "b"}
    assert canonical(None, "HTTP://testserver/mcp/") == "http://testserver/mcp"
    assert canonical(None, "http://testserver/y") is None
    assert default_resource(None) is None
    monkeypatch.setattr("mcp_django.mounts.mounted_endpoints", lambda: {"/mcp": "a"})
    assert default_resource(None) == "http://testserver/mcp"

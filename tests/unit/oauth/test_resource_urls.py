from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory, override_settings
from django.urls import clear_script_prefix, set_script_prefix

from mcp_django.oauth.bearer import BearerAuthentication
from mcp_django.oauth.resource_urls import (
    canonical,
    default_resource,
    endpoints,
    issuer,
    metadata_url,
    mounted_path,
    named_resource,
    origin,
    own_resource,
    resource_url,
    same_resource,
    uses_oauth,
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
    monkeypatch.setattr("mcp_django.routing.ENDPOINTS.by_path", lambda: {"/mcp/": "a", "/x": "b"})
    assert dict[str, object](endpoints()) == {"/mcp": "a", "/x": "b"}
    assert canonical(None, "HTTP://testserver/mcp/") == "http://testserver/mcp"
    assert canonical(None, "http://testserver/y") is None
    # The address of an endpoint that a person narrowed, as some clients send it.
    assert canonical(None, "http://testserver/mcp?read_only=1&models=shop.order") == "http://testserver/mcp"
    for foreign in (
        "http://testserver/y?/mcp",
        "http://testserver/mcp#/",
        "http://testserver/mcp?models=a#b",
        "?",
        "http://testserver/mcp?",
    ):
        assert canonical(None, foreign) is None
    for foreign in ("?x", "?models=a&x=1", "?read%20only=1"):
        assert canonical(None, f"http://testserver/mcp{foreign}") is None
    assert default_resource(None) is None
    monkeypatch.setattr("mcp_django.routing.ENDPOINTS.by_path", lambda: {"/mcp": "a"})
    assert default_resource(None) == "http://testserver/mcp"


@pytest.fixture
def prefix() -> Iterator[None]:
    set_script_prefix("/front")
    yield
    clear_script_prefix()


def test_the_script_prefix_stands_before_mounts(prefix: None) -> None:
    assert issuer(None) == "http://testserver/front"
    assert resource_url(None, "/mcp") == "http://testserver/front/mcp"
    where = "http://testserver/front/.well-known/oauth-protected-resource/front/mcp"
    assert metadata_url(None, "/mcp") == where
    assert canonical(None, "http://testserver/front/mcp/") == "http://testserver/front/mcp"
    assert canonical(None, "http://testserver/mcp") is None
    assert default_resource(None) == "http://testserver/front/mcp"
    for path, mounted in (("/front/mcp", "/mcp"), ("/mcp", "/mcp"), ("/frontier", "/frontier"), ("/front", "")):
        assert mounted_path(path) == mounted


@override_settings(ROOT_URLCONF="tests.sitesapp.urls")
def test_a_mount_with_parameters_is_below_the_prefix_too(prefix: None) -> None:
    assert canonical(None, "http://testserver/front/t/acme/mcp/") == "http://testserver/front/t/acme/mcp"
    assert canonical(None, "http://testserver/t/acme/mcp") is None


@override_settings(ROOT_URLCONF="tests.unit.test_asgi")
def test_a_prefix_makes_no_endpoint_another_one(prefix: None) -> None:
    assert own_resource(RequestFactory().get("/"), "/mcp") is None
    assert own_resource(RequestFactory().get("/"), "/front/mcp") is not None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("localhost:9000", "http://localhost:8000"),
        ("shop.example:8000", "http://localhost:8000"),
        ("evil.example", "http://localhost:8000"),
    ],
)
def test_while_developing_a_request_may_name_this_machine_in_any_way(settings: Any, host: str, expected: str) -> None:
    settings.DEBUG = True
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", "shop.example"]
    settings.MCP_DJANGO = {"BASE_URL": "http://localhost:8000"}
    assert origin(RequestFactory().get("/", HTTP_HOST=host)) == expected


def test_only_names_of_this_machine_are_one_host_while_developing(settings: Any) -> None:
    settings.DEBUG = True
    assert same_resource("http://localhost:8000/mcp", "http://127.0.0.1:8000/mcp")
    assert not same_resource("http://localhost:8000/mcp", "http://127.0.0.1:8000/other")
    assert not same_resource("http://localhost/mcp", "http://shop.example/mcp")


class OwnBearer(BearerAuthentication):
    """What a project might derive."""


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (None, True),
        ([], False),
        (["mcp_django.oauth.bearer.BearerAuthentication"], True),
        (["rest_framework.authentication.SessionAuthentication"], False),
        (["tests.unit.oauth.test_resource_urls.OwnBearer"], True),
        ([OwnBearer], True),
        (["tests.no_such_module.Class", "tests.unit.oauth.test_resource_urls.OwnBearer"], True),
        (["tests.no_such_module.Class"], False),
    ],
)
def test_an_endpoint_is_an_oauth_resource_if_it_takes_bearer_tokens(
    settings: Any, classes: list[Any] | None, expected: bool
) -> None:
    settings.MCP_DJANGO = {} if classes is None else {"AUTHENTICATION_CLASSES": classes}
    assert uses_oauth() is expected


def test_a_class_that_needs_the_toolkit_is_one_of_oauth(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise RuntimeError(f"{name} is not in INSTALLED_APPS")

    settings.MCP_DJANGO = {"AUTHENTICATION_CLASSES": ["shop.signin.Own"]}
    monkeypatch.setattr("mcp_django.oauth.resource_urls.import_string", missing)
    assert uses_oauth()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/mcp", "http://testserver/mcp"),
        ("http://testserver/mcp/", "http://testserver/mcp"),
        ("/other", None),
        ("https://shop.example/mcp", None),
    ],
)
def test_an_operator_names_an_endpoint_by_its_path_or_by_its_url(name: str, expected: str | None) -> None:
    assert named_resource(name) == expected

from typing import Any

import pytest

from mcp_django.oauth.client_registration import ClientMetadata, InvalidMetadata, read_metadata
from mcp_django.oauth.resource_urls import is_loopback
from mcp_django.oauth.toolkit_settings import provider_settings

SCHEMES = ["https", "http", "cursor"]


def read(**changes: Any) -> ClientMetadata:
    return read_metadata({"redirect_uris": ["https://a.example/cb"]} | changes, SCHEMES)


def error(**changes: Any) -> str:
    with pytest.raises(InvalidMetadata) as caught:
        read(**changes)
    return caught.value.error


def test_what_is_left_out_is_a_public_client() -> None:
    assert read() == ClientMetadata(("https://a.example/cb",), "", "none")


@pytest.mark.parametrize(
    "uri",
    [
        "https://a.example/cb",
        "https://a.example:8443/cb?x=1",
        "https://10.0.0.1/cb",
        "https://xn--bcher-kva.example/cb",
        "http://127.0.0.1/cb",
        "http://127.0.0.1:33418/",
        "http://localhost:6274/oauth/callback",
        "http://[::1]:1234/cb",
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "cursor:/callback",
        "com.example.app:/oauth2redirect",
        "com.example.my-app://callback",
        "io.github.some-body.app:/cb?x=1",
    ],
)
def test_redirect_uris_of_real_clients_are_taken(uri: str) -> None:
    assert read(redirect_uris=[uri, uri]).redirect_uris == (uri,)


@pytest.mark.parametrize(
    "uri",
    [
        "http://evil.example/cb",
        "http://localhost.evil.example/cb",
        "http://127.0.0.1.evil.example/cb",
        "http://10.0.0.1/cb",
        "https://u:p@host/",
        "https://u@127.0.0.1/",
        "https://a.example/#f",
        "https://a.example/#",
        "https://a.example!!!/cb",
        "https://*.example/cb",
        "https://bücher.example/cb",
        "https://a.example/c b",
        "https://a.example/\nb",
        "https:///cb",
        "https://",
        "https:a",
        "HTTPS://a.example/",
        "https://a.example:99999/",
        "https://[::1/",
        "http://[::1]evil.example/cb",
        "http://evil.example[::1]/cb",
        "https://a.example[::1]:1/cb",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "vscode://x/y",
        "cursor:",
        "cursor:/",
        "cursor:x",
        "cursor:javascript:alert(1)",
        "cursor:data:text/html,x",
        "com.example.app:javascript:alert(1)",
        "com.example.app:",
        "com.example.app:x",
        "com..app:/cb",
        "Com.example.app:/cb",
        "com.example_app:/cb",
        "/cb",
        "",
        "https://a.example/" + "x" * 2000,
    ],
)
def test_J174_J184_other_redirect_uris_are_refused(uri: str) -> None:
    assert error(redirect_uris=["https://a.example/cb", uri]) == "invalid_redirect_uri"


@pytest.mark.parametrize("uris", [None, [], "https://a.example/", [None], [["https://a.example/"]], {"a": 1}])
def test_redirect_uris_must_be_a_list_of_uris(uris: Any) -> None:
    assert error(redirect_uris=uris) == "invalid_redirect_uri"


def test_J184_ten_redirect_uris_are_enough() -> None:
    uris = [f"https://a.example/{number}" for number in range(11)]
    assert error(redirect_uris=uris) == "invalid_redirect_uri"
    assert len(read(redirect_uris=uris[:10]).redirect_uris) == 10


@pytest.mark.parametrize(
    "changes",
    [
        {"grant_types": ["client_credentials"]},
        {"grant_types": ["password", "refresh_token"]},
        {"grant_types": []},
        {"grant_types": "authorization_code"},
        {"response_types": ["token"]},
        {"response_types": "code"},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"token_endpoint_auth_method": ["none"]},
    ],
)
def test_J184_clients_for_other_flows_are_refused(changes: dict[str, Any]) -> None:
    assert error(**changes) == "invalid_client_metadata"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("http://127.0.0.1:1/", True),
        ("http://[::1]/", True),
        ("http://LOCALHOST/", True),
        ("https://a.example/", False),
    ],
)
def test_loopback(uri: str, expected: bool) -> None:
    assert is_loopback(uri) is expected


@pytest.mark.parametrize(
    "scheme", "javascript data file vbscript blob about view-source filesystem chrome ws wss ftp mailto".split()
)
def test_what_a_browser_runs_or_reads_itself_is_refused_whatever_the_setting_says(scheme: str) -> None:
    with pytest.raises(InvalidMetadata):
        read_metadata({"redirect_uris": [f"{scheme}://a.example/cb"]}, [*SCHEMES, scheme])


@pytest.mark.parametrize("scheme", ["kiro", "raycast", "warp", "windsurf", "zed"])
def test_known_clients_are_taken_with_the_settings_that_the_app_gives(scheme: str) -> None:
    schemes = provider_settings()["ALLOWED_REDIRECT_URI_SCHEMES"]
    uri = f"{scheme}://mcp/oauth/callback"
    assert read_metadata({"redirect_uris": [uri]}, schemes).redirect_uris == (uri,)


def test_a_refusal_names_the_schemes_that_there_are() -> None:
    with pytest.raises(InvalidMetadata, match=r"com\.example\.app.*cursor"):
        read(redirect_uris=["vscode://x/y"])

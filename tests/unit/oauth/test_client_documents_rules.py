import json
from typing import Any

import pytest

from mcp_django.oauth.client_documents import InvalidDocument, check_url, is_document_id, read_document
from tests.jwts import key_for, public_set

URL = "https://client.example/oauth/client.json"
SCHEMES = ["https", "http", "cursor"]
DOCUMENT = {"client_id": URL, "client_name": "Robot", "redirect_uris": ["https://client.example/back"]}
NOBODY: frozenset[str] = frozenset()


def read(**changes: Any) -> Any:
    data = {key: value for key, value in (DOCUMENT | changes).items() if value is not ...}
    return read_document(URL, data, SCHEMES)


def wrong(**changes: Any) -> str:
    with pytest.raises(InvalidDocument) as failure:
        read(**changes)
    return str(failure.value)


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "https://client.example/c?v=1",
        "https://a.b.c.example/c/",
        "https://xn--pple-43d.example/c",
        "https://client.example/a%20b/..c/.well-known/x",
        "https://9.example9/c",
    ],
)
def test_an_https_url_with_a_path_is_taken(url: str) -> None:
    assert check_url(url, NOBODY).geturl() == url


@pytest.mark.parametrize(
    "url",
    [
        "http://client.example/c",
        "HTTPS://client.example/c",
        "https://Client.example/c",
        "https://client.example",
        "https://client.example/",
        "https://client.example//",
        "https://client.example?x=/c",
        "https://client.example/c#",
        "https://client.example/c#x",
        "https://user@client.example/c",
        "https://user:pw@client.example/c",
        "https://@client.example/c",
        "https://client.example:443/c",
        "https://client.example:/c",
        "https://client.example:22/c",
        "https://client.example:99999/c",
        "https://client.example/./c",
        "https://client.example/a/../c",
        "https://client.example/a/%2e%2e/c",
        "https://client.example/a/.%2E",
        "https://client.example\\@other.example/c",
        "https://client.example/a b",
        "https://client.example/a\r\nX: y",
        "https://client.example/\x00",
        "https://client.example./c",
        "https://.client.example/c",
        "https://client..example/c",
        "https://-client.example/c",
        "https://cl%69ent.example/c",
        "https://client_.example/c",
        f"https://{'a' * 64}.example/c",
        f"https://client.example/{'a' * 250}",
        "https:///c",
        "https://[/c",
        # Names of this machine or of its network, and numbers that a resolver takes for an address.
        "https://localhost/c",
        "https://intranet/c",
        "https://127.0.0.1/c",
        "https://127.1/c",
        "https://2130706433/c",
        "https://0x7f000001/c",
        "https://0x7f.0.0.0x1/c",
        "https://0177.0.0.01/c",
        "https://1.1.1.1/c",
        "https://[::1]/c",
        "https://[::ffff:127.0.0.1]/c",
        "https://[fe80::1%25eth0]/c",
        # Letters that look like others, and dots that browsers take for dots.
        "https://сlaude.ai/c",
        "https://claude。ai/c",
        "https://claude.ai\u202e/c",
    ],
)
def test_what_could_be_written_in_another_way_or_is_no_domain_is_refused(url: str) -> None:
    with pytest.raises(InvalidDocument):
        check_url(url, NOBODY)


@pytest.mark.parametrize("url", ["https://localhost:8443/c", "https://intranet/c"])
def test_a_host_that_the_project_names_may_have_a_port_and_no_dot(url: str) -> None:
    assert check_url(url, frozenset({"localhost:8443", "intranet"})).geturl() == url


@pytest.mark.parametrize("url", ["https://localhost/c", "https://localhost:8444/c", "https://intranet:8443/c"])
def test_the_project_names_a_port_with_its_host(url: str) -> None:
    with pytest.raises(InvalidDocument):
        check_url(url, frozenset({"localhost:8443", "intranet"}))


@pytest.mark.parametrize(
    ("client_id", "expected"),
    [(URL, True), ("https://localhost:8443/c", True), ("robot", False), ("http://a.example/c", False)],
)
def test_an_https_url_is_meant_to_be_that_of_a_document(client_id: str, expected: bool) -> None:
    assert is_document_id(client_id) is expected


# The document


def test_a_small_document_is_enough() -> None:
    found = read()
    assert found.name == "Robot"
    assert found.redirect_uris == ("https://client.example/back",)
    assert found.auth_method == "none"


def test_grants_are_narrowed_to_those_of_this_server() -> None:
    more = ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code", "implicit"]
    assert read(grant_types=more, response_types=["code", "token"]).name == "Robot"
    assert "authorization_code" in wrong(grant_types=["implicit"])
    assert "authorization_code" in wrong(grant_types="authorization_code")
    assert "code" in wrong(response_types=["token"])


@pytest.mark.parametrize("data", [None, [], "x", 1, [DOCUMENT]])
def test_a_document_is_an_object(data: Any) -> None:
    with pytest.raises(InvalidDocument):
        read_document(URL, data, SCHEMES)


@pytest.mark.parametrize(
    "client_id", [..., None, "", URL + "/", URL + "?", URL.upper(), f" {URL}", URL.replace("https", "http"), [URL], 1]
)
def test_the_id_is_the_url_to_the_letter(client_id: Any) -> None:
    assert "client_id" in wrong(client_id=client_id)


@pytest.mark.parametrize("name", [..., None, "", "  ", 7, ["x"], {}])
def test_a_document_has_a_name_that_can_be_seen(name: Any) -> None:
    assert "client_name" in wrong(client_name=name)


@pytest.mark.parametrize("key", ["client_secret", "client_secret_expires_at"])
@pytest.mark.parametrize("value", ["x", "", None, 0])
def test_a_secret_in_public_is_refused(key: str, value: Any) -> None:
    assert "client_secret" in wrong(**{key: value})


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "client_secret_jwt"])
def test_a_method_that_needs_a_shared_secret_is_refused_whatever_else_is_offered(method: str) -> None:
    assert method in wrong(token_endpoint_auth_method=method)
    assert method in wrong(token_endpoint_auth_method=method, token_endpoint_auth_methods_supported=["none"])


def test_none_is_taken_where_it_is_offered() -> None:
    assert read(token_endpoint_auth_method="none").auth_method == "none"
    both = {"token_endpoint_auth_methods_supported": ["private_key_jwt", "none"]}
    assert read(token_endpoint_auth_method="private_key_jwt", **both).auth_method == "none"
    assert read(token_endpoint_auth_method=None).auth_method == "none"
    assert "private_key_jwt" in wrong(token_endpoint_auth_method="private_key_jwt")
    assert "no text" in wrong(token_endpoint_auth_method=7)


KEYS = json.loads(public_set(key_for("ES256", "one")))
SIGNS = {"token_endpoint_auth_method": "private_key_jwt"}
BOTH = SIGNS | {"token_endpoint_auth_methods_supported": ["private_key_jwt", "none"]}


def test_a_client_that_signs_has_its_keys_in_the_document_or_at_a_url() -> None:
    found = read(**SIGNS, jwks=KEYS)
    assert (found.auth_method, found.jwks_uri, json.loads(found.public_key)) == ("private_key_jwt", "", KEYS)
    found = read(**BOTH, jwks_uri="https://keys.example/jwks.json")
    assert (found.auth_method, found.jwks_uri, found.public_key) == ("none", "https://keys.example/jwks.json", "")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"jwks": KEYS, "jwks_uri": "https://keys.example/jwks.json"},
        {"jwks": {"keys": []}},
        {"jwks": {"keys": [key_for("ES256", "one").export_private(as_dict=True)]}},
        {"jwks": "https://keys.example/jwks.json"},
        {"jwks_uri": "http://keys.example/jwks.json"},
        {"jwks_uri": "https://user@keys.example/jwks.json"},
        {"jwks_uri": "https://keys.example/jwks.json#x"},
        {"jwks_uri": "https:///jwks.json"},
        {"jwks_uri": "https://["},
        {"jwks_uri": "https://[x]/jwks.json"},
        {"jwks_uri": "https://keys.example:99999/jwks.json"},
        {"jwks_uri": "https://\u2100.example/jwks.json"},
        {"jwks_uri": f"https://keys.example/{'x' * 2_000}"},
        {"jwks_uri": ["https://keys.example/jwks.json"]},
    ],
)
def test_keys_that_cannot_be_used_refuse_a_client_that_signs_and_are_ignored_of_any_other(keys: Any) -> None:
    assert "has no keys" in wrong(**SIGNS, **keys)
    found = read(**BOTH, **keys)
    assert (found.auth_method, found.jwks_uri, found.public_key) == ("none", "", "")
    assert read(**keys).jwks_uri == ""


@pytest.mark.parametrize("uris", [..., None, [], "https://client.example/back", [1], ["https://a.example/x", None]])
def test_redirect_uris_are_a_list_of_text(uris: Any) -> None:
    assert "redirect_uris" in wrong(redirect_uris=uris)


@pytest.mark.parametrize(
    "uri",
    [
        "http://client.example/back",
        "javascript:alert(1)",
        "data:text/html,x",
        "unknown://x/y",
        "https://user@client.example/",
        "https://client.example/#x",
        "https://client.example/a b",
    ],
)
def test_a_redirect_uri_that_no_code_may_go_to_is_left_out(uri: str) -> None:
    kept = ["https://client.example/back", "http://127.0.0.1/back", "http://localhost:8000/back", "cursor://x/back"]
    assert read(redirect_uris=[uri, *kept, kept[0]]).redirect_uris == tuple(kept)
    assert "redirect_uris" in wrong(redirect_uris=[uri])


def test_the_number_of_redirect_uris_is_bounded() -> None:
    assert "50" in wrong(redirect_uris=[f"https://client.example/{number}" for number in range(51)])


def test_what_the_document_says_wrongly_is_shown_on_one_line() -> None:
    assert "\n" not in wrong(client_id="a\nb\u202ec" * 200)
    assert len(wrong(client_id="x" * 5000)) < 300

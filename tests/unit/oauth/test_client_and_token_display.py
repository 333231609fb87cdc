"""Where an application lives, as people are shown it."""

from types import SimpleNamespace

import pytest
from oauth2_provider.models import Application

from mcp_django.oauth.client_and_token_display import described_by, hosts_of, shown_target, targets_of


@pytest.mark.parametrize(
    ("uri", "before", "domain", "after"),
    [
        ("https://claude.ai/api/callback", "", "claude.ai", ""),
        ("https://chat.example.com:8443/cb", "chat.", "example.com", ":8443"),
        ("https://login.bank.co.uk/cb", "login.", "bank.co.uk", ""),
        ("https://co.uk/cb", "", "co.uk", ""),
        ("https://claude.ai.evil.example/cb", "claude.ai.", "evil.example", ""),
        ("https://intranet/cb", "", "intranet", ""),
        ("https://192.0.2.7:8000/cb", "", "192.0.2.7", ":8000"),
        ("https://[2001:db8::1]:8443/cb", "", "[2001:db8::1]", ":8443"),
        # Cyrillic letters that look like apple.com, and what the registry knows them as.
        ("https://аррӏе.com/cb", "", "xn--80ak6aa92e.com", ""),
        ("https://www.xn--80ak6aa92e.com/cb", "www.", "xn--80ak6aa92e.com", ""),
    ],
)
def test_the_part_of_the_host_that_somebody_owns_is_set_apart(uri: str, before: str, domain: str, after: str) -> None:
    target = shown_target(uri)
    assert (target.kind, target.before, target.domain, target.after) == ("web", before, domain, after)
    assert str(target) == before + domain + after


@pytest.mark.parametrize("uri", ["http://127.0.0.1:51763/callback", "http://localhost/cb", "http://[::1]:1/cb"])
def test_this_computer_is_shown_without_its_random_port(uri: str) -> None:
    target = shown_target(uri)
    assert target.kind == "device"
    assert str(target) in ("127.0.0.1", "localhost", "::1")


def test_an_application_on_the_device_is_shown_by_its_scheme() -> None:
    assert shown_target("cursor://anysphere.cursor-mcp/cb").kind == "app"
    assert str(shown_target("com.example.app:/cb")) == "com.example.app://"


@pytest.mark.parametrize("uri", ["https://a.example:99999/cb", "https:///cb", "https://a\u202eb.example/"])
def test_what_an_administrator_mistyped_is_shown_all_the_same(uri: str) -> None:
    assert "\u202e" not in str(shown_target(uri))


def test_the_places_of_a_client_are_shown_once() -> None:
    client = SimpleNamespace(redirect_uris="http://127.0.0.1/a http://127.0.0.1/b https://a.example/cb")
    assert [str(target) for target in targets_of(client)] == ["127.0.0.1", "a.example"]
    assert targets_of(None) == []


def test_a_client_is_described_by_the_host_of_its_document_and_by_nothing_else() -> None:
    url = "https://www.xn--80ak6aa92e.com/client.json"
    found = described_by(Application(client_id=url, registration_source="cimd"))
    assert found is not None
    assert (found.before, found.domain) == ("www.", "xn--80ak6aa92e.com")
    for source in ("manual", "dcr"):
        assert described_by(Application(client_id=url, registration_source=source)) is None
    assert described_by(None) is None


def test_a_client_comes_from_the_host_of_its_document_else_from_where_it_sends_people() -> None:
    uris = "https://chat.example.com:8443/cb http://127.0.0.1/cb cursor://x/cb https://b.example/"
    client = Application(client_id="https://vscode.dev/c.json", redirect_uris=uris, registration_source="dcr")
    assert hosts_of(client) == ["chat.example.com", "b.example"]
    client.registration_source = "cimd"
    assert hosts_of(client) == ["vscode.dev"]
    assert hosts_of(Application(redirect_uris="http://localhost/cb")) == hosts_of(None) == []

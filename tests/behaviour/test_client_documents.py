"""Clients that describe themselves by a document: from nothing to a call, and what people see where one is refused.

The documents are copies of those that the big clients publish, as far as a server reads them.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.test import Client
from django.utils import translation
from oauth2_provider.models import AccessToken, Application

from mcp_django.context import refused_request_log as log
from mcp_django.models import ClientHost
from mcp_django.oauth import client_documents, document_fetcher
from mcp_django.oauth.document_fetcher import Fetcher
from tests.oauth_flow import REDIRECT_URI, RESOURCE, Flow
from tests.tls_server import Authority, Redirected, TLSServer, answer, serving

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

CODES = ["authorization_code", "refresh_token"]
PUBLISHED: dict[str, tuple[dict[str, Any], str]] = {
    "Claude": (
        {
            "client_id": "https://claude.ai/oauth/mcp-oauth-client-metadata",
            "client_name": "Claude",
            "client_uri": "https://claude.ai",
            "redirect_uris": ["https://claude.ai/api/mcp/auth_callback"],
            "grant_types": [*CODES, "urn:ietf:params:oauth:grant-type:jwt-bearer"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        },
        "https://claude.ai/api/mcp/auth_callback",
    ),
    "Claude Code": (
        {
            "client_id": "https://claude.ai/oauth/claude-code-client-metadata",
            "client_name": "Claude Code",
            "client_uri": "https://claude.ai",
            "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
            "grant_types": CODES,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        },
        "http://localhost:54545/callback",
    ),
    "VS Code": (
        {
            "client_id": "https://vscode.dev/oauth/client-metadata.json",
            "client_name": "Visual Studio Code",
            "client_uri": "https://vscode.dev/product",
            "grant_types": [*CODES, "urn:ietf:params:oauth:grant-type:device_code"],
            "response_types": ["code"],
            "redirect_uris": ["https://vscode.dev/redirect", "http://127.0.0.1:33418/", "vscode://vscode.mcp/x"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
        },
        "http://127.0.0.1:33418/",
    ),
    "ChatGPT": (
        {
            "client_id": "https://chatgpt.com/oauth/client.json",
            "client_name": "ChatGPT",
            "client_uri": "https://chatgpt.com",
            "redirect_uris": ["https://chatgpt.com/connector_platform_oauth_redirect"],
            "grant_types": CODES,
            "response_types": ["code"],
            "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_methods_supported": ["private_key_jwt", "none"],
            "jwks_uri": "https://chatgpt.com/oauth/jwks.json",
        },
        "https://chatgpt.com/connector_platform_oauth_redirect",
    ),
    "opencode": (
        {
            "client_id": "https://opencode.ai/oauth/client.json",
            "client_name": "OpenCode",
            "client_uri": "https://opencode.ai",
            "redirect_uris": ["http://127.0.0.1:19876/mcp/oauth/callback"],
            "grant_types": CODES,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        },
        "http://127.0.0.1:19876/mcp/oauth/callback",
    ),
}
URL = "https://client.example/client.json"
DOCUMENT = {"client_id": URL, "client_name": "Robot", "redirect_uris": [REDIRECT_URI, "https://client.example/back"]}
LOOKALIKE = "https://xn--clude-6nf.ai/client.json"
HOSTS = {"claude.ai", "vscode.dev", "chatgpt.com", "opencode.ai", "client.example", "xn--clude-6nf.ai"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[TLSServer]:
    cache.clear()
    log._quiet.clear()
    with serving(authority.context(*sorted(HOSTS))) as running:
        monkeypatch.setattr(document_fetcher, "Fetcher", lambda *options: Redirected(running, authority))
        publish(running, DOCUMENT)
        yield running


def publish(server: TLSServer, document: dict[str, Any], **options: Any) -> None:
    server.answers[document["client_id"].removeprefix("https://")] = answer(document, **options)


def flow_of(client_id: str = URL, **options: Any) -> Flow:
    flow = Flow(**options)
    flow.client_id = client_id
    return flow


def configure(settings: Any, **changes: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, **changes}


def shown(response: Any) -> str:
    """The text of the page, without its styles and its markup."""
    page = re.sub(r"<style>.*?</style>", "", response.content.decode(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


# From nothing to a call


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_big_client_connects_from_nothing_to_a_call(server: TLSServer, name: str) -> None:
    document, redirect_uri = PUBLISHED[name]
    publish(server, document)
    found = Client().get("/.well-known/oauth-authorization-server").json()
    assert found["client_id_metadata_document_supported"] is True
    assert "none" in found["token_endpoint_auth_methods_supported"]
    flow = flow_of(document["client_id"])
    get_user_model().objects.update(is_staff=True, is_superuser=True)
    page = flow.ask(redirect_uri=redirect_uri)
    assert page.status_code == 200
    assert document["client_name"] in shown(page)
    assert urlsplit(document["client_id"]).hostname in shown(page).replace(" ", "")
    answered = flow.answer(redirect_uri=redirect_uri)
    assert answered.status_code == 302
    assert answered["Location"].startswith(f"{redirect_uri}?")
    code = re.search(r"[?&]code=([^&]+)", answered["Location"])
    assert code is not None
    tokens = flow.exchange(code[1], redirect_uri=redirect_uri)
    assert tokens.status_code == 200, tokens.content
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {tokens.json()['access_token']}", "MCP-Protocol-Version": "2025-06-18"}
    headers |= {"Accept": "application/json, text/event-stream"}
    listed = Client().post("/mcp", json.dumps(call), content_type="application/json", headers=headers)
    assert listed.status_code == 200, listed.content
    assert listed.json()["result"]["tools"]
    assert flow.refresh(tokens.json()["refresh_token"]).status_code == 200
    assert len(server.asked) == 1


def test_nobody_who_is_not_signed_in_makes_this_server_ask(server: TLSServer) -> None:
    flow = flow_of()
    for query in (flow.query(), flow.query(prompt="none")):
        assert Client().get("/oauth/authorize/", query).status_code in (302, 400)
    assert flow.token(grant_type="authorization_code", code="x").status_code in (400, 401)
    assert flow.refresh("x").status_code in (400, 401)
    Client().post("/oauth/revoke_token/", {"client_id": URL, "token": "x"})
    assert server.connections == 0


# What the consent page says


def test_the_page_shows_the_host_as_what_is_known_and_the_name_as_what_is_claimed(server: TLSServer) -> None:
    publish(server, DOCUMENT | {"client_name": "Claude"})
    page = shown(flow_of().ask(redirect_uri="https://client.example/back"))
    assert "Verified: client.example vouches for this application. The name is what it calls itself." in page
    assert "Allow Claude to act for you?" in page
    assert "Described by client.example" in page
    assert "Unverified" not in page
    assert "Continue only if you recognise client.example" in page


def test_a_program_on_the_device_is_not_called_verified(server: TLSServer) -> None:
    page = shown(flow_of().ask())
    assert "It says that it is an application of client.example" in page
    assert "cannot tell which one it is" in page
    assert "Verified" not in page


def test_a_host_of_look_alike_letters_is_shown_as_what_it_is(server: TLSServer) -> None:
    publish(server, DOCUMENT | {"client_id": LOOKALIKE, "client_name": "Claude"})
    page = shown(flow_of(LOOKALIKE).ask())
    assert "xn--clude-6nf.ai" in page
    refused = flow_of("https://clаude.ai/client.json").ask()
    assert refused.status_code == 400
    assert "cl\\u0430ude.ai" in shown(refused)
    assert "clаude" not in shown(refused)


def test_a_name_that_lies_is_shown_as_text_on_one_line(server: TLSServer) -> None:
    publish(server, DOCUMENT | {"client_name": "<b>Claude</b>\n\u202everified by admin"})
    page = flow_of().ask().content.decode()
    assert "<b>Claude" not in page
    assert "\u202e" not in page
    assert "&lt;b&gt;Claude&lt;/b&gt;" in page


# A document that changes


def test_what_the_document_says_later_does_not_move_a_code(server: TLSServer) -> None:
    flow = flow_of()
    code = flow.code()
    evil = DOCUMENT | {"redirect_uris": ["https://client.example/evil"], "client_name": "Other"}
    publish(server, evil)
    Application.objects.update(cimd_expires_at=None)
    other = flow_of(username="eve")
    assert other.ask(redirect_uri="https://client.example/evil").status_code == 200
    assert flow.exchange(code, redirect_uri="https://client.example/evil").status_code == 400
    assert flow.exchange(code).status_code == 200


def test_a_redirect_that_the_document_has_no_more_gets_no_code(server: TLSServer) -> None:
    flow = flow_of()
    page = flow.ask()
    fields = {key: value for key, value in page.context["form"].initial.items() if value}
    publish(server, DOCUMENT | {"redirect_uris": ["https://client.example/back"]})
    Application.objects.update(cimd_expires_at=None)
    assert flow_of(username="eve").ask(redirect_uri="https://client.example/back").status_code == 200
    sent = fields | {"granted": fields["scope"].split(), "allow": "1"}
    assert flow.browser.post("/oauth/authorize/", sent).status_code == 400


@pytest.mark.parametrize(
    "uri",
    [
        "https://client.example/back/",
        "https://client.example/BACK",
        "https://evil.example/",
        "https://client.example/back?x=1",
        "https://client.example:443/back",
        "https://client.example/./back",
        "http://client.example/back",
        "https://client.example@evil.example/back",
        "http://127.0.0.1:51763/callback/../x",
        "http://localhost:51763/callback",
        "https://127.0.0.1:51763/callback",
    ],
)
def test_a_redirect_is_compared_to_the_letter(server: TLSServer, uri: str) -> None:
    assert flow_of().ask(redirect_uri=uri).status_code == 400


# Refusals


REFUSED: dict[str, tuple[str, Any, int, str, str]] = {
    "another id": (URL, answer(DOCUMENT | {"client_id": URL + "?"}), 400, "in a way that this site", "not its own URL"),
    "no name": (URL, answer(DOCUMENT | {"client_name": ""}), 400, "in a way that this site", "no client_name"),
    "a secret": (URL, answer(DOCUMENT | {"client_secret": "x"}), 400, "in a way that this site", "client_secret"),
    "a redirect": (URL, answer({}, status="302 Found", Location="/x"), 400, "in a way that this site", "not followed"),
    "a page": (URL, answer(b"<html>", "text/html"), 400, "in a way that this site", "text/html"),
    "huge": (URL, answer(b" " * 70_000), 400, "in a way that this site", "larger than 64 KiB"),
    "away": (URL, answer({}, status="503 Away"), 400, "could not read", "answers 503"),
    "an address": ("https://127.0.0.1/x", b"", 400, "an address that this site does not accept", "domain name"),
    "a fragment": (URL + "#x", b"", 400, "an address that this site does not accept", "no fragment"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_a_page_that_says_what_is_wrong(
    server: TLSServer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    url, sent, status, words, detail = REFUSED[name]
    server.answers[URL.removeprefix("https://")] = sent
    page = flow_of(url).ask()
    assert page.status_code == status
    assert "Location" not in page
    for text in (words, detail, "Nothing was shared.", "We could not complete this sign-in"):
        assert text in shown(page)
    assert url in shown(page)
    assert "default-src 'none'" in page["Content-Security-Policy"]
    assert any(detail in record.message for record in caplog.records if record.name == "mcp_django")
    flow_of(url).ask()
    assert sum(detail in record.message for record in caplog.records if record.name == "mcp_django") == 1


@pytest.mark.parametrize("language", ["ar", "de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "zh-hans"])
def test_a_refusal_speaks_the_language_of_the_person(server: TLSServer, language: str) -> None:
    flow = flow_of("https://127.0.0.1/x")
    page = flow.browser.get("/oauth/authorize/", flow.query(), headers={"Accept-Language": language})
    with translation.override(language):
        words = translation.gettext("We could not complete this sign-in")
    assert words in shown(page)
    assert "The application" not in shown(page)


def test_too_many_documents_are_a_page_too(settings: Any, server: TLSServer) -> None:
    configure(settings, RATES={"documents": "0/h"})
    page = flow_of().ask()
    assert page.status_code == 429
    assert "cannot look up more applications" in shown(page)


# What administrators say


def test_an_unknown_host_waits_for_an_administrator(settings: Any, server: TLSServer) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": "ask"})
    flow = flow_of()
    page = flow.ask()
    assert page.status_code == 403
    assert "An administrator has to allow this application first" in shown(page)
    assert server.connections == 0
    admin = get_user_model().objects.create_superuser("root", "root@example.com", "pw")
    browser = Client()
    browser.force_login(admin)
    host = ClientHost.objects.get()
    assert (host.host, host.user) == ("client.example", flow.user)
    listed = browser.get("/admin/mcp_django/clienthost/")
    assert "client.example" in shown(listed)
    sent = {"action": "allow", "_selected_action": [host.pk]}
    assert browser.post("/admin/mcp_django/clienthost/", sent).status_code == 302
    assert flow.tokens()["access_token"]


def test_to_block_a_host_ends_the_access_of_its_applications(server: TLSServer) -> None:
    flow = flow_of()
    tokens = flow.tokens()
    other = Flow(username="bob")
    other_tokens = other.tokens()
    admin = get_user_model().objects.create_superuser("root", "root@example.com", "pw")
    browser = Client()
    browser.force_login(admin)
    sent = {"host": "client.example", "decision": "blocked"}
    assert browser.post("/admin/mcp_django/clienthost/add/", sent).status_code == 302
    assert not AccessToken.objects.filter(user=flow.user).exists()
    assert flow.refresh(tokens["refresh_token"]).status_code == 401
    assert other.refresh(other_tokens["refresh_token"]).status_code == 200
    page = flow.ask()
    assert page.status_code == 403
    assert "do not allow applications of this host" in shown(page)


def test_a_host_that_a_setting_blocks_refreshes_no_token(settings: Any, server: TLSServer) -> None:
    flow = flow_of()
    tokens, code = flow.tokens(), flow.code()
    page = flow.ask()
    fields = {key: value for key, value in page.context["form"].initial.items() if value}
    configure(settings, CLIENT_DOCUMENTS={"blocked": [".example"]})
    assert flow.refresh(tokens["refresh_token"]).status_code == 401
    assert flow.exchange(code).status_code == 401
    sent = fields | {"granted": fields["scope"].split(), "allow": "1"}
    assert flow.browser.post("/oauth/authorize/", sent).status_code == 400


def test_who_may_not_change_hosts_allows_none(server: TLSServer) -> None:
    host = ClientHost.objects.create(host="client.example")
    staff = get_user_model().objects.create_user("staff", is_staff=True)
    staff.user_permissions.add(Permission.objects.get(codename="view_clienthost"))
    browser = Client()
    browser.force_login(staff)
    assert browser.get("/admin/mcp_django/clienthost/").status_code == 200
    browser.post("/admin/mcp_django/clienthost/", {"action": "allow", "_selected_action": [host.pk]})
    host.refresh_from_db()
    assert host.decision == "waiting"


@pytest.mark.parametrize("host", ["https://client.example", "client.example:443", "client.example/x", "*", "a b", "."])
def test_a_host_is_written_as_it_is_compared(host: str) -> None:
    browser = Client()
    browser.force_login(get_user_model().objects.create_superuser("root", "root@example.com", "pw"))
    page = browser.post("/admin/mcp_django/clienthost/add/", {"host": host, "decision": "allowed"})
    assert page.status_code == 200
    assert "Enter only the host" in shown(page)
    assert not ClientHost.objects.exists()
    kept = {"host": " Client.Example ", "decision": "allowed"}
    assert browser.post("/admin/mcp_django/clienthost/add/", kept).status_code == 302
    assert ClientHost.objects.get().host == "client.example"


def test_the_token_is_for_what_was_asked(server: TLSServer) -> None:
    flow_of().tokens()
    assert AccessToken.objects.get().resource == [RESOURCE]
    assert AccessToken.objects.get().application.client_id == URL


# Without access to the internet


class Nowhere(Fetcher):
    """Reaches nothing, as on a laptop that is offline."""

    def resolve(self, host: str, port: int) -> list[str]:
        raise OSError


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, documents_can_be_fetched: Any) -> Iterator[None]:
    cache.clear()
    client_documents._known.clear()
    log._quiet.clear()
    monkeypatch.setattr(client_documents, "look", documents_can_be_fetched)
    monkeypatch.setattr(document_fetcher, "Fetcher", Nowhere)
    yield
    cache.clear()
    client_documents._known.clear()


CLAUDE_CODE = PUBLISHED["Claude Code"][0]["client_id"]


def id_like_claude_code() -> str:
    """Do as Claude Code does: it has a document, sends its URL wherever that is announced, and registers elsewhere."""
    metadata = Client().get("/.well-known/oauth-authorization-server").json()
    if metadata.get("client_id_metadata_document_supported"):
        return str(CLAUDE_CODE)
    registered = {
        "client_name": "Claude Code",
        "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
    }
    registered["token_endpoint_auth_method"] = "none"
    place = urlsplit(metadata["registration_endpoint"]).path
    return str(Client().post(place, registered, content_type="application/json").json()["client_id"])


def test_a_client_with_a_document_signs_in_to_a_server_that_is_offline(offline: None) -> None:
    flow = flow_of(id_like_claude_code())
    assert flow.client_id != CLAUDE_CODE
    assert flow.exchange(flow.code()).status_code == 200


def test_one_that_goes_offline_says_so_and_the_next_sign_in_goes_well(
    offline: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(client_documents, "look", lambda: "")
        flow = flow_of(id_like_claude_code())
    assert flow.client_id == CLAUDE_CODE
    page = flow.ask(redirect_uri="http://localhost:5/callback")
    assert page.status_code == 400
    assert "This site cannot connect to the place where the application describes itself." in shown(page)
    assert "This server cannot reach claude.ai: its host has no address." in shown(page)
    assert "cannot reach claude.ai" in caplog.text
    assert "set CLIENT_DOCUMENTS['proxy']" in caplog.text
    again = flow_of(id_like_claude_code())
    assert again.exchange(again.code()).status_code == 200


def test_a_client_that_keeps_its_document_where_none_is_taken_is_told_the_way_out(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log._quiet.clear()
    configure(settings, CLIENT_DOCUMENTS={"hosts": "off"})
    flow = flow_of(CLAUDE_CODE)
    page = flow.ask()
    assert page.status_code == 403
    assert "This site does not allow applications that describe themselves at an address." in shown(page)
    assert flow.refresh("x").status_code in (400, 401)
    lines = [line for line in caplog.messages if "CLIENT_DOCUMENTS" in line]
    assert len(lines) == 2
    assert "database was reset" not in caplog.text

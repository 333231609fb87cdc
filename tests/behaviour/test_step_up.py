"""A call that lacks a scope tells the client what to come back with, and nothing that was granted is lost by it."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from mcp_django import site
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_superuser
from tests.oauth_flow import RESOURCE, Flow
from tests.session_client import SessionClient

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

OWN = "shop:reports"
PROMPT, FIXED, TEMPLATE = "reports", "shop://reports", "shop://reports/{year}"
READ_YEAR = ("resources/read", {"uri": "shop://reports/2026"})
CALLS = [
    ("prompts/get", {"name": PROMPT}),
    ("resources/read", {"uri": FIXED}),
    READ_YEAR,
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": PROMPT}, "argument": {"name": "y", "value": ""}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": TEMPLATE}, "argument": {"name": "year", "value": ""}},
    ),
    ("tools/call", {"name": "read_reports", "arguments": {}}),
]
LISTENING = ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["django://testapp/book", FIXED]}})
SUBSCRIBING = ("resources/subscribe", {"uri": "shop://reports/2026"})


@pytest.fixture(autouse=True)
def scoped(settings: Any) -> Iterator[None]:
    provider = settings.OAUTH2_PROVIDER
    settings.OAUTH2_PROVIDER = {**provider, "SCOPES": {**provider["SCOPES"], OWN: "Read reports"}}

    def reports(request: Any, y: bool = False) -> str:
        """Reports."""
        return "reports"

    def fixed(request: Any) -> str:
        """All reports."""
        return "reports"

    def of_year(request: Any, year: str) -> str:
        """The reports of a year."""
        return f"reports of {year}"

    def read_reports(request: Any) -> str:
        """Read reports."""
        return "reports"

    site.add_prompt(reports, scopes=[OWN])
    site.add_resource(FIXED, fixed, scopes=[OWN])
    site.add_resource(TEMPLATE, of_year, scopes=[OWN])
    site.add_tool(read_reports, read_only=True, scopes=["mcp:read", OWN])
    yield
    site.remove_prompt(PROMPT)
    site.remove_resource(FIXED)
    site.remove_resource(TEMPLATE)
    site.remove_tool("read_reports")


def client_with(*scopes: str) -> MCPClient:
    return MCPClient(User.objects.filter(is_superuser=True).first() or make_superuser(), scopes=scopes)


def asked_for(response: Any) -> list[str]:
    """The scopes of a challenge."""
    assert response.status_code == 403, response.content
    header = response["WWW-Authenticate"]
    assert 'error="insufficient_scope"' in header
    assert "resource_metadata=" in header
    found = re.search(r'\bscope="([^"]*)"', header)
    assert found
    return found[1].split()


@pytest.mark.parametrize(("method", "params"), CALLS)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_what_is_lacking_is_asked_for_with_what_there_is(method: str, params: Any, version: str) -> None:
    client = MCPClient(make_superuser(), scopes=["mcp:read", "mcp:write"], version=version)
    assert asked_for(client.send(method, params)) == ["mcp:read", "mcp:write", OWN]


def test_who_listens_to_what_takes_a_scope_is_asked_for_it() -> None:
    root = make_superuser()
    client = MCPClient(root, scopes=["mcp:read", "mcp:write"], version="2026-07-28")
    assert asked_for(client.send(*LISTENING)) == ["mcp:read", "mcp:write", OWN]
    # With the scope nothing more is asked for: what is missing now is a server that can stream.
    answered = MCPClient(root, scopes=["mcp:read", OWN], version="2026-07-28").send(*LISTENING)
    assert (answered.status_code, "WWW-Authenticate" in answered) == (406, False)


def test_where_there_is_no_session_a_scope_would_not_help() -> None:
    answer = MCPClient(make_superuser(), scopes=["mcp:read"], version="2025-11-25").send(*SUBSCRIBING)
    assert (answer.status_code, "session" in answer.text) == (200, True)


@pytest.mark.django_db(transaction=True)
async def test_a_session_is_told_what_to_come_back_with_and_then_subscribes() -> None:
    @sync_to_async
    def header(*scopes: str) -> str:
        return client_with(*scopes).headers["Authorization"]

    client = SessionClient(await header("mcp:read"))
    await client.initialize()
    status, headers, _body = await client.send(*SUBSCRIBING)
    assert status == 403
    assert f'scope="mcp:read {OWN}"' in {name.lower(): value for name, value in headers.items()}["www-authenticate"]
    client = SessionClient(await header("mcp:read", OWN))
    await client.initialize()
    assert await client.result(*SUBSCRIBING) == {}
    assert await client.result("resources/unsubscribe", SUBSCRIBING[1]) == {}


@pytest.mark.parametrize(("method", "params"), CALLS)
def test_with_the_scope_it_works(method: str, params: Any) -> None:
    assert client_with("mcp:read", OWN).request(method, **params)


def test_only_who_has_the_scope_finds_it_in_lists() -> None:
    def lists(client: MCPClient) -> list[str]:
        found = client.request("prompts/list")["prompts"] + client.request("tools/list")["tools"]
        templates = client.request("resources/templates/list")["resourceTemplates"]
        uris = [item.get("uri") or item["uriTemplate"] for item in client.request("resources/list")["resources"]]
        names = [item["name"] for item in found] + uris + [item["uriTemplate"] for item in templates]
        return sorted({PROMPT, FIXED, TEMPLATE, "read_reports"}.intersection(names))

    assert lists(client_with("mcp:read")) == []
    assert lists(client_with("mcp:read", OWN)) == sorted([PROMPT, FIXED, TEMPLATE, "read_reports"])


def test_the_scope_alone_is_not_enough() -> None:
    assert asked_for(client_with(OWN).send(*READ_YEAR)) == ["mcp:read", OWN]


def test_who_lacks_the_permission_is_told_of_no_scope() -> None:
    site.remove_prompt(PROMPT)

    def reports(request: Any) -> str:
        """Reports."""
        return "reports"

    site.add_prompt(reports, scopes=[OWN], permissions=["testapp.nothing"])
    response = MCPClient(Flow().user, scopes=["mcp:read"]).send("prompts/get", {"name": PROMPT})
    assert (response.status_code, "WWW-Authenticate" in response) == (400, False)


@pytest.mark.parametrize(("call", "version"), [(LISTENING, "2026-07-28"), (SUBSCRIBING, "2025-11-25")])
def test_who_may_not_read_what_they_subscribe_to_is_told_of_no_scope(call: tuple[str, Any], version: str) -> None:
    for uri in (FIXED, TEMPLATE):
        site.remove_resource(uri)

        def reports(request: Any) -> str:
            """Reports."""
            return "reports"

        def of_year(request: Any, year: str) -> str:
            """The reports of a year."""
            return year

        made = of_year if uri == TEMPLATE else reports
        site.add_resource(uri, made, scopes=[OWN], permissions=["testapp.nothing"])
    answer = MCPClient(Flow().user, scopes=["mcp:read"], version=version).send(*call)
    assert answer.status_code != 403
    assert "WWW-Authenticate" not in answer


def test_what_takes_a_scope_is_not_embedded_without_it() -> None:
    from mcp_django import embed

    def show(request: Any) -> Any:
        """Show reports."""
        return embed(request, FIXED)

    site.add_prompt(show)
    try:
        with pytest.raises(MCPError):
            client_with("mcp:read").request("prompts/get", name="show")
        assert client_with("mcp:read", OWN).request("prompts/get", name="show")["messages"]
    finally:
        site.remove_prompt("show")


def test_a_client_that_comes_back_with_what_it_was_asked_for_has_old_and_new() -> None:
    """From the first token to the call that works, as a client does it that reads the challenge."""
    flow = Flow()
    before = flow.tokens(scope="mcp:write")
    client = MCPClient()
    client.headers["Authorization"] = f"Bearer {before['access_token']}"
    asked = asked_for(client.send(*READ_YEAR))
    assert {"mcp:read", "mcp:write", OWN} == {*asked}
    after = flow.tokens(scope=" ".join(asked))
    assert {*asked} == {*after["scope"].split()}
    client.headers["Authorization"] = f"Bearer {after['access_token']}"
    assert client.request(READ_YEAR[0], **READ_YEAR[1])["contents"]
    # Once refreshed, too.
    again = flow.refresh(after["refresh_token"]).json()
    assert {*again["scope"].split()} == {*asked}


def test_a_foreign_scope_of_a_token_is_kept() -> None:
    token = issue_token(make_superuser(), scopes=["mcp:read", "other:scope"], resource=RESOURCE)
    client = MCPClient()
    client.headers["Authorization"] = f"Bearer {token}"
    assert asked_for(client.send(*READ_YEAR)) == ["mcp:read", "other:scope", OWN]

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from oauth2_provider.models import Application

from mcp_django.models import ClientHost
from mcp_django.oauth.client_documents import (
    ALLOWED,
    BLOCKED,
    MAX_WAITING,
    WAITING,
    ask_for,
    decision_on,
    forget_clients_of,
    is_admitted,
    takes_documents,
)

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


def configure(settings: Any, **changes: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, **changes}


def decide(host: str, decision: str) -> None:
    ClientHost.objects.create(host=host, decision=decision)


def client(url: str, source: str = "cimd") -> Application:
    made: Application = Application.objects.create(
        client_id=url, registration_source=source, client_type="public", authorization_grant_type="authorization-code"
    )
    return made


def test_by_default_each_host_is_let_in_where_every_client_may_register(settings: Any) -> None:
    assert takes_documents()
    assert decision_on("client.example") == ALLOWED
    for registration in ("authenticated", "off"):
        configure(settings, REGISTRATION=registration)
        assert not takes_documents()
        assert decision_on("client.example") == BLOCKED
        configure(settings, REGISTRATION=registration, CLIENT_DOCUMENTS={"hosts": ["client.example"]})
        assert decision_on("client.example") == ALLOWED
        settings.MCP_DJANGO = {"BASE_URL": "http://testserver"}


@pytest.mark.parametrize("documents", ["off", []])
def test_none_is_let_in_where_documents_are_not_taken(settings: Any, documents: Any) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": documents})
    decide("client.example", ALLOWED)
    assert not takes_documents()
    assert decision_on("client.example") == BLOCKED


@pytest.mark.parametrize(
    ("host", "decision"),
    [
        ("claude.ai", ALLOWED),
        ("a.claude.ai", BLOCKED),
        ("xclaude.ai", BLOCKED),
        ("example.com", ALLOWED),
        ("a.b.example.com", ALLOWED),
        ("notexample.com", BLOCKED),
        ("example.com.evil.example", BLOCKED),
        ("com", BLOCKED),
    ],
)
def test_named_hosts_are_let_in_and_no_other(settings: Any, host: str, decision: str) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": ["claude.ai", ".example.com"]})
    assert decision_on(host) == decision


def test_an_administrator_is_asked_once_for_each_host(settings: Any) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": "ask"})
    ada = get_user_model().objects.create_user("ada")
    assert decision_on("client.example") == WAITING
    ask_for("client.example", "https://client.example/c", ada)
    ask_for("client.example", "https://client.example/other", None)
    found = ClientHost.objects.get()
    assert (found.host, found.url, found.user, found.decision) == (
        "client.example",
        "https://client.example/c",
        ada,
        WAITING,
    )
    assert decision_on("client.example") == WAITING
    found.decision = ALLOWED
    found.save()
    assert decision_on("client.example") == ALLOWED
    assert decision_on("other.example") == WAITING


def test_to_ask_changes_no_decision(settings: Any) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": "ask"})
    decide("client.example", BLOCKED)
    ask_for("client.example", "https://client.example/c", None)
    assert ClientHost.objects.get().decision == BLOCKED


def test_what_waits_is_bounded() -> None:
    ClientHost.objects.bulk_create(ClientHost(host=f"{number}.example") for number in range(MAX_WAITING))
    ask_for("client.example", "https://client.example/c", None)
    assert not ClientHost.objects.filter(host="client.example").exists()


@pytest.mark.parametrize("documents", ["all", "ask", ["client.example"]])
@pytest.mark.parametrize("blocked", ["client.example", ".client.example", ".example"])
@pytest.mark.parametrize("where", ["setting", "admin"])
def test_what_is_blocked_is_not_let_in_whatever_else_is_set(
    settings: Any, documents: Any, blocked: str, where: str
) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": documents})
    decide(".client.example", ALLOWED) if blocked != ".client.example" else None
    if where == "setting":
        configure(settings, CLIENT_DOCUMENTS={"blocked": [blocked]})
    else:
        decide(blocked, BLOCKED)
    assert decision_on("client.example") == BLOCKED


def test_a_client_goes_on_while_its_host_is_let_in(settings: Any) -> None:
    described, registered = client("https://client.example/c"), client("abc", "dcr")
    manual = client("https://client.example/manual", "manual")
    assert is_admitted(described)
    for change in ({"CLIENT_DOCUMENTS": {"hosts": "off"}}, {"CLIENT_DOCUMENTS": {"blocked": ["client.example"]}}):
        settings.MCP_DJANGO = {"BASE_URL": "http://testserver", **change}
        assert not is_admitted(described)
        assert is_admitted(registered)
        assert is_admitted(manual)


def test_a_project_that_leaves_documents_to_the_toolkit_has_its_own_rules(settings: Any) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": "off"})
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "CIMD_ENABLED": True}
    assert is_admitted(client("https://client.example/c"))


def test_the_clients_of_a_host_are_forgotten_and_no_others() -> None:
    kept = {
        client("https://client.example.evil.example/c").pk,
        client("https://other.example/client.example").pk,
        client("https://client.example/manual", "manual").pk,
        client("client.example", "dcr").pk,
        client("https://a.client.example/c").pk,
    }
    client("https://client.example/c")
    client("https://client.example:8443/c")
    assert forget_clients_of("client.example") == 2
    assert set(Application.objects.values_list("pk", flat=True)) == kept
    assert forget_clients_of(".client.example") == 1

"""Whether documents of clients can be fetched is known before the first client relies on it."""

import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from mcp_django.models import ClientHost
from mcp_django.oauth import client_documents
from mcp_django.oauth.client_documents import announces_documents, forget, why_not_fetched
from mcp_django.oauth.document_fetcher import Fetcher, FetchFailed, fetcher_for, is_private_or_public, is_public

pytestmark = pytest.mark.django_db

SERVER = "/.well-known/oauth-authorization-server"


class Network:
    """The hosts that are reached; ``tried`` are those that were looked for."""

    def __init__(self) -> None:
        self.up = True
        self.tried: list[str] = []

    def reach(self, fetcher: Fetcher, url: str, seconds: float) -> None:
        self.tried.append(url)
        if not self.up:
            raise FetchFailed("its host has no address", is_passing=True, is_away=True)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, documents_can_be_fetched: Any) -> Iterator[Network]:
    cache.clear()
    client_documents._known.clear()
    found = Network()
    monkeypatch.setattr(client_documents, "look", documents_can_be_fetched)
    monkeypatch.setattr(Fetcher, "reach", lambda *arguments: found.reach(*arguments))
    yield found
    cache.clear()
    client_documents._known.clear()


def configure(settings: Any, **changes: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, **changes}


def announced() -> bool:
    return "client_id_metadata_document_supported" in Client().get(SERVER).json()


def test_documents_are_announced_while_a_host_of_theirs_is_reached(network: Network) -> None:
    assert announced()
    assert announced()
    assert network.tried == ["https://claude.ai/"]


def test_they_are_not_announced_while_none_is_reached_and_the_log_says_why(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    network.up = False
    with caplog.at_level(logging.WARNING, "mcp_django"):
        assert not announced()
        assert not announced()
    assert len(network.tried) == 1
    [line] = caplog.messages
    assert "cannot reach claude.ai (its host has no address)" in line
    assert "CLIENT_DOCUMENTS['proxy']" in line
    assert "CLIENT_DOCUMENTS['hosts'] to 'off'" in line
    network.up = True
    # As when its time is over.
    forget()
    assert announced()


def test_what_one_worker_sees_all_know(network: Network) -> None:
    network.up = False
    assert not announced()
    # Another worker has the cache alone.
    client_documents._known.clear()
    assert not announced()
    assert len(network.tried) == 1


def test_a_worker_whose_cache_is_away_knows_it_by_itself(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError

    for method in ("get", "set", "delete"):
        monkeypatch.setattr(client_documents.cache, method, away, raising=False)
    network.up = False
    assert why_not_fetched() == why_not_fetched() != ""
    assert len(network.tried) == 1
    forget()
    assert why_not_fetched()
    assert len(network.tried) == 2


@pytest.mark.parametrize("documents", ["off", []])
def test_nobody_is_looked_for_where_no_document_is_taken(network: Network, settings: Any, documents: Any) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": documents})
    assert not announced()
    assert network.tried == []


@pytest.mark.parametrize("registration", ["authenticated", "off"])
def test_where_clients_cannot_register_instead_it_is_their_page_that_says_why(
    network: Network, settings: Any, registration: str
) -> None:
    network.up = False
    configure(settings, CLIENT_DOCUMENTS={"hosts": "all"}, REGISTRATION=registration)
    assert announces_documents()
    assert network.tried == []


def test_the_hosts_that_the_project_names_are_looked_for(network: Network, settings: Any) -> None:
    configure(
        settings,
        CLIENT_DOCUMENTS={
            "hosts": ["robots.intranet", ".example.com", "a.example", "b.example"],
            "private": ["robots.intranet:8443"],
        },
    )
    assert announced()
    assert network.tried == ["https://robots.intranet:8443/", "https://example.com/", "https://a.example/"]


def test_a_host_that_is_blocked_is_not_looked_for(network: Network, settings: Any) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": "ask", "blocked": ["claude.ai"]})
    ClientHost.objects.create(host="chatgpt.com", decision="blocked")
    assert announced()
    assert network.tried == ["https://vscode.dev/"]


def test_other_settings_are_looked_at_anew(network: Network, settings: Any) -> None:
    network.up = False
    assert not announced()
    network.up = True
    configure(settings, CLIENT_DOCUMENTS={"proxy": "http://proxy.intranet:3128"})
    assert announced()


def test_what_is_fetched_is_fetched_by_the_settings(settings: Any) -> None:
    assert fetcher_for("https://a.example/x") == Fetcher(is_public)
    assert fetcher_for("https://a.example/x", is_operators=True) == Fetcher(is_private_or_public)
    configure(
        settings,
        CLIENT_DOCUMENTS={"private": ["a.intranet:8443"], "ca": "/ca.pem", "proxy": "http://proxy.intranet:3128"},
    )
    assert fetcher_for("https://a.intranet:8443/x") == Fetcher(is_private_or_public, "/ca.pem")
    assert fetcher_for("https://a.example/x") == Fetcher(is_public, "/ca.pem", "http://proxy.intranet:3128")
    assert fetcher_for("https://a.example/x", is_operators=True) == Fetcher(
        is_private_or_public, "/ca.pem", "http://proxy.intranet:3128"
    )


def test_a_name_that_leads_nowhere_is_a_server_that_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with pytest.raises(FetchFailed) as failure:
        Fetcher().reach("https://claude.ai/", 1)
    assert failure.value.is_away

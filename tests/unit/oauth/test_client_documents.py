import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.core.cache import cache
from django.db import OperationalError, connections
from django.http import HttpRequest
from django.test import RequestFactory
from django.utils import timezone
from oauth2_provider.models import Application

from mcp_django.context import databases
from mcp_django.models import ClientHost, ClientKeys
from mcp_django.oauth import client_documents, document_fetcher
from mcp_django.oauth.client_documents import Document, DocumentRefused, find_described, read_document
from mcp_django.oauth.stored_tokens import is_hashed_here
from tests.configured import configure
from tests.isolation import LEVELS, isolated
from tests.tls_server import Authority, Redirected, TLSServer, answer, serving

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

HOST = "client.example"
URL = f"https://{HOST}/client.json"
DOCUMENT = {"client_id": URL, "client_name": "Robot", "redirect_uris": ["https://client.example/back"]}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[TLSServer]:
    cache.clear()
    with serving(authority.context(HOST)) as running:
        monkeypatch.setattr(document_fetcher, "Fetcher", lambda *options: Redirected(running, authority))
        running.answers[f"{HOST}/client.json"] = answer(DOCUMENT)
        yield running


def request(address: str = "192.0.2.1") -> HttpRequest:
    made = RequestFactory().get("/oauth/authorize/", REMOTE_ADDR=address)
    made.user = AnonymousUser()
    return made


def refused(url: str = URL, **options: Any) -> DocumentRefused:
    with pytest.raises(DocumentRefused) as failure:
        find_described(url, request(**options))
    return failure.value


def age(seconds: float) -> None:
    """Let the document have been out of date for so many seconds."""
    Application.objects.update(cimd_expires_at=timezone.now() - timedelta(seconds=seconds))


def test_what_the_document_says_becomes_a_public_client(server: TLSServer) -> None:
    found = find_described(URL, request())
    assert found == Application.objects.get()
    assert (found.client_id, found.name, found.redirect_uris) == (URL, "Robot", "https://client.example/back")
    assert (found.client_type, found.authorization_grant_type) == ("public", "authorization-code")
    assert found.registration_source == "cimd"
    assert is_hashed_here(found.client_secret)
    assert not ClientKeys.objects.exists()
    assert not found.skip_authorization
    assert timedelta(minutes=59) < found.cimd_expires_at - timezone.now() <= timedelta(hours=1)


def test_a_document_is_kept_as_long_as_it_says(server: TLSServer) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT, Cache_Control="max-age=7200")
    for _ in range(3):
        find_described(URL, request())
    assert len(server.asked) == 1
    assert Application.objects.get().cimd_expires_at - timezone.now() > timedelta(minutes=119)


def test_a_document_that_is_out_of_date_is_fetched_again(server: TLSServer) -> None:
    first = find_described(URL, request())
    server.answers[f"{HOST}/client.json"] = answer(
        DOCUMENT | {"client_name": "Other", "redirect_uris": ["https://client.example/new"]}
    )
    age(1)
    second = find_described(URL, request())
    assert second.pk == first.pk
    assert (second.name, second.redirect_uris) == ("Other", "https://client.example/new")


@pytest.mark.parametrize("status", ["500 Down", "503 Busy", "429 Slow down"])
def test_a_failure_that_passes_leaves_the_stored_one_good_for_a_day(server: TLSServer, status: str) -> None:
    find_described(URL, request())
    server.answers[f"{HOST}/client.json"] = answer({}, status=status)
    age(23 * 3600)
    assert find_described(URL, request()).name == "Robot"
    age(25 * 3600)
    assert refused().kind == "unreachable"


@pytest.mark.parametrize(
    "sent",
    [
        answer({}, status="404 Not Found"),
        answer({}, status="410 Gone"),
        answer(DOCUMENT | {"client_id": URL + "2"}),
        answer(DOCUMENT, "text/html"),
        answer(DOCUMENT, status="302 Found", Location="https://client.example/other"),
    ],
)
def test_a_document_that_is_gone_or_wrong_is_no_longer_good(server: TLSServer, sent: bytes) -> None:
    find_described(URL, request())
    server.answers[f"{HOST}/client.json"] = sent
    age(1)
    assert refused().kind == "document"


@pytest.mark.parametrize(
    ("sent", "kind"),
    [(answer({}, status="500 Down"), "unreachable"), (answer(DOCUMENT | {"client_id": "x"}), "document")],
)
def test_what_failed_is_not_asked_for_again_at_once(server: TLSServer, sent: bytes, kind: str) -> None:
    server.answers[f"{HOST}/client.json"] = sent
    failures = [refused() for _ in range(3)]
    assert {failure.kind for failure in failures} == {kind}
    assert len({failure.detail for failure in failures}) == 1
    assert len(server.asked) == 1
    assert not Application.objects.exists()


@pytest.mark.parametrize(
    "url", [f"https://{HOST}", "https://127.0.0.1/c", f"https://{HOST}/\x00", "https://сlient.example/c"]
)
def test_a_url_that_is_none_is_not_fetched(server: TLSServer, url: str) -> None:
    failure = refused(url)
    assert failure.kind == "address"
    assert failure.url.isascii()
    assert server.connections == 0


def test_a_client_that_administrators_added_is_theirs(server: TLSServer) -> None:
    made = Application.objects.create(
        client_id=URL, name="Ours", client_type="public", authorization_grant_type="authorization-code"
    )
    assert find_described(URL, request()) == made
    assert server.connections == 0
    made.refresh_from_db()
    assert made.name == "Ours"


# Policy


def test_a_host_that_is_not_let_in_is_not_even_asked(settings: Any, server: TLSServer) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": ["other.example"]})
    assert refused().kind == "blocked"
    configure(settings, CLIENT_DOCUMENTS={"hosts": "all", "blocked": [HOST]})
    assert refused().kind == "blocked"
    assert server.connections == 0


def test_a_host_that_is_blocked_later_ends_with_what_is_stored(settings: Any, server: TLSServer) -> None:
    find_described(URL, request())
    ClientHost.objects.create(host=HOST, decision="blocked")
    assert refused().kind == "blocked"


def test_an_administrator_decides_before_anything_is_fetched(settings: Any, server: TLSServer) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": "ask"})
    asking = request()
    asking.user = get_user_model().objects.create_user("ada")
    with pytest.raises(DocumentRefused) as failure:
        find_described(URL, asking)
    assert (failure.value.kind, failure.value.status) == ("waiting", 403)
    assert server.connections == 0
    waiting = ClientHost.objects.get()
    assert (waiting.host, waiting.url, waiting.user) == (HOST, URL, asking.user)
    ClientHost.objects.update(decision="allowed")
    assert find_described(URL, asking).name == "Robot"


# Limits


def test_documents_are_counted_by_the_address_that_asks_and_by_host(settings: Any, server: TLSServer) -> None:
    configure(settings, RATES={"documents": "2/d"})
    urls = iter(f"https://{HOST}/{number}" for number in range(100))
    kinds = [refused(next(urls)).kind for _ in range(3)]
    assert kinds == ["document", "document", "busy"]
    others = [refused(next(urls), address=f"192.0.2.{number}").kind for number in range(2, 12)]
    assert others.count("document") == 8
    assert others[-1] == "busy"
    assert len(server.asked) == 10


def test_what_is_stored_counts_nothing(settings: Any, server: TLSServer) -> None:
    configure(settings, RATES={"documents": "1/d"})
    for _ in range(5):
        find_described(URL, request())
    age(1)
    assert find_described(URL, request()).name == "Robot"
    assert len(server.asked) == 1


def test_without_a_cache_nothing_new_is_fetched(server: TLSServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError

    for module in ("mcp_django.oauth.client_documents.cache", "mcp_django.runtime.cache_and_rate_limits.cache"):
        for method in ("get", "set", "incr", "add"):
            monkeypatch.setattr(f"{module}.{method}", away, raising=False)
    assert refused().kind == "uncounted"
    assert server.connections == 0


def test_few_documents_are_fetched_at_the_same_time(server: TLSServer, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = threading.BoundedSemaphore(1)
    monkeypatch.setattr(client_documents, "SLOTS", slots)
    with slots:
        assert refused().kind == "busy"
    assert find_described(URL, request()).name == "Robot"
    server.answers[f"{HOST}/other"] = answer({}, status="500 Down")
    assert refused(f"https://{HOST}/other").kind == "unreachable"
    assert slots.acquire(blocking=False)


def test_the_number_of_clients_is_bounded_and_the_unused_go_first(
    server: TLSServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_documents, "MAX_CLIENTS", 10)
    registered = Application.objects.create(client_type="public", registration_source="dcr")
    for number in range(12):
        url = f"https://{HOST}/{number}"
        server.answers[f"{HOST}/{number}"] = answer(DOCUMENT | {"client_id": url})
        find_described(url, request())
    kept = Application.objects.filter(registration_source="cimd")
    assert kept.count() == 10
    assert not kept.filter(client_id__in=[f"https://{HOST}/0", f"https://{HOST}/1"]).exists()
    assert Application.objects.filter(pk=registered.pk).exists()
    monkeypatch.setattr(client_documents, "unused_clients", lambda source: Application.objects.none())
    assert refused().kind == "busy"
    assert kept.count() == 10


# The project's own network


def test_a_host_that_the_project_names_may_be_private(
    settings: Any, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache.clear()
    with serving(authority.context("localhost")) as server:
        host = f"localhost:{server.port}"
        url = f"https://{host}/client.json"
        server.answers[f"{host}/client.json"] = answer(DOCUMENT | {"client_id": url})
        assert refused(url).kind == "address"
        configure(settings, CLIENT_DOCUMENTS={"private": [host]})
        assert "certificate" in refused(url).detail
        cache.clear()
        configure(settings, CLIENT_DOCUMENTS={"ca": str(authority.path)})
        assert find_described(url, request()).name == "Robot"
        configure(settings, CLIENT_DOCUMENTS={"private": [f"localhost:{server.port + 1}"]})
        assert refused(url).kind == "address"


@pytest.fixture(params=LEVELS)
def isolation(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[None]:
    with isolated(request.param):
        yield


@pytest.mark.usefixtures("isolation", "server")
@pytest.mark.parametrize("signs", [True, False])
def test_a_document_that_many_workers_store_at_once_is_one_client(monkeypatch: pytest.MonkeyPatch, signs: bool) -> None:
    keys = {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": f"{URL}.keys"} if signs else {}
    metadata = read_document(URL, DOCUMENT | keys, ["https"])
    barrier = Barrier(6)

    def read(document: Document) -> tuple[Any, int]:
        barrier.wait(30)
        return metadata, 60

    monkeypatch.setattr(Document, "_read", read)

    def work(number: int) -> int:
        try:
            return int(Document(URL, request()).fetched().pk)
        finally:
            connections.close_all()

    for _ in range(3):
        Application.objects.all().delete()
        with ThreadPoolExecutor(6) as pool:
            assert set(pool.map(work, range(6))) == {Application.objects.get().pk}
        assert ClientKeys.objects.count() == signs
        cache.clear()


@pytest.mark.django_db(transaction=True)
def test_a_document_is_stored_again_after_a_deadlock(server: TLSServer, monkeypatch: pytest.MonkeyPatch) -> None:
    original, failures = Document._store, [OperationalError(1213, "Deadlock found")] * 2

    def undone(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return original(*args)

    monkeypatch.setattr(Document, "_store", undone)
    monkeypatch.setattr(databases, "DEADLOCK_PAUSES", (0.0, 0.0))
    assert find_described(URL, request()) == Application.objects.get()

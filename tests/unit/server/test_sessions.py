"""Sessions: sealed ids, rows only where there is something to remember, ends that stay ends."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.test import override_settings
from django.utils import timezone

from mcp_django import site
from mcp_django.conf import Settings
from mcp_django.context.request import MCPContext, MCPRequest
from mcp_django.exceptions import NotFound
from mcp_django.models import Session, Stream
from mcp_django.protocol.eras import LEGACY_ERA, Call
from mcp_django.protocol.errors import InvalidParams
from mcp_django.server import sessions
from mcp_django.server.sessions import ClientSession
from mcp_django.subscriptions.bus import bus
from tests.configured import configured
from tests.factories import make_user

pytestmark = pytest.mark.django_db
MCP = {"BASE_URL": "http://testserver"}


def make_request(user: Any, *, client_id: str = "c", resource: str = "http://testserver/mcp") -> MCPRequest:
    request = MCPRequest()
    request.user = user
    request.mcp = MCPContext(site=site, resource=resource, client_id=client_id)
    return request


def initialize(version: str = "2025-06-18", capabilities: Any = None, name: str = "tests") -> Call:
    client = {"name": name, "version": "1"}
    params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": client}
    return Call(
        era=LEGACY_ERA, version=version, method="initialize", params=params, id=1, client=client, capabilities={}
    )


@pytest.fixture
def request_() -> MCPRequest:
    return make_request(make_user("ann"))


def new_session(request: MCPRequest, **facts: Any) -> ClientSession:
    return ClientSession.find(request, ClientSession.open(request, initialize(**facts)))


def move(name: str, **back: float) -> None:
    Session.objects.filter(pk=name).update(seen=timezone.now() - timedelta(**back))


def test_97_the_id_alone_says_what_initialize_agreed_on(request_: MCPRequest, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        text = ClientSession.open(
            request_, initialize("2025-03-26", {"elicitation": {"form": {}}, "experimental": {"x": 1}})
        )
    with django_assert_num_queries(1):
        session = ClientSession.find(request_, text)
    assert (session.version, session.client) == ("2025-03-26", {"name": "tests", "version": "1"})
    assert session.capabilities == {"elicitation": {"form": {}}}
    assert not Session.objects.exists()


def test_88_ids_are_long_random_and_visible_ascii(request_: MCPRequest) -> None:
    ids = {ClientSession.open(request_, initialize()) for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(0x21 <= ord(character) <= 0x7E for text in ids for character in text)
    assert len({ClientSession.find(request_, text).id for text in list(ids)[:50]}) == 50


def test_an_id_stays_short_whatever_the_client_says_of_itself(request_: MCPRequest) -> None:
    text = ClientSession.open(request_, initialize(capabilities={"roots": {"a": "b" * 9000}}, name="é" * 9000))
    assert len(text) < 1024
    assert ClientSession.find(request_, text).capabilities == {"roots": {}}


@pytest.mark.parametrize("text", ["", "x", "a:b:c", "é" * 20, "x" * 5000])
def test_89_an_id_of_the_clients_own_is_not_adopted(request_: MCPRequest, text: str) -> None:
    with pytest.raises(NotFound):
        ClientSession.find(request_, text)
    assert not Session.objects.exists()


@pytest.mark.parametrize("other", ["user", "client", "resource", "nobody"])
def test_92_a_session_is_nobody_elses(request_: MCPRequest, other: str) -> None:
    from django.contrib.auth.models import AnonymousUser

    text = ClientSession.open(request_, initialize())
    asked = {
        "user": lambda: make_request(make_user("bob")),
        "client": lambda: make_request(request_.user, client_id="d"),
        "resource": lambda: make_request(request_.user, resource="http://testserver/other"),
        "nobody": lambda: make_request(AnonymousUser()),
    }[other]()
    with pytest.raises(NotFound):
        ClientSession.find(asked, text)


def test_what_a_session_remembers_is_there_for_every_worker(request_: MCPRequest) -> None:
    text = ClientSession.open(request_, initialize())
    session = ClientSession.find(request_, text)
    session.set_log_level("warning")
    for uri in ("shop://a", "shop://b", "shop://a"):
        session.subscribe(uri)
    again = ClientSession.find(request_, text)
    assert (again.log_level, list(again.uris)) == ("warning", ["shop://a", "shop://b"])
    assert again.stored_uris() == ("shop://a", "shop://b")


def test_news_of_the_subscriptions_reach_open_streams(request_: MCPRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(bus, "publish", lambda *news: told.append(news))
    session = new_session(request_)
    session.subscribe("shop://a")
    session.unsubscribe("shop://a")
    session.end()
    assert {where for where, _ in told} == {session.topic}
    assert [news.get("uris") for _, news in told] == [["shop://a"], [], None]
    assert told[-1][1] == {"ended": True}


def test_99_an_ended_session_is_not_found_and_its_streams_are_gone(request_: MCPRequest) -> None:
    text = ClientSession.open(request_, initialize())
    session = ClientSession.find(request_, text)
    session.remember()
    Stream.objects.create(id="s", session_id=session.id, alive=timezone.now())
    session.end()
    with pytest.raises(NotFound):
        ClientSession.find(request_, text)
    assert not Stream.objects.exists()


def test_a_session_that_only_initialized_can_be_ended(request_: MCPRequest) -> None:
    text = ClientSession.open(request_, initialize())
    ClientSession.find(request_, text).end()
    with pytest.raises(NotFound):
        ClientSession.find(request_, text)


@configured(SESSION_IDLE=3600)
def test_96_a_session_ends_by_lying_unused(request_: MCPRequest) -> None:
    text = ClientSession.open(request_, initialize())
    session = ClientSession.find(request_, text)
    session.remember()
    move(session.id, minutes=59)
    ClientSession.find(request_, text)
    move(session.id, minutes=61)
    with pytest.raises(NotFound):
        ClientSession.find(request_, text)


@configured(SESSION_IDLE=3600)
def test_use_keeps_a_session_alive_without_a_write_for_each_call(
    request_: MCPRequest, django_assert_num_queries: Any
) -> None:
    text = ClientSession.open(request_, initialize())
    session = ClientSession.find(request_, text)
    session.remember()
    with django_assert_num_queries(1):
        ClientSession.find(request_, text)
    move(session.id, minutes=10)
    ClientSession.find(request_, text)
    seen = Session.objects.values_list("seen", flat=True).get()
    assert timezone.now() - seen < timedelta(minutes=1)


def test_a_session_without_a_row_is_idle_since_it_was_issued(
    request_: MCPRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "SESSION_IDLE", -1)  # the time is over
    text = ClientSession.open(request_, initialize())
    with pytest.raises(NotFound):
        ClientSession.find(request_, text)


@configured(SESSION_IDLE=3600)
def test_a_session_in_use_gets_a_row_when_half_of_its_time_is_over(
    request_: MCPRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ClientSession.open(request_, initialize())
    now = timezone.now()
    for minutes, rows in [(20, 0), (40, 1), (80, 1)]:
        monkeypatch.setattr(timezone, "now", lambda minutes=minutes: now + timedelta(minutes=minutes))
        ClientSession.find(request_, text)
        assert Session.objects.count() == rows


@configured(MAX_SESSIONS=2)
def test_96_over_the_cap_the_least_used_session_of_the_user_ends(request_: MCPRequest) -> None:
    other = new_session(make_request(make_user("bob")))
    other.remember()
    texts = [ClientSession.open(request_, initialize()) for _ in range(3)]
    for age, text in enumerate(texts):
        session = ClientSession.find(request_, text)
        session.remember()
        if age < 2:
            move(session.id, minutes=30 - age)
    with pytest.raises(NotFound):
        ClientSession.find(request_, texts[0])
    assert [ClientSession.find(request_, text).has_row for text in texts[1:]] == [True, True]
    assert not Session.objects.get(pk=other.id).ended


def test_79_a_session_survives_a_new_secret_key(request_: MCPRequest, settings: Any) -> None:
    text = ClientSession.open(request_, initialize())
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        ClientSession.find(request_, text)
    with override_settings(SECRET_KEY="new"), pytest.raises(NotFound):
        ClientSession.find(request_, text)


def test_a_session_may_be_there_before_its_client_introduces_itself(request_: MCPRequest) -> None:
    text = ClientSession.open(request_)
    session = ClientSession.find(request_, text)
    assert session.version == "2024-11-05"
    session.introduce(initialize("2025-03-26", {"roots": {}}))
    session = ClientSession.find(request_, text)
    assert (session.version, session.client["name"], session.capabilities) == ("2025-03-26", "tests", {"roots": {}})


def test_a_change_waits_until_the_open_stream_knows_of_it(request_: MCPRequest) -> None:
    session = new_session(request_)
    cache.set(session.lease_key, "a stream")
    heard: list[Any] = []
    returned = threading.Event()

    def stream(news: Any) -> None:
        if "uris" in news:
            heard.append(news["uris"])
            bus.publish(session.topic, {"known": "another", "next": news["token"]})
        elif "next" in news:
            bus.publish(session.topic, {"known": "another", "last": news["next"]})
        elif "last" in news:
            # The session has both messages before this one: neither is the answer to its own change.
            heard.append(returned.wait(0.1))
            bus.publish(session.topic, {"known": news["last"]})

    unsubscribe = bus.subscribe(session.topic, stream)
    try:
        session.subscribe("shop://a")
        returned.set()
    finally:
        unsubscribe()
    assert heard == [["shop://a"], False]


def test_two_requests_that_subscribe_at_once_lose_nothing(request_: MCPRequest) -> None:
    text = ClientSession.open(request_, initialize())
    first, second = ClientSession.find(request_, text), ClientSession.find(request_, text)
    first.subscribe("shop://a")
    second.subscribe("shop://b")
    first.unsubscribe("shop://c")
    assert ClientSession.find(request_, text).stored_uris() == ("shop://a", "shop://b")


@configured(MAX_SUBSCRIPTIONS=1)
def test_106_over_the_cap_nothing_is_added(request_: MCPRequest) -> None:
    session = new_session(request_)
    session.subscribe("shop://a")
    session.subscribe("shop://a")
    with pytest.raises(InvalidParams):
        session.subscribe("shop://b")
    assert session.stored_uris() == ("shop://a",)


def test_209_a_cache_that_is_down_does_not_keep_anyone_from_subscribing(
    request_: MCPRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        def get(self, key: str) -> None:
            raise ConnectionError

    monkeypatch.setattr(sessions, "cache", Down())
    session = new_session(request_)
    session.subscribe("shop://a")
    assert session.stored_uris() == ("shop://a",)

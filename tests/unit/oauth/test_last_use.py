"""When a token was last used."""

from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from mcp_django.oauth import last_use
from mcp_django.oauth.bearer import Token
from mcp_django.oauth.last_use import last_uses, note_use, shortened
from mcp_django.testing import MCPClient
from tests.factories import make_superuser


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_use, "_noted", {})


def token(checksum: str) -> Token:
    return Token(frozenset(), "client", timezone.now(), checksum)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    keep = cache.set
    monkeypatch.setattr(
        last_use.cache, "set", lambda key, *args, **kwargs: (found.append(key), keep(key, *args, **kwargs))
    )
    return found


@pytest.mark.django_db
def test_a_call_notes_it() -> None:
    from oauth2_provider.models import AccessToken

    client = MCPClient(make_superuser())
    checksum = AccessToken.objects.get().token_checksum
    assert last_uses([checksum]) == {}
    before = timezone.now().replace(microsecond=0)
    client.tools()
    assert before <= last_uses([checksum, "f" * 64])[checksum].moment <= timezone.now()


def test_a_worker_writes_once_a_minute_for_each_token(writes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 1000.0
    monkeypatch.setattr(last_use.time, "monotonic", lambda: moment)
    for _ in range(50):
        note_use("a" * 64)
        note_use("b" * 64)
    assert len(writes) == 2
    moment += last_use.EVERY
    note_use("a" * 64)
    assert len(writes) == 3


def test_who_has_no_token_of_ours_notes_nothing(writes: list[str]) -> None:
    note_use("")
    assert writes == []


def test_no_key_of_the_cache_holds_what_a_token_is_found_by(writes: list[str]) -> None:
    note_use("a" * 64)
    assert "a" * 64 not in writes[0]


def test_a_cache_that_is_away_costs_nothing_but_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError

    monkeypatch.setattr(last_use.cache, "set", away)
    monkeypatch.setattr(last_use.cache, "get_many", away)
    note_use("a" * 64)
    assert last_uses(["a" * 64]) == {}


def test_what_a_worker_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_use, "MAX_NOTED", 3)
    for number in range(10):
        note_use(f"{number:064}")
    assert len(last_use._noted) <= 3


def test_without_time_zones_the_moment_has_none(settings: Any) -> None:
    settings.USE_TZ = False
    note_use("a" * 64)
    assert last_uses(["a" * 64])["a" * 64].moment.tzinfo is None


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("203.0.113.77", "203.0.113.…"),
        ("::ffff:203.0.113.77", "203.0.113.…"),
        ("2001:db8:0:17::1", "2001:db8:0:…"),
        ("fe80::1%eth0", "fe80:0:0:…"),
        ("", ""),
        ("<b>unix socket</b>", ""),
    ],
)
def test_of_an_address_its_end_is_not_kept(address: str, shown: str) -> None:
    assert shortened(address) == shown


@pytest.mark.django_db
def test_a_call_notes_from_where_it_came() -> None:
    from oauth2_provider.models import AccessToken

    MCPClient(make_superuser()).tools()
    checksum = AccessToken.objects.get().token_checksum
    assert last_uses([checksum])[checksum].place == "127.0.0.…"

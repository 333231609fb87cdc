import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.cache import cache

from mcp_django.runtime.cache_and_rate_limits import Caller, RateLimit, parse_rate


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [7200.0]
    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits.time.time", lambda: clock[0])
    return clock


def test_a_period_has_its_number(now: list[float]) -> None:
    assert [RateLimit("x", "2/h").hit("a") for _ in range(3)] == [None, None, 3600]
    assert RateLimit("x", "2/h").hit("b") is None
    assert RateLimit("y", "2/h").hit("a") is None
    now[0] += 3599
    assert RateLimit("x", "2/h").hit("a") == 1
    now[0] += 1
    assert RateLimit("x", "2/h").hit("a") is None


def test_a_use_can_be_given_back(now: list[float]) -> None:
    assert [RateLimit("x", "1/h").hit("a") for _ in range(2)] == [None, 3600]
    RateLimit("x", "1/h").give_back("a")
    RateLimit("x", "1/h").give_back("a")
    RateLimit("x", "1/h").give_back("b")
    RateLimit("x", None).give_back("a")
    assert [RateLimit("x", "1/h").hit("a") for _ in range(2)] == [None, 3600]


def test_no_rate_is_no_limit() -> None:
    assert [RateLimit("x", None).hit("a") for _ in range(5)] == [None] * 5


def test_none_at_all(now: list[float]) -> None:
    assert RateLimit("x", "0/m").hit("a") == 60


def test_any_text_makes_a_key(now: list[float]) -> None:
    assert RateLimit("x", "1/m").hit("fe80::1%eth0 \n" + "x" * 300) is None


def test_a_count_that_was_evicted_starts_again(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "add", lambda *args, **kwargs: False)
    assert RateLimit("x", "1/m").hit("a") is None


@pytest.mark.parametrize(
    ("rate", "parsed"), [("30/h", (30, 3600)), ("1/s", (1, 1)), ("5/m", (5, 60)), ("9/d", (9, 86400))]
)
def test_rates(rate: str, parsed: tuple[int, int]) -> None:
    assert parse_rate(rate) == parsed


@pytest.mark.parametrize("rate", ["", "30", "h", "30/hour", "-1/h", "1.5/h", "30/h ", "٣/h"])
def test_what_is_no_rate(rate: str) -> None:
    with pytest.raises(ValueError, match="not a rate"):
        parse_rate(rate)


def test_a_caller_is_the_user_or_the_address_where_nobody_signs_in(rf):
    request = rf.get("/", REMOTE_ADDR="192.0.2.1")
    request.user = AnonymousUser()
    assert Caller.of(request) == "addr:192.0.2.1"
    request.user = User(pk=7)
    assert Caller.of(request) == "user:7"


def test_a_rate_can_be_so_many_times_as_many() -> None:
    assert RateLimit("x", "60/m").times(5).rate == "300/m"
    assert RateLimit("x", "0/h").times(5).rate == "0/h"
    assert RateLimit("x", None).times(5).rate is None

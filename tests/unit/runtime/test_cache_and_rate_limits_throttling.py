import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.cache import cache

from mcp_django.runtime.cache_and_rate_limits import caller_of, give_back, hit, parse_rate, times_as_many


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [7200.0]
    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits.time.time", lambda: clock[0])
    return clock


def test_a_period_has_its_number(now: list[float]) -> None:
    assert [hit("x", "a", "2/h") for _ in range(3)] == [None, None, 3600]
    assert hit("x", "b", "2/h") is None
    assert hit("y", "a", "2/h") is None
    now[0] += 3599
    assert hit("x", "a", "2/h") == 1
    now[0] += 1
    assert hit("x", "a", "2/h") is None


def test_a_use_can_be_given_back(now: list[float]) -> None:
    assert [hit("x", "a", "1/h") for _ in range(2)] == [None, 3600]
    give_back("x", "a", "1/h")
    give_back("x", "a", "1/h")
    give_back("x", "b", "1/h")
    give_back("x", "a", None)
    assert [hit("x", "a", "1/h") for _ in range(2)] == [None, 3600]


def test_no_rate_is_no_limit() -> None:
    assert [hit("x", "a", None) for _ in range(5)] == [None] * 5


def test_none_at_all(now: list[float]) -> None:
    assert hit("x", "a", "0/m") == 60


def test_any_text_makes_a_key(now: list[float]) -> None:
    assert hit("x", "fe80::1%eth0 \n" + "x" * 300, "1/m") is None


def test_a_count_that_was_evicted_starts_again(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "add", lambda *args, **kwargs: False)
    assert hit("x", "a", "1/m") is None


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
    assert caller_of(request) == "addr:192.0.2.1"
    request.user = User(pk=7)
    assert caller_of(request) == "user:7"


def test_a_rate_can_be_so_many_times_as_many() -> None:
    assert times_as_many("60/m", 5) == "300/m"
    assert times_as_many("0/h", 5) == "0/h"
    assert times_as_many(None, 5) is None

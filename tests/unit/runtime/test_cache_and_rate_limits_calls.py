import pytest
from django.test import override_settings

from mcp_django import site
from mcp_django.runtime import cache_and_rate_limits
from mcp_django.runtime.cache_and_rate_limits import LimitExceeded, concurrent, count_call, streaming
from mcp_django.transports.http.http_exchange import Exchange
from tests.asgi_client import http_scope
from tests.configured import configured


@override_settings(MCP_DJANGO={"RATES": {"calls": "2/h"}})
def test_H153_calls_over_the_rate_are_refused_with_the_seconds_to_wait():
    count_call("user:1")
    count_call("user:1")
    with pytest.raises(LimitExceeded) as caught:
        count_call("user:1")
    assert 0 < caught.value.retry_after <= 3600


@override_settings(MCP_DJANGO={"RATES": {"calls": "1/h"}})
def test_the_rate_of_one_caller_leaves_others_alone():
    count_call("user:1")
    count_call("user:2")


@override_settings(MCP_DJANGO={"RATES": {"calls": None}})
def test_no_rate_is_no_limit():
    for _ in range(5):
        count_call("user:1")


@configured(MAX_CONCURRENT_CALLS=1)
def test_C54_calls_at_once_are_capped_for_each_caller_and_places_come_back():
    # Callers that no other test of the process has.
    with concurrent("user:first"):
        with pytest.raises(LimitExceeded), concurrent("user:first"):
            pass
        with concurrent("user:second"):
            pass
    with concurrent("user:first"):
        pass


def test_L209_a_cache_that_is_down_stops_nobody_and_is_logged(monkeypatch, caplog):
    def down(*args):
        raise ConnectionError("redis://secret@cache")

    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits.hit", down)
    count_call("user:1")
    assert "ConnectionError" in caplog.text
    assert "secret" not in caplog.text


@configured(MAX_STREAMS=1, MAX_WORKER_STREAMS=2)
def test_C44_open_streams_are_capped_for_each_caller_and_for_the_worker():
    with streaming("user:1"):
        with pytest.raises(LimitExceeded), streaming("user:1"):
            pass
        with streaming("user:2"), pytest.raises(LimitExceeded), streaming("user:3"):
            pass
        with streaming("user:3"), concurrent("user:1"):
            pass
    with streaming("user:1"):
        pass


def test_a_request_that_was_given_up_keeps_no_place_though_its_thread_goes_on(token):
    exchange = Exchange(site, http_scope(authorization=token))
    exchange.close()
    # Calls of other tests, whose loops were closed meanwhile, have theirs.
    before = dict(cache_and_rate_limits.running_calls)
    exchange.admit()
    assert cache_and_rate_limits.running_calls == before

import pytest
from django.test import override_settings

from mcp_django import site
from mcp_django.runtime.cache_and_rate_limits import Caller, Held, LimitExceeded
from mcp_django.transports.http.http_exchange import Exchange
from tests.asgi_client import http_scope
from tests.configured import configured


@override_settings(MCP_DJANGO={"RATES": {"calls": "2/h"}})
def test_H153_calls_over_the_rate_are_refused_with_the_seconds_to_wait():
    Caller("user:1").count_call()
    Caller("user:1").count_call()
    with pytest.raises(LimitExceeded) as caught:
        Caller("user:1").count_call()
    assert 0 < caught.value.retry_after <= 3600


@override_settings(MCP_DJANGO={"RATES": {"calls": "1/h"}})
def test_the_rate_of_one_caller_leaves_others_alone():
    Caller("user:1").count_call()
    Caller("user:2").count_call()


@override_settings(MCP_DJANGO={"RATES": {"calls": None}})
def test_no_rate_is_no_limit():
    for _ in range(5):
        Caller("user:1").count_call()


@configured(MAX_CONCURRENT_CALLS=1)
def test_C54_calls_at_once_are_capped_for_each_caller_and_places_come_back():
    # Callers that no other test of the process has.
    with Caller("user:first").hold_call():
        with pytest.raises(LimitExceeded), Caller("user:first").hold_call():
            pass
        with Caller("user:second").hold_call():
            pass
    with Caller("user:first").hold_call():
        pass


def test_L209_a_cache_that_is_down_stops_nobody_and_is_logged(monkeypatch, caplog):
    def down(*args):
        raise ConnectionError("redis://secret@cache")

    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits.RateLimit.hit", down)
    Caller("user:1").count_call()
    assert "ConnectionError" in caplog.text
    assert "secret" not in caplog.text


@configured(MAX_STREAMS=1, MAX_WORKER_STREAMS=2)
def test_C44_open_streams_are_capped_for_each_caller_and_for_the_worker():
    with Caller("user:1").hold_stream():
        with pytest.raises(LimitExceeded), Caller("user:1").hold_stream():
            pass
        with Caller("user:2").hold_stream(), pytest.raises(LimitExceeded), Caller("user:3").hold_stream():
            pass
        with Caller("user:3").hold_stream(), Caller("user:1").hold_call():
            pass
    with Caller("user:1").hold_stream():
        pass


def test_a_request_that_was_given_up_keeps_no_place_though_its_thread_goes_on(token):
    exchange = Exchange(site, http_scope(authorization=token))
    exchange.close()
    # Calls of other tests, whose loops were closed meanwhile, have theirs.
    before = dict(Held.running_calls)
    exchange.admit()
    assert Held.running_calls == before

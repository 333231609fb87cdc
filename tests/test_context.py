import pytest

from mcp_django.context import MCPContext, MCPRequest
from mcp_django.exceptions import Cancelled
from mcp_django.sites import MCPSite


def context(**options):
    sent = []
    built = MCPContext(site=MCPSite(), notify=lambda method, params: sent.append((method, dict(params))), **options)
    return built, sent


def test_progress_goes_to_the_client_that_asked_for_it():
    mcp, sent = context(progress_token="t")
    mcp.progress(1, 2, "halfway")
    params = {"progressToken": "t", "progress": 1, "total": 2, "message": "halfway"}
    assert sent == [("notifications/progress", params)]


def test_nothing_is_sent_to_a_client_that_did_not_ask():
    mcp, sent = context()
    mcp.progress(1)
    assert sent == []


def test_D66_progress_only_ever_grows(monkeypatch):
    monkeypatch.setattr("mcp_django.context.PROGRESS_INTERVAL", 0)
    mcp, sent = context(progress_token=7)
    for done in (0, 5, 5, 3, 6):
        mcp.progress(done)
    assert [params["progress"] for _, params in sent] == [0, 5, 6]


def test_D66_a_flood_of_progress_is_thinned_but_its_end_is_told():
    mcp, sent = context(progress_token=7)
    for done in range(10_001):
        mcp.progress(done, 10_000)
    assert len(sent) < 1_000
    assert sent[-1][1]["progress"] == 10_000


def test_a_report_after_the_client_has_gone_stops_the_work():
    mcp, _ = context(progress_token=7)
    mcp.cancelled.set()
    with pytest.raises(Cancelled):
        mcp.progress(1)


def test_cancellation_is_not_swallowed_by_except_exception():
    assert not issubclass(Cancelled, Exception)


def test_the_scheme_of_the_connection_is_that_of_the_request():
    request = MCPRequest()
    request.META = {}
    request.connection_scheme = "https"
    assert request.is_secure()

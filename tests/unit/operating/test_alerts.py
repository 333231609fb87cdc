"""Alerts: each is told once, by the log, a signal and a mail, whatever cache, receivers and mail server do."""

import logging
import threading
from datetime import timedelta
from types import ModuleType, SimpleNamespace

import pytest
from django import VERSION
from django.core import mail
from django.core.cache import cache as django_cache
from django.core.mail.backends.base import BaseEmailBackend
from django.utils import timezone

from mcp_django.context.call_record import CallRecord
from mcp_django.exceptions import CallRefused
from mcp_django.models import CallEntry
from mcp_django.operating import alerts as alerts_module
from mcp_django.operating import call_log_storage, switches
from mcp_django.operating.alerts import Alerts, alerts
from mcp_django.operating.daily_budgets import Budgets
from mcp_django.operating.switches import Board, end_switch, set_switch
from mcp_django.signals import alert_raised, client_connected

FAILED = ["error:-32603"]


def settle():
    """Wait for the threads that tell alerts."""
    for thread in threading.enumerate():
        if thread.name == "mcp-alert":
            thread.join(10)


def send_by(settings, backend):
    """Let a backend send mails, by the setting that this Django has for it."""
    if VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": backend}}
    else:
        settings.EMAIL_BACKEND = backend


@pytest.fixture(autouse=True)
def configure(settings):
    """Mail alerts to the administrators, as a project does that wants them."""

    def to(**found):
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "TELEMETRY": {"alerts": "mail", **found}}

    send_by(settings, "django.core.mail.backends.locmem.EmailBackend")
    settings.ADMINS = ["ann@shop.example"] if VERSION >= (6,) else [("Ann", "ann@shop.example")]
    to()
    django_cache.clear()
    alerts.__init__()
    yield to
    settle()
    alerts.__init__()


@pytest.fixture
def received():
    """The alerts that a receiver of the signal gets."""
    found = []

    def receive(sender, kind, text, facts, **more):
        found.append((sender, kind, text, facts))

    alert_raised.connect(receive)
    yield found
    alert_raised.disconnect(receive)


def bodies():
    settle()
    return [message.body for message in mail.outbox]


def test_an_alert_is_logged_sent_and_mailed_to_the_administrators(received, caplog):
    alerts.raise_alert("client", "1:2", "Codex has access.", {"client": "Codex"})
    settle()
    assert received == [(CallEntry, "client", "Codex has access.", {"client": "Codex"})]
    (message,) = mail.outbox
    assert message.to == ["ann@shop.example"]
    assert "MCP: Codex has access." in message.subject
    assert "Alert: Codex has access." in caplog.text


@pytest.mark.parametrize(("mode", "signals", "mails"), [("off", 0, 0), ("signal", 1, 0), ("mail", 1, 1)])
def test_the_settings_say_who_is_told(configure, received, mode, signals, mails):
    configure(alerts=mode)
    alerts.raise_alert("client", "1:2", "Codex has access.", {})
    alerts.count(FAILED * 100)
    settle()
    assert len([kind for _, kind, *_ in received if kind == "client"]) == signals
    assert len([body for body in bodies() if "Codex" in body]) == mails


def test_nobody_is_told_by_default(settings, received):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "TELEMETRY": {}}
    alerts.raise_alert("client", "1:2", "Codex has access.", {})
    alerts.count(FAILED * 100)
    settle()
    assert (received, mail.outbox) == ([], [])


def test_two_workers_that_share_a_cache_tell_it_once(received):
    for worker in (Alerts(), Alerts(), Alerts()):
        worker.raise_alert("client", "1:2", "Codex has access.", {})
        settle()
    assert (len(received), len(mail.outbox)) == (1, 1)


def test_two_workers_that_share_a_cache_count_together(configure, received):
    configure(failing_calls=40, failing_share=0.5)
    for worker in (Alerts(), Alerts()):
        worker.count([*FAILED * 10, *["ok"] * 10])
        settle()
    ((_, kind, text, facts),) = received
    assert (kind, facts) == ("failures", {"failed": 20, "calls": 40, "minutes": 5})
    assert text == "20 of 40 calls of the last 5 minutes failed."


@pytest.mark.parametrize(
    ("outcomes", "is_told"),
    [
        (FAILED * 20, True),
        (FAILED * 19, False),
        ([*FAILED * 5, *["ok"] * 15], True),
        ([*FAILED * 4, *["ok"] * 16], False),
        (["tool_error"] * 20, True),
        (["refused:rate"] * 50, False),
        (["cancelled", "asked", "ok", ""] * 20, False),
    ],
)
def test_a_share_of_failed_calls_of_enough_calls_is_told(received, outcomes, is_told):
    alerts.count(outcomes)
    settle()
    assert bool(received) is is_told


def test_calls_of_long_ago_do_not_count(received, monkeypatch):
    now = 1_800_000_000.0
    monkeypatch.setattr(alerts_module.time, "time", lambda: now)
    alerts.count(FAILED * 19)
    now += 300
    alerts.count(FAILED)
    settle()
    assert received == []
    now += 240
    alerts.count(FAILED * 19)
    settle()
    assert received[0][3]["calls"] == 20


def test_failures_that_go_on_are_told_once_an_hour(received, monkeypatch):
    for _ in range(5):
        alerts.count(FAILED * 100)
        settle()
    assert len(received) == 1


@pytest.mark.django_db
def test_the_log_counts_what_it_stores(received):
    record = CallRecord(method="tools/call", outcome="error:-32603", duration=1.0)
    writer = call_log_storage.Writer()
    for _ in range(20):
        writer.waiting.append((0.0, call_log_storage.row_of(CallRecord(method="m", outcome=record.outcome)), None))
    writer.flush()
    settle()
    assert received[0][1] == "failures"


def test_one_mail_of_a_kind_goes_out_in_ten_minutes_and_all_signals(received):
    for number in range(5):
        alerts.raise_alert("client", str(number), f"Client {number} has access.", {})
        settle()
    alerts.raise_alert("switch", "1", "On again.", {})
    settle()
    assert len(received) == 6
    assert [body.split("\n")[0] for body in bodies()] == ["Client 0 has access.", "On again."]


def test_names_that_clients_chose_are_one_clean_line(received):
    application = SimpleNamespace(name="Evil\r\nBcc: all@shop.example\u202e", client_id="abc", pk=1)
    user = SimpleNamespace(pk=2, get_username=lambda: "ada")
    client_connected.send(None, application=application, user=user, scopes=["mcp:read"])
    settle()
    (message,) = mail.outbox
    assert message.subject.count("\n") == 0
    assert message.recipients() == ["ann@shop.example"]
    assert "\u202e" not in message.body
    assert received[0][3]["scopes"] == ["mcp:read"]
    assert received[0][3]["client_id"] == "abc"


@pytest.mark.parametrize("is_mounted", [True, False])
def test_the_alert_of_a_client_leads_to_its_page_where_the_admin_is_mounted(settings, received, is_mounted):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": "https://shop.example"}
    if not is_mounted:
        settings.ROOT_URLCONF = ModuleType("urls")
        settings.ROOT_URLCONF.urlpatterns = []
    application = SimpleNamespace(name="Codex", client_id="a b&c", pk=1)
    user = SimpleNamespace(pk=2, get_username=lambda: "ada")
    client_connected.send(None, application=application, user=user, scopes=["mcp:read"])
    page = "https://shop.example/admin/mcp_django/callentry/clients/?client=a+b%26c"
    (body,) = bodies()
    assert body.endswith(page if is_mounted else "https://shop.example")
    assert received[0][3].get("url") == (page if is_mounted else None)


def test_without_an_origin_the_alert_of_a_client_has_no_address(settings, received):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": None}
    application = SimpleNamespace(name="Codex", client_id="abc", pk=1)
    user = SimpleNamespace(pk=2, get_username=lambda: "ada")
    client_connected.send(None, application=application, user=user, scopes=[])
    assert "/admin/" not in bodies()[0]
    assert received[0][3].get("url") is None


@pytest.mark.django_db
def test_a_budget_that_is_used_up_is_told_once_a_day_with_its_owner(settings, received):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"client": {"calls": 1}}}
    record = CallRecord(method="tools/call", kind="person", user="7", username="ada", client_id="abc")
    record.client_name = "Codex"
    request = SimpleNamespace(mcp=SimpleNamespace(record=record, facts={}, task=None))
    Budgets(request).check()
    for _ in range(3):
        with pytest.raises(CallRefused):
            Budgets(request).check()
    settle()
    ((_, kind, text, facts),) = received
    assert (kind, facts["name"], facts["limit"]) == ("budget", "Codex", 1)
    assert text == "Codex has used up today's budget: client.calls = 1"


@pytest.mark.django_db
def test_a_switch_that_ends_by_itself_is_told_and_one_that_is_ended_is_not(received, monkeypatch):
    set_switch("tool", "delete_record", until=timedelta(minutes=5))
    ended = set_switch("writes", until=timedelta(minutes=5))
    board = Board()
    assert board.current() is not None
    end_switch(ended)
    board.expire()
    board.current()
    later = timezone.now() + timedelta(minutes=6)
    monkeypatch.setattr(switches.timezone, "now", lambda: later)
    for worker in (board, board):
        worker.expire()
        assert worker.current() is None
    settle()
    ((_, kind, text, facts),) = received
    assert (kind, facts) == ("switch", {"kind": "tool", "target": "delete_record"})
    assert "delete_record" in text


class Away(BaseEmailBackend):
    """A mail server that does not answer."""

    def send_messages(self, messages):
        raise ConnectionRefusedError("smtp://user:word@mail.example")


def test_a_mail_server_that_is_away_is_logged_without_its_credentials(settings, received, caplog):
    send_by(settings, f"{__name__}.Away")
    alerts.raise_alert("client", "1:2", "Codex has access.", {})
    settle()
    assert len(received) == 1
    assert "An alert could not be mailed (ConnectionRefusedError): Codex has access." in caplog.text
    assert "word" not in caplog.text


def test_a_receiver_that_fails_is_logged_and_the_mail_goes_out(caplog):
    def broken(**told):
        raise RuntimeError

    alert_raised.connect(broken)
    try:
        alerts.raise_alert("client", "1:2", "Codex has access.", {})
        assert "Codex has access." in bodies()[-1]
    finally:
        alert_raised.disconnect(broken)
    assert "Error calling" in caplog.text


class Broken:
    """A cache that does not answer."""

    def __getattr__(self, name):
        raise ConnectionError


def test_without_a_cache_a_worker_tells_its_own_alerts_once_and_no_call_fails(received, monkeypatch, caplog):
    monkeypatch.setattr(alerts_module, "cache", Broken())
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        alerts.raise_alert("client", "1:2", "Codex has access.", {})
        alerts.count(FAILED * 100)
    assert len(bodies()) == 1
    assert len(received) == 1
    assert "Failed calls are not counted" in caplog.text


def test_many_alerts_are_remembered_within_bounds(configure, monkeypatch):
    configure(alerts="signal")
    monkeypatch.setattr(alerts_module, "MOST", 3)
    for number in range(10):
        alerts.raise_alert("client", str(number), "x", {})
    assert len(alerts._raised) <= 3

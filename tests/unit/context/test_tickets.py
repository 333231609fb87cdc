"""Tickets: whom they speak for, what for, and for how long."""

import time

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.test import override_settings

from mcp_django import MCPSite
from mcp_django.context.request import local_request
from mcp_django.context.tickets import Ticket
from tests.factories import make_user
from tests.tool_calls import request_of

ENDPOINT = "http://testserver/mcp"


class Token:
    checksum = "ab" * 32


def nobody(**options):
    return request_of(AnonymousUser(), MCPSite("a"), resource=ENDPOINT, **options)


def ticket_of(url, use="files"):
    start = f"{ENDPOINT}/{use}/"
    assert url.startswith(start)
    return url.removeprefix(start)


@pytest.mark.django_db
def test_a_ticket_holds_its_user_token_and_purpose():
    user = make_user("u")
    request = request_of(user, MCPSite("a"), resource=ENDPOINT)
    request.auth = Token()
    text = ticket_of(Ticket.url(request, "files", "shop.order", "1", "ü"))
    assert Ticket.read("a", "files", text) == Ticket(str(user.pk), "ab" * 32, ("shop.order", "1", "ü"))
    assert len(text) < 250


def test_a_ticket_tells_nothing_and_fits_the_pattern_of_urls():
    text = ticket_of(Ticket.url(nobody(), "files", "shop.order", "1", "file"))
    assert __import__("re").fullmatch(Ticket.PATTERN, text)
    assert "order" not in text
    assert Ticket.read("a", "files", text) == Ticket(None, "", ("shop.order", "1", "file"))


def test_a_ticket_is_for_one_use_of_one_site():
    text = ticket_of(Ticket.url(nobody(), "files", "x"))
    assert Ticket.read("b", "files", text) is None
    assert Ticket.read("a", "uploads", text) is None
    assert Ticket.read("a", "files", text[:-1]) is None
    assert Ticket.read("a", "files", "a:b:c") is None


def test_a_ticket_ends_and_outlives_a_new_key(monkeypatch, settings):
    text = ticket_of(Ticket.url(nobody(), "files", "x"))
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        assert Ticket.read("a", "files", text) is not None
    with override_settings(SECRET_KEY="new"):
        assert Ticket.read("a", "files", text) is None
    now = time.time()
    monkeypatch.setattr("django.core.signing.time.time", lambda: now + Ticket.MAX_AGE + 2)
    assert Ticket.read("a", "files", text) is None


def test_an_endpoint_with_a_slash_has_the_same_urls():
    request = nobody()
    request.mcp.resource += "/"
    assert ticket_of(Ticket.url(request, "files", "x"))


def test_a_caller_that_did_not_come_by_http_or_is_no_user_of_django_gets_none():
    class Service:
        pk = 1

    assert Ticket.suits(nobody())
    assert not Ticket.suits(request_of(AnonymousUser(), MCPSite("a")))
    local = local_request(MCPSite("a"))
    local.user = get_user_model()(pk=1)
    assert not Ticket.suits(local)
    assert not Ticket.suits(request_of(Service(), MCPSite("a"), resource=ENDPOINT))

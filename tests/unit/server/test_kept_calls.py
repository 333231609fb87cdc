"""Calls that only a person can confirm: the page, its Yes, and what becomes of the call."""

import re

import pytest
from django.test import Client

from mcp_django.models import Change
from mcp_django.testing import MCPClient
from tests.factories import make_book, make_superuser
from tests.testapp.models import Book

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

BOOK = {"model": "testapp.book"}


@pytest.fixture(autouse=True)
def by_person(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "person"}


@pytest.fixture
def root():
    return make_superuser()


@pytest.fixture
def caller(root):
    return MCPClient(root)


@pytest.fixture
def person(root):
    return signed_in(root)


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


def page_of(waiting):
    """Return the path of the page that a call leads to."""
    assert waiting.is_error is False
    assert waiting.structured["state"] == "waiting"
    return re.sub(r"^https?://[^/]+", "", waiting.structured["url"])


def test_a_yes_on_the_page_makes_the_call(caller, person):
    book = make_book("Dune")
    waiting = caller.call("delete_record", **BOOK, pk=book.pk)
    page = page_of(waiting)
    assert "Dune" in waiting.structured["summary"]
    assert Book.objects.count() == 1
    shown = person.get(page).content.decode()
    assert "Dune" in shown
    answer = person.post(page, {"yes": "1"}, follow=True)
    assert not Book.objects.exists()
    assert "It was done" in answer.content.decode()
    change = Change.objects.get()
    assert (change.state, change.by, change.pk) == ("done", "root", waiting.structured["change"])
    repeated = caller.call("delete_record", **BOOK, pk=book.pk)
    assert repeated.structured["deleted"] is True
    assert repeated.structured["change"] == change.pk

"""What a model would reach as the user who is signed in, on the page that tells it."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from mcp_django.testing import MCPClient
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db


def test_who_is_not_signed_in_signs_in_first():
    answer = Client().get("/oauth/access/")
    assert answer.status_code == 302
    assert "login" in answer["Location"]


def test_a_user_sees_what_a_model_would_see():
    reader = make_user("reader")
    reader.user_permissions.add(Permission.objects.get(codename="view_author"))
    browser = Client()
    browser.force_login(reader)
    page = browser.get("/oauth/access/")
    assert page.status_code == 200
    assert "testapp.author" in page.text
    assert "read only" in page.text
    assert "testapp.book" not in page.text
    assert "secret_token" not in page.text
    for tool in MCPClient(reader).tools():
        assert tool["name"] in page.text
    assert "frame-ancestors 'none'" in page["Content-Security-Policy"]


def test_a_user_who_sees_nothing_is_told():
    browser = Client()
    browser.force_login(make_user("stranger"))
    assert "no permission to view anything" in browser.get("/oauth/access/").text


def test_what_may_be_changed_is_said(settings):
    browser = Client()
    browser.force_login(make_superuser("root"))
    assert "read and change" in browser.get("/oauth/access/").text
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    assert "read and change" not in browser.get("/oauth/access/").text

import json
from email.message import Message

import pytest
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.test import Client
from oauth2_provider.models import Application

from mcp_django import MCPSite
from mcp_django.console.doctor import Answer, Doctor
from mcp_django.management.commands.mcp_doctor import add_client, cleaning, shut_out, signed_in
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db


def browser_of(session):
    doctor = Doctor("http://127.0.0.1/mcp")
    doctor.use_session(session)
    browser = Client()
    browser.cookies.load(dict(doctor.sign_in()))
    return browser


def test_the_session_is_one_of_the_user_and_ends():
    person = make_superuser("root")
    with signed_in(person) as session:
        browser = browser_of(session)
        assert browser.get("/oauth/authorized_tokens/").status_code == 200
    assert not Session.objects.exists()
    assert browser.get("/oauth/authorized_tokens/").status_code == 302


def test_without_a_user_there_is_no_session():
    with signed_in(None) as session:
        assert session is None
    assert not Session.objects.exists()


def test_the_client_that_was_registered_is_deleted_whatever_happens():
    Application.objects.create(client_id="c1", client_type="public", authorization_grant_type="authorization-code")
    with pytest.raises(ZeroDivisionError), cleaning(Doctor("http://testserver/mcp", client_id="c1")):
        raise ZeroDivisionError
    assert not Application.objects.exists()


def test_a_server_that_is_not_there_is_said_with_what_to_do(capsys):
    with pytest.raises(CommandError, match="Start the server"):
        call_command("mcp_doctor", "http://127.0.0.1:9/mcp")
    assert "FAIL  Endpoint: http://127.0.0.1:9/mcp cannot be reached" in capsys.readouterr().out


@pytest.mark.urls("tests.two_sites")
def test_of_several_endpoints_one_has_to_be_named():
    with pytest.raises(CommandError, match=r"manage\.py mcp_doctor URL\. Mounted are: http://testserver/mcp "):
        call_command("mcp_doctor")


def test_a_user_who_is_not_there_is_said():
    with pytest.raises(CommandError, match="no user 'eve'"):
        call_command("mcp_doctor", user="eve")


def test_a_client_that_is_added_is_one_that_can_go_the_way_and_is_deleted():
    doctor = Doctor("http://testserver/mcp", client_id=add_client())
    with cleaning(doctor):
        client = Application.objects.get(client_id=doctor.client_id)
        assert client.redirect_uri_allowed(Doctor.callback)
        assert (client.client_type, client.authorization_grant_type) == ("public", "authorization-code")
    assert not Application.objects.exists()


def test_what_is_no_url_is_said():
    with pytest.raises(CommandError, match="'ftp://x' is not a URL: it must begin with http:// or https://"):
        call_command("mcp_doctor", "ftp://x")


def test_what_is_wrong_with_this_project_is_said_before_the_way_and_is_a_failure(capsys, monkeypatch, settings):
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    monkeypatch.setattr(Doctor, "steps", lambda doctor: iter([("Endpoint", lambda: "well")]))
    with pytest.raises(CommandError, match="no call can be confirmed"):
        call_command("mcp_doctor", "http://127.0.0.1:9/mcp")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "ok    Tables of mcp_django: All migrations are applied." in lines
    assert any(line.startswith("FAIL  Cache: It loses what is stored in it.") for line in lines)
    assert lines.index("ok    Endpoint: well") > lines.index("The path of a client to http://127.0.0.1:9/mcp")


def test_the_cookie_of_the_session_is_for_where_the_settings_say(settings):
    settings.SESSION_COOKIE_PATH, settings.SESSION_COOKIE_SECURE = "/admin/", True
    with signed_in(make_superuser("root")) as session:
        found = browser_of(session).cookies[settings.SESSION_COOKIE_NAME]
        assert (found["path"], found["secure"]) == ("/admin/", True)


@pytest.mark.parametrize(("login", "is_out"), [("admin:login", True), ("/accounts/login/", False)])
def test_who_is_no_staff_cannot_sign_in_at_the_admin(settings, login, is_out):
    settings.LOGIN_URL = login
    assert bool(shut_out(make_user("bob", staff=False))) is is_out
    assert not shut_out(make_superuser("root"))
    assert not shut_out(None)


def test_a_password_is_of_somebody():
    with pytest.raises(CommandError, match="--user"):
        call_command("mcp_doctor", "http://127.0.0.1:9/mcp", password=True)


class LocksOut:
    """A backend that only counts wrong passwords, and knows no users."""

    def authenticate(self, request, **credentials):
        return None

    def get_user(self, pk):
        return None


def test_the_session_is_of_the_backend_that_knows_the_user(settings):
    person = make_superuser("root")
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.LocksOut", "django.contrib.auth.backends.ModelBackend"]
    with signed_in(person) as session:
        browser = browser_of(session)
        assert browser.get("/oauth/authorized_tokens/").status_code == 200
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.LocksOut"]
    with pytest.raises(CommandError, match="None of AUTHENTICATION_BACKENDS finds root"), signed_in(person):
        pass


@pytest.mark.parametrize(("schemes", "scheme"), [(["https"], "https"), (["https", "http"], "http")])
def test_the_client_has_a_redirect_uri_that_the_project_accepts(settings, schemes, scheme):
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "ALLOWED_REDIRECT_URI_SCHEMES": schemes}
    added = Application.objects.get(client_id=add_client())
    assert added.redirect_uris == f"{scheme}://127.0.0.1:33419/callback"


def test_as_json_everything_that_is_seen_is_one_object(capsys, monkeypatch, settings):
    def steps(doctor):
        yield "Endpoint", lambda: "well"
        yield "Stream", lambda: setattr(doctor, "doubt", "mend it") or "half well"

    monkeypatch.setattr(Doctor, "steps", steps)
    call_command("mcp_doctor", "http://127.0.0.1:9/mcp", as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["url"], printed["ok"]) == ("http://127.0.0.1:9/mcp", True)
    assert printed["checks"][-2:] == [
        {"title": "Endpoint", "verdict": "ok", "seen": "well", "remedy": ""},
        {"title": "Stream", "verdict": "info", "seen": "half well", "remedy": "mend it"},
    ]


@pytest.mark.parametrize(("nothing", "cause"), [(True, "of the project is registered"), (False, "has no permission")])
def test_no_tools_for_want_of_anything_registered_are_told_from_no_permission(monkeypatch, capsys, nothing, cause):
    def steps(doctor):
        monkeypatch.setattr(doctor, "_ask", lambda *args, **more: answer)
        yield "Call", doctor.call

    answer = Answer("x", 200, Message(), b'{"result": {"tools": []}}')
    answer.headers["Content-Type"] = "application/json"
    monkeypatch.setattr(MCPSite, "serves_nothing", lambda site: nothing)
    monkeypatch.setattr(Doctor, "steps", steps)
    call_command("mcp_doctor", "http://127.0.0.1:9/mcp")
    printed = capsys.readouterr().out
    assert "note  Call: 0 tools. " in printed
    assert printed.endswith("All is well, but clients find no tools yet: see the note on Call.\n")
    assert cause in printed.partition("note  Call: ")[2]

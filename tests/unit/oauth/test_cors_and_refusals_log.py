"""What the log says of a refusal by the authorization server: its cause and what mends it, and no secret."""

import base64
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import Application, Grant, RefreshToken

from mcp_django.context import refused_request_log
from tests.oauth_flow import REDIRECT_URI, RESOURCE, Flow

pytestmark = pytest.mark.django_db

Log = Callable[[], list[str]]


@pytest.fixture
def flow() -> Flow:
    return Flow()


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Log:
    """What the log says of refusals, of which none was logged before."""
    monkeypatch.setattr(refused_request_log, "_quiet", {})
    caplog.set_level(logging.INFO, "mcp_django")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "mcp_django"]


def old(model: Any, **changes: Any) -> None:
    model.objects.update(**(changes or {"expires": timezone.now() - timedelta(days=400)}))


# The authorization endpoint


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"client_id": "gone"},
            "400: GET /oauth/authorize/: the client is not known here (client 'gone'). It was dele",
        ),
        ({"redirect_uri": "https://evil.example/"}, "'https://evil.example/' is not one of the client's: http://127."),
        ({"code_challenge": None}, "Code challenge required (client "),
        ({"resource": "http://testserver/elsewhere"}, f"elsewhere, but the endpoints are {RESOURCE} (client "),
        ({"scope": "everything"}, "The client asks for a scope that OAUTH2_PROVIDER['SCOPES'] lacks"),
        ({"response_type": "token"}, "Clients sign in only by response_type=code."),
        ({"state": "%zz\x00"}, "400: GET /oauth/authorize/"),
    ],
)
def test_a_sign_in_that_is_refused_says_why(flow: Flow, log: Log, changes: dict[str, Any], said: str) -> None:
    if "state" in changes:
        flow.browser.get("/oauth/authorize/?client_id=%zz")
    else:
        flow.ask(**changes)
    (line,) = log()
    assert said in line
    assert flow.challenge not in line


def test_a_form_that_was_changed_is_said(flow: Flow, log: Log) -> None:
    page = flow.ask()
    fields = {key: value for key, value in page.context["form"].initial.items() if value}
    flow.browser.post("/oauth/authorize/", fields | {"redirect_uri": "https://evil.example/", "allow": "1"})
    assert log()[0].startswith("400: POST /oauth/authorize/: the form is not the one that was shown (client ")


def test_a_user_who_says_no_and_a_silent_sign_in_are_no_faults(flow: Flow, log: Log) -> None:
    flow.answer(deny=True)
    Flow(username="bob").application.get("/oauth/authorize/", flow.query(prompt="none"))
    assert log() == []


# The token endpoint


def spent_code(flow: Flow) -> Any:
    code = flow.code()
    flow.exchange(code)
    return flow.exchange(code)


def old_code(flow: Flow) -> Any:
    code = flow.code()
    old(Grant)
    return flow.exchange(code)


def code_of_another(flow: Flow) -> Any:
    return Flow(username="bob").exchange(flow.code())


def code_of_nobody(flow: Flow) -> Any:
    code = flow.code()
    old(get_user_model(), is_active=False)
    return flow.exchange(code)


def code_before_a_password(flow: Flow) -> Any:
    code = flow.code()
    flow.user.set_password("another")
    flow.user.save()
    flow.browser.force_login(flow.user)
    return flow.exchange(code)


def refresh_of_another(flow: Flow) -> Any:
    return Flow(username="bob").refresh(flow.tokens()["refresh_token"])


def spent_refresh(flow: Flow) -> Any:
    token = flow.tokens()["refresh_token"]
    flow.refresh(token)
    old(RefreshToken, revoked=timezone.now() - timedelta(hours=1))
    return flow.refresh(token)


def unused_refresh(flow: Flow) -> Any:
    token = flow.tokens()["refresh_token"]
    old(RefreshToken, access_token=None)
    return flow.refresh(token)


def wrong_secret(flow: Flow) -> Any:
    Application.objects.update(client_type="confidential")
    return flow.refresh("x", client_secret="s3cret")


CAUSES: dict[str, tuple[Callable[[Flow], Any], str]] = {
    "unknown client": (
        lambda flow: flow.refresh("x", client_id="gone"),
        "401: POST /oauth/token/: the client is not known here (client 'gone'). It was deleted, or",
    ),
    "secret": (wrong_secret, "the client sends no secret or a wrong one"),
    "code": (lambda flow: flow.exchange("c0de"), "the code is not known: it was used before"),
    "spent code": (spent_code, "the code is not known: it was used before"),
    "old code": (old_code, "the code has expired"),
    "another's code": (code_of_another, "the code or refresh token belongs to another client"),
    "inactive": (code_of_nobody, ") is not active (client "),
    "password": (code_before_a_password, "the user's password or sign-in has changed since"),
    "short verifier": (
        lambda flow: flow.exchange(flow.code(), code_verifier="x"),
        "the code_verifier is not well-formed",
    ),
    "verifier": (
        lambda flow: flow.exchange(flow.code(), code_verifier="x" * 43),
        "code_verifier is not from this sign",
    ),
    "redirect": (
        lambda flow: flow.exchange(flow.code(), redirect_uri="http://127.0.0.1/x"),
        "Mismatching redirect URI",
    ),
    "resource": (
        lambda flow: flow.exchange(flow.code(), resource="http://x/mcp"),
        "the resource is http://x/mcp, but the",
    ),
    "refresh": (lambda flow: flow.refresh("n0thing"), "the refresh token is not known here"),
    "another's refresh": (refresh_of_another, "the code or refresh token belongs to another client"),
    "spent refresh": (spent_refresh, "Does the client run twice with one token store?"),
    "unused refresh": (unused_refresh, "it lasts REFRESH_TOKEN_EXPIRE_SECONDS"),
    "scope": (lambda flow: flow.refresh(flow.tokens(scope="mcp:read")["refresh_token"], scope="mcp:admin"), "granted"),
    "grant type": (lambda flow: flow.token(grant_type="password"), "only by authorization_code and refresh_token"),
    "nothing": (lambda flow: flow.token(), "400: POST /oauth/token/: invalid_request"),
    "method": (lambda flow: flow.application.get("/oauth/token/"), "405: GET /oauth/token/: Method Not Allowed"),
    "body": (
        lambda flow: Client().post("/oauth/token/", "x", content_type="multipart/form-data; boundary=\xff"),
        "400: POST /oauth/token/: the body cannot be read (MultiPartParserError)",
    ),
    "revocation": (
        lambda flow: flow.application.post("/oauth/revoke_token/", {"token": "t0ken", "client_id": "gone"}),
        "401: POST /oauth/revoke_token/: the client is not known here (client 'gone')",
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_token_that_is_refused_says_why(flow: Flow, log: Log, cause: str) -> None:
    fail, said = CAUSES[cause]
    answer = fail(flow)
    assert answer.status_code in (400, 401, 405)
    (line,) = log()
    assert line.startswith(f"{answer.status_code}: ")
    assert said in line


def test_no_secret_is_logged(flow: Flow, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = [flow.verifier]
    for fail, _ in CAUSES.values():
        monkeypatch.setattr(refused_request_log, "_quiet", {})
        tokens = flow.tokens()
        secrets += [tokens["access_token"], tokens["refresh_token"]]
        sent = fail(flow).wsgi_request.POST
        named = ("code", "refresh_token", "client_secret", "code_verifier", "token")
        secrets += [value for key, value in sent.items() if key in named and len(value) > 1]
        old(get_user_model(), is_active=True)
        old(Application, client_type="public")
    text = "\n".join(log())
    assert len(secrets) > 30
    assert [secret for secret in secrets if secret in text] == []


def test_limits_and_a_database_that_is_down_are_named(
    flow: Flow, log: Log, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("server closed the connection")

    with monkeypatch.context() as patch:
        patch.setattr("mcp_django.oauth.validator.MCPValidator.validate_refresh_token", down)
        assert flow.refresh("x").status_code == 503
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"refusals": "0/h"}}
    assert flow.refresh("x").status_code == 429
    assert log()[0].startswith("503: POST /oauth/token/: the database does not answer")
    assert log()[1].endswith("RATES['refusals'] sets the limit.")


# Registration


def register(**metadata: Any) -> Any:
    sent = {"client_name": "Claude", "redirect_uris": [REDIRECT_URI], **metadata}
    return Client().post("/oauth/register/", json.dumps(sent), content_type="application/json")


@pytest.mark.parametrize(
    ("changes", "metadata", "status", "said"),
    [
        ({"REGISTRATION": "off"}, {}, 404, "clients cannot register themselves. REGISTRATION is 'off'"),
        ({"REGISTRATION": "authenticated"}, {}, 401, "has no valid token. REGISTRATION is 'authenticated'"),
        ({"RATES": {"registrations": "0/h"}}, {}, 429, "too many clients register. RATES['registrations']"),
        ({}, {"redirect_uris": ["http://evil.example/"]}, 400, "An administrator can add the application in the admin"),
        ({}, {"token_endpoint_auth_method": "tls"}, 400, "An administrator can add the application in the admin"),
    ],
)
def test_a_registration_that_is_refused_says_why(
    log: Log, settings: Any, changes: dict[str, Any], metadata: dict[str, Any], status: int, said: str
) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | changes
    assert register(**metadata).status_code == status
    (line,) = log()
    assert line.startswith(f"{status}: POST /oauth/register/: ")
    assert said in line


# Documents


def test_a_document_that_is_not_there_is_information_as_clients_look_at_several_places(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    assert Client().get("/.well-known/oauth-protected-resource/mpc").status_code == 404
    (line,) = log()
    assert "there is no endpoint /mpc; it is at /mcp" in line
    assert "is the URL in the client right?" in line
    assert [record.levelname for record in caplog.records if record.name == "mcp_django"] == ["INFO"]


# The log is not the stranger's


def test_a_stranger_neither_floods_the_log_nor_grows_anything(flow: Flow, log: Log, settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"refusals": None, "registrations": "1000/h"}}
    for number in range(40):
        name = f"client{number}"
        flow.refresh("x", client_id=name)
        flow.ask(client_id=name)
        flow.ask(redirect_uri=f"https://{name}.example/")
        flow.ask(resource=f"https://{name}.example/mcp")
        Client().get(f"/.well-known/oauth-protected-resource/{name}")
        register(redirect_uris=[f"http://{name}.example/"])
    assert len(log()) == len(refused_request_log._quiet) == 6


@pytest.mark.parametrize("by", ["header", "body", "query", "path", "redirect", "resource"])
def test_no_text_of_a_client_makes_a_line_of_its_own_or_a_long_one(flow: Flow, log: Log, by: str) -> None:
    evil = "x\r\n500: \x1b[31mforged\x85" + "y" * 3000
    basic = {"HTTP_AUTHORIZATION": "Basic " + base64.b64encode(f"{evil}:x".encode()).decode()}
    sent: dict[str, Callable[[], Any]] = {
        "header": lambda: Client().post("/oauth/token/", {"grant_type": "refresh_token"}, **basic),
        "body": lambda: flow.refresh("x", client_id=evil),
        "query": lambda: flow.ask(client_id=evil),
        "path": lambda: Client().get("/.well-known/oauth-protected-resource/" + evil),
        "redirect": lambda: flow.ask(redirect_uri=f"https://{evil}"),
        "resource": lambda: flow.ask(resource=f"https://{evil}"),
    }
    sent[by]()
    (line,) = log()
    assert line.isprintable()
    assert len(line) < 800

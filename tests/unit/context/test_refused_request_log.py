"""What a refusal says on every road to the endpoint: to the caller what they know anyway, to the log always."""

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.core.asgi import get_asgi_application
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import AccessToken
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed as NotAuthenticated

from mcp_django import asgi
from mcp_django.context import refused_request_log
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.runtime.cache_and_rate_limits import Caller
from mcp_django.testing import MCPClient
from tests.asgi_client import Exchange, http_scope
from tests.configured import configured
from tests.factories import make_superuser

pytestmark = pytest.mark.django_db(transaction=True)

RESOURCE = "http://testserver/mcp"
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
JSON = "application/json"
ROADS = ("asgi", "view", "wsgi")

# Status, headers by lower-case name, and body.
Answer = tuple[int, dict[str, str], bytes]
Ask = Callable[..., Answer]


async def by_asgi(application: Any, method: str, body: bytes, headers: dict[str, str]) -> Answer:
    scope = http_scope(method=method) | {"headers": [(k.encode(), v.encode("latin1")) for k, v in headers.items()]}
    asked = Exchange(application, scope)
    await asked.send(body)
    status, answered, content = await asked.answer()
    return status, {name.lower(): value for name, value in answered.items()}, content


def by_wsgi(method: str, body: bytes, headers: dict[str, str]) -> Answer:
    answer = Client().generic(method, "/mcp", body, headers.pop("content-type", ""), headers=headers)
    return answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, answer.content


@pytest.fixture(params=ROADS)
def ask(request: pytest.FixtureRequest) -> Ask:
    """Send a request to the endpoint; a header that is None is left out."""
    applications = {"asgi": asgi.get_asgi_application, "view": get_asgi_application}
    make = applications.get(request.param)
    send = by_wsgi if make is None else partial(async_to_sync(by_asgi), make())

    def ask(
        token: str | None = None, *, method: str = "POST", body: str | bytes = PING, **changes: str | None
    ) -> Answer:
        headers = {"host": "testserver", "content-type": JSON, "accept": f"{JSON}, text/event-stream"}
        headers |= {} if token is None else {"authorization": f"Bearer {token}"}
        named = headers | {name.replace("_", "-"): value for name, value in changes.items()}
        kept = {name: value for name, value in named.items() if value is not None}
        return send(method, body if isinstance(body, bytes) else body.encode(), kept)

    return ask


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log says of refusals, of which none was logged before."""
    monkeypatch.setattr(refused_request_log, "_quiet", {})
    caplog.set_level(logging.INFO, "mcp_django")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "mcp_django"]


@pytest.fixture
def token() -> str:
    return issue_token(make_superuser("root"), scopes=["mcp:read"], resource=RESOURCE)


# The token

HELD = {
    "expired": ("The token expired at 20", "the token expired at 20"),
    "revoked": ("The token was revoked", "the token was revoked or replaced"),
    "inactive": ("The token was revoked", "is not active"),
    "password": ("The token was revoked", "is older than the password of its user"),
    "elsewhere": (
        f"The token is for http://127.0.0.1:8000/mcp; this endpoint is {RESOURCE}.",
        f"the token is for http://127.0.0.1:8000/mcp, this request came to {RESOURCE}. Is BASE_URL right?",
    ),
    "nowhere": ("The token is for no endpoint", "the token is for no endpoint"),
    "registration": ("The token is only for registering clients", "the token is only for registering clients"),
    "nobody": ("The token belongs to no user", "the token belongs to no user"),
}


def spoil(how: str) -> None:
    user, row = get_user_model().objects.get(), AccessToken.objects.get()
    changes: dict[str, Any] = {
        "expired": {"expires": timezone.now() - timedelta(seconds=1)},
        "elsewhere": {"resource": ["http://127.0.0.1:8000/mcp"]},
        "nowhere": {"resource": []},
        "registration": {"scope": "oauth2_provider:registration"},
        "nobody": {"user": None},
    }.get(how, {})
    if how == "revoked":
        row.revoke()
    elif how == "password":
        user.set_password("another")
        user.save()
    elif how == "inactive":
        get_user_model().objects.update(is_active=False)
    else:
        AccessToken.objects.update(**changes)


def message(body: bytes) -> str:
    found: str = json.loads(body)["error"]["message"]
    return found


@pytest.mark.parametrize("how", HELD)
def test_who_holds_a_token_is_told_why_it_is_refused_and_so_is_the_log(how, ask, token, log, caplog):
    assert ask(token)[0] == 200
    spoil(how)
    status, headers, body = ask(token)
    told, logged = HELD[how]
    assert status == 401
    assert 'error="invalid_token"' in headers["www-authenticate"]
    assert f'error_description="{told}' in headers["www-authenticate"]
    assert message(body).startswith(told)
    (line,) = log()
    assert line.startswith("401: ")
    assert logged in line
    assert token not in caplog.text


@pytest.mark.parametrize("how", HELD)
def test_a_validator_of_the_project_changes_nothing_of_it(how, token, log, settings):
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {
        "OAUTH2_VALIDATOR_CLASS": "tests.unit.oauth.test_bearer.OwnValidator"
    }
    spoil(how)
    told, logged = HELD[how]
    answer = Client().post("/mcp", PING, content_type=JSON, headers={"Authorization": f"Bearer {token}"})
    assert f'error_description="{told}' in answer["WWW-Authenticate"]
    assert logged in log()[0]


@pytest.mark.parametrize("unknown", ["nonsense", "x" * 43, "a.b.c"])
def test_a_token_that_is_not_known_is_told_nothing(unknown, ask, token, log, caplog):
    status, headers, body = ask(unknown)
    assert status == 401
    assert headers["www-authenticate"] == (
        'Bearer resource_metadata="http://testserver/.well-known/oauth-protected-resource/mcp", '
        'scope="mcp:read mcp:write", error="invalid_token"'
    )
    assert message(body) == "Authentication required"
    assert log() == [
        "401: the token is not known here. Is it for another site, or from before a database was reset? "
        "The client has to sign in again; a token of mcp_token has to be replaced."
    ]
    assert unknown not in caplog.text


def test_no_cause_of_one_token_is_told_to_who_presents_another(ask, token):
    ask(token)
    answers = set()
    for how in HELD:
        spoil(how)
        status, headers, body = ask("nonsense")
        answers.add((status, headers["www-authenticate"], body))
        if how == "revoked":
            break
    assert len(answers) == 1


def test_the_first_request_of_a_client_is_no_warning(ask, log, caplog):
    status, headers, body = ask()
    assert (status, message(body)) == (401, "Authentication required")
    assert "error" not in headers["www-authenticate"]
    assert log() == ["401: the request has no token. Clients sign in next, or need a token in their configuration."]
    assert [record.levelname for record in caplog.records if record.name == "mcp_django"] == ["INFO"]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("Bearer", "must be Bearer, a space and one token"),
        ("Bearer a,b", "must be Bearer, a space and one token"),
        ("Bearer " + "x" * 10_000, "must be Bearer, a space and one token"),
        ("Basic c2VjcmV0LXRleHQ=", "has a scheme that this endpoint does not accept"),
    ],
)
def test_a_header_that_is_written_wrongly_is_said(header, told, ask, log, caplog):
    status, headers, body = ask(authorization=header)
    assert status == 401
    assert f"The Authorization header {told}" in headers["www-authenticate"]
    assert told in message(body)
    assert log()[0].startswith("401: the Authorization header ")
    assert header.partition(" ")[2][:30] not in caplog.text or not header.partition(" ")[2]


class Strict(BaseAuthentication):
    def authenticate(self, request):
        raise NotAuthenticated("the secret of the token is s3cret")


def test_a_class_of_the_project_that_refuses_is_named_in_the_log_alone(ask, log, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "AUTHENTICATION_CLASSES": [Strict]}
    status, headers, body = ask("any")
    assert (status, message(body)) == (401, "Authentication required")
    assert "error_description" not in headers["www-authenticate"]
    assert log() == ["401: Strict refuses the credentials: authentication_failed. See the rules of that class."]


# The rest of the request

WRONG: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "host": ({"host": "evil.example"}, 400, "Host not allowed", "'evil.example'. Add the host to ALLOWED_HOSTS"),
    "origin": (
        {"origin": "https://evil.example"},
        403,
        "Origin not allowed",
        "the Origin 'https://evil.example' is not allowed. Add the origin to ALLOWED_ORIGINS",
    ),
    "length": (
        {"body": "x" * 200_000},
        413,
        "The body is larger than 100000 bytes",
        "Raise DATA_UPLOAD_MAX_MEMORY_SIZE",
    ),
    "method": ({"method": "PATCH"}, 405, "This endpoint takes POST", "PATCH: This endpoint takes POST"),
    "content type": (
        {"content_type": "text/plain"},
        415,
        "The content type must be application/json, not text/plain",
        "not text/plain. The client's configuration or a proxy sends another Content-Type.",
    ),
    "encoding": ({"content_encoding": "gzip"}, 415, "The body must not be encoded", "a proxy compresses it"),
    "accept": (
        {"accept": "text/html"},
        406,
        "Accept must allow application/json and text/event-stream, but is text/html",
        "sends another Accept",
    ),
    "json": ({"body": "{"}, 400, "Parse error", "JSON-RPC error -32700"),
    "message": ({"body": "{}"}, 400, "Invalid request", "JSON-RPC error -32600"),
    "version": (
        {"mcp_protocol_version": "1999-01-01"},
        400,
        "Unsupported protocol version",
        "JSON-RPC error",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_a_request_is_told_and_logged(wrong, ask, token, log, settings, caplog):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100_000
    changes, expected, told, logged = WRONG[wrong]
    status, _, body = ask(token, **changes)
    assert status == expected
    assert token not in caplog.text
    if b"<html" in body:
        # Django refuses a host before it asks a view, and says so itself.
        assert wrong == "host"
        return
    assert message(body).startswith(told)
    (line,) = log()
    assert line.startswith(f"{expected}: ")
    assert logged in line


@pytest.mark.parametrize(
    ("body", "identifier"),
    [
        (PING, 1),
        ('{"jsonrpc": "2.0", "id": "a", "method": "x"}', "a"),
        ('{"jsonrpc": "2.0", "method": "notifications/initialized"}', None),
        ('{"jsonrpc": "2.0", "id": 1, "result": {}}', None),
        (f"[{PING}]", None),
        ("{", None),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x" * 10_000}}), None),
    ],
)
def test_a_refusal_answers_the_request_so_that_clients_show_it(body, identifier, ask):
    status, _, answer = ask("nonsense", body=body)
    assert status == 401
    assert json.loads(answer).get("id") == identifier


def test_a_method_that_is_not_there_is_logged(ask, token, log):
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {"_meta": meta}}
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "no/such"}
    status, _, _ = ask(token, body=json.dumps(body), **headers)
    assert status == 404
    assert log()[0].startswith("404: Method not found")


def test_a_scope_that_is_missing_is_named_with_what_the_token_has(token, log):
    client = MCPClient(make_superuser("writer"), scopes=["mcp:read"])
    answer = client.send("tools/call", {"name": "create_record", "arguments": {"model": "testapp.author"}})
    assert answer.status_code == 403
    assert 'error_description="This takes mcp:write; the token has mcp:read."' in answer["WWW-Authenticate"]
    assert log()[0].startswith("403: tools/call: This takes mcp:write; the token has mcp:read. ")


def test_a_session_that_is_not_there_is_said(token, log):
    roads = partial(async_to_sync(by_asgi), asgi.get_asgi_application())
    headers = {"host": "testserver", "content-type": JSON, "accept": f"{JSON}, text/event-stream"}
    named = headers | {"authorization": f"Bearer {token}", "mcp-session-id": "gone"}
    status, _, body = roads("POST", PING.encode(), named)
    assert (status, message(body)) == (404, "Session not found. Begin a new one with initialize")
    assert log()[0].startswith("404: Session not found")
    assert "was unused for a week" in log()[0]


@pytest.mark.parametrize(
    ("limit", "remedy"),
    [
        ({"RATES": {"calls": "1/h"}}, "Raise RATES['calls'] if this is fair use."),
        ({"MAX_CONCURRENT_CALLS": 1}, "A user has at most 1 calls at a time in one worker."),
    ],
)
def test_a_limit_is_named_in_the_log_alone(limit, remedy, ask, token, log):
    user = get_user_model().objects.get()
    with configured(**limit):
        ask(token)
        # A call that runs at the same time.
        with Caller(f"user:{user.pk}").hold_call():
            status, headers, body = ask(token)
    assert status == 429
    assert message(body) == f"Too many calls. Try again in {headers['retry-after']} s"
    assert remedy in log()[0]
    assert log()[0].startswith(f"429: user:{user.pk}: Too many calls")


def test_a_server_that_cannot_stream_names_those_that_can(token, log):
    answer = Client().get("/mcp", headers={"Authorization": f"Bearer {token}", "Accept": "text/event-stream"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (405, "This server cannot stream")
    assert log() == ["405: GET: This server cannot stream. Streams need an ASGI server: uvicorn or daphne."]


# The log is not the stranger's


def test_a_cause_is_logged_once_a_minute_and_then_says_how_often_it_was(ask, log, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(refused_request_log.time, "monotonic", lambda: clock[0])
    for number in range(30):
        refused_request_log.report(401, f"number {number}", "Mend it.")
    refused_request_log.report(403, "another", "Mend it.")
    assert log() == ["401: number 0. Mend it.", "403: another. Mend it."]
    clock[0] += 59.9
    refused_request_log.report(401, "late", "Mend it.")
    assert len(log()) == 2
    clock[0] += 0.2
    refused_request_log.report(401, "again", "Mend it.")
    assert log()[2:] == ["401: again. Mend it. (30 more of these were not logged.)"]
    clock[0] += 61
    refused_request_log.report(401, "at last", "Mend it.")
    assert log()[3:] == ["401: at last. Mend it."]
    clock[0] += 61
    refused_request_log.report(401, "Did you mean this?", "Mend it.")
    assert log()[4:] == ["401: Did you mean this? Mend it."]


def test_a_stranger_neither_floods_the_log_nor_grows_anything(log, token):
    browser = Client()
    for number in range(60):
        name = f"{number}.example"
        browser.post("/mcp", headers={"Authorization": f"Bearer {name}"})
        browser.post("/mcp", headers={"Authorization": f"Scheme{number} {name}"})
        browser.post("/mcp", headers={"Origin": f"https://{name}"})
        browser.post("/mcp", headers={"Host": name})
        browser.generic(f"METHOD{number}", "/mcp", headers={"Authorization": f"Bearer {token}"})
        browser.post("/mcp", PING, content_type=f"text/{number}", headers={"Authorization": f"Bearer {token}"})
    assert len(log()) <= 6
    assert len(refused_request_log._quiet) <= 6


@pytest.mark.parametrize("name", ["origin", "host", "content_type", "accept"])
def test_no_text_of_a_client_makes_a_line_of_its_own_or_a_long_one(name, token, log):
    evil = "text/x\r\n500: \x1b[31mforged\x85\x00" + "y" * 20_000
    send = partial(async_to_sync(by_asgi), asgi.get_asgi_application())
    headers = {"host": "testserver", "content-type": JSON, "accept": JSON, "authorization": f"Bearer {token}"}
    status, _, body = send("POST", PING.encode(), headers | {name.replace("_", "-"): evil})
    assert status in (400, 403, 406, 415)
    assert len(body) < 400
    (line,) = log()
    assert line.isprintable()
    assert len(line) < 700

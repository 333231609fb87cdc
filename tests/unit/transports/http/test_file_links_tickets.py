"""Views that a ticket opens: for whom, with what request, and what else they answer."""

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import ProgrammingError
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings

from mcp_django import MCPSite
from mcp_django.context import refused_request_log
from mcp_django.context.request import MCPRequest
from mcp_django.context.tickets import Ticket
from mcp_django.exceptions import NotFound, ToolError
from mcp_django.transports.http.file_links import Refused, ticketed
from tests.factories import connection_lost, make_user
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db

SITE = MCPSite("a")
ENDPOINT = "http://testserver/mcp"
# Whose cookie a browser sends along.
BROWSER = User(username="browser")


def ask(
    user: Any, answer: Any = None, *, method: str = "get", between: Any = None, use: str = "files", **extra: Any
) -> tuple[Any, list[MCPRequest]]:
    """Answer a request with a ticket of the user; return the answer and what `answer` was given."""
    seen: list[MCPRequest] = []

    def take(original: HttpRequest, request: MCPRequest, about: tuple[str, ...]) -> HttpResponse:
        seen.append(request)
        if answer is not None:
            raise answer
        return HttpResponse(about[0])

    url = Ticket.url(request_of(user, SITE, resource=ENDPOINT), use, "x")
    if between is not None:
        between()
    view = ticketed(SITE, "files", "GET", "mcp:read", take)
    path = url.removeprefix("http://testserver")
    original = getattr(RequestFactory(), method)(path, **extra)
    original.tenant = "t"  # type: ignore[attr-defined]
    original.user = BROWSER
    return view(original, url.rpartition("/")[2]), seen


def test_the_request_is_that_of_the_user_who_asked() -> None:
    user = make_user("u")
    response, (request,) = ask(user, headers={"Authorization": "Bearer x", "Cookie": "sessionid=1"})
    assert (response.status_code, response.content) == (200, b"x")
    assert request.user == user
    assert request.mcp.scopes == {"mcp:read"}
    assert (request.mcp.resource, request.mcp.site) == (ENDPOINT, SITE)
    assert request.tenant == "t"  # type: ignore[attr-defined]
    assert not {"HTTP_AUTHORIZATION", "HTTP_COOKIE"} & request.META.keys()
    assert not request.COOKIES


@pytest.mark.parametrize(
    ("answer", "status"), [(None, 200), (Refused(409, "No.", "Mend it."), 409), (ToolError("Too slow."), 503)], ids=str
)
def test_row_160_every_answer_is_one_that_no_browser_runs_or_keeps(answer: Exception | None, status: int) -> None:
    response = ask(make_user("u"), answer)[0]
    assert response.status_code == status
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response["Content-Security-Policy"]
    assert response["Cache-Control"] == "private, no-store"


def test_a_ticket_of_nobody_is_good_only_where_nobody_signs_in() -> None:
    assert ask(AnonymousUser())[0].status_code == 404
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "AUTHENTICATION_CLASSES": []}):
        assert ask(AnonymousUser())[0].status_code == 200


def test_calls_by_ticket_count_as_calls_of_the_user() -> None:
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "RATES": {"calls": "0/h"}}):
        response, seen = ask(make_user("u"))
    assert (response.status_code, seen) == (429, [])
    assert int(response["Retry-After"]) > 0


def deactivate() -> None:
    User.objects.update(is_active=False)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Eleven minutes pass."""
    now = time.time()
    return lambda: monkeypatch.setattr("django.core.signing.time.time", lambda: now + 660)


LOGGED: dict[str, tuple[dict[str, Any], str]] = {
    "old": (
        {"between": "later"},
        "404: a link to files: it is older than 10 minutes. The client has to ask for another one.",
    ),
    "another's": ({"use": "uploads"}, "404: a link to files: it was not made here. Do all workers"),
    "user": ({"between": deactivate}, "404: a link to files: its user is gone or not active. Activate"),
    "taken away": ({"answer": NotFound()}, "404: a link to files: its record or file is gone, its user lost"),
    "method": ({"method": "put"}, "405: a link to files: PUT: Use GET. The description of the tool"),
    "refused": ({"answer": Refused(409, "Sent before.", "Ask anew.")}, "409: a link to files: Sent before. Ask anew."),
    "slow": (
        {"answer": ToolError("Too slow.")},
        "503: a link to files: Too slow. STATEMENT_TIMEOUT limits what",
    ),
}


@pytest.mark.parametrize("cause", LOGGED)
def test_the_log_says_why_a_link_is_refused_and_never_the_link(
    cause: str,
    later: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(refused_request_log, "_quiet", {})
    given, expected = LOGGED[cause]
    ask(make_user("u"), **{key: later if value == "later" else value for key, value in given.items()})
    lines = [record.getMessage() for record in caplog.records if record.name == "mcp_django"]
    assert [line[: len(expected)] for line in lines] == [expected]
    assert not any(len(word) > 40 for line in lines for word in line.split())


def test_a_limit_on_links_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(refused_request_log, "_quiet", {})
    caplog.set_level(logging.INFO, "mcp_django")
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "RATES": {"calls": "0/h"}}):
        ask(make_user("u"))
        ask(make_user("v"))
    lines = [record.getMessage() for record in caplog.records if record.name == "mcp_django"]
    assert lines == ["429: a link to files: Too many calls. Raise RATES['calls'] if this is fair use."]


def test_while_the_database_is_away_a_link_says_so_and_works_again_later(caplog: pytest.LogCaptureFixture) -> None:
    response, _ = ask(make_user("u"), connection_lost())
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    assert "the connection to the database was lost" in response.content.decode()
    assert "connection refused" in caplog.text
    with pytest.raises(ProgrammingError):
        ask(make_user("v"), ProgrammingError("a fault of the program"))

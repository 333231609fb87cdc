"""Views that a ticket opens: for whom, with what request, and what else they answer."""

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings

from mcp_django import MCPSite
from mcp_django.context import MCPRequest
from mcp_django.exceptions import ToolError
from mcp_django.tickets import ticket_url
from mcp_django.transports.ticketed import Refused, ticketed
from tests.factories import make_user
from tests.writing import request_of

pytestmark = pytest.mark.django_db

SITE = MCPSite("a")
ENDPOINT = "http://testserver/mcp"
# Whose cookie a browser sends along.
BROWSER = User(username="browser")


def ask(user: Any, answer: Any = None, **extra: Any) -> tuple[Any, list[MCPRequest]]:
    """Answer a request with a ticket of the user; return the answer and what `answer` was given."""
    seen: list[MCPRequest] = []

    def take(original: HttpRequest, request: MCPRequest, about: tuple[str, ...]) -> HttpResponse:
        seen.append(request)
        if answer is not None:
            raise answer
        return HttpResponse(about[0])

    url = ticket_url(request_of(user, SITE, resource=ENDPOINT), "files", "x")
    view = ticketed(SITE, "files", "GET", "mcp:read", take)
    path = url.removeprefix("http://testserver")
    original = RequestFactory().get(path, **extra)
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
    ("answer", "status"), [(None, 200), (Refused(409, "No."), 409), (ToolError("Too slow."), 503)], ids=str
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
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "CALL_RATE": "0/h"}):
        response, seen = ask(make_user("u"))
    assert (response.status_code, seen) == (429, [])
    assert int(response["Retry-After"]) > 0

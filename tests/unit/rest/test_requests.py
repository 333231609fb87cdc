import json

import pytest
from django.contrib.auth.models import User
from django.http import QueryDict
from rest_framework.request import Request

from mcp_django.rest.requests import rest_request
from tests.restapp import views
from tests.restapp.calling import route_of
from tests.writing import request_of

pytestmark = pytest.mark.urls("tests.restapp.urls")


def made(user=None, action="create", **options):
    request = request_of(user or User(pk=1))
    request.META |= {
        "HTTP_COOKIE": "sessionid=1",
        "HTTP_MCP_SESSION_ID": "s",
        "HTTP_MCP_PROTOCOL_VERSION": "x",
        "HTTP_IF_MATCH": "x",
        "HTTP_ORIGIN": "https://evil.example",
        "HTTP_ACCEPT": "text/event-stream",
        "HTTP_ACCEPT_LANGUAGE": "de",
        "REMOTE_ADDR": "192.0.2.1",
        "CONTENT_LENGTH": "999",
        "QUERY_STRING": "token=1",
    }
    request.COOKIES = {"sessionid": "1"}
    request.tenant = "north"
    return rest_request(request, route_of(views.OrderViewSet, action), {}, **options)


def test_row_186_authority_and_the_transports_headers_are_left_behind():
    request = made(path="/api/orders/")
    text = json.dumps({name: str(value) for name, value in request.META.items()})
    for secret in ("secret", "sessionid", "evil", "event-stream", "token", "HTTP_MCP", "HTTP_IF"):
        assert secret not in text
    assert request.COOKIES == {}
    assert not [name for name in request.headers if name in ("Authorization", "Cookie")]


def test_what_a_view_may_ask_of_a_request_is_there():
    request = made(path="/api/orders/", query=QueryDict("page=2"), body={"number": "ä\ud800"})
    assert (request.method, request.path, request.path_info) == ("POST", "/api/orders/", "/api/orders/")
    assert request.META["REMOTE_ADDR"] == "192.0.2.1"
    assert request.META["HTTP_ACCEPT_LANGUAGE"] == "de"
    assert request.tenant == "north"
    assert request.GET["page"] == "2"
    assert json.loads(request.body) == {"number": "ä\ud800"}
    assert request.content_type == "application/json"
    assert request.resolver_match.url_name == "thing-list"
    request.session["a"] = 1
    request.session.save()
    assert request.mcp is not None


def test_the_user_is_signed_in_already():
    user = User(pk=7)

    class Never:
        def authenticate(self, request):
            raise AssertionError

    request = Request(made(user), authenticators=[Never()])
    assert request.user is user
    assert request.auth is None


def test_a_request_without_a_body_has_none():
    request = made(action="list")
    assert (request.method, request.body, request.META["CONTENT_LENGTH"]) == ("GET", b"", "0")
    assert "CONTENT_TYPE" not in request.META


def test_its_own_address_names_the_caller_and_no_other_does():
    first, second = (made(User(pk=pk), path="/api/orders/") for pk in (1, 2))
    assert first.build_absolute_uri() != second.build_absolute_uri()
    assert first.build_absolute_uri().startswith("http://testserver/api/orders/#")
    assert first.build_absolute_uri("/x") == second.build_absolute_uri("/x") == "http://testserver/x"

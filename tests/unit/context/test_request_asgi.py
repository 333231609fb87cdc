from copy import copy

import pytest
from django.http import HttpRequest
from django.test import RequestFactory

from mcp_django import site
from mcp_django.context.request import build_request, headers_of, scope_from_wsgi


def scope(*headers, **options):
    base = {"type": "http", "method": "POST", "path": "/mcp", "scheme": "http", "client": ("10.0.0.9", 5)}
    return {**base, "server": ("127.0.0.1", 8000), "headers": list(headers), **options}


def request_of(*headers, **options):
    built = scope(*headers, **options)
    return build_request(built, headers_of(built), site)


def test_headers_keep_every_value_under_a_lower_case_name():
    found = headers_of(scope((b"Accept", b"a"), (b"accept", b" b ")))
    assert found == {"accept": ["a", "b"]}


def test_A15_a_name_with_an_underscore_is_no_header():
    request = request_of((b"x_forwarded_proto", b"https"), (b"authorization_", b"Bearer x"))
    assert "HTTP_X_FORWARDED_PROTO" not in request.META
    assert "HTTP_AUTHORIZATION_" not in request.META


def test_J170_no_cookie_reaches_the_request():
    request = request_of((b"cookie", b"sessionid=x"))
    assert request.COOKIES == {}
    assert "HTTP_COOKIE" not in request.META


def test_A17_forwarded_headers_change_nothing_by_themselves():
    request = request_of((b"x-forwarded-proto", b"https"), (b"x-forwarded-for", b"1.2.3.4"), (b"host", b"testserver"))
    assert not request.is_secure()
    assert request.META["REMOTE_ADDR"] == "10.0.0.9"
    assert request.get_host() == "testserver"


def test_A17_a_proxy_that_settings_name_decides_the_scheme(settings):
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert request_of((b"x-forwarded-proto", b"https")).is_secure()


def test_a_wsgi_request_makes_the_same_scope():
    original = RequestFactory().post("/mcp", b"{}", content_type="application/json", headers={"Accept": "*/*"})
    found = scope_from_wsgi(original)
    assert found["path"] == "/mcp"
    assert (b"content-type", b"application/json") in found["headers"]
    assert (b"accept", b"*/*") in found["headers"]


def test_a_request_has_every_attribute_that_django_gives_one():
    request = request_of()
    assert vars(HttpRequest()).keys() <= {name for name in dir(request) if hasattr(request, name)}
    assert (request.GET, request.POST, request.FILES, request.COOKIES) == ({}, {}, {}, {})
    assert (request.resolver_match, request.content_type, request.content_params) == (None, None, None)


def test_the_query_stays_empty_and_belongs_to_one_request():
    first, second = request_of(), request_of()
    first.encoding = "latin1"
    with pytest.raises(AttributeError):
        first.GET["x"] = "1"
    first.POST["x"] = "1"
    assert "x" not in second.POST
    assert copy(first).POST == first.POST

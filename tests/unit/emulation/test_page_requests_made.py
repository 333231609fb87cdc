from typing import Any

import pytest
from django.contrib import messages
from django.contrib.sessions.models import Session
from django.http import HttpRequest, QueryDict
from django.urls import set_script_prefix
from django.views.decorators.csrf import csrf_protect

from mcp_django import MCPSite, ModelExposure, site
from mcp_django.emulation.page_requests import changelist_entries, said
from mcp_django.emulation.page_requests import changelist_request as copy_of
from mcp_django.orm.access import access_of
from tests.factories import make_book, make_superuser
from tests.testapp.models import Book, Profile
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


def changelist_request(*args: Any) -> Any:
    return copy_of(*args)


@pytest.fixture
def request_():
    request: Any = request_of(make_superuser())
    request.GET = QueryDict("cursor=1")
    request.COOKIES = {"sessionid": "stolen"}
    request.META |= {"HTTP_COOKIE": "sessionid=stolen", "CONTENT_TYPE": "application/json", "REMOTE_ADDR": "10.0.0.1"}
    request.tenant = "acme"
    request.auth = "token"
    request._body = b"secret"
    return request


def test_a_person_seems_to_have_posted_the_admins_list(request_):
    books = [make_book(), make_book()]
    copy = changelist_request(access_of(request_)[site.exposures[Book]], changelist_entries("publish", books))
    assert (copy.method, copy.path, copy.path_info) == ("POST", "/admin/testapp/book/", "/admin/testapp/book/")
    assert copy.POST.getlist("_selected_action") == [str(book.pk) for book in books]
    assert (copy.POST["action"], copy.POST["select_across"], copy.POST["index"]) == ("publish", "0", "0")
    assert copy.resolver_match.url_name == "testapp_book_changelist"
    assert copy.build_absolute_uri() == "http://testserver/admin/testapp/book/"
    with pytest.raises(AttributeError):
        copy.POST["action"] = "x"


def test_the_caller_and_what_middleware_set_are_kept(request_):
    copy = changelist_request(access_of(request_)[site.exposures[Book]], [])
    assert copy.user is request_.user
    assert copy.mcp is request_.mcp
    assert copy.tenant == "acme"
    assert copy.META["REMOTE_ADDR"] == "10.0.0.1"


def test_H145_no_token_cookie_or_body_is_handed_on(request_):
    copy = changelist_request(access_of(request_)[site.exposures[Book]], [])
    assert not {"HTTP_AUTHORIZATION", "HTTP_COOKIE", "CONTENT_TYPE"} & copy.META.keys()
    assert (dict(copy.COOKIES), dict(copy.GET), dict(copy.FILES)) == ({}, {}, {})
    assert not hasattr(copy, "auth")
    assert not hasattr(copy, "_body")
    assert "Authorization" not in copy.headers
    assert request_.path == "/mcp"
    assert request_.META["HTTP_AUTHORIZATION"] == "Bearer secret"


def test_H145_messages_and_session_belong_to_one_request(request_):
    copies = [changelist_request(access_of(request_)[site.exposures[Book]], []) for _ in range(2)]
    messages.error(copies[0], "<b>1 & 2</b>")
    messages.debug(copies[0], "unseen")
    copies[0].session["a"] = 1
    copies[0].session.save()
    copies[0].session.cycle_key()
    assert said(copies[0]) == [{"level": "error", "text": "<b>1 & 2</b>"}]
    assert said(copies[1]) == []
    assert dict(copies[1].session) == {}
    assert dict(copies[0].session) == {"a": 1}
    copies[0].session.flush()
    assert dict(copies[0].session) == {}
    assert not Session.objects.exists()


def test_views_with_csrf_protection_can_be_called(request_):
    @csrf_protect
    def view(request):
        return "called"

    assert view(changelist_request(access_of(request_)[site.exposures[Book]], [])) == "called"


def test_a_script_name_is_no_part_of_the_path_info(request_):
    set_script_prefix("/prefix/")
    try:
        request_.META["SCRIPT_NAME"] = "/prefix"
        copy = changelist_request(access_of(request_)[site.exposures[Book]], [])
    finally:
        set_script_prefix("/")
    assert (copy.path, copy.path_info) == ("/prefix/admin/testapp/book/", "/admin/testapp/book/")
    assert copy.resolver_match is not None


def test_a_model_without_a_list_in_the_admin(request_):
    own = MCPSite("own")
    own.register(Profile, ModelExposure)
    copy = changelist_request(access_of(request_)[own.exposures[Profile]], [])
    assert (copy.path, copy.resolver_match) == ("/", None)
    assert isinstance(copy, HttpRequest)

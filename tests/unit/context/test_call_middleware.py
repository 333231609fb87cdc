"""Middleware that keeps the current user, of the kinds that audit trails and `created_by` fields are made with."""

import json
import threading
from contextvars import ContextVar

import pytest
from asgiref.local import Local
from asgiref.sync import sync_to_async
from django.core.exceptions import MiddlewareNotUsed
from django.core.handlers.asgi import ASGIHandler
from django.db.models.signals import pre_save
from django.http import HttpResponse
from django.test import Client
from django.utils.decorators import async_only_middleware
from django.utils.deprecation import MiddlewareMixin

from mcp_django import ToolError, asgi, site
from mcp_django.checks.settings import check_call_middleware
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.runtime.middleware_source import traits_of_name
from mcp_django.testing import MCPClient
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_superuser, make_user
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db(transaction=True)

_thread_locals = threading.local()
_user = ContextVar("_user", default=None)
_state = Local()
_statuses = []


class ThreadUser:
    """Keeps the user in its thread."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        _thread_locals.user = request.user
        response = self.get_response(request)
        _statuses.append(response.status_code)
        del _thread_locals.user
        return response


class ThreadRequest(MiddlewareMixin):
    """Keeps the request in its thread, which is asked for its user when something is saved."""

    def process_request(self, request):
        _thread_locals.request = request

    def process_response(self, request, response):
        del _thread_locals.request
        return response


def remember(request):
    return _user.set(request.user if request.user.is_authenticated else None)


def context_user(get_response):
    """Keeps the user in a context variable."""

    def middleware(request):
        token = remember(request)
        try:
            return get_response(request)
        finally:
            _user.reset(token)

    return middleware


def local_request(get_response):
    """Keeps the request in asgiref's Local, which is asked for its user when something is saved."""

    def middleware(request):
        _state.request = request
        try:
            return get_response(request)
        finally:
            del _state.request

    return middleware


def refusing(get_response):
    return lambda request: HttpResponse(status=451)


def unused(get_response):
    raise MiddlewareNotUsed


def nothing(get_response):
    """Forgets to return what it made."""


@async_only_middleware
def only_async(get_response):
    async def middleware(request):
        return await get_response(request)

    return middleware


NUMBERED = "tests.unit.context.numbered.numbered"
KINDS = [f"{__name__}.{kind}" for kind in ("ThreadUser", "ThreadRequest", "context_user", "local_request")]


def current_users():
    """Who saves, as each kind says; None for nobody."""
    kept = [
        getattr(_thread_locals, "user", None),
        getattr(getattr(_thread_locals, "request", None), "user", None),
        _user.get(),
        getattr(getattr(_state, "request", None), "user", None),
    ]
    return [str(user) if user is not None and user.is_authenticated else None for user in kept]


@pytest.fixture
def saved():
    """Note who saved each author."""
    found = []

    def note(instance, **kwargs):
        found.append((instance.name, *current_users()))

    pre_save.connect(note, sender=Author)
    yield found
    pre_save.disconnect(note, sender=Author)


@pytest.fixture
def kinds(settings):
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [*KINDS, f"{__name__}.unused"]}
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, *KINDS]


@pytest.fixture
def authors(tools):
    def sync_author(request, name: str) -> str:
        """Save an author in a thread."""
        Author.objects.create(name=name)
        return "saved"

    async def async_author(request, name: str) -> str:
        """Save an author from the event loop, and one in a thread of its own choice."""
        await Author.objects.acreate(name=name)
        await sync_to_async(Author.objects.create)(name=name)
        return "saved"

    async def failing_author(request) -> str:
        """Fail."""
        raise ToolError("No.")

    for tool in (sync_author, async_author, failing_author):
        tools(tool)


@pytest.fixture
def tokens(transactional_db):
    """The token of each of two users, by name."""
    resource, scopes = "http://testserver/mcp", ["mcp:read", "mcp:write"]
    return {name: issue_token(make_superuser(name), scopes=scopes, resource=resource) for name in ("ada", "bob")}


@pytest.fixture
def cookie(transactional_db):
    """The session of a third one."""
    browser = Client()
    browser.force_login(make_superuser("eve"))
    return "; ".join(f"{name}={morsel.value}" for name, morsel in browser.cookies.items())


def application(road):
    if road == "fast":
        return asgi.get_asgi_application()
    handler = ASGIHandler()
    handler.load_middleware(is_async=True)
    return handler


def message(tool, arguments):
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def call(road, token, tool, cookie="", **arguments):
    headers = {"authorization": f"Bearer {token}", "mcp_protocol_version": "2025-11-25"}
    asked = Exchange(application(road), http_scope(**headers, **({"cookie": cookie} if cookie else {})))
    await asked.send(message(tool, arguments))
    status, _, body = await asked.answer()
    result = json.loads(body)["result"]
    assert (status, result.get("isError", False)) == (200, False), result
    return result


@pytest.mark.parametrize("road", ["plain", "fast"])
async def test_every_kind_sees_the_tokens_user_on_both_roads(kinds, saved, authors, tokens, road):
    for name, token in [*tokens.items()] * 2:
        await call(road, token, "create_record", model="testapp.author", values={"name": name})
        await call(road, token, "sync_author", name=name)
        await call(road, token, "async_author", name=name)
        assert saved == [(name, *[name] * 4)] * 4
        saved.clear()
    # Nothing of a call is left in its thread for the next one.
    assert current_users() == [None] * 4


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
def test_every_kind_sees_the_tokens_user_under_wsgi(kinds, saved, authors, version):
    client = MCPClient(make_superuser("ada"), version=version)
    for tool in ("sync_author", "async_author"):
        assert not client.call(tool, name="x").is_error
    assert saved == [("x", *["ada"] * 4)] * 3


@pytest.mark.parametrize("kept", ["ThreadRequest", "local_request"])
async def test_a_request_that_middleware_has_kept_has_the_tokens_user_and_never_the_cookies(
    settings, saved, authors, tokens, cookie, kept
):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.{kept}"]
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"ALLOWED_ORIGINS": []}
    site.needs_middleware = kept == "ThreadRequest"
    try:
        await call("plain", tokens["ada"], "sync_author", cookie, name="x")
        assert {*saved[0][1:]} == {None, "ada"}
        asked = Exchange(application("plain"), http_scope(cookie=cookie))
        await asked.send(message("sync_author", {"name": "y"}))
        assert (await asked.answer())[0] == 401
        assert len(saved) == 1
    finally:
        site.needs_middleware = False


def test_middleware_learns_of_an_end_by_error_and_cleans_up(kinds, authors):
    client = MCPClient(make_superuser("ada"))
    assert client.call("failing_author").text == "No."
    assert current_users() == [None] * 4
    with pytest.raises(AssertionError):
        client.request("resources/read", uri="django://testapp/author/0")
    # The call's, then that of the request, which has the same middleware.
    assert _statuses[-2:] == [500, 400]
    assert client.tools()
    assert _statuses[-2:] == [200, 200]


def test_a_question_is_asked_through_the_middleware(kinds, saved, tools):
    def asking_author(request) -> str:
        """Ask for a name and save it."""
        Author.objects.create(name=request.mcp.ask("Name?", str, key="name"))
        return "saved"

    tools(asking_author)
    client = MCPClient(make_superuser("ada"), answers={"name": {"name": "x"}})
    assert client.call("asking_author").text == "saved"
    assert saved == [("x", *["ada"] * 4)]


def test_middleware_that_answers_itself_refuses_the_call(settings, saved, authors):
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [f"{__name__}.refusing"]}
    client = MCPClient(make_user("ada"))
    with pytest.raises(AssertionError, match="HTTP 451"):
        client.call("sync_author", name="x")
    assert saved == []


# The check


def test_the_kinds_are_recognised_and_nothing_else_is(settings):
    assert [name for name in KINDS if not traits_of_name(name).keeps_caller] == []
    others = [*settings.MIDDLEWARE, NUMBERED, "django.middleware.locale.LocaleMiddleware"]
    assert [name for name in others if traits_of_name(name).keeps_caller] == []


def test_a_check_names_middleware_that_would_not_see_the_tokens_user(settings):
    assert check_call_middleware() == []
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, NUMBERED, *KINDS]
    found = check_call_middleware()
    assert [message.id for message in found] == ["mcp_django.W048"] * len(KINDS)
    assert all(kind in message.msg and kind in message.hint for kind, message in zip(KINDS, found, strict=True))
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": KINDS}
    assert check_call_middleware() == []


@pytest.mark.parametrize("name", ["no.such.middleware", f"{__name__}.only_async", f"{__name__}.nothing"])
def test_middleware_that_cannot_run_around_calls_is_an_error(settings, name):
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [name]}
    assert [message.id for message in check_call_middleware()] == ["mcp_django.E049"]

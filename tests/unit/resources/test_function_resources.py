"""Resources and templates made of functions."""

import base64
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import Http404

from mcp_django.context.call_record import CallRecord
from mcp_django.exceptions import NotFound, ToolError
from mcp_django.protocol.content import EmbeddedResource, Image, Text
from mcp_django.protocol.errors import InvalidParams
from mcp_django.resources.function_resources import FunctionResource
from tests.line_counts import is_linear
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]


class Site:
    def get_object(self, request: Any, model: Any, pk: Any) -> Any:
        if pk != "7":
            raise NotFound
        return Author(pk=7, name="Ada")


REQUEST: Any = SimpleNamespace(
    mcp=SimpleNamespace(site=Site(), record=CallRecord(), approvals=None),
    user=SimpleNamespace(has_perms=lambda wanted: False),
)


def policy(request: Any) -> str:
    """What may be sent back."""
    return "Everything."


def sheet(request: Any, author: Author, page: int = 1) -> str:
    """One page on an author."""
    return f"{author.name}, page {page}"


SHEET = FunctionResource("shop://author/{author}/sheet{?page}", sheet, mime_type="text/markdown")


def read(value: Any, **options: Any) -> dict[str, Any]:
    [contents] = FunctionResource("x://y", lambda request: value, name="y", **options).read(REQUEST, "x://y")
    return contents


def test_a_fixed_resource_is_defined_and_read() -> None:
    resource = FunctionResource("shop://policy", policy, mime_type="text/plain", size=11)
    assert not resource.is_template
    assert resource.definition() == {
        "uri": "shop://policy",
        "name": "policy",
        "title": "Policy",
        "description": "What may be sent back.",
        "mimeType": "text/plain",
        "size": 11,
    }
    expected = {"uri": "shop://policy", "mimeType": "text/plain", "text": "Everything."}
    assert resource.read(REQUEST, "shop://policy") == [expected]


def test_a_template_is_defined_and_read() -> None:
    assert SHEET.is_template
    assert SHEET.definition() == {
        "uriTemplate": "shop://author/{author}/sheet{?page}",
        "name": "sheet",
        "title": "Sheet",
        "description": "One page on an author.",
        "mimeType": "text/markdown",
    }
    uri = "shop://author/7/sheet?page=2"
    assert SHEET.matches(uri) == {"author": "7", "page": "2"}
    assert SHEET.read(REQUEST, uri) == [{"uri": uri, "mimeType": "text/markdown", "text": "Ada, page 2"}]
    assert SHEET.read(REQUEST, "shop://author/7/sheet")[0]["text"] == "Ada, page 1"


@pytest.mark.parametrize(
    "uri",
    [
        "shop://author/8/sheet",
        "shop://author/x/sheet",
        "shop://author/7/sheet?page=two",
        "shop://author/7/sheet?self=1",
        "shop://author/7",
        "shop://author//sheet",
        "shop://author/%ff/sheet",
    ],
)
def test_what_leads_to_nothing_is_not_found_and_never_says_why(uri: str) -> None:
    with pytest.raises(NotFound) as caught:
        SHEET.read(REQUEST, uri)
    assert caught.value.args == ()


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "http://127.0.0.1/",
        "https://evil.example/author/7/sheet",
        "data:text/plain,x",
        "gopher://x",
        "shop://author/7/sheet/../../../etc/passwd",
    ],
)
def test_row_162_a_uri_of_another_scheme_is_not_found_and_nothing_is_opened(uri: str, monkeypatch: Any) -> None:
    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr("builtins.open", forbidden)
    monkeypatch.setattr("socket.socket", forbidden)
    for resource in (SHEET, FunctionResource("shop://policy", policy)):
        assert resource.matches(uri) is None
        with pytest.raises(NotFound):
            resource.read(REQUEST, uri)


@pytest.mark.parametrize(
    ("options", "hints"),
    [
        ({}, {}),
        ({"ttl_ms": 0}, {"ttlMs": 0}),
        ({"ttl_ms": 60_000}, {"ttlMs": 60_000}),
        ({"ttl_ms": 60_000, "public": True}, {"ttlMs": 60_000, "cacheScope": "public"}),
        ({"public": True}, {"cacheScope": "public"}),
    ],
)
def test_how_long_contents_may_be_kept_is_declared(options: dict[str, Any], hints: dict[str, Any]) -> None:
    assert FunctionResource("shop://policy", policy, **options).cache_hints == hints


@pytest.mark.parametrize(
    ("uri", "function", "options"),
    [
        ("shop://policy", policy, {"permissions": ["shop.view_policy"]}),
        ("shop://policy", policy, {"permission": lambda request: True}),
        ("shop://author/{author}/sheet", sheet, {}),
    ],
)
def test_194_what_depends_on_its_caller_cannot_be_public(uri: str, function: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ImproperlyConfigured, match="cannot be public"):
        FunctionResource(uri, function, public=True, **options)


@pytest.mark.parametrize("ttl_ms", [-1, 1.5, True, "60"])
def test_194_a_time_is_a_number_of_milliseconds(ttl_ms: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="ttl_ms"):
        FunctionResource("shop://policy", policy, ttl_ms=ttl_ms)


def test_parameters_are_completed_as_the_function_says() -> None:
    def pages(request: Any, value: str, context: Any) -> list[str]:
        return ["1", context["author"]]

    resource = FunctionResource("shop://author/{author}/sheet{?page}", sheet, complete={"page": pages})
    assert resource.completer.complete(REQUEST, "page", "", {"author": "7"}).values == ("1", "7")
    with pytest.raises(ImproperlyConfigured, match="nosuch"):
        FunctionResource("shop://policy", policy, complete={"nosuch": pages})


@pytest.mark.parametrize("unit", ["/", "a/sheet", "%41", "?page=1&", "{author}"])
def test_row_161_a_hostile_uri_of_64_kib_takes_linear_time(unit: str) -> None:
    assert is_linear(lambda size: SHEET.matches("shop://author/" + (unit * size)[:size]))


@pytest.mark.parametrize(
    ("value", "mime_type", "expected"),
    [
        ("text", "", {"mimeType": "text/plain", "text": "text"}),
        ("<p>", "text/html", {"mimeType": "text/html", "text": "<p>"}),
        ("a\ud800", "", {"mimeType": "text/plain", "text": "a\ufffd"}),
        (b"\x00", "", {"mimeType": "application/octet-stream", "blob": "AA=="}),
        (b"\x00", "image/png", {"mimeType": "image/png", "blob": "AA=="}),
        ({"a": float("nan")}, "", {"mimeType": "application/json", "text": '{"a":null}'}),
        ([1, "b"], "", {"mimeType": "application/json", "text": '[1,"b"]'}),
        ([], "text/html", {"mimeType": "application/json", "text": "[]"}),
        (None, "", {"mimeType": "application/json", "text": "null"}),
        (Text("t"), "", {"mimeType": "text/plain", "text": "t"}),
        (Image(b"\x00", "image/gif"), "", {"mimeType": "image/gif", "blob": "AA=="}),
    ],
)
def test_what_a_function_returns_is_contents(value: Any, mime_type: str, expected: dict[str, str]) -> None:
    assert read(value, mime_type=mime_type) == {"uri": "x://y", **expected}


def test_a_function_may_return_several_resources() -> None:
    resource = FunctionResource(
        "x://y", lambda request: [EmbeddedResource("x://y/1", "one"), EmbeddedResource("x://y/2", b"\x00")], name="y"
    )
    assert resource.read(REQUEST, "x://y") == [
        {"uri": "x://y/1", "mimeType": "text/plain", "text": "one"},
        {"uri": "x://y/2", "mimeType": "text/plain", "blob": base64.b64encode(b"\x00").decode()},
    ]


def test_an_async_function_is_run_to_its_end() -> None:
    async def later(request: Any, name: str) -> str:
        return name

    resource = FunctionResource("x://{name}", later)
    assert resource.read(REQUEST, "x://a%20b")[0]["text"] == "a b"


@pytest.mark.parametrize("error", [Author.DoesNotExist(), PermissionDenied("secret"), Http404("secret"), NotFound()])
def test_missing_and_forbidden_are_one_answer(error: Exception) -> None:
    def refuse(request: Any) -> str:
        raise error

    with pytest.raises(NotFound) as caught:
        FunctionResource("x://y", refuse).read(REQUEST, "x://y")
    assert caught.value.args == ()


def test_a_refusal_in_words_reaches_the_client() -> None:
    def refuse(request: Any) -> str:
        raise ToolError("Closed on Sundays.")

    with pytest.raises(InvalidParams, match="Closed on Sundays"):
        FunctionResource("x://y", refuse).read(REQUEST, "x://y")


def test_an_optional_parameter_need_not_be_in_the_uri() -> None:
    assert FunctionResource("x://all", lambda request, number="all": number, name="n").read(REQUEST, "x://all")


@pytest.mark.parametrize(
    ("uri", "function", "message"),
    [
        ("no scheme", policy, "scheme"),
        ("{+uri}", policy, "scheme"),
        ("x://{a}{b}", policy, "between"),
        ("x://{other}", policy, "no parameter other"),
        ("x://{request}", policy, "no parameter request"),
        ("x://y", sheet, "author"),
        ("x://y{?author}", sheet, "author"),
    ],
)
def test_a_uri_that_does_not_fit_the_function_is_refused(uri: str, function: Any, message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        FunctionResource(uri, function)


def test_permissions_decide_who_sees_the_resource() -> None:
    assert SHEET.has_permission(REQUEST)
    assert not FunctionResource("x://y", policy, permissions=["testapp.view_author"]).has_permission(REQUEST)
    assert not FunctionResource("x://y", policy, permission=lambda request: False).has_permission(REQUEST)

from typing import Literal

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from mcp_types.methods import validate_server_result

from mcp_django import site
from mcp_django.orm.uris import Address
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
ALL = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
MCP = {"BASE_URL": "http://testserver"}
RECORD = {"type": "ref/resource", "uri": Address.RECORD_TEMPLATE}
BOOK = {"app_label": "testapp", "model_name": "book"}
ONE = "Unknown prompt, resource template or argument"


@pytest.fixture(autouse=True)
def registered():
    def introduce(request, author: Author, book: Book, tone: Literal["dry", "kind"] = "dry", word: str = "") -> str:
        """Introduce an author."""
        return ""

    def secret(request, author: Author) -> str:
        """Not for everybody."""
        return ""

    def sheet(request, author: Author, part: str = "") -> str:
        """One page on an author."""
        return ""

    site.add_prompt(introduce, complete={"word": lambda request, value, context: [f"{request.user} {context['tone']}"]})
    site.add_prompt(secret, permissions=["testapp.delete_author"])
    site.add_resource("shop://{author}/sheet{?part}", sheet, complete={"part": "testapp.book.status"})
    site.add_resource("shop://{author}/secret", secret, permissions=["testapp.delete_author"])
    yield
    for name in ("introduce", "secret"):
        site.remove_prompt(name)
    for uri in ("shop://{author}/sheet{?part}", "shop://{author}/secret"):
        site.remove_resource(uri)


def complete(client, ref, name, value="", **context):
    params = {"ref": ref, "argument": {"name": name, "value": value}}
    if context:
        params["context"] = {"arguments": context}
    result = client.request("completion/complete", **params)
    validate_server_result("completion/complete", client.version, result)
    return result["completion"]


def prompt(name):
    return {"type": "ref/prompt", "name": name}


def template(uri):
    return {"type": "ref/resource", "uri": uri}


@pytest.mark.parametrize("version", ALL)
def test_prompts_and_templates_are_completed_in_every_revision(version):
    book = make_book("Winter", author=make_author("Ursula"))
    client = MCPClient(make_superuser(), version=version)
    key = {"values": [str(book.author_id)], "total": 1}
    assert complete(client, prompt("introduce"), "author", "urs") == key
    assert complete(client, prompt("introduce"), "tone", "k") == {"values": ["kind"], "total": 1}
    assert complete(client, RECORD, "pk", "wint", **BOOK) == {"values": [str(book.pk)], "total": 1}
    assert complete(client, template("shop://{author}/sheet{?part}"), "author", "urs") == key
    assert complete(client, template("shop://{author}/sheet{?part}"), "part", "draf") == {
        "values": ["draft"],
        "total": 1,
    }


def test_arguments_that_are_filled_in_narrow_the_next_one():
    first, second = make_book("First"), make_book("Second")
    client = MCPClient(make_superuser())
    assert complete(client, prompt("introduce"), "book")["values"] == [str(first.pk), str(second.pk)]
    narrowed = complete(client, prompt("introduce"), "book", author=str(second.author_id))
    assert narrowed["values"] == [str(second.pk)]


def test_a_uri_is_as_good_as_its_template():
    author = make_author("Ursula", pk=77)
    client = MCPClient(make_superuser())
    assert complete(client, template("shop://1/sheet?part=dr"), "author", "urs")["values"] == ["77"]
    assert complete(client, template("shop://1/sheet"), "part", "draf")["values"] == ["draft"]
    assert complete(client, template("django://testapp/author/1"), "pk", "urs")["values"] == [str(author.pk)]


def test_a_function_of_the_project_knows_the_caller_and_the_other_arguments():
    found = complete(MCPClient(make_superuser()), prompt("introduce"), "word", tone="dry", word="old")
    assert found["values"] == ["root dry"]


def test_125_what_is_missing_and_what_is_forbidden_are_one_answer_to_the_byte():
    client = MCPClient(make_user("viewer", "testapp.view_author"))
    refs = [
        (prompt("secret"), "author"),
        (prompt("nosuch"), "author"),
        (prompt("introduce"), "nosuch"),
        (prompt("introduce"), "request"),
        (template("shop://{author}/secret"), "author"),
        (template("shop://1/secret"), "author"),
        (template("shop://{author}/nosuch"), "author"),
        (template("shop://{author}/sheet{?part}"), "nosuch"),
        (RECORD, "field"),
        (template("file:///{path}"), "path"),
    ]
    bodies = set()
    for ref, name in refs:
        response = client.send("completion/complete", {"ref": ref, "argument": {"name": name, "value": ""}})
        bodies.add(str(response.json()["error"]))
    assert bodies == {str({"code": -32602, "message": ONE})}


def test_125_a_caller_who_may_view_nothing_finds_no_template_of_models():
    client = MCPClient(make_user("nobody"))
    with pytest.raises(MCPError, match=ONE):
        complete(client, RECORD, "app_label")


def test_135_a_hidden_model_and_a_missing_one_are_one_answer():
    make_book("Winter")
    client = MCPClient(make_user("viewer", "testapp.view_author"))
    nothing = {"values": [], "total": 0}
    assert complete(client, template(Address.FILE_TEMPLATE), "field", **BOOK) == nothing
    assert complete(client, RECORD, "pk", **BOOK) == nothing
    assert complete(client, RECORD, "pk", app_label="testapp", model_name="nosuch") == nothing
    assert complete(client, prompt("introduce"), "book") == nothing


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": prompt("introduce")},
        {"ref": prompt("introduce"), "argument": {"name": "tone"}},
        {"ref": prompt("introduce"), "argument": {"name": "tone", "value": 5}},
        {"ref": {"type": "ref/other", "name": "x"}, "argument": {"name": "tone", "value": ""}},
        {"ref": {"type": "ref/prompt"}, "argument": {"name": "tone", "value": ""}},
        {"ref": prompt("introduce"), "argument": {"name": "tone", "value": ""}, "context": {"arguments": {"a": 5}}},
    ],
    ids=range(7),
)
def test_a_request_that_is_none_is_refused(params):
    response = MCPClient(make_superuser()).send("completion/complete", params)
    assert response.json()["error"]["code"] == -32602


def test_135_completing_needs_the_scope():
    with pytest.raises(MCPError) as caught:
        complete(MCPClient(make_superuser(), scopes=[]), RECORD, "app_label")
    assert caught.value.status == 403


@override_settings(MCP_DJANGO=MCP | {"RATES": {"completions": "2/d"}})
def test_135_153_completions_are_limited_for_each_caller_and_counted_in_the_shared_cache():
    first, second = make_superuser("first"), make_superuser("second")
    for client in (MCPClient(first), MCPClient(first)):
        complete(client, RECORD, "app_label")
    with pytest.raises(MCPError) as caught:
        complete(MCPClient(first), RECORD, "app_label")
    assert caught.value.code == -32603
    assert 0 < caught.value.data["retryAfter"] <= 86400
    with pytest.raises(MCPError) as unknown:
        complete(MCPClient(first), prompt("nosuch"), "author")
    assert unknown.value.code == -32603
    complete(MCPClient(second), RECORD, "app_label")
    assert MCPClient(first).tools()


def test_135_without_a_rate_the_limit_of_calls_is_the_only_one():
    with override_settings(MCP_DJANGO=MCP | {"RATES": {"completions": None}}):
        assert complete(MCPClient(make_superuser()), RECORD, "app_label")["values"] == ["testapp", "admin"]


def test_a_cache_that_is_out_of_order_limits_nothing(monkeypatch, caplog):
    def broken(*args):
        raise ConnectionError("no cache")

    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits.RateLimit.hit", broken)
    assert complete(MCPClient(make_superuser()), RECORD, "app_label")["values"] == ["testapp", "admin"]
    assert "not counted" in caplog.text


def test_a_function_that_fails_is_logged_and_tells_nothing(caplog):
    def broken(request, value, context):
        raise RuntimeError("secret detail")

    def other(request, word: str) -> str:
        """Another."""
        return ""

    site.add_prompt(other, complete={"word": broken})
    try:
        with pytest.raises(MCPError) as caught:
            complete(MCPClient(make_superuser()), prompt("other"), "word")
    finally:
        site.remove_prompt("other")
    assert caught.value.code == -32603
    assert "secret detail" not in str(caught.value)
    assert "secret detail" in caplog.text


def test_84_a_missing_and_a_hidden_row_take_the_same_queries():
    user = make_user("viewer", "testapp.view_book")
    hidden = make_book("Hidden", pk=424242, owner=make_user("other"))
    client = MCPClient(user)
    complete(client, RECORD, "pk", "1", **BOOK)
    counts = []
    for text in (str(hidden.pk), "424243"):
        with CaptureQueriesContext(connection) as queries:
            assert complete(client, RECORD, "pk", text, **BOOK)["values"] == []
        counts.append(len(queries))
    assert counts[0] == counts[1]

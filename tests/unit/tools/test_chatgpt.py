"""ChatGPT's `search` and `fetch`: results in its own form, of rows that the caller may see."""

import json
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import QuerySet

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.tools.chatgpt import MAX_RESULTS, MAX_ROWS, Fetch, Search
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader
from tests.testapp.models import Author, Book
from tests.tool_calls import call, refusal, result_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
SEARCH, FETCH = Search(), Fetch()


@pytest.fixture
def library() -> MCPRequest:
    return reader(make_superuser(), MCPSite(admin_site=admin.site))


def found(request: MCPRequest, query: str) -> list[str]:
    return [result["title"] for result in call(SEARCH, request, query=query)["results"]]


def test_they_are_there_only_where_the_site_adds_them(library: MCPRequest) -> None:
    site = library.mcp.site
    before = [tool.name for tool in site.get_tools(library)]
    assert not {"search", "fetch"} & set(before)
    assert site.get_tool(library, "search") is None
    site.add_chatgpt_tools()
    after = [tool.name for tool in site.get_tools(library)]
    assert set(after) == {*before, "search", "fetch"}
    assert site.get_tool(library, "fetch") is not None
    nobody = reader(make_user("nobody"), site)
    assert not {"search", "fetch"} & {tool.name for tool in site.get_tools(nobody)}


def test_tools_of_the_project_of_the_same_names_stay_its_own() -> None:
    site = MCPSite()
    site.register(Book, ModelExposure, fields=["title"])

    def search(request: Any, query: str) -> str:
        return "own"

    site.add_tool(search)
    request = reader(make_superuser(), site)
    site.add_chatgpt_tools()
    assert [tool.name for tool in site.get_tools(request)].count("search") == 1
    assert not isinstance(site.get_tool(request, "search"), Search)
    assert isinstance(site.get_tool(request, "fetch"), Fetch)


def test_a_result_has_id_title_and_url_and_is_fetched_by_its_id(library: MCPRequest) -> None:
    book = make_book("The Dispossessed", author=make_author("Ursula"))
    result = result_of(SEARCH, library, query="Dispossessed")
    (text,) = result.to_wire()["content"]
    assert json.loads(text["text"]) == result.structured
    (entry,) = result.structured["results"]
    assert entry == {
        "id": f"django://testapp/book/{book.pk}",
        "title": "book: The Dispossessed",
        "url": f"http://testserver/admin/testapp/book/{book.pk}/change/",
    }
    fetched = call(FETCH, library, id=entry["id"])
    assert fetched.keys() == {"id", "title", "text", "url", "metadata"}
    assert {name: fetched[name] for name in entry} == entry
    assert "title: The Dispossessed" in fetched["text"]
    assert "Ursula" in fetched["text"]
    assert fetched["metadata"] == {"model": "testapp.book", "pk": book.pk}


def test_whole_questions_find_rows_by_the_words_that_say_something(library: MCPRequest) -> None:
    make_book("The Dispossessed", author=make_author("Ursula"))
    assert found(library, "Which books are by Ursula?")[0] == "book: The Dispossessed"
    assert found(library, "authors named Ursula")[0] == "author: Ursula"
    assert found(library, "xylophone") == []


def test_the_url_is_the_id_where_no_page_opens() -> None:
    site = MCPSite()
    site.register(Author, ModelExposure, fields=["name"], search_fields=["name"])
    make_author("Ursula")
    (entry,) = call(SEARCH, reader(make_user("u", "testapp.view_author", staff=False), site), query="Ursula")["results"]
    assert entry["url"] == entry["id"]


def test_results_are_bounded(library: MCPRequest) -> None:
    author = make_author("Garden")
    for number in range(MAX_RESULTS + 5):
        make_book(f"Garden {number}", author=author)
    assert len(found(library, "Garden")) <= MAX_RESULTS
    assert sum(title.startswith("book:") for title in found(library, "Garden")) == MAX_ROWS


def test_hidden_rows_and_fields_change_no_answer() -> None:
    class Own(ModelExposure):
        fields = ["title"]
        search_fields = ["title", "author__name"]

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).exclude(title__startswith="Hidden")

    site = MCPSite()
    site.register(Book, Own)
    site.register(Author, ModelExposure, fields=["name", "secret_token"], search_fields=["name"])
    request = reader(make_user("u", "testapp.view_book"), site)
    secret, hidden = make_author("Zebra", secret_token="quagga"), make_book("Hidden zebra")
    make_book("Plain", author=secret)
    for query in ("zebra", "quagga", "Hidden"):
        assert found(request, query) == []
    missing = refusal(FETCH, request, id="django://testapp/book/999999")
    for uri in (
        f"django://testapp/book/{hidden.pk}",
        f"django://testapp/author/{secret.pk}",
        "django://testapp/none/1",
    ):
        assert refusal(FETCH, request, id=uri) == missing


@pytest.mark.parametrize("query", [None, "", " ", 5, [], {}, "x" * 100_000, "\0"])
def test_other_queries_are_refused(library: MCPRequest, query: Any) -> None:
    assert "query must be" in refusal(SEARCH, library, query=query)


@pytest.mark.parametrize("query", ["%", "'; --", "a " * 90, "the of a", "?", "🦓"])
def test_odd_queries_are_answered(library: MCPRequest, query: str) -> None:
    make_book("Plain")
    assert isinstance(call(SEARCH, library, query=query)["results"], list)


@pytest.mark.parametrize(
    "uri", [None, "", 5, "shop", "django://testapp/book", "django://testapp/book/schema", "https://x/1", "\0"]
)
def test_other_ids_are_refused(library: MCPRequest, uri: Any) -> None:
    assert "search" in refusal(FETCH, library, id=uri)

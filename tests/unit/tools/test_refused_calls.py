"""Calls that are refused, and the call that is proposed instead."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_django import ModelExposure, ToolError
from mcp_django.exceptions import Repair
from mcp_django.testing import MCPClient, MCPError
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.base import Tool
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.refused_calls import RefusedCall
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import site_with
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]

QUERY, AGGREGATE, GET = QueryRecords(), AggregateRecords(), GetRecord()


@pytest.fixture
def root(db: None) -> Any:
    make_book(title="One", author=make_author("Ursula"), pages=10, status="published")
    site = site_with(Author, Loan, Tag)
    site.register(Book, ModelExposure, fields="__all__", search_fields=["title"])
    return request_of(make_superuser(), site)


def proposed(tool: Tool, request: Any, **arguments: Any) -> Any:
    """Return the arguments that are proposed for a call which is refused."""
    with pytest.raises(ToolError) as error:
        tool.call(request, dict(arguments))
    found = RefusedCall(request, tool, arguments, error.value).proposal()
    assert found is None or found["tool"] == tool.name
    return found and found["arguments"]


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"model": "books", "limit": 1}, {"model": "testapp.book", "limit": 1}),
        ({"model": ["testapp.book"]}, {"model": "testapp.book"}),
        ({"fields": ["title", "pages"]}, {"model": "testapp.book", "fields": ["title", "pages"]}),
        ({"model": "testapp.book", "offset": 20}, {"model": "testapp.book"}),
        ({"model": "testapp.book", "query": "x"}, {"model": "testapp.book", "search": "x"}),
        ({"model": "testapp.book", "fields": ["*"]}, {"model": "testapp.book"}),
        ({"model": "testapp.book", "fields": ["authorName"]}, {"model": "testapp.book", "fields": ["author__name"]}),
        ({"model": "testapp.book", "orderBy": "-titel"}, {"model": "testapp.book", "ordering": "-title"}),
    ],
)
def test_the_call_that_is_meant_is_proposed_and_works(root: Any, arguments: Any, right: Any) -> None:
    assert proposed(QUERY, root, **arguments) == right
    assert QUERY.call(root, right).structured


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("pages:sum", "sum:pages"),
        ("pages:average", "avg:pages"),
        ("pages__max", "max:pages"),
        ("pages.max", "max:pages"),
        ("sum pages", "sum:pages"),
        ("average of pages", "avg:pages"),
        ("author.name:count_distinct", "count_distinct:author.name"),
        ("author__id__max", "max:author__id"),
        ("pages", None),
    ],
)
def test_an_aggregate_that_is_written_in_another_form_is_proposed(root: Any, written: str, right: str | None) -> None:
    for form in (str, lambda text: ["count", text]):
        found = proposed(AGGREGATE, root, model="testapp.book", aggregates=form(written))
        assert found == (right and {"model": "testapp.book", "aggregates": form(right)})


@pytest.mark.parametrize(
    ("model", "right"),
    [
        ("books,book", "testapp.book"),
        ("testapp.book, testapp.bok", "testapp.book"),
        ("testapp.bok, testapp.authr", "testapp.book,testapp.author"),
        (["authors", "testapp.bok", "book"], ["testapp.author", "testapp.book"]),
        ("testapp.bok, testapp.nothing_like_it", None),
    ],
)
def test_each_model_is_proposed_once_and_by_its_label(root: Any, model: Any, right: Any) -> None:
    assert proposed(DescribeModel(), root, model=model) == (right and {"model": right})
    assert right is None or call(DescribeModel(), root, model=right)


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"aggregates": ["sum:pags"]}, {"aggregates": ["sum:pages"]}),
        ({"aggregates": ["SUM(pags*2)"]}, {"aggregates": ["SUM(pages*2)"]}),
        ({"aggregates": ["average:pages"]}, {"aggregates": ["avg:pages"]}),
        ({"aggregates": ["sum:loans.idd"]}, None),
        ({"group_by": ["Status"]}, {"group_by": ["status"]}),
        ({"group_by": ["created:mnth"]}, {"group_by": ["created:month"]}),
        ({"group_by": ["author.nam"]}, {"group_by": ["author__name"]}),
        ({"group_by": ["status"], "ordering": ["-cont"]}, {"group_by": ["status"], "ordering": ["-count"]}),
        ({"group_by": ["status"], "having": {"cont__gt": 1}}, {"group_by": ["status"], "having": {"count__gt": 1}}),
        (
            {"aggregates": [{"function": "count", "where": {"statsu": "draft"}}]},
            {"aggregates": [{"function": "count", "where": {"status": "draft"}}]},
        ),
        ({"filters": {"pages__gt": {"field": "ratng"}}}, {"filters": {"pages__gt": {"field": "rating"}}}),
        ({"fill": "yes", "group_by": ["created:month"]}, {"fill": True, "group_by": ["created:month"]}),
        # Sum or average: which is not known.
        ({"aggregates": ["total"]}, None),
    ],
)
def test_the_aggregate_that_is_meant_is_proposed_and_works(root: Any, arguments: Any, right: Any) -> None:
    found = proposed(AGGREGATE, root, model="testapp.book", **arguments)
    if right is None:
        assert found is None or AGGREGATE.call(root, found).structured
        return
    assert found == {"model": "testapp.book", **right}
    assert AGGREGATE.call(root, found).structured


@pytest.mark.parametrize(
    "arguments",
    [
        {"aggregates": [{"sum": "pages"}]},
        {"aggregates": [{"op": "sum", "column": "pages", "alias": "all"}]},
        {"group_by": ["month(created)"]},
        {"group_by": ["created by month"]},
        {"group_by": ["status"], "having": "count > 0"},
    ],
)
def test_an_aggregate_in_other_words_is_understood(root: Any, arguments: Any) -> None:
    assert call(AGGREGATE, root, model="testapp.book", **arguments)["rows"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": 5},
        {"fields": ["name"]},
        {"model": "testapp.book", "fields": ["sum(pages)"]},
        {"model": "testapp.book", "ordering": ["desc pages"]},
        {"model": "testapp.book", "filters": {"zzzz": 1}},
        {"model": "testapp.book", "nothing": 1},
    ],
)
def test_what_is_not_clear_is_not_proposed(root: Any, arguments: Any) -> None:
    assert proposed(QUERY, root, **arguments) is None


def test_a_call_without_model_is_told_which_fit(root: Any) -> None:
    with pytest.raises(ToolError, match=r"Models with all these names: testapp\.author, testapp\.tag\."):
        QUERY.call(root, {"fields": ["name"]})
    with pytest.raises(ToolError, match=r"One of: testapp\.author, testapp\.book, testapp\.loan, testapp\.tag\."):
        QUERY.call(root, {"limit": 5})


def test_a_write_is_proposed_with_other_spelling_alone(root: Any) -> None:
    book = Book.objects.get()
    update, delete, create = UpdateRecord(), DeleteRecord(), CreateRecord()
    right = {"model": "testapp.book", "pk": book.pk, "values": {"title": "x"}}
    assert proposed(update, root, model="books", pk=book.pk, values={"title": "x"}) == right
    assert proposed(delete, root, model="testapp.book", id=book.pk) == {"model": "testapp.book", "pk": book.pk}
    assert proposed(create, root, model="testapp.tag", data={"name": "x"}) == {
        "model": "testapp.tag",
        "values": {"name": "x"},
    }
    values = {"model": "testapp.book", "pk": book.pk, "values": {"titel": "titel"}}
    assert proposed(update, root, **values) == right | {"values": {"title": "titel"}}
    # Which model is meant by the fields alone is a guess.
    assert proposed(delete, root, filters={"borrower": "x"}) is None
    assert Book.objects.get().title == "One"


def test_the_text_ends_with_the_call_and_the_structure_has_it_where_no_schema_forbids_it(root: Any) -> None:
    for tool in (QUERY, AGGREGATE):
        with pytest.raises(ToolError) as error:
            tool.call(root, {"model": "books"})
        wire = RefusedCall(root, tool, {"model": "books"}, error.value).result()
        text, _, line = wire["content"][0]["text"].rpartition("\nnext: ")
        assert wire["isError"]
        call = {"tool": tool.name, "arguments": {"model": "testapp.book"}}
        assert json.loads(line) == call
        # The official TypeScript SDK would hold it against the output schema.
        expected = None if tool.output_schema else {"error": text, "next": call}
        assert wire.get("structuredContent") == expected


def test_a_call_that_is_too_long_to_be_told_is_not(root: Any) -> None:
    assert proposed(QUERY, root, model="books", search="x" * 190, fields=["title"] * 80) is None
    with pytest.raises(ToolError) as error:
        QUERY.call(root, {"model": "books"})
    assert (
        "next"
        not in RefusedCall(root, QUERY, {"model": "books", "search": "\ud800"}, error.value).result()["content"][0][
            "text"
        ]
    )


@pytest.mark.django_db
def test_an_unknown_tool_is_told_with_the_call() -> None:
    client = MCPClient(make_user("viewer", "testapp.view_author"))
    for name in ("query_record", "queryRecords", "Query-Records", "query"):
        with pytest.raises(MCPError) as caught:
            client.call(name, model="testapp.author")
        assert caught.value.data == {"next": {"tool": "query_records", "arguments": {"model": "testapp.author"}}}
    for name in ("nothing", "delete_record"):
        with pytest.raises(MCPError) as caught:
            client.call(name, model="testapp.author")
        assert caught.value.data is None


# Whatever is hidden, errors and proposals are the same.

WRAPPED: dict[str, Callable[[str], Any]] = {
    "fields": lambda text: [text],
    "ordering": lambda text: f"-{text}",
    "filters": lambda text: {text: "x"},
}
WRONG: list[tuple[Tool, dict[str, Any]]] = [
    *((QUERY, {"model": text}) for text in ("loans", "tags", "loan", "testapp.loan", "tagz", "books", "")),
    *((QUERY, {"fields": [text]}) for text in ("borrower", "name", "secretToken", "email", "pages")),
    *(
        (QUERY, {"model": "testapp.book", argument: wrap(text)})
        for text in (
            "titel",
            "secretNumber",
            "isbm",
            "isbn",
            "ratng",
            "authorEmail",
            "author.emial",
            "author__email",
            "loans.borower",
            "loansBorrower",
            "tags.nam",
            "tagName",
            "bookIsbn",
            "isbn_gte",
            "loan.due",
            "author->secret_token",
        )
        for argument, wrap in WRAPPED.items()
    ),
    *((AGGREGATE, {"model": "testapp.book", "group_by": [text]}) for text in ("isbm", "authorEmail", "loans.due")),
    *((AGGREGATE, {"model": "testapp.book", "aggregates": [f"sum:{text}"]}) for text in ("ratngs", "loans.id", "isb")),
    *((GET, {"model": "testapp.book", "pk": 1, "related": [text]}) for text in ("loan", "tag", "loans")),
    *((QUERY, {"model": "testapp.book", "filters": {"author": text}}) for text in ("Hidde", "Hidden", "Ursul")),
    *((QUERY, {"model": "testapp.book", "filters": {"author.name": text}}) for text in (["Hidden"], {"lik": "%H%"})),
]


class _Books(ModelExposure):
    fields = ("title", "author", "pages", "status")


class _Authors(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).exclude(name__startswith="Hidden")


def _answers(request: Any) -> list[str]:
    found = []
    for tool, arguments in WRONG:
        try:
            structured = tool.call(request, dict(arguments)).structured
            found.append(json.dumps({k: v for k, v in (structured or {}).items() if k != "next_cursor"}, default=str))
        except ToolError as error:
            found.append(RefusedCall(request, tool, arguments, error).result()["content"][0]["text"])
    return found


def test_two_worlds_that_differ_in_what_is_hidden_give_the_same_errors_and_proposals(db: None) -> None:
    user: User = make_user("viewer", "testapp.view_book", "testapp.view_author")
    make_book(title="One", author=make_author("Ursula"), pages=10)
    worlds = []
    for models in ((Book, Author), (Book, Author, Loan, Tag)):
        site = site_with(*models[2:])
        site.register(Book, _Books)
        site.register(Author, _Authors)
        worlds.append(_answers(request_of(user, site, scopes=frozenset({"mcp:read"}))))
        # The second world has another hidden row, with another name in the hidden fields.
        make_author("Hidden person", email="x@example.com", secret_token="isbn")
    assert worlds[0] == worlds[1]
    assert not any("Hidden person" in text or "borrower," in text for text in worlds[1])
    assert sum("next: " in text for text in worlds[1]) > 5


def test_what_fails_on_the_way_to_a_proposal_leaves_the_refusal(root: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail(arguments: Any) -> Any:
        raise RuntimeError("the project's own")

    wire = RefusedCall(root, QUERY, {"model": "x"}, ToolError("No.", repair=Repair(fail))).result()
    assert wire["content"][0]["text"] == "No."
    assert "No call could be proposed for one of query_records" in caplog.text


def test_a_call_that_is_wrong_in_several_places_is_mended_in_all(root: Any) -> None:
    wrong = {"model": "books", "filters": {"Pages": ">5", "authr.nam": "Ursula"}, "fields": "titel", "orderBy": "pags"}
    right = proposed(QUERY, root, **wrong)
    assert right == {
        "model": "testapp.book",
        "filters": {"pages__gt": "5", "author__name": "Ursula"},
        "fields": "title",
        "ordering": "pages",
    }
    assert call(QUERY, root, **right)["rows"]
    # One that cannot be mended is no call to propose.
    assert proposed(QUERY, root, **wrong | {"search": "x" * 500}) is None

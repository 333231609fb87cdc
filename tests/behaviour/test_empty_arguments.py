"""Arguments that a model leaves empty because it has to write something for each."""

from collections.abc import Iterator
from datetime import date
from itertools import product
from typing import Annotated, Any, Literal

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.urls import include, path

from mcp_django import MCPSite
from mcp_django.schema.annotations import Param
from mcp_django.testing import MCPClient, ToolCall
from mcp_django.tools.generic import ToolSet
from tests.cases import some
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]

EMPTY: list[Any] = ["", [], {}, "[]", "{}", None]
seen: list[Any] = []


class Options(ActionForm):  # type: ignore[misc]
    number = forms.IntegerField(required=False, initial=7)
    author = forms.ModelChoiceField(Author.objects.all(), required=False)
    loud = forms.BooleanField(required=False)
    word = forms.CharField(required=False, initial="a word")


class AuthorAdmin(admin.ModelAdmin):
    action_form = Options
    search_fields = ["name"]
    actions = ["count"]

    @admin.action(permissions=["view"])
    def count(self, request: Any, queryset: Any) -> None:
        seen.append({name: request.POST.get(name) for name in ("number", "author", "loud", "word")})


def work(
    request: Any,
    size: int = 5,
    factor: float = 1.5,
    sure: bool = True,
    day: date | None = None,
    colour: Literal["red", "blue"] = "red",
    code: Annotated[str, Param(min_length=2)] = "xx",
    note: str = "kept",
    authors: list[Author] | None = None,
    more: dict[str, int] | None = None,
    several: Annotated[list[int], Param(min_items=1)] = [1],  # noqa: B006
) -> str:
    """Work."""
    seen.append((size, factor, sure, day, colour, code, note, authors, more, several))
    return "done"


def pick(request: Any, limit: int = 3) -> str:
    """Pick."""
    seen.append(limit)
    return "done"


admin_site = admin.AdminSite(name="admin")
admin_site.register(Author, AuthorAdmin)
admin_site.register(Book, search_fields=["title"])
own = MCPSite("own", admin_site=admin_site)
own.add_tool(work, destructive=False)
own.add_tool(pick, destructive=False)
urlpatterns = [path("mcp", own.urls), path("", include("mcp_django.oauth.urls"))]


@pytest.fixture
def client() -> MCPClient:
    seen.clear()
    for name in ("Ada", "Bob"):
        make_book(title=f"{name}'s", author=make_author(name))
    return MCPClient(make_superuser())


def pk_of(name: str) -> int:
    return Author.objects.get(name=name).pk


BASES: list[tuple[str, dict[str, Any]]] = [
    ("list_models", {}),
    ("describe_model", {"model": "testapp.author"}),
    ("query_records", {"model": "testapp.author"}),
    ("get_record", {"model": "testapp.author", "pk": "Ada"}),
    ("get_record", {"uri": "django://testapp/author/Ada"}),
    ("aggregate_records", {"model": "testapp.author"}),
    ("aggregate_records", {"model": "testapp.author", "group_by": ["name"]}),
    ("create_record", {"model": "testapp.author", "values": {"name": "Cy"}}),
    ("update_record", {"model": "testapp.author", "pk": "Ada", "values": {"name": "Ada"}}),
    ("update_record", {"model": "testapp.author", "pks": ["Ada"], "values": {"name": "Ada"}}),
    ("update_record", {"model": "testapp.author", "filters": {"name": "Ada"}, "values": {"name": "Ada"}}),
    ("delete_record", {"model": "testapp.book", "pk": "Ada"}),
    ("delete_record", {"model": "testapp.book", "pks": ["Ada"]}),
    ("delete_record", {"model": "testapp.book", "search": "Ada"}),
    ("write_records", {"writes": [{"op": "delete", "model": "testapp.book", "filters": {"title": "Ada's"}}]}),
    ("undo_change", {"change": "Ada"}),
    ("run_action", {"model": "testapp.author", "action": "count", "pks": ["Ada"]}),
    ("run_action", {"model": "testapp.author", "action": "count", "all": True}),
    ("count_testapp_author", {"pks": ["Ada"]}),
    ("create_upload", {}),
    ("work", {}),
]
# Texts of the project's own, which may be anything.
OWN = frozenset({"number", "author", "loud", "word", "note", "code", "colour", "size", "factor", "sure", "day"})


def test_each_generic_tool_is_in_the_table() -> None:
    assert {tool.name for tool in ToolSet.GENERIC.value} <= {name for name, _ in BASES}


def known(base: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the keys of rows in the place of their names."""
    model = (
        Book.objects.filter(title="Ada's") if base.get("model") == "testapp.book" else Author.objects.filter(name="Ada")
    )
    key = model.get().pk
    return base | {
        name: [key] if name == "pks" else str(value).replace("Ada", str(key))
        for name, value in base.items()
        if name in ("pk", "pks", "uri")
    }


def told(result: ToolCall) -> Any:
    """Return what a result says but for what differs from call to call."""
    assert not result.is_error, result.text
    structured = result.structured or {}
    changing = ("confirm_token", "pk", "uri", "label", "change")
    return {name: value for name, value in structured.items() if name not in changing}


def empty(tool: str, optional: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield each argument with what is empty in it, or where some cases are enough with one or two of them."""
    for name, value in some(product(optional, EMPTY), 5):
        # A text of brackets may be what is looked for, or a value of the tool's own.
        if isinstance(value, str) and value and (name in ("search", "query") or name in OWN):
            continue
        if tool == "work" and name in ("note", "more", "authors") and value is not None:
            continue
        yield name, value


@pytest.mark.parametrize(("tool", "base"), BASES, ids=[f"{name}-{'-'.join(base)}" for name, base in BASES])
def test_an_optional_argument_that_is_empty_is_as_if_left_out(client: MCPClient, tool: str, base: Any) -> None:
    [definition] = [found for found in client.tools() if found["name"] == tool] or [{"inputSchema": {"properties": {}}}]
    if tool == "create_upload":
        return
    schema = definition["inputSchema"]
    base = known(base)
    if tool == "undo_change":
        made = client.call("create_record", model="testapp.author", values={"name": "New"})
        base["change"] = (made.structured or {})["change"]
    optional = [name for name in schema["properties"] if name not in base and name not in schema.get("required", ())]
    assert optional
    expected = told(client.call(tool, **base))
    kept = list(seen)
    rows = Author.objects.count(), Book.objects.count()
    for name, value in empty(tool, optional):
        seen.clear()
        found = told(client.call(tool, **base, **{name: value}))
        if tool == "create_record":
            Author.objects.filter(name="Cy").order_by("-pk")[:1].get().delete()
        else:
            assert found == expected, (name, value)
        if name != "word":
            assert seen == kept, (name, value)
        assert (Author.objects.count(), Book.objects.count()) == rows
    # All of them at once, as strict schemas make models write them.
    client.call(tool, **base, **dict.fromkeys([name for name in optional if name not in OWN], ""))


@pytest.mark.parametrize("zero", [0, "0"])
@pytest.mark.parametrize(
    ("tool", "arguments", "names"),
    [
        ("query_records", {"model": "testapp.author"}, ["limit"]),
        ("aggregate_records", {"model": "testapp.author", "group_by": ["name"]}, ["limit", "top"]),
    ],
)
def test_a_bound_of_no_rows_is_as_if_left_out(
    client: MCPClient, tool: str, arguments: Any, names: list[str], zero: Any
) -> None:
    assert told(client.call(tool, **arguments, **dict.fromkeys(names, zero))) == told(client.call(tool, **arguments))


def test_a_bound_of_a_tool_of_the_project_may_be_zero(client: MCPClient) -> None:
    client.call("pick", limit=0)
    assert seen == [0]


@pytest.mark.parametrize("value", [value for value in EMPTY if value is not None], ids=repr)
@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("update_record", {"model": "testapp.author", "values": {"name": "changed"}}),
        ("delete_record", {"model": "testapp.author"}),
        ("run_action", {"model": "testapp.author", "action": "count"}),
        ("count_testapp_author", {}),
    ],
)
def test_what_is_empty_never_picks_all_rows(client: MCPClient, tool: str, more: Any, value: Any) -> None:
    for name in ("pk", "pks", "filters", "search", "all"):
        for names in ([name], ["pks", "filters", name]):
            if (name == "search" and value in ("[]", "{}")) or (
                name == "pk" and "values" not in more and tool != "delete_record"
            ):
                continue
            result = client.call(tool, **more, **dict.fromkeys(names, value))
            assert result.is_error
            assert "pks" in result.text
    assert not seen
    assert sorted(Author.objects.values_list("name", flat=True)) == ["Ada", "Bob"]


def test_a_required_argument_that_is_empty_is_refused(client: MCPClient) -> None:
    for arguments in ({"model": ""}, {"model": []}, {"model": {}}):
        assert client.call("query_records", **arguments).is_error
        assert client.call("describe_model", **arguments).is_error


def test_an_empty_text_is_a_value_where_the_project_takes_one(client: MCPClient) -> None:
    client.call("work", note="", more={}, authors=[])
    assert seen[0][6:9] == ("", [], {})
    client.call("count_testapp_author", pks=[pk_of("Ada")], word="")
    assert seen[1] == {"number": "7", "author": "", "loud": None, "word": ""}

"""Choices that a project makes of rows: no metadata holds them, and callers are told those that they may see."""

import json
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.urls import include, path

from mcp_django import MCPSite
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Tag

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]

PAID: list[Any] = []


def by_call() -> list[tuple[Any, str]]:
    return [(author.pk, author.name) for author in Author.objects.order_by("pk")]


class Options(ActionForm):  # type: ignore[misc]
    kind = forms.ChoiceField(choices=[("net", "Net sum"), ("gross", "Gross sum")], required=False)
    called = forms.ChoiceField(choices=by_call, required=False)
    made = forms.ChoiceField(required=False)
    named = forms.ChoiceField(required=False)
    row = forms.ModelChoiceField(Author.objects.all(), required=False)
    months = forms.ChoiceField(choices=lambda: [("1", "January"), ("2", "February")], required=False)

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        made: Any = self.fields["made"]
        made.choices = by_call()
        named: Any = self.fields["named"]
        named.choices = [(author.name, author.name) for author in Author.objects.all()]


class WriterFilter(admin.SimpleListFilter):
    title = "writer"
    parameter_name = "writer"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[Any, str]]:
        return by_call()

    def queryset(self, request: Any, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(author=self.value()) if self.value() else queryset


class LengthFilter(WriterFilter):
    title = parameter_name = "length"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[Any, str]]:
        return [("long", "Very long"), ("short", "Very short")]

    def queryset(self, request: Any, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset


class AuthorAdmin(admin.ModelAdmin):
    def get_queryset(self, request: Any) -> Any:
        rows = super().get_queryset(request)
        return rows if request.user.is_superuser else rows.filter(name__startswith="Own")


class BookAdmin(admin.ModelAdmin):
    action_form = Options
    actions = ["pay"]
    list_filter = [WriterFilter, LengthFilter]

    def get_queryset(self, request: Any) -> Any:
        rows = super().get_queryset(request)
        return rows if request.user.is_superuser else rows.filter(author__name__startswith="Own")

    def pay(self, request: Any, queryset: Any) -> None:
        PAID.append({name: request.POST.get(name) for name in ("kind", "called", "made", "row")})

    pay.mcp_destructive = False  # type: ignore[attr-defined]


admin_site = admin.AdminSite(name="admin")
admin_site.register(Author, AuthorAdmin)
admin_site.register(Book, BookAdmin)
own = MCPSite("own", admin_site=admin_site)
urlpatterns = [path("mcp", own.urls), path("", include("mcp_django.oauth.urls"))]
HIDDEN = "Secret Corp"


@pytest.fixture
def authors() -> list[Author]:
    PAID.clear()
    made = [make_author("Own House"), make_author(HIDDEN)]
    for author in made:
        make_book(title=f"Book of {author.pk}", author=author)
    Tag.objects.create(name="x")
    return made


@pytest.fixture
def client(authors: Any) -> MCPClient:
    root = MCPClient(make_superuser())
    # Whoever comes first decides nothing for the others.
    root.tools()
    root.call("describe_model", model="testapp.book", detail=True)
    return MCPClient(make_user("ann", "testapp.view_author", "testapp.view_book", "testapp.change_book"))


def test_no_row_stands_in_the_list_of_tools(client: MCPClient, authors: Any) -> None:
    for caller in (client, MCPClient(make_superuser("other"))):
        tools = {tool["name"]: tool for tool in caller.tools()}
        text = json.dumps(tools)
        assert HIDDEN not in text
        assert "Own House" not in text
        fields = tools["pay_testapp_book"]["inputSchema"]["properties"]
        assert fields["kind"]["enum"] == ["net", "gross"]
        for name in ("called", "made", "named"):
            assert fields[name]["type"] == "string"
            assert "enum" not in fields[name]
            assert "describe_model with detail" in fields[name]["description"]


def test_a_caller_is_told_the_choices_that_they_may_see(client: MCPClient, authors: Any) -> None:
    seen, hidden = (author.pk for author in authors)
    for detail in (True, False):
        text = client.call("describe_model", model="testapp.book", detail=detail).text
        assert HIDDEN not in text
    described = client.call("describe_model", model="testapp.book", detail=True).structured
    [pay] = described["actions"]
    assert pay["arguments"]["called"]["enum"] == pay["arguments"]["made"]["enum"] == [seen]
    assert "Own House" in pay["arguments"]["made"]["description"]
    assert "enum" not in pay["arguments"]["named"]
    assert pay["arguments"]["months"]["enum"] == ["1", "2"]
    assert pay["arguments"]["kind"]["enum"] == ["net", "gross"]
    assert described["named_filters"] == [
        f"writer: writer, one of {seen}=Own House",
        "length: length, one of long=Very long | short=Very short",
    ]
    whole = MCPClient(make_superuser("other")).call("describe_model", model="testapp.book", detail=True).structured
    assert whole["actions"][0]["arguments"]["made"]["enum"] == [seen, hidden]
    assert HIDDEN in whole["named_filters"][0]


def test_a_choice_that_is_not_told_can_still_be_taken(client: MCPClient, authors: Any) -> None:
    pk = Book.objects.get(author=authors[0]).pk
    given = {"kind": "net", "called": authors[0].pk, "made": str(authors[0].pk), "row": authors[0].pk}
    assert client.call("pay_testapp_book", pks=[pk], **given).structured["done"]
    assert [{name: str(value) for name, value in given.items()}] == PAID


def test_no_error_names_a_row_that_the_caller_may_not_see(client: MCPClient, authors: Any) -> None:
    pk = Book.objects.get(author=authors[0]).pk
    for name in ("called", "made", "named"):
        refused = client.call("pay_testapp_book", pks=[pk], **{name: "nothing"})
        assert refused.is_error
        assert HIDDEN not in refused.text
        assert str(authors[1].pk) not in refused.text.partition("(valid")[2]


def test_a_filter_tells_nothing_of_rows_that_the_caller_may_not_see(client: MCPClient, authors: Any) -> None:
    def query(value: Any) -> Any:
        return client.call("query_records", model="testapp.book", filters={"writer": value})

    assert query(authors[0].pk).structured["returned"] == 1
    hidden = authors[1].pk
    # As near to the key that can be seen: what the answer proposes depends on what is written alone.
    missing = next(pk for pk in range(hidden // 10 * 10, hidden + 10) if pk not in {author.pk for author in authors})
    answers = {query(value).text.replace(str(value), "X") for value in (hidden, missing)}
    assert len(answers) == 1
    answers = {query(value).text.replace(value, "X") for value in (HIDDEN, "Other Name")}
    assert len(answers) == 1
    assert (
        client.call("query_records", model="testapp.book", filters={"length": "Very long"}).structured["returned"] == 1
    )

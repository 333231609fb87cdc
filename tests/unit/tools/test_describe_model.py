"""``describe_model``: what a model learns before it acts, and no more than the caller may see."""

import json
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import override_settings

from mcp_django import MCPSite
from mcp_django.context.databases import Collation
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

LIST, DESCRIBE = ListModels(), DescribeModel()


@pytest.mark.parametrize("detail", [False, True])
def test_texts_that_the_database_takes_for_the_same_are_told_once(detail: bool) -> None:
    root = make_superuser()
    numbers = call(DESCRIBE, reader(root, site_with(Tag, fields=["id"])), model="testapp.tag", detail=detail)
    assert "comparing" not in numbers
    request = reader(root, site_with(Tag))
    found = call(DESCRIBE, request, model="testapp.tag", detail=detail)
    words = Collation("default").overlooked()
    if connection.vendor == "mysql":
        told = f"exact, in, groups and distinct counts ignore {' and '.join(words)} in texts"
        assert words[0] == "case"
        assert found["comparing"] == told
        Tag.objects.create(name="paid")
        for name, word in (("Paid", "case"), ("páid", "accents"), ("paid ", "spaces at the end")):
            assert Tag.objects.filter(name=name).exists() is (word in words)
    else:
        assert words == ()
        assert "comparing" not in found


def test_a_description_is_terse_and_complete() -> None:
    site = site_with(Book, Author, fields=["title", "author", "price", "status", "published"], search_fields=["title"])
    found = call(DESCRIBE, reader(make_superuser(), site), model="testapp.book", detail=True)
    assert found["fields"] == [
        "id: integer, pk, read-only",
        "title: text, required",
        "author: integer → testapp.author, required",
        "price: decimal, required. In euro, with tax.",
        "status: text, optional, one of draft=In preparation | published | withdrawn",
        "published: date or null, optional",
    ]
    assert found["search"] is True
    assert found["ordering"] == ["title", "id"]
    assert found["uris"] == ["django://testapp/book/{id}", "django://testapp/book"]
    assert found["input_schema"]["required"] == ["title", "author", "price", "status"]
    assert found["input_schema"]["properties"]["status"]["enum"] == ["draft", "published", "withdrawn"]


def test_the_schema_of_what_to_write_is_for_those_who_may_write() -> None:
    site = site_with(Book)
    for user in (make_user("u", "testapp.view_book"), make_user("d", "testapp.delete_book", "testapp.view_book")):
        assert "input_schema" not in call(DESCRIBE, reader(user, site), model="testapp.book", detail=True)


def test_several_models_are_described_in_one_call() -> None:
    request = reader(make_superuser(), site_with(Book, Author, Tag))
    found = call(DESCRIBE, request, model="testapp.book, TESTAPP.tag")
    assert [entry["model"] for entry in found["models"]] == ["testapp.book", "testapp.tag"]
    alone = call(DESCRIBE, request, model="testapp.tag")
    assert alone.pop("examples")
    assert found["models"][1] == alone
    assert found == call(DESCRIBE, request, model='["testapp.book", "testapp.tag"]')
    assert found["returned"] == 2
    assert found == call(DESCRIBE, request, model="testapp.book, testapp.tag, TESTAPP.Book")


def test_row_125_one_model_that_is_not_there_refuses_the_call() -> None:
    request = reader(make_user("u", "testapp.view_book"), site_with(Book, Author))
    hidden = refusal(DESCRIBE, request, model="testapp.book,testapp.author")
    assert hidden == refusal(DESCRIBE, request, model="testapp.book,testapp.nothin")
    assert hidden.startswith("Name 2 of 2: No such model.")


@pytest.mark.parametrize("model", [None, "", ",", [], {}, 5, ["testapp.book", 5], ["testapp.book"] * 51, "x" * 100_000])
def test_other_labels_are_refused(model: Any) -> None:
    assert refusal(DESCRIBE, reader(make_superuser(), site_with(Book)), model=model)


def test_descriptions_are_bounded() -> None:
    request = reader(make_superuser(), site_with(Book, Author, Tag))
    with override_settings(MCP_DJANGO={"RESULT_CHARS": 500}):
        found = call(DESCRIBE, request, model="testapp.book,testapp.author,testapp.tag", detail=True)
    assert found["returned"] == len(found["models"]) == 1
    assert "others" in found["hint"]


def test_narrowed_and_related_filters_are_named() -> None:
    declared = {"title": ["exact"], "author__name": ["exact", "istartswith"]}
    site = site_with(Book, fields=["title", "author", "pages"], filter_fields=declared)
    found = call(DESCRIBE, reader(make_superuser(), site), model="testapp.book", detail=True)
    lines = dict(line.split(": ", 1) for line in found["fields"])
    assert lines["title"].endswith("filter exact")
    assert lines["pages"].endswith("no filter")
    assert found["filters_on_related"] == ["author__name: exact istartswith"]


def test_row_125_a_relation_to_an_invisible_model_does_not_name_it() -> None:
    site = site_with(Book, Author, fields=["author"])
    found = call(DESCRIBE, reader(make_user("u", "testapp.view_book"), site), model="testapp.book", detail=True)
    assert found["fields"][1] == "author: integer key of another record, read-only"
    assert "author." not in json.dumps(found)
    assert "testapp.author" not in json.dumps(found)


def test_row_112_hidden_fields_are_not_described() -> None:
    site = MCPSite(admin_site=admin.site)
    request = reader(make_superuser(), site)
    for detail in (False, True):
        for model in ("testapp.author", "testapp.loan", "testapp.author,testapp.loan"):
            assert "secret_token" not in json.dumps(call(DESCRIBE, request, model=model, detail=detail))


def test_actions_are_those_of_the_caller_and_go_with_the_write_scope() -> None:
    site = MCPSite(admin_site=admin.site)
    user = make_user("u", "testapp.view_book", "testapp.publish_book")
    found = call(DESCRIBE, reader(user, site), model="testapp.book", detail=True)
    assert {action["name"] for action in found["actions"]} == {"publish", "export"}
    for detail in (False, True):
        readonly = request_of(user, site, scopes=frozenset({"mcp:read"}))
        assert "actions" not in call(DESCRIBE, readonly, model="testapp.book", detail=detail)


def test_an_unknown_model_names_the_visible_ones() -> None:
    message = refusal(DESCRIBE, reader(make_superuser(), site_with(Book, Loan)), model="testapp.bok")
    assert "Did you mean testapp.book?" in message
    assert "list_models" in message


def test_the_five_tools_cost_few_tokens_and_the_entries_are_always_loaded() -> None:
    tools = [ListModels(), DescribeModel(), QueryRecords(), GetRecord(), AggregateRecords()]
    # About four characters a token; output schemas are not shown to models.
    shown = [{key: value for key, value in tool.definition().items() if key != "outputSchema"} for tool in tools]
    assert len(json.dumps(shown)) < 5000
    assert [tool.name for tool in tools if tool.meta.get("anthropic/alwaysLoad")] == [
        "list_models",
        "describe_model",
        "query_records",
    ]
    for tool in tools:
        assert tool.title
        assert tool.read_only


def test_the_schema_of_updates_requires_no_field() -> None:
    request = reader(make_user("clerk", "testapp.view_book", "testapp.change_book"), site_with(Book))
    schema = call(DESCRIBE, request, model="testapp.book", detail=True)["input_schema"]
    assert "title" in schema["properties"]
    assert "required" not in schema

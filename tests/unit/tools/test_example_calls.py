"""The examples of `describe_model`: two calls, which work as they stand for the caller who reads them."""

import json
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.base import Tool
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_superuser, make_user
from tests.library import make_library, reader, site_with
from tests.testapp.models import Author, Book, Loan, Profile, Tag
from tests.tool_calls import call

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
DESCRIBE = DescribeModel()
TOOLS: dict[str, Tool] = {tool.name: tool for tool in (QueryRecords(), AggregateRecords())}
APPS = ("testapp", "fieldapp", "filterapp", "inlineapp", "oddapp", "auth")
ALL = [
    model
    for name in APPS
    if apps.is_installed(f"tests.{name}") or name == "auth"
    for model in apps.get_app_config(name).get_models()
]


def examples(request: MCPRequest, label: str) -> list[Any]:
    """Return the examples of a model, each of which was run."""
    found: list[Any] = call(DESCRIBE, request, model=label)["examples"]
    for example in found:
        assert call(TOOLS[example["tool"]], request, **example["arguments"])["model"] == label
    return found


@pytest.fixture(scope="module")
def sites_of_all() -> list[MCPSite]:
    """Sites of every model: with all fields, those of the default, and the key alone."""
    sites = [MCPSite() for _ in range(3)]
    for site, fields in zip(sites, ("__all__", None, ["pk"]), strict=True):
        for model in ALL:
            site.register(model, ModelExposure, fields=fields)
    return sites


@pytest.mark.parametrize("model", ALL, ids=lambda model: model._meta.label_lower)
def test_every_example_of_every_model_runs(model: Any, sites_of_all: list[MCPSite]) -> None:
    make_library()
    user = make_superuser()
    for site in sites_of_all:
        found = examples(reader(user, site), model._meta.label_lower)
        assert [example["tool"] for example in found] == ["query_records", "aggregate_records"]


def test_every_example_of_the_admin_runs_for_whoever_reads_it() -> None:
    make_library()
    site = MCPSite(admin_site=admin.site)
    own = make_user("u", "testapp.view_book", "testapp.view_loan", "testapp.view_author")
    for user in (make_superuser(), own):
        request = reader(user, site)
        for label, *_ in call(ListModels(), request)["rows"]:
            examples(request, label)


def test_they_go_through_a_relation_and_have_a_condition() -> None:
    site = site_with(Book, Author, Tag, Profile, Loan)
    request = reader(make_superuser(), site)
    page, aggregate = examples(request, "testapp.author")
    assert page["arguments"]["filters"] == {"books": {"some": {"status": "withdrawn"}}}
    assert aggregate["arguments"]["aggregates"] == [
        "count",
        {"function": "count", "as": "matching", "where": {"born__gte": "start of last year"}},
    ]
    page, aggregate = examples(request, "testapp.loan")
    assert page["arguments"]["filters"] == {"book.status": "withdrawn"}
    assert aggregate["arguments"]["group_by"] == ["due:month"]
    _, aggregate = examples(request, "testapp.book")
    assert aggregate["arguments"]["aggregates"] == [
        "sum:price",
        {"function": "sum", "field": "price", "as": "matching", "where": {"status": "withdrawn"}},
    ]


def test_they_name_nothing_that_is_hidden() -> None:
    site = site_with(Author, Profile, fields=["name"])
    site.register(Book, ModelExposure, fields=["title", "author", "status"])
    request = reader(make_user("u", "testapp.view_author"), site)
    text = json.dumps(examples(request, "testapp.author"))
    assert "book" not in text
    assert "profile" not in text
    assert "secret_token" not in text


def test_filters_that_the_exposure_closes_are_not_shown() -> None:
    class Narrow(ModelExposure):
        fields = ["title", "author", "status", "price"]
        filter_fields = {"title": ["exact"]}

    site = MCPSite()
    site.register(Book, Narrow)
    site.register(Author, ModelExposure, fields=["name"])
    page, aggregate = examples(reader(make_superuser(), site), "testapp.book")
    assert page["arguments"] == {"model": "testapp.book", "limit": 5}
    assert aggregate["arguments"]["aggregates"] == ["sum:price"]


def test_they_stand_where_one_model_is_described_or_all_is_asked_for() -> None:
    request = reader(make_superuser(), site_with(Book, Author))
    labels = "testapp.book,testapp.author"
    assert all("examples" not in entry for entry in call(DESCRIBE, request, model=labels)["models"])
    assert all("examples" in entry for entry in call(DESCRIBE, request, model=labels, detail=True)["models"])


def test_a_tool_that_is_taken_off_is_no_example() -> None:
    site = site_with(Book)
    site.remove_tool("aggregate_records")
    assert [example["tool"] for example in examples(reader(make_superuser(), site), "testapp.book")] == [
        "query_records"
    ]

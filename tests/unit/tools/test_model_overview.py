"""A model in few words: all that is needed to use it, and no more than the caller may see."""

import json
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection, models
from django.test import override_settings
from django.test.utils import isolate_apps

from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.access import access_of
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.model_overview import Overview
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Note, Profile, Tag
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
DESCRIBE = DescribeModel()


def test_an_overview_names_types_targets_choices_and_what_is_required() -> None:
    names = ["title", "author", "tags", "price", "status", "published", "data", "uuid", "active"]
    site = site_with(Book, Author, Tag, fields=names, search_fields=["title"], description="All books.\nMore of them.")
    site.unregister(Author)
    site.unregister(Tag)
    site.register(Author, ModelExposure)
    site.register(Tag, ModelExposure)
    found = call(DESCRIBE, reader(make_superuser(), site), model="testapp.book")
    del found["examples"]
    # Said on MySQL alone.
    assert (found.pop("comparing", None) is not None) is (connection.vendor == "mysql")
    assert found == {
        "model": "testapp.book",
        "may": "write search",
        "description": "All books.",
        "fields": "id, title*, author* testapp.author, tags list testapp.tag, price* decimal, "
        "status draft|published|withdrawn, published date, data json, uuid uuid ro, active boolean",
    }


def test_who_may_only_read_is_told_nothing_of_writing() -> None:
    site = site_with(Book, fields=["title", "author", "uuid"])
    found = call(DESCRIBE, reader(make_user("u", "testapp.view_book"), site), model="testapp.book")
    del found["examples"]
    # Said on MySQL alone.
    assert (found.pop("comparing", None) is not None) is (connection.vendor == "mysql")
    assert found == {
        "model": "testapp.book",
        "may": "view",
        "description": "Nearly every type of field.",
        "fields": "id, title, author key, uuid uuid",
    }


def test_row_125_a_relation_to_an_invisible_model_does_not_name_it() -> None:
    site = site_with(Book, Author, fields=["author"])
    assert "testapp.author" not in json.dumps(
        call(DESCRIBE, reader(make_user("u", "testapp.view_book"), site), model="testapp.book")
    )


def test_filters_are_named_where_they_are_not_the_fields() -> None:
    site = MCPSite()
    site.register(Author, ModelExposure, fields=["name"])
    site.register(
        Book, ModelExposure, fields=["title", "author"], filter_fields={"title": ["exact"], "author__name": ["exact"]}
    )
    request = reader(make_superuser(), site)
    assert call(DESCRIBE, request, model="testapp.book")["filters"] == "title, author__name"
    assert "filters" not in call(DESCRIBE, request, model="testapp.author")


def test_the_admins_filters_actions_and_search_are_there() -> None:
    found = call(DESCRIBE, reader(make_superuser(), MCPSite(admin_site=admin.site)), model="testapp.book")
    assert "tags__name" in found["filters"]
    assert found["actions"] == "publish, withdraw, export"
    assert found["may"].split()[-1] == "search"
    assert "is_long computed" in found["fields"]


def test_actions_show_their_arguments() -> None:
    import mcp_django as mcp

    class WithAction(ModelExposure):
        fields = ("title",)
        actions = ("stamp",)

        @mcp.action(permissions=["change"])
        def stamp(self, request: Any, queryset: Any, *, text: str, times: int = 1) -> None:
            """Stamp the books."""

    site = MCPSite()
    site.register(Book, WithAction)
    assert call(DESCRIBE, reader(make_superuser(), site), model="testapp.book")["actions"] == "stamp(text*, times)"


@isolate_apps("tests.testapp")
def test_choices_that_do_not_speak_have_their_labels() -> None:
    class Scale(models.Model):
        class Meta:
            app_label = "testapp"

        level = models.IntegerField(choices=[(1, "Low"), (2, "High")])
        code = models.CharField(max_length=9, choices=[("", "none"), ("d", "Draft"), ("published", "Out"), ("X", "x")])
        many = models.CharField(max_length=9, choices=[(f"choice{number}", "x") for number in range(20)])

    site = site_with(Scale)
    found = (
        Overview(access_of(reader(make_superuser(), site))[site.exposures[Scale]]).in_short()["fields"].replace("*", "")
    )
    assert "level 1=Low|2=High," in found
    assert "code d=Draft|published|X," in found
    assert found.endswith("choice10|choice11|…")


def test_what_may_be_done_follows_permissions_token_and_site() -> None:
    site = site_with(Book, Loan, Note)
    user = make_user("u", "testapp.view_book", "testapp.change_book")
    exposure = site.exposures[Book]
    assert Overview(access_of(reader(user, site))[exposure]).may == "view change"
    assert Overview(access_of(reader(user, site))[exposure]).uses["title"].required is True
    assert Overview(access_of(reader(user, site))[exposure]).uses["rating"].required is False
    assert Overview(access_of(reader(user, site))[site.exposures[Loan]]).uses == {}
    token = request_of(user, site, scopes=frozenset({"mcp:read"}))
    assert (Overview(access_of(token)[exposure]).may, Overview(access_of(token)[exposure]).uses) == ("view", {})
    with override_settings(MCP_DJANGO={"READ_ONLY": True}):
        assert (
            Overview(access_of(reader(user, site))[exposure]).may,
            Overview(access_of(reader(user, site))[exposure]).uses,
        ) == ("view", {})


class TestRelatedRows:
    """Relations that are no columns: without their names nobody could ask about them."""

    def test_they_are_named_with_their_models(self) -> None:
        site = site_with(Author, Book, Loan, Tag)
        request = reader(make_superuser(), site)
        assert call(DESCRIBE, request, model="testapp.author")["related"] == "books testapp.book"
        assert call(DESCRIBE, request, model="testapp.author", detail=True)["related"] == ["books testapp.book"]
        assert call(DESCRIBE, request, model="testapp.book")["related"] == "loans testapp.loan"

    def test_those_to_one_row_that_points_here_are_named_too(self) -> None:
        site = site_with(Author, Profile)
        request = reader(make_superuser(), site)
        assert call(DESCRIBE, request, model="testapp.author")["related"] == "profile testapp.profile"
        filters = {"profile": {"some": {"biography__icontains": "x"}}}
        assert call(QueryRecords(), request, model="testapp.author", filters=filters)["rows"] == []

    def test_row_125_those_to_what_the_caller_may_not_view_are_not(self) -> None:
        site = site_with(Author, Book, Loan, Tag)
        found = call(DESCRIBE, reader(make_user("u", "testapp.view_author"), site), model="testapp.author")
        assert "related" not in found

    def test_where_filters_are_declared_there_are_no_others(self) -> None:
        site = site_with(Book, Tag)
        site.register(Author, ModelExposure, fields=["name"], filter_fields=["name"])
        assert "related" not in call(DESCRIBE, reader(make_superuser(), site), model="testapp.author")

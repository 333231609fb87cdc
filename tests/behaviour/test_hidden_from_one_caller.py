"""What hooks hide from one caller alone, they learn in no other way, while others go on using it.

The same questions are asked in two worlds that differ in nothing but what is hidden from this caller: the answers are
the same to the byte.
"""

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.contrib import admin
from django.db.models.functions import Lower

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.access import access_of
from mcp_django.orm.completed_values import ModelValues
from mcp_django.resources.completions import complete_field
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.base import Tool
from mcp_django.tools.chatgpt import Search
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from tests.behaviour.test_oracles import answer
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
WORDS = ("aardvark@example.org", "zyzzyva@example.org")
DAYS = (datetime.date(1901, 1, 1), datetime.date(1999, 12, 31))
# The columns that the clerk may not see; of these two the second is not editable where a hook says so.
KEPT = ("email", "born")


def sees_all(request: Any) -> bool:
    return bool(request.user.is_superuser)


def left(names: Any) -> list[Any]:
    return [name for name in names if name not in KEPT]


class PeopleAdmin(admin.ModelAdmin):
    search_fields = ["name", "email", "born__year"]
    list_filter = ["born", "email"]
    ordering = [Lower("email"), "born", "name"]


class ByFields(PeopleAdmin):
    def get_fields(self, request, obj=None):
        return ["name", "email", "born"] if sees_all(request) else ["name"]


class ByFieldsets(PeopleAdmin):
    def get_fieldsets(self, request, obj=None):
        return [(None, {"fields": ["name", "email", "born"] if sees_all(request) else ["name"]})]


class ByExclude(PeopleAdmin):
    def get_exclude(self, request, obj=None):
        return ["secret_token"] if sees_all(request) else ["secret_token", *KEPT]


class ByForm(PeopleAdmin):
    def get_form(self, request, obj=None, change=False, **kwargs):
        return super().get_form(request, obj, change, **{**kwargs, "exclude": [] if sees_all(request) else list(KEPT)})


class ByFormField(PeopleAdmin):
    def formfield_for_dbfield(self, db_field, request, **kwargs):
        if db_field.name in KEPT and not sees_all(request):
            return None
        return super().formfield_for_dbfield(db_field, request, **kwargs)


class ByList(PeopleAdmin):
    fields = ["name"]

    def get_list_display(self, request):
        return ["name", "email", "born"] if sees_all(request) else ["name"]


class ByReadonly(PeopleAdmin):
    exclude = KEPT

    def get_readonly_fields(self, request, obj=None):
        return KEPT if sees_all(request) else ()


class ByOwnSearch(ByExclude):
    def get_search_results(self, request, queryset, search_term):
        return super().get_search_results(request, queryset, search_term)


class Declared(ModelExposure):
    fields = ["name", "email", "born"]
    search_fields = ["name", "email"]
    ordering = ["email", "name"]
    sortable_by = ["name", "email", "born"]
    filter_fields = {"name": ["exact"], "email": ["exact", "icontains"], "born": ["gt", "year"]}

    def get_fields(self, request: MCPRequest, obj: Any = None) -> Any:
        names = super().get_fields(request, obj)
        return names if sees_all(request) else left(names)


class BookAdmin(admin.ModelAdmin):
    fields = ["title", "author"]
    search_fields = ["title", "author__email", "author__born__year"]
    list_filter = ["author__email", "author__born"]
    ordering = ["author__email", "title"]


class DeclaredBook(ModelExposure):
    fields = ["title", "author"]
    search_fields = ["title", "author__email"]
    ordering = ["author__email", "title"]
    sortable_by = ["title", "author__email", "author__born"]
    filter_fields = {"title": ["exact"], "author__email": ["exact", "startswith"], "author__born": ["lt"]}


def of_admin(author: type[admin.ModelAdmin]) -> MCPSite:
    pages = admin.AdminSite("of one caller")
    pages.register(Author, author)
    pages.register(Book, BookAdmin)
    return MCPSite("of one caller", admin_site=pages)


def of_declaration() -> MCPSite:
    site = MCPSite("declared for one caller", history=False)
    site.register(Author, Declared)
    site.register(Book, DeclaredBook)
    return site


def of_both() -> MCPSite:
    pages = admin.AdminSite("of one caller too")
    pages.register(Author, ByExclude)
    pages.register(Book, BookAdmin)
    site = MCPSite("of one caller too", admin_site=pages)
    site.register(Author, AdminExposure, search_fields=["name", "email"], filter_fields=Declared.filter_fields)
    site.register(Book, AdminExposure, **{name: getattr(DeclaredBook, name) for name in ("search_fields", "ordering")})
    return site


ADMINS = (ByFields, ByFieldsets, ByExclude, ByForm, ByFormField, ByList, ByReadonly, ByOwnSearch)
SITES = {
    **{kind.__name__: lambda kind=kind: of_admin(kind) for kind in ADMINS},
    "Declared": of_declaration,
    "both": of_both,
}


class World:
    """Four authors with books, of whom two columns are other ones in each world."""

    def __init__(self) -> None:
        self.authors = [make_author(name, email="x@example.org", born=DAYS[0]) for name in ("ann", "bob", "cid", "dee")]
        for number, author in enumerate(self.authors):
            make_book(f"Book {number}", author=author, pages=number)
        verbs = ("view", "change")
        self.clerk = make_user("clerk", *(f"testapp.{verb}_{name}" for verb in verbs for name in ("book", "author")))
        self.boss = make_superuser()

    def become(self, number: int) -> None:
        """Give the authors the columns of the world of the number, in another order."""
        for position, author in enumerate(self.authors if number else self.authors[::-1]):
            author.email = f"{position}{WORDS[number]}"
            author.born = DAYS[number] + datetime.timedelta(days=400 * position)
            author.save()


def reads() -> Iterator[tuple[Tool, dict[str, Any]]]:
    """Yield questions of every kind about what is hidden."""
    query, aggregate = QueryRecords(), AggregateRecords()
    for label, way in (("testapp.author", ""), ("testapp.book", "author.")):
        about = {"model": label}
        yield ListModels(), {}
        yield DescribeModel(), {**about, "detail": True}
        yield query, about
        yield GetRecord(), {**about, "pk": 1}
        for word in ("aardvark", "zyzzyva", "1aardvark@example.org", "1901", "1999", "example", "ann"):
            yield query, {**about, "search": word, "count": True}
            yield aggregate, {**about, "aggregates": ["count"], "search": word}
            yield Search(), {"query": word}
        for name in (f"{way}{name}" for name in KEPT):
            yield query, {**about, "fields": ["pk", name]}
            yield query, {**about, "ordering": [name], "fields": ["pk"]}
            yield query, {**about, "ordering": [f"-{name}"], "fields": ["pk"], "limit": 1}
            for lookup, value in (
                *((lookup, word) for lookup in ("exact", "icontains", "startswith", "in", "gt") for word in WORDS),
                *((lookup, str(day)) for lookup in ("exact", "gt", "lt") for day in DAYS),
                *(("year", year) for year in (1901, 1999)),
                ("isnull", True),
            ):
                given = [value] if lookup == "in" else value
                condition = {f"{name}__{lookup}".replace(".", "__"): given}
                yield query, {**about, "filters": condition, "fields": ["pk"]}
                yield query, {**about, "filters": {"not": condition}, "count": True}
                counted = {"function": "count", "where": condition, "as": "some"}
                yield aggregate, {**about, "aggregates": [counted, "count"]}
            for function in ("count_distinct", "min", "max", "first", "last"):
                yield aggregate, {**about, "aggregates": [f"{function}:{name}"], "group_by": ["pk"]}
                yield aggregate, {**about, "aggregates": [f"{function}:{name}"], "having": {f"{function}:{name}": "x"}}
            yield aggregate, {**about, "aggregates": ["count"], "group_by": [name]}
            yield aggregate, {**about, "aggregates": ["count"], "group_by": [f"{name}:year"]}
        for word in WORDS:
            yield query, {"model": "testapp.author", "filters": {"name": word}}
            yield query, {"model": "testapp.book", "filters": {"author": word}}


def answers(user: Any, site: MCPSite) -> Mapping[str, str]:
    found = {f"{tool.name} {asked}": answer(request_of(user, site), tool, asked) for tool, asked in reads()}
    for label in ("testapp.book", "testapp.author"):
        for text in ("", "a", "1", "0aard", "0zyz", "19", *WORDS):
            for name in (*KEPT, "author", "author__email", "name", "title", "pk"):
                found[f"complete {label} {name} {text}"] = str(
                    complete_field(request_of(user, site), label, name, text)
                )
            request = request_of(user, site)
            values = ModelValues(access_of(request).get_model(label))
            found[f"keys {label} {text}"] = str(values.keys(text))
            found[f"searched {label} {text}"] = str(values.searched(text))
    return found


@pytest.mark.parametrize("kind", SITES)
def test_a_column_that_is_hidden_from_one_caller_changes_no_answer_of_theirs(kind: str) -> None:
    world, site = World(), SITES[kind]()
    world.become(0)
    first = answers(world.clerk, site)
    world.become(1)
    second = answers(world.clerk, site)
    told = {asked: (first[asked], second[asked]) for asked in first if first[asked] != second[asked]}
    assert not told, json.dumps(told, indent=1)[:6_000]


@pytest.mark.parametrize("kind", ["ByExclude", "Declared"])
def test_the_same_questions_tell_those_who_see_the_column(kind: str) -> None:
    world, site = World(), SITES[kind]()
    world.become(0)
    first = answers(world.boss, site)
    world.become(1)
    second = answers(world.boss, site)
    told = [asked for asked in first if first[asked] != second[asked]]
    for way in ("search", "filters", "ordering", "group_by", "keys"):
        assert any(way in asked for asked in told), way

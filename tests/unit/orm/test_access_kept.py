"""The access to a model belongs to one user in one call: kept beyond that, it is not used."""

import ast
import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mcp_django
from mcp_django.context.call_restrictions import MODELS, Narrowing
from mcp_django.context.request import MCPRequest
from mcp_django.emulation.deleting import Deleting
from mcp_django.emulation.picked_rows import Selection
from mcp_django.emulation.saving import RowPage
from mcp_django.exceptions import NotFound
from mcp_django.orm import compiled_queries
from mcp_django.orm.access import ModelAccess, access_of
from mcp_django.orm.ordering import Orderings
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_book, make_superuser, make_user
from tests.testapp.models import Author, Book
from tests.tool_calls import call, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

# What a kept access could be asked for, and what takes one.
USES: dict[str, Callable[[ModelAccess, Book], Any]] = {
    "request": lambda model, book: model.request,
    "may": lambda model, book: model.may("view"),
    "may_row": lambda model, book: model.may_row("view", book),
    "is_there": lambda model, book: model.is_there,
    "why_not": lambda model, book: model.why_not(),
    "actions": lambda model, book: model.actions,
    "fields": lambda model, book: model.fields,
    "fields_of": lambda model, book: model.fields_of(book),
    "page_fields": lambda model, book: model.page_fields,
    "column_named": lambda model, book: model.column_named("title"),
    "link": lambda model, book: model.link("author"),
    "links": lambda model, book: model.links,
    "sees_every_row": lambda model, book: model.sees_every_row,
    "sample_rows": lambda model, book: list(model.sample_rows()),
    "get_row": lambda model, book: model.get_row(book.pk),
    "a related model": lambda model, book: model.access.model_of(Author),
    "the models": lambda model, book: model.access.get_model("testapp.book"),
    "an order": lambda model, book: Orderings(model).default().keys,
    "names of orders": lambda model, book: Orderings(model).names(),
    "a selection": lambda model, book: Selection(model, {"pks": [book.pk]}),
    "saving": lambda model, book: RowPage(model, book).saving({"title": "Other"}, "update_record"),
    "a deletion": lambda model, book: Deleting(model, [book], "delete_record"),
}


@pytest.fixture
def book() -> Book:
    return make_book()


def model_of(request: MCPRequest) -> ModelAccess:
    return access_of(request)[request.mcp.site.exposures[Book]]


@pytest.mark.parametrize("is_known", [False, True], ids=["never asked", "asked before"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_access_of_another_user_is_not_used(use: Callable[[Any, Any], Any], is_known: bool, book: Book) -> None:
    request = request_of(make_superuser(), site_with(Book, Author))
    kept = model_of(request)
    if is_known:
        use(kept, book)
    request.user = make_user("other")
    with pytest.raises(NotFound):
        use(kept, book)
    assert not model_of(request).may("view")


def test_nor_is_that_of_the_same_person_signed_in_anew(book: Book) -> None:
    user = make_superuser()
    request = request_of(user, site_with(Book))
    kept = model_of(request)
    request.user = type(user).objects.get(pk=user.pk)
    with pytest.raises(NotFound):
        kept.get_row(book.pk)
    assert model_of(request).get_row(book.pk) == book


def test_access_that_was_taken_before_the_call_was_narrowed_is_not_used(book: Book) -> None:
    request = request_of(
        make_superuser(), site_with(Book, Author), facts={Narrowing.FACT: {MODELS: ["testapp.author"]}}
    )
    kept = model_of(request)
    assert kept.get_row(book.pk) == book
    Narrowing.apply(request)
    with pytest.raises(NotFound):
        kept.get_row(book.pk)
    assert not model_of(request).is_there


def calls(book: Book) -> Iterator[Callable[[MCPRequest], Any]]:
    filters = {"author.name__icontains": "a", "not": {"title": "x"}}
    about = {"model": "testapp.book"}
    yield partial(call, QueryRecords(), **about, filters=filters, ordering=["-author.name"])
    yield partial(call, QueryRecords(), **about, fields=["title", "author.name"], search="a")
    yield partial(call, GetRecord(), **about, pk=str(book.pk), history=True)
    yield partial(call, AggregateRecords(), **about, aggregates=["count", "sum:pages*2"], group_by=["author"])
    yield partial(call, DescribeModel(), **about, detail=True)
    yield partial(call, UpdateRecord(), **about, pk=str(book.pk), values={"title": "Other"})


def test_the_access_of_a_call_ends_with_it(book: Book) -> None:
    site = mcp_django.site
    compiled_queries.clear()
    user = make_superuser()
    # What is there already is none of the calls': to look through it each time takes longer than they do.
    gc.freeze()
    for made in calls(book):
        for _ in range(2):
            request = request_of(user, site)
            made(request)
            ended = weakref.ref(access_of(request))
            assert ended() is not None
            del request
            gc.collect()
            # No cache and no key of a compiled query holds it.
            assert ended() is None
    assert compiled_queries._plans


def cached_functions() -> Iterator[tuple[str, str]]:
    """Yield each function of the package whose results are cached by what it takes, with the types of that."""
    for path in Path(mcp_django.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            decorators = [ast.unparse(item).partition("(")[0] for item in getattr(node, "decorator_list", ())]
            if isinstance(node, ast.FunctionDef) and {"lru_cache", "cache"} & set(decorators):
                yield f"{path.name}: {node.name}", ast.unparse(node.args)


def test_no_cache_of_results_takes_what_belongs_to_a_caller() -> None:
    found = dict(cached_functions())
    assert any("ModelExposure" in takes for takes in found.values())
    for name, takes in found.items():
        for word in ("Access", "Request", "Link", "User"):
            assert word not in takes, (name, takes)

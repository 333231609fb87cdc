"""Compiled queries: bound for each call, kept within a bound, never with a caller's values in them."""

import threading
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models.expressions import RawSQL
from django.test import override_settings

from mcp_django.exceptions import ToolError
from mcp_django.orm import compiled_queries
from mcp_django.orm.compiled_queries import (
    MAX_COMPILED,
    Bind,
    CompiledQuery,
    Slot,
    prepare,
)
from mcp_django.orm.conditions import Junction, QueryContext
from mcp_django.orm.fields import resolve_path
from mcp_django.orm.lookups import parse_condition
from tests.factories import make_book
from tests.testapp.models import Book

pytestmark = pytest.mark.postgresql


@pytest.fixture(autouse=True)
def no_plans() -> None:
    compiled_queries.clear()


def condition(text: str, lookup: str, value: Any) -> Any:
    path = resolve_path(Book, text)
    assert path is not None
    return parse_condition(path, lookup, value)


def bound(found: Any, slots: list[Slot]) -> Any:
    nobody: Any = None
    return found.q(QueryContext(nobody, "default", iter(slots)))


def compiled_query(found: Any) -> CompiledQuery:
    slots = [Slot(i) for i in range(len(found.params("default")))]
    return CompiledQuery.for_values(
        Book.objects.order_by("id").filter(bound(found, slots)).values_list("id"), "default"
    )


@pytest.mark.django_db
def test_a_plan_runs_with_other_values() -> None:
    books = [make_book(pages=number) for number in range(4)]
    plan = compiled_query(condition("pages", "range", [0, 0]))
    assert not plan.has_own_params
    for first, last in ((0, 1), (2, 2), (3, 9)):
        expected = [(book.pk,) for book in books[first : last + 1]]
        assert plan.run("default", condition("pages", "range", [first, last]).params("default")) == expected


@pytest.mark.django_db
def test_a_value_is_a_parameter_and_never_sql() -> None:
    make_book(title="x")
    text = "x' OR '1'='1"
    plan = compiled_query(condition("title", "exact", text))
    assert plan.sql is not None
    assert text not in plan.sql
    assert plan.run("default", condition("title", "exact", text).params("default")) == []


def test_lists_share_shapes_by_powers_of_two() -> None:
    def shape(count: int) -> Any:
        return condition("pages", "in", list(range(count))).shape()

    assert shape(3) == shape(4) != shape(5)
    assert condition("pages", "in", [1, 2, 3]).params("default") == [1, 2, 3, 3]
    assert condition("rating", "isnull", True).shape() != condition("rating", "isnull", False).shape()


@pytest.mark.parametrize(
    ("text", "lookup", "value", "verdict"),
    [
        ("title", "exact", "x", True),
        ("title", "icontains", "x", True),
        ("title", "iexact", "x", True),
        ("title", "regex", "x", False),
        ("created", "year", 2026, False),
        ("tags", "exact", 1, False),
        ("author__name", "exact", "x", True),
        ("rating", "isnull", True, True),
    ],
)
def test_only_lookups_of_one_sql_are_planned(text: str, lookup: str, value: Any, verdict: bool) -> None:
    assert condition(text, lookup, value).is_plannable is verdict


def test_an_expression_is_planned_where_all_of_it_is() -> None:
    plain, other = condition("title", "exact", "x"), condition("pages", "in", [1, 2, 3])
    tree = Junction("or", (plain, Junction("not", (other,))))
    assert tree.is_plannable
    assert not Junction("and", (plain, Junction("not", (condition("title", "regex", "x"),)))).is_plannable
    assert tree.params("default") == ["x", 1, 2, 3, 3]
    swapped = Junction("and", tree.parts)
    assert len({item.shape() for item in (tree, swapped, plain, Junction("not", (plain,)))}) == 4


@pytest.mark.django_db
def test_a_condition_that_is_denied_holds_for_null() -> None:
    books = [make_book(rating=rating) for rating in (1.0, 2.0, None)]
    plan = compiled_query(Junction("not", (condition("rating", "gt", 1.5),)))
    assert plan.run("default", [1.5]) == [(books[0].pk,), (books[2].pk,)]
    assert plan.run("default", [0.5]) == [(books[2].pk,)]
    assert not plan.has_own_params


def test_row_123_a_value_that_the_database_lacks_is_an_error_without_sql() -> None:
    with pytest.raises(ToolError, match="out of range"):
        prepare(Book._meta.get_field("price"), "not a number", "default")


@pytest.mark.django_db
def test_row_121_a_plan_with_values_of_its_own_is_not_kept() -> None:
    calls = []

    def build() -> CompiledQuery:
        calls.append(1)
        return CompiledQuery.for_values(Book.objects.filter(title="mine").values_list("id"), "default")

    assert CompiledQuery.for_key("key", build).has_own_params
    CompiledQuery.for_key("key", build)
    assert len(calls) == 2


def test_the_cache_is_bounded_and_drops_what_was_not_used() -> None:
    plan = CompiledQuery("SELECT 1", (), (), False)
    for number in range(MAX_COMPILED):
        CompiledQuery.for_key(number, lambda: plan)
    CompiledQuery.for_key(0, lambda: plan)
    CompiledQuery.for_key("one more", lambda: plan)
    assert len(compiled_queries._plans) == MAX_COMPILED
    assert 0 in compiled_queries._plans
    assert 1 not in compiled_queries._plans


def test_a_changed_setting_drops_every_plan() -> None:
    CompiledQuery.for_key("key", lambda: CompiledQuery("SELECT 1", (), (), False))
    with override_settings(MCP_DJANGO={"PAGE_SIZE": 3}):
        assert not compiled_queries._plans


@pytest.mark.django_db
def test_a_query_that_has_no_rows_for_sure_is_a_plan_without_sql(django_assert_num_queries: Any) -> None:
    plan = CompiledQuery.for_values(Book.objects.none().values_list("id"), "default")
    with django_assert_num_queries(0):
        assert plan.run("default", []) == []


@pytest.mark.django_db
def test_converters_belong_to_a_thread_and_its_connection() -> None:
    plan = CompiledQuery.for_values(
        Book.objects.filter(bound(condition("id", "exact", 1), [Slot(0)])).values_list("price"), "default"
    )
    mine = compiled_queries._converters(plan, connection)
    assert compiled_queries._converters(plan, connection) is mine
    found: list[Any] = []

    def other() -> None:
        found.append((compiled_queries._converters(plan, connections["default"]), connections["default"]))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found[0][1] is not connection
    assert found[0][0] is not mine


@pytest.mark.undivided
@pytest.mark.django_db
@pytest.mark.parametrize("text", ["'5%%'", "'%%%%s'", "'%%(p0)s'", "'%Y'"])
def test_percent_signs_of_the_sql_itself_stay(text: str) -> None:
    if connection.vendor != "sqlite" and "%%" not in text:
        pytest.skip("a lone percent sign is an error there")
    make_book(pages=7)
    books = Book.objects.annotate(text=RawSQL(text, ())).values_list("pages", "text")
    plan = CompiledQuery.for_values(books.filter(bound(condition("pages", "exact", 7), [Slot(0)])), "default")
    assert plan.run("default", [7]) == list(books.filter(pages=7))


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "sqlite", reason="nothing is searched on other databases")
def test_sqlite_need_not_search_the_sql_for_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    make_book(pages=7)
    plan = compiled_query(condition("pages", "range", [7, 7]))
    monkeypatch.setattr("django.db.backends.sqlite3.base.FORMAT_QMARK_REGEX", None)
    assert len(plan.run("default", [7, 7])) == 1


def test_a_bind_is_one_parameter() -> None:
    assert Bind(Slot(3)).as_sql(None, None) == ("%s", [3])

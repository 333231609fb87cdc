"""Without compiled queries the ORM runs everything, and gives the same answers."""

from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone
from oauth2_provider.models import AccessToken

from mcp_django.context.request import MCPRequest
from mcp_django.oauth import token_query
from mcp_django.orm import compiled_queries
from mcp_django.orm.access import ModelAccess, access_of
from mcp_django.orm.column_values import pk_text
from mcp_django.orm.compiled_queries import (
    CompiledQuery,
    first_rows,
    row_by_key,
    shape_of,
)
from mcp_django.orm.permission_queries import load_permissions
from mcp_django.orm.row_reading import FoundRow, read_page, show_rows
from tests.configured import configured
from tests.factories import make_book, make_superuser
from tests.library import MODELS, make_library, query_of, reader, shown, site_with
from tests.testapp.models import Author, Book
from tests.unit.orm.test_permission_queries import make_member

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A context in which compiled queries are off, and none can run."""

    def fail(*arguments: Any) -> Any:
        raise AssertionError("a compiled query ran")

    def off() -> Any:
        monkeypatch.setattr(CompiledQuery, "columns", fail)
        monkeypatch.setattr(CompiledQuery, "write", fail)
        return configured(COMPILED_QUERIES=False)

    yield off
    CompiledQuery.is_on.cache_clear()


@pytest.mark.parametrize("stable", [None, True])
@pytest.mark.parametrize("model", MODELS)
def test_pages_and_rows_are_the_same(model: Any, stable: bool | None, refuse: Any) -> None:
    make_library(7)
    site = site_with(*MODELS, stable_queryset=stable)
    request = reader(make_superuser(), site)
    exposure = site.exposures[model]

    def answers() -> list[Any]:
        pages = [read_page(query_of(request, exposure, limit=3, text_limit=20))]
        while pages[-1].more:
            pages.append(read_page(query_of(request, exposure, limit=3, text_limit=20, after=pages[-1].keys[-1])))
        found = [FoundRow.find(access_of(request)[exposure], pk_text(row.pk)) for row in exposure.get_queryset(request)]
        columns = query_of(request, exposure).columns
        rows = [show_rows(access_of(request)[exposure], [one.row], columns, labels=one.labels) for one in found]
        return [shown(page) for page in (*pages, *rows)]

    compiled = answers()
    with refuse():
        assert answers() == compiled


def test_a_token_is_checked_alike(refuse: Any, django_assert_num_queries: Any) -> None:
    member = make_member()
    token = AccessToken.objects.create(
        user=member, token="x", scope="a b", expires=timezone.now(), resource=["https://a/"]
    )
    compiled = token_query.find_token(token.token_checksum)
    with refuse(), django_assert_num_queries(2):
        found = token_query.find_token(token.token_checksum)
        assert token_query.find_token("0" * 64) is None
    assert found == compiled
    assert found is not None
    assert found.user.__dict__ == compiled.user.__dict__ | {"_state": found.user._state}  # type: ignore[union-attr]


def test_a_user_has_the_same_permissions(refuse: Any) -> None:
    loaded = get_user_model().objects.get(pk=make_member().pk)
    with refuse():
        load_permissions(loaded)
    assert loaded._perm_cache == get_user_model().objects.get(pk=loaded.pk).get_all_permissions()


def test_instances_come_from_their_queryset(refuse: Any) -> None:
    books = [make_book(), make_book()]
    with refuse():
        assert first_rows(Book.objects.order_by("pk"), 1) == books[:1]
        assert row_by_key(Book.objects.all(), books[0].pk) is None
        assert shape_of(Author.objects.all(), "default") is None


def test_no_cached_query_is_bound_to_a_caller() -> None:
    make_library(3)
    site = site_with(*MODELS)
    request = reader(make_superuser(), site)
    compiled_queries.clear()
    for model in MODELS:
        read_page(query_of(request, site.exposures[model]))
    keys = [*compiled_queries._plans]
    assert keys

    def parts(key: Any) -> Iterator[Any]:
        yield key
        for part in key if isinstance(key, tuple | frozenset) else ():
            yield from parts(part)

    assert not any(isinstance(part, ModelAccess | MCPRequest) for key in keys for part in parts(key))


def test_a_release_of_django_that_was_not_tested_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, expected in (((6, 1, 99, "final", 0), True), ((6, 2, 0, "alpha", 0), False), ((7, 0), False)):
        monkeypatch.setattr(django, "VERSION", version)
        with configured(COMPILED_QUERIES=True):
            assert CompiledQuery.is_on() is expected
    monkeypatch.undo()
    with configured(COMPILED_QUERIES=True):
        assert CompiledQuery.is_on()

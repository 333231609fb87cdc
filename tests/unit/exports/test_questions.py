"""The rows of a file: those that ``query_records`` shows page by page, whatever their order and their length."""

from typing import Any

import pytest

from mcp_django import site as default_site
from mcp_django.exports import questions
from mcp_django.exports.questions import Question
from mcp_django.orm.access import access_of
from mcp_django.orm.tool_arguments import Arguments
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_superuser
from tests.library import MODELS, make_library, site_with
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

LABELS = sorted(exposure.label for exposure in default_site.exposures.values())


@pytest.fixture(autouse=True)
def short_pages(monkeypatch: Any) -> None:
    """Read few rows at a time, so that some exposures take several pages."""
    monkeypatch.setattr(questions, "SIZES", (1, 2, 3))
    monkeypatch.setattr(questions, "KEYS_AT_ONCE", 2)


def asked(request: Any, label: str, **arguments: Any) -> Question:
    return Question.read(access_of(request).get_model(label), Arguments(arguments))


def answer(request: Any, label: str, **arguments: Any) -> list[list[Any]]:
    return [row for rows in asked(request, label, **arguments).pages() for row in rows]


def paged(request: Any, label: str, **arguments: Any) -> list[list[Any]]:
    """Return all rows that query_records shows, page by page."""
    rows: list[list[Any]] = []
    cursor = ""
    while True:
        page = call(QueryRecords(), request, model=label, limit=2, cursor=cursor, **arguments)
        rows += page["rows"]
        cursor = page.get("next_cursor", "")
        if not cursor:
            return rows


@pytest.mark.parametrize("label", LABELS)
def test_a_file_has_the_rows_of_all_pages_of_each_exposure(label: str) -> None:
    user = make_superuser()
    make_library(owner=user)
    request = request_of(user)
    assert answer(request, label) == paged(request, label)


@pytest.mark.parametrize("model", MODELS)
def test_rows_that_are_read_by_their_keys_are_the_same(model: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.orm.ordering.Orderings.is_served", lambda self, keys: False)
    user = make_superuser()
    make_library(owner=user)
    request = request_of(user, site_with(*MODELS))
    label = model._meta.label_lower
    found = answer(request, label)
    assert found
    assert found == paged(request, label)

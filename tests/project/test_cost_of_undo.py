"""What it costs to keep what a write has done, in calls of Python functions: the same write with and without it.

The shortest of a few calls counts, as in `test_work.py`.
"""

import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from django.test import override_settings

from mcp_django.models import Change
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_book, make_superuser

pytestmark = pytest.mark.django_db
NOTHING_KEPT = override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "UNDO_DAYS": 0})


def counted(act: Callable[[], Any], prepare: Callable[[], Any]) -> int:
    """Return how many Python functions are called, once it has been done; what prepares it does not count."""
    prepare()
    act()
    made = []

    def note(frame: Any, event: str, argument: Any) -> None:
        made[-1] += event == "call"

    for _ in range(3):
        made.append(0)
        prepare()
        sys.setprofile(note)
        try:
            act()
        finally:
            sys.setprofile(None)
    return min(made)


def both(act: Callable[[], Any], prepare: Callable[[], Any] = lambda: None) -> tuple[int, int]:
    """Return the calls of a write that is kept, and of one that is not."""
    kept = counted(act, prepare)
    changes = Change.objects.count()
    assert changes
    with NOTHING_KEPT:
        bare = counted(act, prepare)
    assert Change.objects.count() == changes
    return kept, bare


def test_keeping_an_update_of_one_row_costs_a_tenth_of_a_call() -> None:
    client = MCPClient(make_superuser())
    author = make_author("Ada")
    names = count()

    def update() -> None:
        values = {"name": f"Ada {next(names)}"}
        assert not client.call("update_record", model="testapp.author", pk=author.pk, values=values).is_error

    kept, bare = both(update)
    assert kept <= 1.1 * bare, (kept, bare)


def test_keeping_an_update_of_many_rows_costs_less_than_a_quarter_of_it() -> None:
    client = MCPClient(make_superuser())
    author = make_author("Ada")
    keys = [make_book(author=author).pk for _ in range(8)]
    pages = count(1)

    def update() -> None:
        rows = [{"pk": key, "pages": next(pages)} for key in keys]
        assert not client.call("update_record", model="testapp.book", rows=rows).is_error

    kept, bare = both(update)
    assert kept <= 1.25 * bare, (kept, bare)


def test_keeping_a_bulk_update_with_its_first_rows_costs_less_than_a_quarter_of_it() -> None:
    client = MCPClient(make_superuser())
    author = make_author("Ada")
    for _ in range(25):
        make_book(author=author)
    asked: dict[str, Any] = {"model": "testapp.book", "filters": {"author": author.pk}, "values": {"pages": 0}}

    def preview() -> None:
        asked.pop("confirm_token", None)
        asked["values"]["pages"] += 1
        asked["confirm_token"] = client.call("update_record", **asked).structured["confirm_token"]

    def update() -> None:
        assert not client.call("update_record", **asked).is_error

    kept, bare = both(update, preview)
    assert kept <= 1.25 * bare, (kept, bare)

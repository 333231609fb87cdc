"""How much work one warm call is: the calls of Python functions that it makes, in whatever thread.

The same on every machine, unlike seconds, so that no feature makes a call slower unseen. The
shortest of a few calls after the first counts, and the bounds are only ever lowered. Python 3.12 and later call no
function for a comprehension: the bounds are those of Python 3.11.
"""

import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.contrib import admin

from tests.factories import make_book
from tests.session_client import SessionClient
from tests.testapp.admin import AuthorAdmin
from tests.testapp.models import Book
from tests.watched_calls import (  # noqa: F401
    call,
    client,
    forget_pools,
    make_rows,
    no_stranger_is_listened_to,
    settled,
)

BOUNDS = {
    "a ping": 820,
    "a page": 1_300,
    "a page by instances": 1_880,
    "a page with related labels": 1_390,
    "one row": 2_220,
    "the tools": 1_340,
    "an update": 5_230,
    "an update with 200 standing inline rows": 7_190,
}
# Calls of which the shortest counts: event loops that wait look at the clock now and then.
ROUNDS = 12


@contextmanager
def counting() -> Iterator[Counter[int]]:
    """Yield the number of calls of Python functions made meanwhile, by thread."""
    calls: Counter[int] = Counter()

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            calls[threading.get_ident()] += 1

    threading.setprofile(count)
    # Only threads that start now are watched.
    forget_pools()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        forget_pools()


async def work(act: Callable[[], Awaitable[Any]]) -> int:
    """Return the calls of the shortest of a few, once it has been done."""
    with counting() as calls:
        await act()
        await settled()
        rounds = []
        for _ in range(ROUNDS):
            calls.clear()
            await act()
            await settled()
            rounds.append(calls.total())
    return min(rounds)


class BookInline(admin.TabularInline):
    model = Book
    fk_name = "author"
    fields = ["title", "isbn", "pages", "tags"]


@pytest.fixture
def inlines(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The inlines of an author's page, which the test can change."""
    found = [*AuthorAdmin.inlines]
    monkeypatch.setattr(AuthorAdmin, "inlines", found)
    return found


async def test_calls_of_python_functions(client: SessionClient, inlines: list[Any]) -> None:  # noqa: F811
    author = await make_rows()
    names = iter(range(100))

    async def update() -> Any:
        values = {"name": f"Ada {next(names)}"}
        return await call(client, "update_record", model="testapp.author", pk=str(author.pk), values=values)()

    for name, act in {
        "a ping": lambda: client.result("ping"),
        "a page": call(client, "query_records", model="testapp.section", filters={"name__contains": "1"}),
        "a page by instances": call(client, "query_records", model="testapp.book", filters={"title__contains": "1"}),
        "a page with related labels": call(client, "query_records", model="testapp.book", fields=["title", "author"]),
        "one row": call(client, "get_record", model="testapp.author", pk=str(author.pk)),
        "the tools": lambda: client.result("tools/list"),
        "an update": update,
    }.items():
        made = await work(act)
        assert made <= BOUNDS[name], (name, made)
    inlines.append(BookInline)
    await database_sync_to_async(lambda: [make_book(author=author) for _ in range(197)])()
    name = "an update with 200 standing inline rows"
    made = await work(update)
    assert made <= BOUNDS[name], (name, made)

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
from django.apps import apps
from django.contrib import admin
from django.db import models

from mcp_django import MCPSite
from mcp_django.tools.describe_model import DescribeModel
from tests.factories import make_book, make_superuser
from tests.session_client import SessionClient
from tests.testapp.admin import AuthorAdmin
from tests.testapp.models import Book
from tests.tool_calls import call as call_tool
from tests.tool_calls import request_of
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
    "an update": 5_000,
    "an update with 200 standing inline rows": 6_950,
}
# How much more a write may be because it is kept, so that it can be taken back.
KEPT = {"an update": 1.1, "an update with 200 standing inline rows": 1.1}
SCOPES = frozenset({"mcp:read", "mcp:write"})
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
        assert made <= BOUNDS[name] * KEPT.get(name, 1), (name, made)
    inlines.append(BookInline)
    await database_sync_to_async(lambda: [make_book(author=author) for _ in range(197)])()
    name = "an update with 200 standing inline rows"
    made = await work(update)
    assert made <= BOUNDS[name] * KEPT[name], (name, made)


# What grows with the models of a project, and with the columns of a model


def made(name: str, /, **fields: Any) -> Any:
    """Make a model that has no table."""
    meta = type("Meta", (), {"app_label": "work", "managed": False})
    return type(name, (models.Model,), {"__module__": __name__, "Meta": meta, **fields})


class ActingAdmin(admin.ModelAdmin):
    actions = ["go"]

    def go(self, request: Any, queryset: Any) -> None:
        pass


def calls_of(act: Callable[[], Any]) -> int:
    """Return the calls of Python functions that something makes in this thread, once it has been done."""
    counted: Counter[str] = Counter()
    act()
    act()
    sys.setprofile(lambda frame, event, argument: counted.update([event]))
    try:
        act()
    finally:
        sys.setprofile(None)

    return counted["call"]


@pytest.fixture
def few_models() -> Iterator[None]:
    """Forget the models that a test makes."""
    known = dict(apps.all_models)
    yield
    for label in apps.all_models.keys() - known.keys():
        del apps.all_models[label]
    apps.clear_cache()


@pytest.mark.django_db
def test_a_list_of_tools_over_its_budget_does_not_grow_with_the_models(few_models: None) -> None:
    admin_site = admin.AdminSite(name="admin")
    for number in range(250):
        admin_site.register(made(f"Many{number}", name=models.CharField(max_length=9)), ActingAdmin)
    own, root = MCPSite("own", admin_site=admin_site), make_superuser()
    listed: list[Any] = []

    def act() -> None:
        listed[:] = own.get_tools(request_of(root, own, scopes=SCOPES))

    assert calls_of(act) <= 3_600
    assert "run_action" in [tool.name for tool in listed]
    assert len(listed) < 20


@pytest.mark.django_db
def test_the_description_of_a_wide_model(few_models: None) -> None:
    admin_site = admin.AdminSite(name="admin")
    columns = {f"column{number}": models.CharField(max_length=20, blank=True) for number in range(200)}
    admin_site.register(made("Wide", **columns), admin.ModelAdmin)
    own, root = MCPSite("own", admin_site=admin_site), make_superuser()
    described: dict[str, Any] = {}

    def act() -> None:
        described.update(call_tool(DescribeModel(), request_of(root, own, scopes=SCOPES), model="work.wide"))

    assert calls_of(act) <= 18_600
    assert "column199" in described["fields"]

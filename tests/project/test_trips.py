"""How far the data travels: through how many files one call goes, and how often it changes from one to another.

Each trip is the shortest of a few after the first: the first call of a minute, one that finds that it is time to look
at the switches, or one whose messages go out one by one as a thread was late, does what the others do not. It has all
that the call does, in whatever thread, also once it is answered. The bounds are what it takes today, with a little
room. They are lowered when a way gets shorter, and never raised.
"""

import asyncio
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from channels.db import database_sync_to_async
from django.contrib.admin.models import LogEntry
from django.db.models.signals import post_save

import mcp_django
from mcp_django.asgi import get_asgi_application
from mcp_django.runtime import thread_pools
from mcp_django.subscriptions import model_signals
from mcp_django.subscriptions.bus import SOON, bus
from mcp_django.transports.http.stream_registry import registry
from tests.factories import make_author, make_book
from tests.session_client import SessionClient
from tests.subscribers import uri_of
from tests.testapp.models import Book, Section

PACKAGE = str(Path(mcp_django.__file__).parent)


class Trip(NamedTuple):
    """Files that are entered, changes from file to file, and visits of the file that is entered most often."""

    files: int
    changes: int
    visits: int


BOUNDS = {
    "a ping": Trip(24, 64, 11),
    "a page by a plan": Trip(58, 202, 15),
    "a page by instances": Trip(60, 246, 22),
    "one row": Trip(52, 186, 15),
    "the tools": Trip(45, 158, 24),
    "a resource": Trip(57, 206, 18),
    "an update": Trip(71, 352, 22),
    "an action that asks": Trip(68, 316, 26),
    "an action that was confirmed": Trip(71, 366, 27),
    "a saved row": Trip(23, 71, 10),
}
# Trips of which the shortest counts.
ROUNDS = 4

# A pool that nobody has ends its threads, and with them connections that nobody has closed: so each is kept.
POOLS: list[Any] = []


def forget_pools() -> None:
    """Have the next calls run in threads of their own."""
    POOLS.extend(thread_pools._pool(name) for name in ("reads", "slow", "streams"))
    thread_pools._pool.cache_clear()


@contextmanager
def recording() -> Iterator[dict[int, list[str]]]:
    """Yield by thread the list of the files that are entered meanwhile, each time that another one is."""
    entered: dict[int, list[str]] = defaultdict(list)

    def note(frame: Any, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            own = entered[threading.get_ident()]
            if own[-1:] != [name]:
                own.append(name)

    threading.setprofile(note)
    # Only threads that start now are watched.
    forget_pools()
    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        forget_pools()


async def settled() -> None:
    """Wait until calls that were answered have left nothing to do, and the bus has told what it tells."""
    while registry.tasks:
        await asyncio.wait(registry.tasks)
    if bus._loop is not None:
        told = threading.Event()
        # What the bus's thread puts off it puts off as long, so that this comes last.
        bus._loop.call_soon_threadsafe(bus._loop.call_later, SOON, told.set)
        assert await asyncio.to_thread(told.wait, 10)


async def trip(act: Callable[[], Awaitable[Any]]) -> tuple[Trip, Any]:
    """Return the trip of what is done again, and what came of it last."""
    trips = []
    with recording() as entered:
        await act()
        await settled()
        for _ in range(ROUNDS):
            entered.clear()
            found = await act()
            await settled()
            trips.append(measured(entered))
    return min(trips, key=lambda trip: trip.changes), found


def measured(entered: dict[int, list[str]]) -> Trip:
    visits = Counter(name for names in entered.values() for name in names)
    return Trip(len(visits), sum(visits.values()) - 1, max(visits.values()))


@pytest.fixture(autouse=True)
def no_stranger_is_listened_to() -> Iterator[None]:
    """Sites of other tests had rows of other models listened to, which these trips save as well: the history's."""
    was = post_save.disconnect(model_signals._saved, sender=LogEntry, dispatch_uid="mcp_django")
    yield
    if was:
        post_save.connect(model_signals._saved, sender=LogEntry, dispatch_uid="mcp_django")


@pytest.fixture
async def client(token: str) -> SessionClient:
    found = SessionClient(token, application=get_asgi_application())
    await found.initialize()
    return found


@database_sync_to_async
def make_rows() -> Any:
    author = make_author("Ada")
    for number in range(3):
        make_book(f"Book {number}", author=author)
        Section.objects.create(name=f"Section {number}")
    # That they were made has been told: no trip has a part of it.
    bus.close()
    return author


def call(client: SessionClient, name: str, **arguments: Any) -> Callable[[], Awaitable[Any]]:
    return lambda: client.result("tools/call", {"name": name, "arguments": arguments})


def check(name: str, found: Trip) -> None:
    assert all(have <= most for have, most in zip(found, BOUNDS[name], strict=True)), (name, found)


async def test_calls_that_read_or_write_rows(client: SessionClient) -> None:
    author = await make_rows()
    names = iter(range(100))

    async def update() -> Any:
        values = {"name": f"Ada {next(names)}"}
        return await call(client, "update_record", model="testapp.author", pk=str(author.pk), values=values)()

    for name, act in {
        "a ping": lambda: client.result("ping"),
        "a page by a plan": call(client, "query_records", model="testapp.section", filters={"name__contains": "1"}),
        "a page by instances": call(client, "query_records", model="testapp.book", filters={"title__contains": "1"}),
        "one row": call(client, "get_record", model="testapp.author", pk=str(author.pk)),
        "the tools": lambda: client.result("tools/list"),
        "a resource": lambda: client.result("resources/read", {"uri": "django://testapp/book"}),
        "an update": update,
    }.items():
        check(name, (await trip(act))[0])


async def test_an_action_and_its_confirmation(client: SessionClient) -> None:
    await make_rows()
    arguments: dict[str, Any] = {"model": "testapp.book", "action": "withdraw", "filters": {"title__contains": "1"}}
    ask = call(client, "run_action", **arguments)
    found, asked = await trip(ask)
    check("an action that asks", found)
    # Each is good for one call.
    asked = [asked, *[await ask() for _ in range(ROUNDS)]]
    tokens = [answer["structuredContent"]["confirm_token"] for answer in asked]

    async def confirm() -> Any:
        await database_sync_to_async(Book.objects.update)(status=Book.Status.PUBLISHED)
        return await call(client, "run_action", **arguments, confirm_token=tokens.pop())()

    found, done = await trip(confirm)
    assert [message["text"] for message in done["structuredContent"]["messages"]] == ["1 withdrawn."]
    check("an action that was confirmed", found)


async def test_a_row_that_is_saved(client: SessionClient) -> None:
    author = await make_rows()
    await client.result("resources/subscribe", {"uri": uri_of(author)})
    stream = await client.listen()

    async def save() -> Any:
        await database_sync_to_async(author.save)()
        return await stream.message()

    found, message = await trip(save)
    assert message["method"] == "notifications/resources/updated"
    check("a saved row", found)
    await stream.close()
    await asyncio.sleep(0)

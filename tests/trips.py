"""How far the data travels: through how many files one call goes, and how often it changes from one to another.

``python -m pytest -s tests/trips.py`` prints it. Each trip is the shortest of a few after the first: the first call
of a minute, one that finds that it is time to look at the switches, or one whose messages go out one by one as a thread
was late, does what the others do not. It has all that the call does, in whatever thread, also once it is answered.
"""

import asyncio
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from channels.db import database_sync_to_async

import mcp_django
from tests.session_client import SessionClient
from tests.subscribers import uri_of
from tests.testapp.models import Book
from tests.watched_calls import (  # noqa: F401
    call,
    client,
    forget_pools,
    make_rows,
    no_stranger_is_listened_to,
    settled,
)

PACKAGE = str(Path(mcp_django.__file__).parent)


class Trip(NamedTuple):
    """Files that are entered, changes from file to file, and visits of the file that is entered most often."""

    files: int
    changes: int
    visits: int


# Trips of which the shortest counts.
ROUNDS = 4


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


def show(name: str, found: Trip) -> None:
    print(f"{name:32} {found.files:4} files {found.changes:4} changes {found.visits:4} visits", flush=True)


async def test_calls_that_read_or_write_rows(client: SessionClient) -> None:  # noqa: F811
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
        show(name, (await trip(act))[0])


async def test_an_action_and_its_confirmation(client: SessionClient) -> None:  # noqa: F811
    await make_rows()
    arguments: dict[str, Any] = {"model": "testapp.book", "action": "withdraw", "filters": {"title__contains": "1"}}
    ask = call(client, "run_action", **arguments)
    found, asked = await trip(ask)
    show("an action that asks", found)
    # Each is good for one call.
    asked = [asked, *[await ask() for _ in range(ROUNDS)]]
    tokens = [answer["structuredContent"]["confirm_token"] for answer in asked]

    async def confirm() -> Any:
        await database_sync_to_async(Book.objects.update)(status=Book.Status.PUBLISHED)
        return await call(client, "run_action", **arguments, confirm_token=tokens.pop())()

    found, done = await trip(confirm)
    assert [message["text"] for message in done["structuredContent"]["messages"]] == ["1 withdrawn."]
    show("an action that was confirmed", found)


async def test_a_row_that_is_saved(client: SessionClient) -> None:  # noqa: F811
    author = await make_rows()
    await client.result("resources/subscribe", {"uri": uri_of(author)})
    stream = await client.listen()

    async def save() -> Any:
        await database_sync_to_async(author.save)()
        return await stream.message()

    found, message = await trip(save)
    assert message["method"] == "notifications/resources/updated"
    show("a saved row", found)
    await stream.close()
    await asyncio.sleep(0)

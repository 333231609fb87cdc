"""Calls of a client whose work is watched: which threads do it, and when all of it is done."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.contrib.admin.models import LogEntry
from django.db.models.signals import post_save

from mcp_django.asgi import get_asgi_application
from mcp_django.runtime import thread_pools
from mcp_django.subscriptions import model_signals
from mcp_django.subscriptions.bus import SOON, bus
from mcp_django.transports.http.stream_registry import registry
from tests.factories import make_author, make_book
from tests.session_client import SessionClient
from tests.testapp.models import Section

# A pool that nobody has ends its threads, and with them connections that nobody has closed: so each is kept.
POOLS: list[Any] = []


def forget_pools() -> None:
    """Have the next calls run in threads of their own."""
    POOLS.extend(thread_pools._pool(name) for name in ("reads", "slow", "streams"))
    thread_pools._pool.cache_clear()


async def settled() -> None:
    """Wait until calls that were answered have left nothing to do, and the bus has told what it tells."""
    while registry.tasks:
        await asyncio.wait(registry.tasks)
    if bus._loop is not None:
        told = threading.Event()
        # What the bus's thread puts off it puts off as long, so that this comes last.
        bus._loop.call_soon_threadsafe(bus._loop.call_later, SOON, told.set)
        assert await asyncio.to_thread(told.wait, 10)


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

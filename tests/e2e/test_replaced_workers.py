"""Servers that replace their workers, or are told to stop, while streams are open: none waits for its streams."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cases import whole
from tests.e2e.browser import obtain_token
from tests.e2e.servers import STOP_TIMEOUT, run_example
from tests.e2e.workers.client import MODERN, Client

STREAMS = 4
REPLACING = ["uvicorn-replacing", "gunicorn-asgi-replacing"]
REPLACING += whole(["gunicorn-uvicorn-replacing", "hypercorn-replacing"])
STOPPED = ["uvicorn", "daphne", *whole(["hypercorn", "gunicorn-asgi", "uvicorn-workers", *REPLACING])]
APPLICATION, SETTINGS = "tests.e2e.roads.fast:application", "tests.e2e.roads.settings"
# Seconds within which a worker that is replaced ends its streams, and a new worker answers.
REPLACED_WITHIN = 30
LISTEN = {"notifications": {"toolsListChanged": True}}

Ends = list["asyncio.Task[list[dict]]"]  # type: ignore[type-arg]


@asynccontextmanager
async def streams(url: str, token: str) -> AsyncIterator[tuple[httpx2.AsyncClient, Ends]]:
    """Open streams, and tasks that give the messages of each when it has ended."""
    # Each request gets a connection of its own, so that every worker has its share.
    limits = httpx2.Limits(max_keepalive_connections=0)
    async with httpx2.AsyncClient(limits=limits, timeout=REPLACED_WITHIN) as http, AsyncExitStack() as stack:
        client, ends = Client(http, token, version=MODERN), []
        for _ in range(STREAMS):
            stream = await stack.enter_async_context(client.stream(url, "subscriptions/listen", LISTEN))
            await stream.message()
            ends.append(asyncio.ensure_future(stream.rest()))
        yield http, ends
        for end in ends:
            end.cancel()


@pytest.mark.parametrize("server", REPLACING)
async def test_a_worker_that_is_replaced_ends_its_streams_and_the_site_goes_on(
    prepared: Path, tmp_path: Path, server: str
) -> None:
    with run_example(prepared, tmp_path, server, APPLICATION, SETTINGS) as running:
        token = obtain_token(running.origin, "admin")
        async with streams(running.url, token) as (http, ends), asyncio.timeout(REPLACED_WITHIN):
            client = Client(http, token)
            while not all(end.done() for end in ends):
                # A server that replaces its only worker closes connections that nobody has accepted yet.
                with contextlib.suppress(httpx2.TransportError):
                    await client.result(running.url, "ping")
                await asyncio.sleep(0.1)
            assert [end.result()[-1]["result"]["resultType"] for end in ends] == ["complete"] * STREAMS
            assert await answered(client, running.url) == {}


async def answered(client: Client, url: str) -> object:
    """The first answer after the last worker has been replaced."""
    while True:
        with contextlib.suppress(httpx2.TransportError):
            return await client.result(url, "ping")
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("server", STOPPED)
async def test_a_server_that_is_told_to_stop_ends_its_streams_and_then_itself(
    prepared: Path, tmp_path: Path, server: str
) -> None:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(run_example(prepared, tmp_path, server, APPLICATION, SETTINGS))
        token = obtain_token(running.origin, "admin")
        async with streams(running.url, token) as (_, ends):
            began = time.monotonic()
            await asyncio.to_thread(stack.close)
            assert time.monotonic() - began < STOP_TIMEOUT
            assert [(await end)[-1]["result"]["resultType"] for end in ends] == ["complete"] * STREAMS


@pytest.mark.parametrize("server", ["uvicorn", *whole(["gunicorn-asgi"])])
async def test_a_server_that_is_told_to_stop_while_a_stream_is_being_opened_stops(
    prepared: Path, tmp_path: Path, server: str
) -> None:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(
            run_example(prepared, tmp_path, server, "tests.e2e.roads.slow:application", SETTINGS)
        )
        token = obtain_token(running.origin, "admin")
        async with httpx2.AsyncClient(timeout=REPLACED_WITHIN) as http:
            client = Client(http, token, version=MODERN)
            opening = asyncio.ensure_future(messages(client, running.url))
            await asyncio.sleep(0.7)
            began = time.monotonic()
            await asyncio.to_thread(stack.close)
            assert time.monotonic() - began < STOP_TIMEOUT
            assert (await opening)[-1]["result"]["resultType"] == "complete"


async def messages(client: Client, url: str) -> list[dict]:  # type: ignore[type-arg]
    """All messages of a stream that is opened now."""
    async with client.stream(url, "subscriptions/listen", LISTEN) as stream:
        return await stream.rest()

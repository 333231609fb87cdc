"""Switches over several workers: all of them obey within five seconds, with Redis and without."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tests.e2e.commands import run_command
from tests.e2e.servers import HOST, free_port
from tests.e2e.test_workers import Cluster, Worker
from tests.e2e.test_workers import client as client
from tests.e2e.test_workers import cluster as cluster
from tests.e2e.test_workers import http as http
from tests.e2e.test_workers import token as token
from tests.e2e.test_workers import workers as workers
from tests.e2e.workers.client import Client

# Seconds in which all workers obey, and for the command that sets the switch beside them.
OBEYED_WITHIN = 5.0
AGGREGATE = {"name": "aggregate_records", "arguments": {"model": "shop.order", "aggregates": ["count"]}}
QUERY = {"name": "query_records", "arguments": {"model": "shop.order", "limit": 1}}


async def switch(cluster: Cluster, *arguments: str) -> None:
    """Run ``mcp_switch`` in a process of its own, as an operator does."""
    done = await asyncio.to_thread(run_command, cluster.env, "mcp_switch", *arguments)
    assert done.returncode == 0, done.stderr


async def soon(asked: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Ask until it is so, for as long as workers have to obey."""
    ends = time.monotonic() + OBEYED_WITHIN
    while not await asked():
        assert time.monotonic() < ends, "a worker did not obey in time"
        await asyncio.sleep(0.1)


async def refusal(client: Client, worker: Worker, params: dict[str, Any]) -> str:
    """What a model is told of a call, "" where it is answered."""
    result = await client.result(worker.url, "tools/call", params)
    return str(result["content"][0]["text"]) if result.get("isError") else ""


async def obeys(client: Client, both: tuple[Worker, Worker], cluster: Cluster) -> None:
    """Switch a tool off and on: both workers refuse it, leave it out of the list, and answer all else meanwhile."""
    for worker in both:
        assert await refusal(client, worker, AGGREGATE) == ""
    await switch(cluster, "off", "tool", "aggregate_records", "--reason", "Audit")
    for worker in both:

        async def is_off(worker: Worker = worker) -> bool:
            return "Reason given: Audit" in await refusal(client, worker, AGGREGATE)

        await soon(is_off)
    for worker in both:
        listed = await client.result(worker.url, "tools/list")
        assert "aggregate_records" not in {tool["name"] for tool in listed["tools"]}
        assert await refusal(client, worker, QUERY) == ""
    await switch(cluster, "on", "tool", "aggregate_records")
    for worker in both:

        async def is_on(worker: Worker = worker) -> bool:
            return await refusal(client, worker, AGGREGATE) == ""

        await soon(is_on)


async def test_both_workers_obey_and_say_that_their_lists_changed(
    client: Client, workers: tuple[Worker, Worker], cluster: Cluster
) -> None:
    await client.initialize(workers[0].url)
    async with client.listen(workers[1].url) as stream:
        await obeys(client, workers, cluster)
        async with asyncio.timeout(OBEYED_WITHIN):
            while (await stream.message())["method"] != "notifications/tools/list_changed":
                pass


async def test_the_streams_of_a_user_who_is_switched_off_end_and_no_worker_answers(
    http: httpx2.AsyncClient, workers: tuple[Worker, Worker], cluster: Cluster
) -> None:
    client = Client(http, await asyncio.to_thread(cluster.token, "warehouse"))
    await client.initialize(workers[0].url)
    async with client.listen(workers[1].url) as stream:
        await switch(cluster, "off", "user", "warehouse", "--reason", "Lost laptop")
        async with asyncio.timeout(OBEYED_WITHIN):
            while await stream.message() is not None:
                pass
        for worker in workers:

            async def is_off(worker: Worker = worker) -> bool:
                answer = await client.post(worker.url, client.message("tools/call", QUERY))
                return "Lost laptop" in answer.text

            await soon(is_off)
    await switch(cluster, "on", "user", "warehouse")
    for worker in workers:

        async def is_on(worker: Worker = worker) -> bool:
            return await refusal(client, worker, QUERY) == ""

        await soon(is_on)


@contextmanager
def without_redis(cluster: Cluster) -> Iterator[tuple[Cluster, tuple[Worker, Worker]]]:
    """Two workers of the same database at whose address for Redis nothing answers."""
    alone = replace(cluster, env=cluster.env | {"REDIS_URL": f"redis://{HOST}:{free_port()}"})
    both = Worker(alone, "first-alone"), Worker(alone, "second-alone")
    try:
        yield alone, (both[0].wait(), both[1].wait())
    finally:
        for worker in both:
            worker.kill()


@pytest.fixture
async def stranded(cluster: Cluster) -> AsyncIterator[tuple[Cluster, tuple[Worker, Worker]]]:
    with without_redis(cluster) as found:
        yield found


async def test_both_workers_obey_while_redis_is_away(
    client: Client, stranded: tuple[Cluster, tuple[Worker, Worker]]
) -> None:
    cluster, both = stranded
    await client.initialize(both[0].url)
    await obeys(client, both, cluster)

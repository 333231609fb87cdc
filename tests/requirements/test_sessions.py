"""What the manifest demands of sessions and their streams (`requirements/transports.toml`, "session" and "streams")."""

import asyncio
import json
import re

import pytest
from channels.db import database_sync_to_async

from tests.factories import make_author
from tests.session_client import SessionClient

pytestmark = pytest.mark.django_db(transaction=True)

LEGACY = ["2025-03-26", "2025-06-18", "2025-11-25"]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


async def begin(token, version="2025-11-25", **options):
    client = SessionClient(token, version=version, **options)
    await client.initialize()
    assert client.session
    return client


@database_sync_to_async
def rename(author, name):
    author.name = name
    author.save()


async def first_of(change, *reading):
    """Change something until one of the tasks is done: a stream that has begun may hear of changes a moment later."""
    for number in range(50):
        await change(f"Name {number}")
        done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED, timeout=0.2)
        if done:
            return
    pytest.fail("nothing was told")


async def counting(client, number=3, progress="p"):
    """The stream of a call that tells its progress, with all of its events."""
    stream = await client.call("count", progress=progress, number=number)
    blocks = []
    while (block := await stream.block()) is not None:
        blocks.append(block)
    return blocks


@pytest.fixture
def count(tools):
    """A tool that tells its progress and then its answer."""

    async def count(request, number: int) -> str:
        """Count."""
        for done in range(1, number + 1):
            request.mcp.progress(done, number)
            await asyncio.sleep(0.03)
        return f"counted to {number}"

    tools(count, read_only=True)


def messages(blocks):
    return [json.loads(block["data"]) for block in blocks if block.get("data")]


# Sessions


@pytest.mark.parametrize("version", LEGACY)
async def test_the_id_of_a_session_is_unique_random_and_visible_ascii(token, version):
    first, second = await begin(token, version), await begin(token, version)
    assert first.session != second.session
    for client in (first, second):
        assert re.fullmatch(r"[\x21-\x7e]{32,}", client.session)


@pytest.mark.parametrize("version", LEGACY)
async def test_a_session_that_was_ended_is_not_found(token, version):
    client = await begin(token, version)
    assert await client.result("ping") == {}
    assert await client.end() in (200, 204)
    assert (await client.send("ping"))[0] == 404
    assert (await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}))[0] == 404
    assert (await client.listen()).status == 404
    assert await client.end() == 404


async def test_a_request_without_a_session_is_served_though_the_client_has_one(token):
    client = await begin(token)
    client.session = None
    assert await client.result("ping") == {}
    assert (await client.result("tools/list"))["tools"]


async def test_a_session_is_no_authorization(token):
    client = await begin(token)
    for stranger in ("", "Bearer nonsense"):
        client.token = stranger
        assert (await client.send("ping"))[0] == 401
        assert (await client.listen()).status == 401
        assert await client.end() == 401
    client.token = token
    assert await client.result("ping") == {}


# The stream of a GET


@pytest.mark.parametrize("version", LEGACY)
async def test_a_get_is_answered_with_a_stream_or_405(token, version):
    client = await begin(token, version)
    stream = await client.listen()
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
    await stream.close()
    client.session = None
    refused = await client.listen()
    assert refused.status == 405


async def test_the_stream_of_a_get_has_neither_responses_nor_what_a_call_tells(token, count):
    client = await begin(token)
    author = await database_sync_to_async(make_author)("Ada")
    uri = f"django://testapp/author/{author.pk}"
    await client.result("resources/subscribe", {"uri": uri})
    stream = await client.listen()
    told = messages(await counting(client))
    reading = asyncio.ensure_future(stream.message())
    await first_of(lambda name: rename(author, name), reading)
    changed = await reading
    assert (changed["method"], changed["params"]["uri"]) == ("notifications/resources/updated", uri)
    assert [message.get("method") for message in told] == ["notifications/progress"] * 3 + [None]
    await client.end()
    assert not [message for message in await stream.rest() if "method" not in message or "id" in message]


async def test_a_message_goes_to_one_of_several_streams(token):
    client = await begin(token)
    author = await database_sync_to_async(make_author)("Ada")
    await client.result("resources/subscribe", {"uri": f"django://testapp/author/{author.pk}"})
    streams = [await client.listen(), await client.listen()]
    reading = [asyncio.ensure_future(stream.message(30)) for stream in streams]
    told = [[], []]
    for _ in range(3):
        await first_of(lambda name: rename(author, name), *reading)
        for number in [number for number, task in enumerate(reading) if task.done()]:
            told[number].append(reading[number].result())
            reading[number] = asyncio.ensure_future(streams[number].message(30))
    await client.end()
    for stream, task, found in zip(streams, reading, told, strict=True):
        found += [message for message in (await task, *await stream.rest()) if message is not None]
    assert sorted(map(bool, told)) == [False, True]
    assert {message["method"] for messages in told for message in messages} == {"notifications/resources/updated"}


async def test_a_stream_that_is_resumed_while_it_is_open_goes_on_in_one_place(token, tools):
    release = asyncio.Event()

    async def wait(request) -> str:
        """Wait."""
        request.mcp.progress(1, 2)
        await release.wait()
        return "waited"

    tools(wait, read_only=True)
    client = await begin(token)
    stream = await client.call("wait", progress="p")
    assert (await stream.message())["method"] == "notifications/progress"
    again = await client.listen(stream.last_id)
    await again.block()
    release.set()
    found = [message for messages in await asyncio.gather(stream.rest(), again.rest()) for message in messages]
    assert [message["result"]["content"][0]["text"] for message in found] == ["waited"]


# Events


async def test_ids_of_events_are_unique_and_tell_their_stream(token, count):
    client = await begin(token)
    stream = await client.listen()
    first = await stream.block()
    calls = [await counting(client, progress=name) for name in ("a", "b")]
    ids = [[block["id"] for block in blocks if "id" in block] for blocks in calls]
    every = [*ids[0], *ids[1], first["id"]]
    assert len(set(every)) == len(every)
    assert all(len(found) >= 4 for found in ids)
    # An id leads back to its own stream, and to nothing else.
    for name, blocks in zip("ab", calls, strict=True):
        again = await client.listen(blocks[1]["id"])
        tokens = {message["params"]["progressToken"] for message in await again.rest() if "params" in message}
        assert tokens == {name}
    await stream.close()


async def test_resuming_brings_what_was_missed_on_that_stream_alone(token, count):
    client = await begin(token)
    first, second = await asyncio.gather(counting(client, 4, "a"), counting(client, 4, "b"))
    for blocks in (first, second):
        numbered = [block for block in blocks if block.get("data")]
        again = await client.listen(numbered[1]["id"])
        assert await again.rest() == messages(numbered[2:])


async def test_a_stream_of_2025_11_25_is_primed_with_an_id_and_a_time_to_come_back(token, count):
    client = await begin(token)
    first, *rest = await counting(client)
    assert (first["data"], bool(first["id"])) == ("", True)
    assert int(first["retry"]) > 0
    again = await client.listen(first["id"])
    assert await again.rest() == messages(rest)


async def test_a_connection_that_is_closed_early_says_when_to_come_back(token, tools):
    release = asyncio.Event()

    async def leave(request) -> str:
        """Close the connection, then answer."""
        request.mcp.progress(1, 2)
        request.mcp.close_stream()
        await release.wait()
        return "answered"

    tools(leave, read_only=True)
    client = await begin(token)
    stream = await client.call("leave", progress="p")
    before = await stream.rest()
    assert int(stream.retry) > 0
    release.set()
    again = await client.listen(stream.last_id)
    told, answer = before + await again.rest()
    assert told["method"] == "notifications/progress"
    assert answer["result"]["content"][0]["text"] == "answered"

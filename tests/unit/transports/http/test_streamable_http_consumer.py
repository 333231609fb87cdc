import asyncio
import gc
import json
import sys
import threading

import pytest
from asgiref.sync import sync_to_async
from django.test import override_settings

from mcp_django import site
from mcp_django.runtime.cache_and_rate_limits import Held
from mcp_django.testing import MCPClient
from mcp_django.transports.http import asgi_consumer, streamable_http
from mcp_django.transports.http.http_exchange import SHORT_BODY, Response
from tests.asgi_client import PATIENCE, Exchange, http_scope
from tests.configured import configured
from tests.factories import make_superuser

pytestmark = pytest.mark.django_db(transaction=True)
MCP = {"BASE_URL": "http://testserver"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def authorization(name):
    return MCPClient(make_superuser(name)).headers["Authorization"]


def exchange(token, **headers):
    return Exchange(streamable_http.as_application(site), http_scope(authorization=token, **headers))


def calling(tool, version="2025-11-25", progress=None):
    meta = {} if progress is None else {"progressToken": progress}
    headers = {"mcp_protocol_version": version}
    if version == "2026-07-28":
        meta["io.modelcontextprotocol/protocolVersion"] = version
        meta["io.modelcontextprotocol/clientCapabilities"] = {}
        headers |= {"mcp_method": "tools/call", "mcp_name": tool}
    params = {"name": tool, "arguments": {}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers


async def test_an_answer_that_is_ready_is_json_with_its_length(token):
    asked = exchange(token)
    await asked.send(PING)
    status, headers, body = await asked.answer()
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert headers["content-length"] == str(len(body))


async def test_C54_a_place_is_given_back_when_the_call_is_over(token):
    with configured(MAX_CONCURRENT_CALLS=1):
        for _ in range(3):
            asked = exchange(token)
            await asked.send(PING)
            assert (await asked.answer())[0] == 200


def long_bodies(size=300_000):
    """Bodies of each kind that costs memory to read: many items, members, characters, levels and messages."""
    call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query_records","arguments":{"%s":%s}}}'
    number, half = size // 10, size // 2
    yield call % ("columns", json.dumps([f"c{index}" for index in range(number)]))
    yield call % ("filters", json.dumps({f"k{index}": index for index in range(number)}))
    yield call % ("search", json.dumps("x" * size))
    yield call % ("search", json.dumps("\N{GRINNING FACE}" * (size // 12)))
    yield "[" * size
    yield f"[{','.join([json.dumps(PING)] * (half // 50))}]"


async def test_after_long_bodies_of_each_kind_nothing_of_them_is_kept(token):
    """What the C library keeps of freed memory is not counted: it is used again."""
    bodies, held = [body.encode() for body in long_bodies()], []
    # What is there already is not looked through each time.
    gc.freeze()
    for _ in range(5):
        for body in bodies:
            asked = exchange(token, content_length=str(len(body)))
            await asked.send(body)
            await asked.answer()
        del asked
        gc.collect()
        held.append(sys.getallocatedblocks())
    # Fewer blocks than one of these bodies makes, from the third round on.
    assert max(held[2:]) - min(held[2:]) < 2_000, held


@pytest.fixture
def slow_reads(monkeypatch):
    """Reads begin, and end when they are released."""
    begun, release = threading.Event(), threading.Event()

    def answer(self, body):
        begun.set()
        release.wait(10)
        return Response(200, b"{}")

    monkeypatch.setattr(streamable_http.StreamableExchange, "answer", answer)
    monkeypatch.setattr(asgi_consumer, "WATCH_AFTER", 0.01)
    yield begun, release
    release.set()


async def test_C46_a_slow_read_is_let_go_when_its_client_leaves(token, slow_reads):
    begun, _ = slow_reads
    asked = exchange(token)
    await asked.send(PING)
    assert await sync_to_async(begun.wait, thread_sensitive=False)(PATIENCE)
    await asked.disconnect()
    await asked.over()
    assert await asked.communicator.receive_nothing()


async def test_L207_a_slow_read_is_answered_when_it_is_done(token, slow_reads):
    begun, release = slow_reads
    asked = exchange(token)
    await asked.send(PING)
    assert await sync_to_async(begun.wait, thread_sensitive=False)(PATIENCE)
    release.set()
    assert (await asked.answer())[0] == 200


@override_settings(MCP_DJANGO=MCP | {"CALL_TIMEOUT": 0.05})
async def test_L206_a_read_over_its_time_is_given_up_with_the_time_to_come_back(token, slow_reads):
    asked = exchange(token)
    await asked.send(PING)
    status, headers, body = await asked.answer()
    assert (status, headers["retry-after"]) == (503, "5")
    assert "took longer" in json.loads(body)["error"]["message"]


# Long bodies

LONG = {"content_length": str(1024 * 1024)}


def long_ping(size=100_000):
    return json.dumps(PING | {"params": {"_meta": {"padding": "x" * size}}}).encode()


async def send_in_pieces(asked, body, size=20_000):
    for start in range(0, len(body), size):
        await asked.send(body[start : start + size], more=start + size < len(body))


@pytest.mark.parametrize("authorization", ["Bearer none-of-ours", "Basic dXNlcjpwYXNz", ""])
async def test_a_long_body_is_not_read_for_who_has_no_good_token(transactional_db, authorization):
    asked = exchange(authorization, **LONG)
    status, headers, _ = await asked.answer(5)
    assert (status, "resource_metadata" in headers["www-authenticate"]) == (401, True)


async def test_of_a_body_without_a_length_little_is_read_before_the_token(transactional_db):
    asked = exchange("Bearer none-of-ours")
    await asked.send(b"[" * (SHORT_BODY - 1), more=True)
    assert await asked.communicator.receive_nothing(0.2)
    await asked.send(b"[" * 2, more=True)
    assert (await asked.answer(5))[0] == 401


@pytest.mark.parametrize(
    ("wrong", "status"),
    [({"content_type": "text/plain"}, 415), ({"content_encoding": "gzip"}, 415), ({"accept": "text/html"}, 406)],
)
async def test_a_long_body_of_a_wrong_kind_is_not_read(token, wrong, status):
    asked = exchange(token, **LONG, **wrong)
    assert (await asked.answer(5))[0] == status


async def test_a_long_body_of_a_method_without_one_is_not_read(token):
    asked = Exchange(streamable_http.as_application(site), http_scope(method="PUT", authorization=token, **LONG))
    assert (await asked.answer(5))[0] == 405


async def test_a_body_with_two_lengths_is_not_read(token):
    asked = exchange(token, content_length="5", transfer_encoding="chunked")
    assert (await asked.answer(5))[0] == 400


@configured(RATES={"calls": "1/h"}, MAX_CONCURRENT_CALLS=1)
@pytest.mark.parametrize("has_length", [True, False])
async def test_a_long_body_is_read_in_pieces_and_counts_as_one_call(token, has_length):
    body = long_ping()
    asked = exchange(token, **({"content_length": str(len(body))} if has_length else {}))
    await send_in_pieces(asked, body)
    assert json.loads((await asked.answer())[2])["result"] == {}
    again = exchange(token)
    await again.send(PING)
    assert (await again.answer())[0] == 429


async def reading(size):
    """Wait until long bodies of this size are being read."""
    async with asyncio.timeout(PATIENCE):
        while sum(Held.long_bodies.values()) != size:
            await asyncio.sleep(0.01)


@configured(MAX_WORKER_BODY_BYTES=400_000)
async def test_long_bodies_at_the_same_time_are_bounded_for_a_caller_and_for_all(token):
    second, third = await sync_to_async(lambda: [authorization(name) for name in ("second", "third")])()
    body = long_ping(60_000)
    length = {"content_length": str(len(body))}
    # A caller who has no other may send one of any size; a second one has to fit into a quarter of all.
    first = exchange(token, **length)
    await first.send(body[:10_000], more=True)
    await reading(len(body))
    status, headers, _ = await exchange(token, **length).answer(5)
    assert (status, headers["retry-after"]) == (429, "1")
    large = exchange(second, content_length="300000")
    await large.send(b"[" * 10_000, more=True)
    await reading(len(body) + 300_000)
    assert (await exchange(third, **length).answer(5))[0] == 429
    await large.disconnect()
    await large.communicator.wait(5)
    other = exchange(third, **length)
    await send_in_pieces(other, body)
    assert (await other.answer())[0] == 200
    await first.send(body[10_000:])
    assert (await first.answer())[0] == 200
    once_more = exchange(token, **length)
    await send_in_pieces(once_more, body)
    assert (await once_more.answer())[0] == 200


@configured(BODY_TIMEOUT=0.3)
async def test_a_long_body_that_does_not_come_is_given_up(token):
    asked = exchange(token, **LONG)
    await asked.send(b"[", more=True)
    assert (await asked.answer(5))[0] == 408

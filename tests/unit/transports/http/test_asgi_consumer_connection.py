"""The two ends of a connection: a body that is bounded in size and time, writes that are bounded in time."""

import asyncio
import json
import os
import socket
from contextlib import suppress

import httpx2
import pytest
import uvicorn
from django.test import override_settings

from mcp_django.transports.http import asgi_consumer as connection
from mcp_django.transports.http.asgi_consumer import ClientGone, Connection, cut_off
from mcp_django.transports.http.http_exchange import Response
from tests.configured import configured
from tests.unit.transports.http.test_streamable_http_consumer import PING, exchange

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_body_may_come_in_pieces(token):
    asked = exchange(token)
    data = json.dumps(PING).encode()
    for position, byte in enumerate(data):
        await asked.send(bytes([byte]), more=position < len(data) - 1)
    assert (await asked.answer())[0] == 200


@override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10)
async def test_B22_a_chunked_body_is_stopped_where_it_crosses_the_bound(token):
    asked = exchange(token)
    await asked.send(b"123456", more=True)
    await asked.send(b"123456", more=True)
    assert (await asked.answer())[0] == 413


@configured(BODY_TIMEOUT=0.05)
async def test_B24_a_body_that_does_not_arrive_is_not_waited_for(token):
    asked = exchange(token)
    await asked.send(b"{", more=True)
    assert (await asked.answer())[0] == 408


# uvloop makes no timer of what is this near.
@configured(BODY_TIMEOUT=0.0001)
async def test_bodies_of_requests_at_once_are_bounded_however_near_the_bounds_are(token):
    asked = [exchange(token) for _ in range(3)]
    for one in asked:
        await one.send(b"{", more=True)
    assert [(await one.answer())[0] for one in asked] == [408] * 3


async def test_a_client_that_leaves_before_its_body_has_come_gets_no_answer(token):
    asked = exchange(token)
    await asked.send(b"{", more=True)
    await asked.disconnect()
    await asked.communicator.wait(5)
    assert await asked.communicator.receive_nothing()


async def test_V4_a_write_that_nobody_reads_is_given_up(monkeypatch):
    monkeypatch.setattr(connection, "WRITE_TIMEOUT", 0.01)
    blocked = asyncio.Event()

    async def send(message):
        await blocked.wait()

    with pytest.raises(ClientGone):
        await Connection(None, send).send_event(b"data")


async def test_of_large_answers_to_one_caller_the_one_that_has_waited_longest_is_cut_off_once(monkeypatch):
    monkeypatch.setattr(connection, "MAX_HELD", connection.LARGE * 3)
    blocked, answer = asyncio.Event(), Response(200, b"x" * (connection.LARGE + 1))

    async def send(message):
        await blocked.wait()

    async def responds(owner="user:1"):
        held = Connection(None, send)
        held.owner = owner
        await held.respond(answer)

    answers = [asyncio.ensure_future(responds()) for _ in range(4)]
    other = asyncio.ensure_future(responds("user:2"))
    first, second = await asyncio.wait_for(asyncio.gather(*answers[:2], return_exceptions=True), 5)
    assert (type(first), type(second)) == (ClientGone, ClientGone)
    blocked.set()
    await asyncio.gather(*answers[2:], other)


async def test_answers_are_sent_at_once_through_the_socket_that_uvicorn_makes_for_its_workers():
    delays = []

    async def application(scope, receive, send):
        Connection(receive, send)
        accepted = send.__self__.transport.get_extra_info("socket")
        delays.append(not accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    config = uvicorn.Config(application, port=0, lifespan="off", log_level="warning")
    server, listener = uvicorn.Server(config), config.bind_socket()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with httpx2.AsyncClient() as client:
            assert (await client.get("http://{}:{}".format(*listener.getsockname()))).status_code == 204
    finally:
        server.should_exit = True
        await serving
    assert delays == [False]


async def test_the_head_of_a_stream_is_sent_once():
    sent = []

    async def send(message):
        sent.append(message)

    stream = Connection(None, send)
    for _ in range(2):
        await stream.open_stream({"X-Own": "1"})
    await stream.send_event()
    await stream.end_stream(b"data")
    assert [message["type"] for message in sent] == ["http.response.start", *["http.response.body"] * 2]
    assert (b"x-own", b"1") in sent[0]["headers"]
    assert (b"cache-control", b"no-store") in sent[0]["headers"]
    assert [message["more_body"] for message in sent[1:]] == [True, False]


def test_the_connection_of_a_client_is_cut_whatever_waits_in_it_and_no_other_one_is():
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends = []
        for _ in range(2):
            client = socket.create_connection(server.getsockname())
            ends.append((client, server.accept()[0]))
        (deaf, to_deaf), (other, to_other) = ends
        to_deaf.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                to_deaf.send(b"x" * 65536)
        opened = len(os.listdir("/dev/fd"))
        assert cut_off(deaf.getsockname()) is True
        assert cut_off(("192.0.2.1", 5)) is cut_off(None) is cut_off(("127.0.0.1", 0)) is False
        assert len(os.listdir("/dev/fd")) == opened
        with pytest.raises(BrokenPipeError):
            to_deaf.send(b"x")
        to_other.send(b"still there")
        assert other.recv(100) == b"still there"
        for end in (deaf, to_deaf, other, to_other):
            end.close()

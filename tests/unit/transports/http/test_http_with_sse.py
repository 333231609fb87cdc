"""HTTP with SSE of 2024-11-05: one stream for everything, posts that any worker takes."""

import asyncio
import json
import threading
from unittest import mock

import pytest
from asgiref.sync import sync_to_async
from django.test import Client, override_settings

from mcp_django import site
from mcp_django.models import Session
from mcp_django.oauth.resource_urls import resource_url
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.runtime.thread_pools import Busy
from mcp_django.transports import notification_queues
from mcp_django.transports.http.event_streams import SessionChanges
from mcp_django.transports.http.http_with_sse import as_application
from tests.asgi_client import Exchange, http_scope, nothing_reported
from tests.factories import make_book, make_superuser
from tests.session_client import EventStream

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def token(transactional_db):
    with override_settings(ROOT_URLCONF="tests.sse_urls"):
        raw = issue_token(make_superuser(), scopes=["mcp:read", "mcp:write"], resource=resource_url(None, "/sse"))
        yield f"Bearer {raw}"


class SSEClient:
    def __init__(self, token):
        self.token = token
        self.uri = ""
        self.number = 0

    async def request(self, method, uri, body=b"", **headers):
        path, _, query = uri.partition("?")
        scope = http_scope(path, method, authorization=self.token, **headers)
        exchange = Exchange(as_application(site), scope | {"query_string": query.encode()})
        await exchange.send(body)
        return exchange

    async def open(self, query=""):
        self.stream = await EventStream(await self.request("GET", f"/sse{query}", accept="text/event-stream")).start()
        if self.stream.status == 200:
            first = await self.stream.block()
            assert first["event"] == "endpoint"
            self.uri = first["data"]
        return self.stream

    async def post(self, body):
        return (await (await self.request("POST", self.uri, body)).answer())[0]

    async def call(self, method, params=None):
        """Post a request and return the messages up to its answer."""
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params or {}}
        assert await self.post(message) == 202
        found = []
        while not found or found[-1].get("id") != self.number:
            message = await self.stream.message()
            # Tools come and go with the tests.
            found += [] if message.get("method", "").endswith("list_changed") else [message]
        return found

    async def initialize(self, version="2024-11-05"):
        client = {"name": "old", "version": "1"}
        params = {"protocolVersion": version, "capabilities": {"sampling": {}}, "clientInfo": client}
        [answer] = await self.call("initialize", params)
        assert await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) == 202
        return answer["result"]


@pytest.fixture
async def client(token):
    found = SSEClient(token)
    await found.open()
    yield found
    await found.stream.close()


async def test_the_stream_names_where_to_post_and_has_the_answers(client, tools):
    @tools
    def whoami(request) -> str:
        """Who."""
        return f"{request.user} {request.mcp.client.name} {request.mcp.version}"

    assert (await client.initialize())["protocolVersion"] == "2024-11-05"
    [answer] = await client.call("tools/call", {"name": "whoami", "arguments": {}})
    assert answer["result"]["content"][0]["text"] == "root old 2024-11-05"


async def test_what_the_stream_was_narrowed_to_holds_for_what_is_posted(token):
    narrow = SSEClient(token)
    await narrow.open("?models=testapp.book")
    assert narrow.uri.endswith("&models=testapp.book")
    await narrow.initialize()
    answer = (await narrow.call("tools/call", {"name": "list_models", "arguments": {}}))[-1]
    assert "testapp.book" in json.dumps(answer)
    assert "testapp.author" not in json.dumps(answer)
    await narrow.stream.close()


async def test_progress_and_errors_come_on_the_stream(client, tools):
    @tools
    def slow(request) -> str:
        """Slow."""
        request.mcp.progress(1, 1)
        return "done"

    await client.initialize()
    progress, answer = await client.call(
        "tools/call", {"name": "slow", "arguments": {}, "_meta": {"progressToken": "p"}}
    )
    assert (progress["method"], answer["result"]["content"][0]["text"]) == ("notifications/progress", "done")
    [error] = await client.call("no/such/method")
    assert error["error"]["code"] == -32601


async def test_progress_comes_as_it_is_told(client, tools):
    gate = asyncio.Event()

    async def slow(request) -> str:
        """Tell, then wait."""
        request.mcp.progress(1, 2)
        await gate.wait()
        return "done"

    tools(slow)
    await client.initialize()
    params = {"name": "slow", "_meta": {"progressToken": "p"}}
    began = asyncio.get_running_loop().time()
    with mock.patch("mcp_django.transports.http.call_runners.GRACE", 30):
        assert await client.post({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}) == 202
        told = await client.stream.message()
        while told["method"] != "notifications/progress":
            told = await client.stream.message()
    gate.set()
    answer = await client.stream.message()
    while answer.get("id") != 9:
        answer = await client.stream.message()
    # Nothing waited for what is stored before the first message, as there is no such thing here.
    assert asyncio.get_running_loop().time() - began < 25


async def test_nobody_is_asked_over_this_transport(client, tools):
    @tools
    def can(request) -> str:
        """Can."""
        return str(request.mcp.can("sampling"))

    await client.initialize()
    [answer] = await client.call("tools/call", {"name": "can", "arguments": {}})
    assert answer["result"]["content"][0]["text"] == "False"


async def test_changes_come_on_the_stream(client):
    book = await sync_to_async(make_book)()
    uri = f"django://testapp/book/{book.pk}"
    await client.initialize("2025-06-18")
    await client.call("resources/subscribe", {"uri": uri})
    heard = asyncio.ensure_future(client.stream.message())
    async with asyncio.timeout(10):
        while not heard.done():
            await sync_to_async(book.save)()
            await asyncio.wait([heard], timeout=0.05)
    assert heard.result()["params"] == {"uri": uri}


async def test_what_changes_right_after_it_was_subscribed_to_is_told_however_late_the_stream_is(client, monkeypatch):
    books = [await sync_to_async(make_book)(), await sync_to_async(make_book)("Another")]
    uris = [f"django://testapp/book/{book.pk}" for book in books]
    await client.initialize("2025-06-18")
    # What was told last is a moment ago for longer.
    monkeypatch.setattr(notification_queues, "DELIVER_EVERY", 0.5)
    for book, uri in zip(books, uris, strict=True):
        await client.call("resources/subscribe", {"uri": uri})
        await sync_to_async(book.save)()
        async with asyncio.timeout(10):
            # The stream was open when the books were made: who subscribes at once may be told of that as well.
            while (await client.stream.message())["params"] != {"uri": uri}:
                pass


async def test_a_call_is_cancelled(client, tools):
    begun, stopped = threading.Event(), threading.Event()

    @tools
    def endless(request) -> str:
        """Endless."""
        begun.set()
        try:
            while True:
                stopped.wait(0.01)
                request.mcp.progress(0)
        finally:
            stopped.set()

    await client.initialize()
    message = {"jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": {"name": "endless", "arguments": {}}}
    assert await client.post(message) == 202
    assert await asyncio.to_thread(begun.wait, 10)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 50}}
    assert await client.post(cancelled) == 202
    assert await asyncio.to_thread(stopped.wait, 10)
    [answer] = await client.call("ping")
    assert answer["result"] == {}


async def test_the_session_ends_with_the_stream(client):
    await client.initialize()
    await client.stream.close()
    assert await client.post({"jsonrpc": "2.0", "id": 9, "method": "ping"}) == 404
    assert await Session.objects.aget() is not None
    client.stream = await client.open()


@pytest.mark.parametrize("hears", [0, 1], ids=["at once", "later"])
async def test_L206_a_stream_that_can_hear_of_no_changes_ends_and_nothing_is_reported(token, monkeypatch, hears):
    answers = [True] * hears

    async def hold(self, **options):
        if not answers:
            raise Busy()
        return answers.pop()

    monkeypatch.setattr(SessionChanges, "hold", hold)
    client = SSEClient(token)
    with nothing_reported():
        await client.open()
        assert await client.stream.block() == {"retry": "500"}
        await client.stream.exchange.over()
    assert await client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}) == 404


@pytest.mark.parametrize("uri", ["/sse/messages", "/sse/messages?session_id=", "/sse/messages?session_id=x"])
async def test_89_a_made_up_session_is_not_found(client, uri):
    exchange = await client.request("POST", uri, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert (await exchange.answer())[0] == 404


async def test_163_without_a_token_nothing_is_opened_and_the_challenge_names_this_mount(token):
    exchange = Exchange(as_application(site), http_scope("/sse", "GET"))
    await exchange.send(b"")
    status, headers, _ = await exchange.answer()
    assert status == 401
    assert "oauth-protected-resource/sse" in headers["www-authenticate"]
    with override_settings(ROOT_URLCONF="tests.sse_urls"):
        document = await sync_to_async(Client().get)("/.well-known/oauth-protected-resource/sse")
    assert document.json()["resource"] == "http://testserver/sse"


async def test_165_a_token_for_the_endpoint_is_none_for_this_mount(token):
    raw = await sync_to_async(issue_token)(
        await sync_to_async(make_superuser)("other"), scopes=["mcp:read"], resource="http://testserver/mcp"
    )
    client = SSEClient(f"Bearer {raw}")
    exchange = await client.request("GET", "/sse")
    assert (await exchange.answer())[0] == 401


@pytest.mark.parametrize(("method", "uri"), [("POST", "/sse"), ("DELETE", "/sse"), ("GET", "/sse/messages")])
async def test_other_methods_are_not_taken(token, method, uri):
    exchange = await SSEClient(token).request(method, uri)
    status, headers, _ = await exchange.answer()
    assert (status, headers["allow"]) == (405, "GET" if uri == "/sse" else "POST")


@pytest.mark.parametrize("body", [b"{", b"[]", {"jsonrpc": "2.0", "id": 1, "result": {}}, 7])
async def test_what_is_no_message_is_refused(client, body):
    exchange = await client.request("POST", client.uri, body)
    status, _, answer = await exchange.answer()
    assert (status, "error" in json.loads(answer)) == (400, True)


def test_under_wsgi_the_mount_says_that_it_cannot_stream(token):
    with override_settings(ROOT_URLCONF="tests.sse_urls"):
        assert Client().get("/sse").status_code == 405

"""Streams that are open are known to whoever asks, and can be ended, in this worker and in others."""

import asyncio
import socket
import threading
from os import getpid
from socket import gethostname

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from mcp_django import site
from mcp_django.oauth.resource_urls import resource_url
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.subscriptions.bus import bus
from mcp_django.transports.http import event_streams, stream_registry
from mcp_django.transports.http.http_with_sse import as_application as with_sse
from mcp_django.transports.http.stream_registry import MAX_NAME, TOPIC, ListeningSocket, OpenStreams, registry
from tests.asgi_client import Exchange, http_scope
from tests.configured import configured
from tests.factories import make_superuser, make_user
from tests.session_client import ELICITATION, EventStream, SessionClient
from tests.unit.transports.http.test_event_streams import listen

pytestmark = pytest.mark.django_db(transaction=True)
URL = reverse("admin:mcp_django_console_connections")


async def called():
    return await sync_to_async(registry.ask_workers)()


async def test_streams_of_both_eras_are_on_the_roll_while_they_are_open(token):
    assert await called() == OpenStreams(0, 0, ())
    client = SessionClient(token)
    await client.initialize()
    one = await client.listen()
    other = await listen(token, toolsListChanged=True)
    await other.message()
    found = await called()
    assert (found.count, found.workers) == (2, 1)
    assert {(row.method, row.version, row.username, row.client, bool(row.session)) for row in found.streams} == {
        ("GET", "2025-11-25", "root", "tests", True),
        ("subscriptions/listen", "2026-07-28", "root", "mcp_token", False),
    }
    assert {(row.worker, row.site) for row in found.streams} == {(f"{gethostname()}:{getpid()}", "mcp_django")}
    assert all(row.opened for row in found.streams)
    await one.close()
    await other.close()
    assert await called() == OpenStreams(0, 0, ())
    assert TOPIC not in bus._subscribers


@sync_to_async
def ended_by(user, stream_id):
    browser = Client()
    browser.force_login(user)
    return browser.post(URL, {"end_stream": stream_id}).status_code


@sync_to_async
def page_of(user):
    browser = Client()
    browser.force_login(user)
    return browser.get(URL).text


async def test_a_stream_is_disconnected_by_who_may_and_ends_in_order(token):
    stream = await listen(token, toolsListChanged=True)
    await stream.message()
    (row,) = (await called()).streams
    reader = await sync_to_async(make_user)("reader", "mcp_django.view_callentry")
    assert await ended_by(reader, row.id) == 403
    page = await page_of(reader)
    assert row.worker in page
    assert "Disconnect" not in page
    admin = await sync_to_async(make_superuser)("other")
    assert f'name="end_stream" value="{row.id}"' in await page_of(admin)
    assert await ended_by(admin, row.id) == 302
    end = await stream.message()
    assert end["result"]["resultType"] == "complete"
    assert await stream.message() is None


async def test_what_is_no_stream_ends_none(token):
    stream = await listen(token, toolsListChanged=True)
    await stream.message()
    for nonsense in ("", "nothing", "\0", "x" * 5_000):
        registry.disconnect(nonsense)
    assert (await called()).count == 1
    await stream.close()


async def test_a_client_that_names_itself_at_length_or_in_markup_is_cut_and_inert(token):
    client = SessionClient(token, name="<b>bold</b>" + "x" * 500)
    await client.initialize()
    stream = await client.listen()
    (row,) = (await called()).streams
    assert len(row.client) == MAX_NAME
    page = await page_of(await sync_to_async(make_superuser)("other"))
    assert "&lt;b&gt;bold" in page
    assert "<b>bold" not in page
    await stream.close()


# A signal to stop that comes while a stream is being opened


async def listening(token):
    return await listen(token, toolsListChanged=True)


async def changes_of_a_session(token):
    client = SessionClient(token)
    await client.initialize()
    return await client.listen()


async def call_of_a_session(token):
    client = SessionClient(token)
    await client.initialize()
    return await client.call("wait", progress=1)


async def http_with_sse(token):
    with override_settings(ROOT_URLCONF="tests.sse_urls"):
        user = await sync_to_async(User.objects.get)(username="root")
        raw = await sync_to_async(issue_token)(user, scopes=["mcp:read"], resource=resource_url(None, "/sse"))
        scope = http_scope("/sse", "GET", authorization=f"Bearer {raw}", accept="text/event-stream")
        exchange = Exchange(with_sse(site), scope)
        await exchange.send(b"")
        return await EventStream(exchange).start()


@pytest.mark.parametrize("opened", [listening, changes_of_a_session, call_of_a_session, http_with_sse])
async def test_a_stream_that_was_being_opened_when_the_signal_came_ends_too(token, tools, monkeypatch, opened):
    """Every kind of stream enters the registry last, when it has been let in long ago."""

    async def wait(request) -> str:
        """Wait."""
        request.mcp.progress(1)
        await asyncio.Event().wait()

    tools(wait, read_only=True)
    enter = registry.enter

    def enter_late(*arguments):
        registry.is_closing = True
        return enter(*arguments)

    monkeypatch.setattr(registry, "is_closing", False)
    monkeypatch.setattr(registry, "enter", enter_late)
    stream = await opened(token)
    assert stream.status == 200
    async with asyncio.timeout(20):
        while await stream.block() is not None:
            pass
        await stream.exchange.over()
    assert not registry._open


# Streams that hold up a worker which is being replaced


def test_a_server_that_was_never_seen_to_listen_has_not_stopped():
    assert ListeningSocket().has_closed() is False


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_the_socket_of_the_server_is_seen_to_close_whatever_its_kind(family, tmp_path):
    seen = ListeningSocket()
    with socket.socket(family) as server:
        server.bind(str(tmp_path / "socket") if family == socket.AF_UNIX else ("localhost", 0))
        assert seen.has_closed() is False
        server.listen()
        assert seen.has_closed() is False
        assert seen.descriptor == server.fileno()
    assert seen.has_closed() is True
    # A file or connection that gets the number of the closed socket does not listen.
    with socket.socket() as other:
        assert other.fileno() == seen.descriptor
        assert seen.has_closed() is True


@pytest.mark.parametrize("opened", [listening, changes_of_a_session, http_with_sse])
async def test_a_stream_ends_when_the_server_listens_no_more(token, monkeypatch, opened):
    monkeypatch.setattr(stream_registry, "LISTENING_EVERY", 0.01)
    monkeypatch.setattr(registry, "_looks_on", None)
    monkeypatch.setattr(registry, "has_stopped_listening", False)
    with socket.create_server(("127.0.0.1", 0)):
        stream = await opened(token)
        while not registry._open:
            await asyncio.sleep(0.01)
    async with asyncio.timeout(20):
        while await stream.block() is not None:
            pass
        await stream.exchange.over()


async def test_a_call_goes_on_while_its_worker_is_replaced_but_waits_for_no_answer_there(token, tools, monkeypatch):
    """What it asks is answered at another worker, which then runs the call."""
    go_on = threading.Event()

    def greet(request) -> str:
        """Greet."""
        request.mcp.progress(1)
        go_on.wait(20)
        return f"Hello {request.mcp.ask('Who is there?', str, key='name')}"

    monkeypatch.setattr(event_streams, "LOOK_EVERY", 0.01)
    tools(greet)
    client = SessionClient(token, capabilities=ELICITATION)
    await client.initialize()
    stream = await client.call("greet", progress="p")
    assert (await stream.message())["method"] == "notifications/progress"
    monkeypatch.setattr(registry, "has_stopped_listening", True)
    go_on.set()
    assert (await stream.message())["method"] == "elicitation/create"
    assert await stream.message() is None
    # The client is told when to come back for the rest.
    assert stream.retry is not None


@pytest.mark.parametrize("opened", [listening, changes_of_a_session])
async def test_a_stream_of_changes_ends_after_its_time_and_its_client_can_open_another(token, opened):
    with configured(STREAM_LIFETIME=0.2):
        stream = await opened(token)
        while await stream.block() is not None:
            pass
        await stream.exchange.over()
    again = await opened(token)
    assert again.status == 200
    await again.close()


def test_streams_that_began_together_do_not_end_together():
    drawn = [event_streams.lifetime() for _ in range(100)]
    assert 600 <= min(drawn) < 700 < 800 < max(drawn) <= 900

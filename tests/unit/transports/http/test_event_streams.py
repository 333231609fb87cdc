"""Streams of changes: acknowledged, tagged, filtered, ended in order, and one of a session's has the messages."""

import asyncio
import json
import threading

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache

from mcp_django import site
from mcp_django.models import Session
from mcp_django.protocol.server_sent_events import ServerSentEvent
from mcp_django.server import sessions
from mcp_django.subscriptions.bus import bus
from mcp_django.subscriptions.notifier import Subscription
from mcp_django.transports.http import event_streams
from mcp_django.transports.http.event_streams import ChangeStream, Lease, SessionStream
from mcp_django.transports.http.stream_registry import registry
from mcp_django.transports.http.streamable_http import as_application
from tests.asgi_client import Exchange, http_scope
from tests.configured import configured
from tests.factories import make_book
from tests.session_client import EventStream, SessionClient

pytestmark = pytest.mark.django_db(transaction=True)
MCP = {"BASE_URL": "http://testserver"}
KEY = "io.modelcontextprotocol/subscriptionId"
UPDATED = "notifications/resources/updated"


@sync_to_async
def save(book):
    book.save()


@sync_to_async
def new_book():
    book = make_book()
    # Its making has been told: nobody who subscribes from now on hears of it.
    bus.close()
    return book


def uri_of(book):
    return f"django://testapp/book/{book.pk}"


async def listen(token, identifier=7, **notifications):
    """Open a stream of the modern era, whatever comes of it."""
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/protocolVersion": "2026-07-28", f"{prefix}/clientCapabilities": {}}
    params = {"notifications": notifications, "_meta": meta}
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "subscriptions/listen"}
    exchange = Exchange(as_application(site), http_scope(authorization=token, **headers))
    await exchange.send({"jsonrpc": "2.0", "id": identifier, "method": "subscriptions/listen", "params": params})
    return await EventStream(exchange).start()


async def test_110_the_filter_is_acknowledged_first_and_every_message_names_its_subscription(token):
    book = await new_book()
    wanted = {"toolsListChanged": True, "resourceSubscriptions": [uri_of(book), "django://testapp/book/99999"]}
    stream = await listen(token, **wanted)
    acknowledged = await stream.message()
    assert acknowledged == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "_meta": {KEY: 7},
            "notifications": {"toolsListChanged": True, "resourceSubscriptions": [uri_of(book)]},
        },
    }
    await save(book)
    message = await stream.message()
    assert message["method"] == UPDATED
    assert message["params"] == {"uri": uri_of(book), "_meta": {KEY: 7}}
    await stream.close()


async def test_106_a_filter_over_the_cap_is_refused_as_a_whole(token):
    with configured(MAX_SUBSCRIPTIONS=1):
        stream = await listen(token, resourceSubscriptions=["a:b", "a:c"])
    assert stream.status == 400
    body = await stream.exchange.next()
    assert json.loads(body["body"])["error"]["code"] == -32602


async def test_107_many_changes_of_one_thing_are_told_once(token, monkeypatch):
    """The stream sends nothing after its first message until all has changed."""
    go_on, deliver = asyncio.Event(), ChangeStream.deliver

    async def deliver_and_wait(stream):
        told = await deliver(stream)
        await go_on.wait()
        return told

    monkeypatch.setattr(ChangeStream, "deliver", deliver_and_wait)
    book, last = await new_book(), await new_book()
    stream = await listen(token, resourceSubscriptions=[uri_of(book), uri_of(last)])
    other = await listen(token, resourceSubscriptions=[uri_of(last)])
    await stream.message()
    await other.message()
    for _ in range(50):
        await save(book)
    await save(last)
    assert (await other.message())["params"]["uri"] == uri_of(last)
    go_on.set()
    told = [uri_of(book)]
    while told[-1] != uri_of(last):
        told.append((await stream.message())["params"]["uri"])
    # The first at once, the others together; the stream may be told last of what the other one knows.
    assert told.count(uri_of(book)) <= 4
    await stream.close()
    await other.close()


async def test_44_over_the_cap_of_streams_the_next_one_has_to_wait(token):
    with configured(MAX_STREAMS=1):
        first = await listen(token, toolsListChanged=True)
        assert first.status == 200
        second = await listen(token, toolsListChanged=True)
        assert (second.status, second.headers["retry-after"]) == (429, "1")
        await first.message()
        await first.close()
        third = await listen(token, toolsListChanged=True)
        assert third.status == 200
        await third.message()
        await third.close()


async def test_204_a_worker_that_stops_opens_no_more_streams(token, monkeypatch):
    monkeypatch.setattr(registry, "is_closing", True)
    stream = await listen(token, toolsListChanged=True)
    assert (stream.status, stream.headers["retry-after"]) == (503, "1")


async def test_50_a_quiet_stream_is_kept_alive(token, monkeypatch):
    monkeypatch.setattr(event_streams, "KEEP_ALIVE_EVERY", 0.02)
    stream = await listen(token, toolsListChanged=True)
    await stream.message()
    assert (await stream.exchange.next())["body"] == b":\n"
    await stream.close()


async def test_104_a_stream_ends_in_order_when_its_user_is_gone(token):
    from django.contrib.auth.models import User

    stream = await listen(token, toolsListChanged=True)
    await stream.message()
    await sync_to_async(User.objects.update)(is_active=False)
    end = await stream.message(timeout=10)
    assert (end["id"], end["result"]["resultType"], end["result"]["_meta"][KEY]) == (7, "complete", 7)
    assert await stream.message() is None


# Sessions


@pytest.fixture
async def client(token):
    found = SessionClient(token)
    await found.initialize()
    return found


async def test_a_session_hears_of_what_it_subscribed_to_before_and_after_its_stream_was_opened(client):
    before, after = await new_book(), await new_book()
    await client.result("resources/subscribe", {"uri": uri_of(before)})
    stream = await client.listen()
    assert (await stream.block())["data"] == ""
    await save(before)
    message = await stream.message()
    assert message == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": uri_of(before)}}
    await client.result("resources/subscribe", {"uri": uri_of(after)})
    await client.result("resources/unsubscribe", {"uri": uri_of(before)})
    heard = asyncio.ensure_future(stream.message())
    async with asyncio.timeout(20):
        while not heard.done():
            await save(after)
            await asyncio.wait([heard], timeout=0.05)
    assert heard.result()["params"]["uri"] == uri_of(after)
    await stream.close()


async def test_what_a_session_unsubscribed_from_is_told_no_more_however_late_its_stream_is(client, monkeypatch):
    """The stream is held up; neither what waits in it nor what changes later is told once the answer is there."""
    book, other = await new_book(), await new_book()
    await client.result("resources/subscribe", {"uri": uri_of(book)})
    stream = await client.listen()
    await save(book)
    assert (await stream.message())["params"]["uri"] == uri_of(book)
    # Longer than any answer is waited for here.
    monkeypatch.setattr(sessions, "KNOWN_WITHIN", 60)
    release, set_uris = threading.Event(), Subscription.set_uris

    def late(subscription, uris):
        release.wait(30)
        set_uris(subscription, uris)

    monkeypatch.setattr(Subscription, "set_uris", late)
    try:
        await client.result("resources/unsubscribe", {"uri": uri_of(book)})
        await save(book)
        subscribing = asyncio.ensure_future(client.result("resources/subscribe", {"uri": uri_of(other)}))
        await save(book)
    finally:
        release.set()
    assert await subscribing == {}
    await save(other)
    assert (await stream.message())["params"]["uri"] == uri_of(other)
    await stream.close()


async def test_each_of_several_changes_at_once_of_what_a_session_hears_is_answered(client, monkeypatch):
    monkeypatch.setattr(sessions, "KNOWN_WITHIN", 60)
    books = [await new_book() for _ in range(4)]
    stream = await client.listen()
    assert (await stream.block())["data"] == ""
    answers = [client.result("resources/subscribe", {"uri": uri_of(book)}) for book in books]
    assert await asyncio.gather(*answers) == [{}] * 4
    await save(books[0])
    # That the books were made may still be told first.
    async with asyncio.timeout(20):
        while (await stream.message()).get("params", {}).get("uri") != uri_of(books[0]):
            pass
    await stream.close()


async def test_a_session_hears_of_all_that_it_subscribed_to_whichever_change_its_stream_is_told_of_last(client):
    early, late = await new_book(), await new_book()
    stream = await client.listen()
    assert (await stream.block())["data"] == ""
    for book in (early, late):
        await client.result("resources/subscribe", {"uri": uri_of(book)})
    session = await Session.objects.aget()
    bus.publish(f"session:{session.pk}", {"uris": [uri_of(early)], "token": ""})
    await save(late)
    async with asyncio.timeout(20):
        while (await stream.message()).get("params", {}).get("uri") != uri_of(late):
            pass
    await stream.close()


async def test_94_of_two_streams_the_first_has_the_messages_and_the_second_takes_its_place(client, monkeypatch):
    monkeypatch.setattr(event_streams, "KEEP_ALIVE_EVERY", 0.05)
    missed, deliver = asyncio.Event(), SessionStream.deliver

    async def deliver_and_look(stream):
        told = await deliver(stream)
        if stream.missed:
            missed.set()
        return told

    monkeypatch.setattr(SessionStream, "deliver", deliver_and_look)
    book = await new_book()
    await client.result("resources/subscribe", {"uri": uri_of(book)})
    first, second = await client.listen(), await client.listen()
    await first.block()
    await second.block()
    await save(book)
    assert (await first.message())["params"]["uri"] == uri_of(book)
    # The other one has had its turn, in which it does not tell of the change.
    await asyncio.wait_for(missed.wait(), 20)
    sent = second.exchange.communicator.output_queue
    assert {(await second.exchange.next())["body"] for _ in range(sent.qsize())} == {ServerSentEvent.KEEP_ALIVE}
    await first.close()
    # It has missed something meanwhile, so it is told of everything.
    async with asyncio.timeout(20):
        methods = {(await second.message())["method"] for _ in range(4)}
    assert UPDATED in methods
    assert "notifications/tools/list_changed" in methods
    await second.close()


async def test_202_a_stream_that_comes_back_is_told_what_it_may_have_missed(client):
    book = await new_book()
    await client.result("resources/subscribe", {"uri": uri_of(book)})
    stream = await client.listen()
    await stream.block()
    await stream.close()
    await save(book)
    again = await client.listen(stream.last_id)
    messages = [await again.message() for _ in range(4)]
    assert {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": uri_of(book)}} in messages
    await again.close()


async def test_99_the_stream_of_a_session_ends_with_it(client):
    stream = await client.listen()
    await stream.block()
    assert await client.end() == 204
    assert await stream.message() is None
    assert (await client.listen()).status == 404


async def test_106_what_is_not_there_for_the_caller_cannot_be_subscribed_to(client):
    assert (await client.error("resources/subscribe", {"uri": "django://testapp/book/99999"}))["code"] == -32002
    assert (await client.error("resources/subscribe", {"uri": "no uri"}))["code"] == -32602
    assert await client.result("resources/unsubscribe", {"uri": "django://testapp/book/99999"}) == {}


async def test_without_a_session_a_get_has_nothing_to_stream(token):
    client = SessionClient(token)
    stream = await client.listen()
    assert (stream.status, stream.headers["allow"]) == (405, "POST, GET, DELETE")
    assert await client.end() == 405


async def test_105_an_action_that_updates_its_queryset_is_told(client):
    book = await new_book()
    await client.result("resources/subscribe", {"uri": uri_of(book)})
    stream = await client.listen()
    await stream.block()
    arguments = {"model": "testapp.book", "action": "publish", "pks": [book.pk]}
    result = await client.result("tools/call", {"name": "run_action", "arguments": arguments})
    assert result["structuredContent"]["done"]
    assert (await stream.message())["params"] == {"uri": uri_of(book)}
    await stream.close()


# Which stream of a session has the messages


async def test_94_the_first_stream_has_the_place_and_keeps_it():
    first, second = Lease("s"), Lease("s")
    assert first.hold()
    assert not second.hold()
    assert first.hold()


async def test_94_the_second_stream_gets_the_place_when_the_first_is_gone():
    first, second = Lease("s"), Lease("s")
    first.hold()
    first.release()
    assert second.hold()
    assert not first.hold()


async def test_a_place_that_is_not_renewed_becomes_free():
    first, second = Lease("s"), Lease("s")
    first.hold()
    cache.delete(first.key)
    assert second.hold()
    first.release()
    assert second.hold()


async def test_a_stream_that_goes_on_elsewhere_takes_its_place_along():
    first, again = Lease("s"), Lease("s")
    first.hold()
    assert again.hold(take_over=True)
    assert not first.hold()


async def test_streams_of_other_sessions_have_places_of_their_own():
    assert Lease("s").hold()
    assert Lease("t").hold()


async def test_209_a_cache_that_is_down_silences_no_stream(monkeypatch, caplog):
    class Down:
        def __getattr__(self, name):
            raise ConnectionError("redis://secret@cache")

    monkeypatch.setattr(event_streams, "cache", Down())
    lease = Lease("s")
    assert lease.hold()
    lease.release()
    assert "ConnectionError" in caplog.text
    assert "secret" not in caplog.text

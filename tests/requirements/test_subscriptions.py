"""What the manifest demands of subscriptions and of news about lists (`requirements/patterns.toml` and others)."""

import asyncio

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth.models import User

from mcp_django import site
from mcp_django.subscriptions.model_signals import notify_list_changed
from mcp_django.transports.http.streamable_http import as_application
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_author, make_book
from tests.protocol_messages import META, MODERN, SERVER_KEY
from tests.session_client import EventStream, SessionClient

pytestmark = pytest.mark.django_db(transaction=True)

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
KINDS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}


async def listen(token, identifier=7, **notifications):
    headers = {"mcp_protocol_version": MODERN, "mcp_method": "subscriptions/listen", "authorization": token}
    exchange = Exchange(as_application(site), http_scope(**headers))
    params = {"notifications": notifications, "_meta": META}
    await exchange.send({"jsonrpc": "2.0", "id": identifier, "method": "subscriptions/listen", "params": params})
    return await EventStream(exchange).start()


def subscription_of(message):
    return message["params"]["_meta"][SUBSCRIPTION]


@database_sync_to_async
def save(row, **values):
    for name, value in values.items():
        setattr(row, name, value)
    row.save()


@database_sync_to_async
def tell_lists(*kinds):
    notify_list_changed(*kinds)


async def news(stream, change):
    """The next message. A stream that has begun may hear of changes a moment later, so there is more than one."""
    reading = asyncio.ensure_future(stream.message(30))
    for number in range(50):
        await change(number)
        done, _ = await asyncio.wait([reading], timeout=0.2)
        if done:
            return reading.result()
    raise AssertionError("nothing was told")


def uri_of(row):
    return f"django://testapp/{row._meta.model_name}/{row.pk}"


async def test_the_acknowledgement_comes_first_and_names_what_is_honoured(token):
    author = await database_sync_to_async(make_author)("Ada")
    unknown = "django://testapp/author/999999"
    stream = await listen(
        token, "first", toolsListChanged=True, promptsListChanged=False, resourceSubscriptions=[uri_of(author), unknown]
    )
    first = await stream.message()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert subscription_of(first) == "first"
    assert first["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": [uri_of(author)]}
    await save(author, name="Grace")
    second = await stream.message()
    assert (second["method"], second["params"]["uri"]) == ("notifications/resources/updated", uri_of(author))
    await stream.close()


@pytest.mark.parametrize("wanted", KINDS)
async def test_kinds_that_were_not_asked_for_are_not_sent(token, wanted):
    author, book = await database_sync_to_async(make_author)("Ada"), await database_sync_to_async(make_book)()
    stream = await listen(token, **{wanted: True}, resourceSubscriptions=[uri_of(author)])
    assert (await stream.message())["params"]["notifications"].keys() == {wanted, "resourceSubscriptions"}
    await tell_lists(*(kind for name, kind in KINDS.items() if name != wanted))
    await save(book, title="Changed")
    await save(author, name="Grace")
    await tell_lists(KINDS[wanted])
    told: dict[str, set[str]] = {}
    while f"notifications/{KINDS[wanted]}/list_changed" not in told or "notifications/resources/updated" not in told:
        message = await stream.message()
        told.setdefault(message["method"], set()).add(message["params"].get("uri", ""))
    assert told == {
        f"notifications/{KINDS[wanted]}/list_changed": {""},
        "notifications/resources/updated": {uri_of(author)},
    }
    await stream.close()


async def test_every_message_of_a_stream_names_its_subscription(token):
    author = await database_sync_to_async(make_author)("Ada")
    streams = {
        identifier: await listen(token, identifier, toolsListChanged=True, resourceSubscriptions=[uri_of(author)])
        for identifier in (1, "two")
    }
    await tell_lists("tools")
    await save(author, name="Grace")
    news = {"notifications/tools/list_changed", "notifications/resources/updated"}
    for identifier, stream in streams.items():
        found = [await stream.message()]
        assert found[0]["method"] == "notifications/subscriptions/acknowledged"
        while not news <= {message["method"] for message in found}:
            found.append(await stream.message())
        assert {subscription_of(message) for message in found} == {identifier}
        await stream.close()


async def test_a_subscription_that_the_server_ends_is_answered_first(token):
    stream = await listen(token, 11, toolsListChanged=True)
    assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
    await database_sync_to_async(User.objects.update)(is_active=False)
    found = []
    while (message := await stream.message(timeout=15)) is not None:
        found.append(message)
    answer = found[-1]
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 11)
    assert answer["result"]["resultType"] == "complete"
    assert answer["result"]["_meta"][SUBSCRIPTION] == 11
    assert answer["result"]["_meta"][SERVER_KEY]["name"] == "django"
    # Nothing but the end of this very stream is ever cancelled by the server.
    assert all(message["params"]["requestId"] == 11 for message in found[:-1])
    assert {message["method"] for message in found[:-1]} <= {"notifications/cancelled"}


@pytest.mark.parametrize("kind", sorted(KINDS.values()))
async def test_who_asked_for_it_is_told_that_a_list_changed(token, kind):
    client = SessionClient(token)
    await client.initialize()
    older = await client.listen()
    newer = await listen(token, **{name: True for name, listed in KINDS.items() if listed == kind})
    assert (await newer.message())["method"] == "notifications/subscriptions/acknowledged"
    for stream in (older, newer):
        assert (await news(stream, lambda _: tell_lists(kind)))["method"] == f"notifications/{kind}/list_changed"
        await stream.close()


async def test_a_session_is_told_of_what_it_subscribed_to_and_of_nothing_else(token):
    first, second = await database_sync_to_async(make_author)("Ada"), await database_sync_to_async(make_author)("Grace")
    client = SessionClient(token)
    await client.initialize()
    await client.result("resources/subscribe", {"uri": uri_of(first)})
    await client.result("resources/subscribe", {"uri": uri_of(second)})
    await client.result("resources/unsubscribe", {"uri": uri_of(second)})
    stream = await client.listen()

    async def change(number):
        await save(second, name=f"Joan {number}")
        await save(first, name=f"Joan {number}")

    assert (await news(stream, change))["params"] == {"uri": uri_of(first)}
    await client.end()
    assert all(message["params"] == {"uri": uri_of(first)} for message in await stream.rest())

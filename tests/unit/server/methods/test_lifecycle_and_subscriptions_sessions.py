"""What a session is asked to remember."""

import pytest
from asgiref.sync import sync_to_async

from mcp_django.models import Session
from mcp_django.testing import MCPClient, MCPError
from tests.configured import configured
from tests.factories import make_book, make_superuser, make_user
from tests.session_client import SessionClient

pytestmark = pytest.mark.django_db(transaction=True)
MCP = {"BASE_URL": "http://testserver"}


@pytest.fixture
async def client(token):
    found = SessionClient(token)
    await found.initialize()
    return found


@sync_to_async
def uri_of_a_book():
    return f"django://testapp/book/{make_book().pk}"


async def uris():
    return (await Session.objects.aget()).uris


async def test_a_subscription_is_remembered_once_and_in_order(client):
    first, second = await uri_of_a_book(), await uri_of_a_book()
    for uri in (first, second, first):
        assert await client.result("resources/subscribe", {"uri": uri}) == {}
    assert await uris() == [first, second]
    assert await client.result("resources/unsubscribe", {"uri": first}) == {}
    assert await uris() == [second]


async def test_pages_and_schemas_can_be_subscribed_to(client):
    for uri in ("django://testapp/book", "django://testapp/book?search=x", "django://testapp/book/schema"):
        assert await client.result("resources/subscribe", {"uri": uri}) == {}


async def test_121_a_resource_that_is_not_the_callers_is_not_there(transactional_db):
    uri = await uri_of_a_book()

    @sync_to_async
    def sign_in():
        return MCPClient(make_user("nobody")).headers["Authorization"]

    client = SessionClient(await sign_in())
    await client.initialize()
    hidden = await client.error("resources/subscribe", {"uri": uri})
    missing = await client.error("resources/subscribe", {"uri": "django://testapp/book/99999"})
    assert hidden["code"] == missing["code"] == -32002
    assert hidden["message"] == missing["message"]
    assert not await Session.objects.aexists()


async def test_106_a_session_has_so_many_subscriptions_and_no_more(client):
    with configured(MAX_SUBSCRIPTIONS=1):
        await client.result("resources/subscribe", {"uri": await uri_of_a_book()})
        assert (await client.error("resources/subscribe", {"uri": await uri_of_a_book()}))["code"] == -32602
    assert len(await uris()) == 1


async def test_the_log_level_is_remembered(client):
    assert await client.result("logging/setLevel", {"level": "warning"}) == {}
    assert (await Session.objects.aget()).log_level == "warning"


async def test_67_a_level_that_is_none_is_refused(client):
    for level in ("loud", "", 7, None):
        assert (await client.error("logging/setLevel", {"level": level}))["code"] == -32602
    assert not await Session.objects.aexists()


def test_without_a_session_a_level_is_taken_and_a_subscription_is_not():
    client = MCPClient(make_superuser(), version="2025-11-25")
    assert client.request("logging/setLevel", level="info") == {}
    for method in ("resources/subscribe", "resources/unsubscribe"):
        with pytest.raises(MCPError, match="needs a session") as caught:
            client.request(method, uri="django://testapp/book")
        assert (caught.value.status, caught.value.code) == (200, -32602)


def test_58_the_newer_era_has_none_of_these_methods():
    client = MCPClient(make_superuser())
    for method, params in (("logging/setLevel", {"level": "info"}), ("resources/subscribe", {"uri": "a:b"})):
        with pytest.raises(MCPError) as caught:
            client.request(method, **params)
        assert (caught.value.status, caught.value.code) == (404, -32601)

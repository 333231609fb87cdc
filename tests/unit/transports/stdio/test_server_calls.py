import pytest
from django.contrib.auth import get_user_model

from mcp_django.subscriptions.bus import bus
from mcp_django.subscriptions.model_signals import notify_list_changed
from tests.configured import configured
from tests.factories import make_book, make_superuser
from tests.stdio_client import Gate, in_thread, talk, tool

pytestmark = pytest.mark.django_db(transaction=True)

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture
def gate(tools):
    gate = Gate()
    tools(gate.wait, name="gate")
    yield gate
    gate.release.set()


# Running


@pytest.mark.parametrize("modern", [False, True])
async def test_a_cancelled_call_is_stopped_and_not_answered(gate, modern):
    async with talk() as client:
        await client.begin()
        ask = client.ask_modern if modern else client.ask
        slow = ask("tools/call", tool("gate"))
        await gate.until_begun()
        client.tell("notifications/cancelled", requestId=slow, reason="no more")
        assert await client.call("ping") == {}
        client.leave()
        assert await client.rest() == []
    # The work was stopped at its next report and did not come to its end.
    assert not gate.ended.is_set()


async def test_progress_and_log_messages_are_told_between_the_answers(tools):
    def chatty(request):
        request.mcp.progress(1, 2, "half")
        request.mcp.log("warning", "careful", logger="shop")
        request.mcp.log("debug", "too much")
        request.mcp.progress(2, 2)
        return "done"

    tools(chatty)
    call = {**tool("chatty"), "_meta": {"progressToken": "p"}}
    async with talk() as client:
        await client.begin()
        await client.call("logging/setLevel", {"level": "info"})
        legacy = client.ask("tools/call", call)
        told = [await client.receive() for _ in range(4)]
        assert [item.get("method") for item in told] == [
            "notifications/progress",
            "notifications/message",
            "notifications/progress",
            None,
        ]
        assert told[0]["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "half"}
        assert told[1]["params"] == {"level": "warning", "logger": "shop", "data": "careful"}
        assert told[3]["id"] == legacy
        modern = client.ask_modern("tools/call", tool("chatty"), **{"io.modelcontextprotocol/logLevel": "debug"})
        told = [await client.receive() for _ in range(3)]
        assert [item.get("params", {}).get("level") for item in told] == ["warning", "debug", None]
        assert told[2]["id"] == modern


# Questions to the client


@pytest.fixture
def asking(tools):
    runs = []

    def ask(request):
        runs.append(1)
        name = request.mcp.ask("Who are you?", str, key="name")
        return f"{name} is {request.mcp.ask('How old?', int, key='age')}"

    tools(ask)
    return runs


async def test_a_question_is_a_request_and_the_call_goes_on_with_the_answer(asking):
    async with talk() as client:
        await client.begin(elicitation={})
        call = client.ask("tools/call", tool("ask"))
        for name, value in (("name", "Ada"), ("age", 36)):
            question = await client.receive()
            assert question["method"] == "elicitation/create"
            (field,) = question["params"]["requestedSchema"]["properties"]
            content = {field: value}
            client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": content}})
            assert name
        assert (await client.answer(call))["result"]["content"][0]["text"] == "Ada is 36"
        assert len(asking) == 3


@pytest.mark.parametrize("response", [{"result": {"action": "decline"}}, {"error": {"code": -1, "message": "no"}}])
async def test_a_question_may_be_declined_or_fail(asking, response):
    async with talk() as client:
        await client.begin(elicitation={})
        call = client.ask("tools/call", tool("ask"))
        question = await client.receive()
        client.send({"jsonrpc": "2.0", "id": question["id"], **response})
        assert (await client.answer(call))["result"]["isError"]


async def test_a_question_that_nobody_answers_is_taken_back(asking):
    with configured(QUESTION_TIMEOUT=0.2):
        async with talk() as client:
            await client.begin(elicitation={})
            call = client.ask("tools/call", tool("ask"))
            question = await client.receive()
            answer = await client.answer(call)
            assert "not answered in time" in answer["error"]["message"]
            taken_back = await client.receive()
            assert taken_back["method"] == "notifications/cancelled"
            assert taken_back["params"]["requestId"] == question["id"]
            client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}})
            assert await client.call("ping") == {}


async def test_a_call_that_asks_can_be_cancelled(asking):
    async with talk() as client:
        await client.begin(elicitation={})
        call = client.ask("tools/call", tool("ask"))
        question = await client.receive()
        client.tell("notifications/cancelled", requestId=call)
        taken_back = await client.receive()
        assert taken_back["params"]["requestId"] == question["id"]
        client.leave()
        assert await client.rest() == []


async def test_in_the_modern_era_a_question_is_a_result(asking):
    async with talk() as client:
        asked = await client.call_modern("tools/call", tool("ask"), capabilities={"elicitation": {"form": {}}})
        assert asked["resultType"] == "input_required"
        ((key, question),) = asked["inputRequests"].items()
        (field,) = question["params"]["requestedSchema"]["properties"]
        again = {
            **tool("ask"),
            "inputResponses": {key: {"action": "accept", "content": {field: "Ada"}}},
            "requestState": asked["requestState"],
        }
        asked = await client.call_modern("tools/call", again, capabilities={"elicitation": {"form": {}}})
        assert list(asked["inputRequests"]) == ["age"]


async def test_the_users_authority_is_asked_again_when_the_answer_comes(asking):
    user = await in_thread(make_superuser)()
    async with talk(user) as client:
        await client.begin(elicitation={})
        call = client.ask("tools/call", tool("ask"))
        question = await client.receive()
        await in_thread(get_user_model().objects.filter(pk=user.pk).update)(is_active=False)
        client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        assert "can no longer sign in" in (await client.answer(call))["error"]["message"]


# Changes


async def known_book(title=None):
    """Make a book whose making has been told: nobody who subscribes now hears of it."""
    book = await in_thread(make_book)(title)
    await in_thread(bus.close)()
    return book


async def test_a_session_is_told_of_what_it_subscribed_to_and_of_lists():
    book = await known_book("Old")
    uri = f"django://testapp/book/{book.pk}"
    async with talk() as client:
        found = await client.begin()
        assert found["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
        await client.call("resources/subscribe", {"uri": uri})
        # Subscribed while the stream is open as well as before.
        book.title = "New"
        await in_thread(book.save)()
        told = await client.receive()
        assert told == {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
        await client.call("resources/unsubscribe", {"uri": uri})
        await in_thread(book.save)()
        await in_thread(notify_list_changed)("tools")
        assert (await client.receive())["method"] == "notifications/tools/list_changed"


async def test_subscribing_many_at_once_loses_none():
    books = [await in_thread(make_book)() for _ in range(12)]
    async with talk() as client:
        await client.begin()
        asked = [client.ask("resources/subscribe", {"uri": f"django://testapp/book/{book.pk}"}) for book in books]
        assert all(["result" in await client.answer(identifier) for identifier in asked])
        assert len(client.server.session.uris) == len(books)


async def test_listening_is_acknowledged_told_and_cancelled():
    book = await known_book()
    uri = f"django://testapp/book/{book.pk}"
    async with talk() as client:
        one = client.ask_modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri, "x:gone"]}})
        acknowledged = await client.receive()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["_meta"][SUBSCRIPTION] == one
        assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": [uri]}
        two = client.ask_modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
        assert (await client.receive())["params"]["_meta"][SUBSCRIPTION] == two
        await in_thread(book.save)()
        told = [await client.receive(), await client.receive()]
        assert {item["params"]["_meta"][SUBSCRIPTION] for item in told} == {one, two}
        assert {item["params"]["uri"] for item in told} == {uri}
        client.tell("notifications/cancelled", requestId=one)
        assert await client.call("ping") == {}
        await in_thread(book.save)()
        assert (await client.receive())["params"]["_meta"][SUBSCRIPTION] == two
        client.leave()
        *told, end = await client.rest()
        assert {item["params"]["_meta"][SUBSCRIPTION] for item in told} <= {two}
        assert (end["id"], end["result"]["resultType"]) == (two, "complete")
        assert end["result"]["_meta"][SUBSCRIPTION] == two


async def test_a_filter_that_cannot_be_had_is_an_error():
    async with talk() as client:
        answer = await client.answer(
            client.ask_modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["no uri"]}})
        )
        assert answer["error"]["code"] == -32602


async def test_streams_over_the_limit_are_refused():
    with configured(MAX_STREAMS=1):
        async with talk() as client:
            listening = {"notifications": {"toolsListChanged": True}}
            client.ask_modern("subscriptions/listen", listening)
            assert (await client.receive())["method"] == "notifications/subscriptions/acknowledged"
            refused = await client.answer(client.ask_modern("subscriptions/listen", listening))
            assert "error" in refused

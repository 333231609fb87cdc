"""What the manifest demands of requests that a server makes of its client, in the revisions that have them."""

import asyncio

import pytest

from tests.configured import configured
from tests.session_client import SessionClient

pytestmark = pytest.mark.django_db(transaction=True)

EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
ANSWERS = {
    "elicitation/create": {"action": "accept", "content": {"value": "red"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///home/ada"}]},
}
MCP = {"BASE_URL": "http://testserver"}
KINDS = {"elicitation/create": "2025-06-18", "sampling/createMessage": "2024-11-05", "roots/list": "2024-11-05"}


@pytest.fixture
def asking(tools):
    """Tools that ask in each way."""

    def paint(request) -> str:
        """Paint."""
        return request.mcp.ask("Which colour?", str, key="value")

    def travel(request) -> str:
        """Travel."""
        return request.mcp.sample("Where to?", key="town").text

    def look(request) -> str:
        """Look."""
        return request.mcp.roots(key="home")[0].uri

    for function in (paint, travel, look):
        tools(function, read_only=True)
    return {"elicitation/create": "paint", "sampling/createMessage": "travel", "roots/list": "look"}


async def begin(token, version="2025-11-25", capabilities=EVERYTHING):
    client = SessionClient(token, version=version, capabilities=capabilities)
    await client.initialize()
    return client


async def ask(client, tool):
    """The stream of a call and the question on it."""
    stream = await client.call(tool)
    return stream, await stream.message()


async def test_each_question_has_an_id_that_was_not_used_before(token, asking):
    client = await begin(token)
    used = []
    for method, tool in [*asking.items(), *asking.items()]:
        stream, question = await ask(client, tool)
        assert question["method"] == method
        assert isinstance(question["id"], str)
        used.append(question["id"])
        await client.answer(question["id"], ANSWERS[method])
        [answer] = await stream.rest()
        assert answer["result"]["content"][0]["text"] in ("red", "Paris", "file:///home/ada")
    assert len(set(used)) == len(used) == 6


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("missing", KINDS)
async def test_a_client_is_asked_only_what_it_declared_and_its_revision_knows(token, asking, version, missing):
    capability = missing.partition("/")[0]
    client = await begin(token, version, {name: value for name, value in EVERYTHING.items() if name != capability})
    for method, tool in asking.items():
        allowed = method != missing and version >= KINDS[method]
        stream = await client.call(tool)
        if stream.headers["content-type"] == "application/json":
            assert not allowed
            await stream.close()
            continue
        message = await stream.message()
        assert (message.get("method") == method) is allowed, message
        if allowed:
            await client.answer(message["id"], ANSWERS[method])
            assert "result" in (await stream.rest())[-1]
        else:
            assert "method" not in message


async def test_a_question_belongs_to_the_session_that_was_asked(token, asking):
    client, stranger = await begin(token), await begin(token)
    stream, question = await ask(client, "paint")
    await stranger.answer(question["id"], ANSWERS["elicitation/create"])
    await client.answer("made-up", ANSWERS["elicitation/create"])
    await client.answer(question["id"], {"action": "accept", "content": {"value": "blue"}})
    [answer] = await stream.rest()
    assert answer["result"]["content"][0]["text"] == "blue"


async def test_an_error_of_the_client_is_coped_with(token, asking):
    client = await begin(token)
    for tool in asking.values():
        stream, question = await ask(client, tool)
        error = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "secret words"}}
        assert (await client.post(error))[0] == 202
        [answer] = await stream.rest()
        assert "secret" not in str(answer)
        assert answer["result"]["isError"] is True


async def test_an_answer_that_does_not_fit_is_asked_for_again_under_a_new_id(token, tools):
    def count(request) -> str:
        """Count."""
        return str(request.mcp.ask("How many?", int, key="value"))

    tools(count, read_only=True)
    client = await begin(token)
    stream, question = await ask(client, "count")
    await client.answer(question["id"], {"action": "accept", "content": {"value": "many"}})
    again = await stream.message()
    assert (again["method"], again["id"] != question["id"]) == ("elicitation/create", True)
    await client.answer(again["id"], {"action": "accept", "content": {"value": 3}})
    [answer] = await stream.rest()
    assert answer["result"]["content"][0]["text"] == "3"


@configured(QUESTION_TIMEOUT=0)
async def test_a_question_that_is_not_answered_in_time_is_cancelled(token, asking):
    client = await begin(token)
    stream, question = await ask(client, "paint")
    *told, answer = await stream.rest()
    assert answer["error"]["code"] == -32603
    assert [message["method"] for message in told] == ["notifications/cancelled"]
    assert told[0]["params"]["requestId"] == question["id"]


@configured(QUESTION_TIMEOUT=0)
async def test_an_answer_that_comes_too_late_is_ignored(token, asking):
    client = await begin(token)
    stream, question = await ask(client, "paint")
    assert (await stream.rest())[-1]["error"]["code"] == -32603
    await client.answer(question["id"], ANSWERS["elicitation/create"])
    again = await client.listen(stream.last_id)
    assert await again.rest() == []


# Cancellation by the client


async def test_a_cancellation_that_comes_too_late_changes_nothing(token, tools):
    async def report(request) -> str:
        """Report."""
        request.mcp.progress(1, 1)
        return "reported"

    tools(report, read_only=True)
    client = await begin(token)
    stream = await client.call("report", progress="p")
    first = (await stream.block())["id"]
    told = await stream.rest()
    assert told[-1]["result"]["content"][0]["text"] == "reported"
    await client.notify("notifications/cancelled", {"requestId": told[-1]["id"]})
    again = await client.listen(first)
    assert await again.rest() == told
    assert await client.result("ping") == {}


async def test_one_caller_cannot_cancel_the_calls_of_another_session(token, tools):
    begun, release = asyncio.Event(), asyncio.Event()

    async def wait(request) -> str:
        """Wait."""
        request.mcp.progress(1, 2)
        begun.set()
        await release.wait()
        return "waited"

    tools(wait, read_only=True)
    client, stranger = await begin(token), await begin(token)
    stream = await client.call("wait", progress="p")
    await asyncio.wait_for(begun.wait(), 20)
    await stranger.notify("notifications/cancelled", {"requestId": next(client.ids) - 1})
    release.set()
    assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "waited"

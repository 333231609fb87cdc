"""Calls on their own connection, as JSON or as a stream; calls of a session, on streams that outlive connections."""

import asyncio
import json
import threading
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.db import OperationalError
from django.test import override_settings
from django.utils import timezone

import mcp_django as mcp
from mcp_django import site
from mcp_django.models import Stream, StreamEvent
from mcp_django.server.stored_streams import SessionStreams, StoredStream
from mcp_django.transports.http import asgi_consumer, call_runners, streamable_http
from tests.asgi_client import PATIENCE, Waiting, events, http_scope
from tests.configured import configured
from tests.session_client import ELICITATION, SessionClient
from tests.unit.transports.http.test_streamable_http_consumer import MCP, calling, exchange

pytestmark = pytest.mark.django_db(transaction=True)


async def test_R5_progress_opens_a_stream_that_ends_with_the_answer(token, tools):
    def count(request) -> str:
        """Count."""
        for done in (1, 2, 3):
            threading.Event().wait(0.03)
            request.mcp.progress(done, 3)
        return "counted"

    tools(count, read_only=True)
    body, headers = calling("count", progress="p")
    asked = exchange(token, **headers)
    await asked.send(body)
    status, headers, stream = await asked.answer()
    found = events(stream)
    assert (status, headers["content-type"], headers["x-accel-buffering"]) == (200, "text/event-stream", "no")
    assert [item["params"]["progress"] for item in found[:-1]] == [1, 2, 3]
    assert {item["params"]["progressToken"] for item in found[:-1]} == {"p"}
    assert found[-1]["result"]["content"][0]["text"] == "counted"


def gone_when_cancelled(application):
    """An application under a server that takes a cancelled `receive` for a client that is gone, as gunicorn does."""

    async def served(scope, receive, send):
        is_gone = False

        async def receive_once():
            nonlocal is_gone
            if is_gone:
                return {"type": "http.disconnect"}
            try:
                return await receive()
            except asyncio.CancelledError:
                is_gone = True
                raise

        await application(scope, receive_once, send)

    return served


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("quiet_for", [0, 0.1], ids=["quick", "slow-to-begin"])
async def test_a_server_for_which_a_cancelled_receive_is_a_disconnect_gets_the_whole_answer(
    token, tools, monkeypatch, version, quiet_for
):
    monkeypatch.setattr(asgi_consumer, "WATCH_AFTER", 0.01)

    def count(request) -> str:
        """Count."""
        threading.Event().wait(quiet_for)
        for done in (1, 2):
            threading.Event().wait(0.03)
            request.mcp.progress(done, 2)
        return "counted"

    tools(count, read_only=True)
    application = gone_when_cancelled(streamable_http.as_application(site))
    client = SessionClient(token, version=version, application=application)
    await client.initialize()
    *told, answer = await (await client.call("count", progress="p")).rest()
    assert [item["params"]["progress"] for item in told] == [1, 2]
    assert answer["result"]["content"][0]["text"] == "counted"


async def test_R5_without_a_progress_token_the_answer_is_json(token, tools):
    def count(request) -> str:
        """Count."""
        request.mcp.progress(1, 1)
        return "counted"

    tools(count, read_only=True)
    body, headers = calling("count")
    asked = exchange(token, **headers)
    await asked.send(body)
    assert (await asked.answer())[1]["content-type"] == "application/json"


async def test_C50_a_quiet_call_becomes_a_stream_that_is_kept_alive(token, tools, monkeypatch):
    monkeypatch.setattr(call_runners, "STREAM_AFTER", 0.02)
    monkeypatch.setattr(call_runners, "KEEP_ALIVE_EVERY", 0.02)

    async def wait(request) -> str:
        """Wait."""
        await asyncio.sleep(0.2)
        return "waited"

    tools(wait, read_only=True)
    body, headers = calling("wait")
    asked = exchange(token, **headers)
    await asked.send(body)
    _, headers, stream = await asked.answer()
    assert headers["content-type"] == "text/event-stream"
    assert stream.startswith(b":\n:\n")
    assert events(stream)[-1]["result"]["content"][0]["text"] == "waited"


async def test_C46_closing_the_connection_cancels_a_modern_call_of_an_async_tool(token, tools):
    waiting = Waiting(tools)
    body, headers = calling("wait", "2026-07-28")
    asked = exchange(token, **headers)
    await asked.send(body)
    await asyncio.wait_for(waiting.begun.wait(), PATIENCE)
    await asked.disconnect()
    await asyncio.wait_for(waiting.ended.wait(), PATIENCE)
    await asked.over()
    assert await asked.communicator.receive_nothing()


async def test_C46_closing_the_connection_stops_a_modern_call_in_a_thread_at_its_next_report(token, tools):
    begun, ended = threading.Event(), threading.Event()

    def work(request) -> str:
        """Work."""
        begun.set()
        try:
            for done in range(1_000):
                ended.wait(0.02)
                request.mcp.progress(done)
        except BaseException:
            ended.set()
            raise
        return "worked"

    tools(work, read_only=True)
    body, headers = calling("work", "2026-07-28")
    asked = exchange(token, **headers)
    await asked.send(body)
    assert await sync_to_async(begun.wait, thread_sensitive=False)(PATIENCE)
    await asked.disconnect()
    assert await sync_to_async(ended.wait, thread_sensitive=False)(PATIENCE)
    await asked.over()


async def test_C47_a_legacy_call_goes_on_when_its_connection_drops(token, tools):
    begun, release, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait(request) -> str:
        """Wait."""
        begun.set()
        await release.wait()
        finished.set()
        return "waited"

    tools(wait, read_only=True)
    body, headers = calling("wait")
    asked = exchange(token, **headers)
    await asked.send(body)
    await asyncio.wait_for(begun.wait(), PATIENCE)
    await asked.disconnect()
    await asyncio.sleep(0)
    release.set()
    await asyncio.wait_for(finished.wait(), PATIENCE)
    await asked.over()


@override_settings(MCP_DJANGO=MCP | {"CALL_TIMEOUT": 0.05})
async def test_H154_a_call_over_its_time_is_stopped_and_said_to_be(token, tools):
    Waiting(tools)
    body, headers = calling("wait")
    asked = exchange(token, **headers)
    await asked.send(body)
    message = json.loads((await asked.answer())[2])
    assert message["error"]["code"] == -32603
    assert "took longer" in message["error"]["message"]


async def test_V4_a_client_that_reads_nothing_is_given_up(token, tools, monkeypatch):
    monkeypatch.setattr(asgi_consumer, "WRITE_TIMEOUT", 0.05)
    monkeypatch.setattr(call_runners, "STREAM_AFTER", 0.01)
    waiting = Waiting(tools)
    body, headers = calling("wait")
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive():
        return messages.pop() if messages else await asyncio.get_running_loop().create_future()

    async def send(message):
        await asyncio.get_running_loop().create_future()

    scope = http_scope(authorization=token, **headers)
    await asyncio.wait_for(streamable_http.as_application(site)(scope, receive, send), 5)
    await asyncio.wait_for(waiting.ended.wait(), PATIENCE)


async def test_A4_a_stream_lets_an_allowed_page_have_it(token, tools):
    async def count(request) -> str:
        """Count."""
        request.mcp.progress(1, 1)
        return "counted"

    tools(count, read_only=True)
    body, headers = calling("count", progress="p")
    asked = exchange(token, origin="http://testserver", **headers)
    await asked.send(body)
    _, headers, _ = await asked.answer()
    assert headers["content-type"] == "text/event-stream"
    assert headers["access-control-allow-origin"] == "http://testserver"


async def test_56_what_fails_after_the_head_is_out_is_an_error_event_and_the_end(token):
    from mcp_django import site

    def fails(request) -> str:
        """Fails."""
        request.mcp.progress(1)
        raise RuntimeError("secret")

    site.add_prompt(fails)
    try:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "prompts/get",
            "params": {"name": "fails", "_meta": {"progressToken": "p"}},
        }
        asked = exchange(token, mcp_protocol_version="2025-11-25")
        await asked.send(body)
        _, headers, stream = await asked.answer()
    finally:
        site.remove_prompt("fails")
    assert headers["content-type"] == "text/event-stream"
    progress, error = events(stream)
    assert (progress["method"], error["id"], error["error"]["code"]) == ("notifications/progress", 1, -32603)
    assert b"secret" not in stream


# Of a session


@pytest.fixture
async def client(token):
    found = SessionClient(token, capabilities=ELICITATION)
    await found.initialize()
    return found


async def wait_for(condition):
    async with asyncio.timeout(PATIENCE):
        while not await database_sync_to_async(condition, thread_sensitive=False)():
            await asyncio.sleep(0.01)


async def test_a_client_is_given_a_session(client):
    assert client.session


async def test_an_answer_that_is_ready_stays_json(client, tools):
    @tools
    def quick(request) -> str:
        """Quick."""
        return "done"

    status, headers, _ = await client.send("tools/call", {"name": "quick", "arguments": {}})
    assert (status, headers["content-type"]) == (200, "application/json")


async def test_progress_opens_a_stream_that_is_primed_and_numbered(client, tools):
    @tools
    def slow(request) -> str:
        """Slow."""
        request.mcp.progress(1, 2)
        request.mcp.progress(2, 2)
        return "done"

    stream = await client.call("slow", progress="p")
    assert stream.headers["content-type"] == "text/event-stream"
    first = await stream.block()
    assert (first["data"], stream.retry) == ("", "500")
    assert stream.last_id.endswith(".0")
    messages = await stream.rest()
    assert [message.get("method") for message in messages] == ["notifications/progress"] * 2 + [None]
    assert messages[-1]["result"]["content"][0]["text"] == "done"
    assert stream.last_id.endswith(".3")


async def test_older_clients_get_no_event_without_data(token, tools):
    @tools
    def slow(request) -> str:
        """Slow."""
        request.mcp.progress(1)
        return "done"

    client = SessionClient(token, version="2025-06-18")
    await client.initialize()
    stream = await client.call("slow", progress="p")
    assert json.loads((await stream.block())["data"])["method"] == "notifications/progress"


async def test_47_a_dropped_connection_does_not_cancel_and_the_rest_is_replayed(client, tools):
    release, finished = threading.Event(), threading.Event()

    @tools
    def slow(request) -> str:
        """Slow."""
        request.mcp.progress(1, 2)
        release.wait(5)
        request.mcp.progress(2, 2)
        finished.set()
        return "done"

    stream = await client.call("slow", progress="p")
    assert (await stream.message())["params"]["progress"] == 1
    await stream.close()
    release.set()
    await wait_for(lambda: finished.is_set())
    again = await client.listen(stream.last_id)
    assert again.status == 200
    messages = await again.rest()
    assert [message.get("method") for message in messages] == ["notifications/progress", None]
    assert messages[-1]["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("last", ["x", "-1", "a.b", "{stream}.-1", "{stream}.99999999999", "nothing.1", "{stream}"])
async def test_93_an_event_id_that_was_never_given_replays_nothing(client, tools, last):
    @tools
    def slow(request) -> str:
        """Slow."""
        request.mcp.progress(1)
        return "done"

    stream = await client.call("slow", progress="p")
    await stream.rest()
    again = await client.listen(last.format(stream=stream.last_id.split(".")[0]))
    assert again.status == 400


async def test_93_a_stream_is_replayed_to_its_own_session_alone(client, token, tools):
    @tools
    def slow(request) -> str:
        """Slow."""
        request.mcp.progress(1)
        return "secret"

    stream = await client.call("slow", progress="p")
    await stream.rest()
    other = SessionClient(token)
    await other.initialize()
    assert (await other.listen(stream.last_id)).status == 400
    await client.end()
    assert (await client.listen(stream.last_id)).status == 404


async def test_a_question_is_asked_on_the_stream_and_its_answer_runs_the_call_again(client, tools):
    @tools
    def greet(request) -> str:
        """Greet."""
        return f"Hello {request.mcp.ask('Who are you?', str, key='who')}"

    stream = await client.call("greet")
    request = await stream.message()
    assert request["method"] == "elicitation/create"
    assert request["params"]["message"] == "Who are you?"
    [name] = request["params"]["requestedSchema"]["properties"]
    await client.answer(request["id"], {"action": "accept", "content": {name: "Ann"}})
    [message] = await stream.rest()
    assert message["result"]["content"][0]["text"] == "Hello Ann"


async def test_78_who_declines_ends_the_call_without_effect(client, tools):
    done = []

    @tools
    def drop(request) -> str:
        """Drop."""
        request.mcp.ask("Really?")
        done.append(True)
        return "dropped"

    stream = await client.call("drop")
    request = await stream.message()
    await client.answer(request["id"], {"action": "decline"})
    [message] = await stream.rest()
    assert message["result"]["isError"]
    assert not done


async def test_a_question_of_a_dropped_connection_is_asked_again_where_the_client_resumes(client, tools):
    @tools
    def greet(request) -> str:
        """Greet."""
        return f"Hello {request.mcp.ask('Who?', str, key='who')}"

    stream = await client.call("greet")
    primed = await stream.block()
    request = await stream.message()
    await stream.close()
    again = await client.listen(primed["id"])
    assert (await again.message()) == request
    [name] = request["params"]["requestedSchema"]["properties"]
    await client.answer(request["id"], {"action": "accept", "content": {name: "Ann"}})
    [message] = await again.rest()
    assert message["result"]["content"][0]["text"] == "Hello Ann"


async def test_an_async_tool_asks_too(client, tools):
    @tools
    async def greet(request) -> str:
        """Greet."""
        await asyncio.sleep(0)
        return f"Hello {request.mcp.ask('Who?', str, key='who')}"

    stream = await client.call("greet")
    request = await stream.message()
    [name] = request["params"]["requestedSchema"]["properties"]
    await client.answer(request["id"], {"action": "accept", "content": {name: "Ann"}})
    [message] = await stream.rest()
    assert message["result"]["content"][0]["text"] == "Hello Ann"


async def test_a_call_is_cancelled_by_its_session(client, tools):
    started, stopped = threading.Event(), threading.Event()

    @tools
    def endless(request) -> str:
        """Endless."""
        started.set()
        try:
            while True:
                request.mcp.progress(0)
                stopped.wait(0.01)
        finally:
            stopped.set()

    stream = await client.call("endless", progress="p")
    await stream.message()
    await client.notify("notifications/cancelled", {"requestId": 2})
    assert [message for message in await stream.rest() if "result" in message or "error" in message] == []
    await wait_for(stopped.is_set)


async def test_a_call_that_waits_for_an_answer_is_cancelled_too(client, tools):
    @tools
    def greet(request) -> str:
        """Greet."""
        return request.mcp.ask("Who?", str)

    stream = await client.call("greet")
    assert (await stream.message())["method"] == "elicitation/create"
    await client.notify("notifications/cancelled", {"requestId": 2})
    assert await stream.rest() == []


async def test_a_tool_may_close_the_stream_and_its_answer_is_fetched_later(client, tools):
    release = threading.Event()

    @tools
    def long(request) -> str:
        """Long."""
        request.mcp.close_stream()
        release.wait(5)
        return "done"

    stream = await client.call("long")
    assert (await stream.block())["data"] == ""
    assert await stream.rest() == []
    release.set()
    again = await client.listen(stream.last_id)
    assert (await again.rest())[-1]["result"]["content"][0]["text"] == "done"


@override_settings(MCP_DJANGO=MCP | {"CALL_TIMEOUT": 0.2})
async def test_a_call_that_takes_too_long_is_answered_so(client, tools):
    release = threading.Event()

    @tools
    def long(request) -> str:
        """Long."""
        request.mcp.progress(1)
        release.wait(5)
        return "done"

    stream = await client.call("long", progress="p")
    assert "longer than" in (await stream.rest())[-1]["error"]["message"]
    release.set()


async def test_a_quiet_call_becomes_a_stream_and_its_worker_says_that_it_is_alive(client, tools, monkeypatch):
    monkeypatch.setattr(call_runners, "STREAM_AFTER", 0.02)
    release = threading.Event()

    @tools
    def long(request) -> str:
        """Long."""
        release.wait(5)
        return "done"

    stream = await client.call("long")
    assert (await stream.block())["data"] == ""
    release.set()
    assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "done"


async def test_two_calls_at_once_have_streams_of_their_own(client, tools):
    @tools
    def echo(request, word: str) -> str:
        """Echo."""
        request.mcp.progress(1)
        return word

    streams = [await client.call("echo", progress=word, word=word) for word in ("a", "b")]
    for word, stream in zip("ab", streams, strict=True):
        progress, answer = await stream.rest()
        assert (progress["params"]["progressToken"], answer["result"]["content"][0]["text"]) == (word, word)
    assert await Stream.objects.acount() == 2


async def test_log_messages_come_at_the_level_of_the_session(client, tools):
    @tools
    def talk(request) -> str:
        """Talk."""
        request.mcp.log("debug", "quiet")
        request.mcp.log("warning", {"loud": 1}, "shop")
        return "done"

    assert (await client.send("tools/call", {"name": "talk", "arguments": {}}))[1]["content-type"] == "application/json"
    assert await client.result("logging/setLevel", {"level": "info"}) == {}
    stream = await client.call("talk")
    messages = await stream.rest()
    assert messages[0] == {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "warning", "logger": "shop", "data": {"loud": 1}},
    }
    assert len(messages) == 2


async def test_a_confirmed_action_runs_once(client):
    from tests.factories import make_book

    book = await sync_to_async(make_book)()
    stream = await client.call("delete_record", model="testapp.book", pk=book.pk)
    request = await stream.message()
    assert request["method"] == "elicitation/create"
    await client.answer(request["id"], {"action": "accept", "content": {"_confirm": "yes"}})
    [message] = await stream.rest()
    assert not message["result"].get("isError"), message
    assert not await type(book).objects.filter(pk=book.pk).aexists()
    assert mcp.site is not None


class Outage:
    """A database that fails whoever writes and reads streams, while it lasts."""

    def __init__(self, monkeypatch, *names):

        self.is_on, self.failures = True, 0
        for name in names:
            owner = SessionStreams if name == "open" else StoredStream
            monkeypatch.setattr(owner, name, self.failing(getattr(owner, name)))

    def failing(self, function):
        def fail(*arguments, **options):
            if self.is_on:
                self.failures += 1
                raise OperationalError("host=db password=secret")
            return function(*arguments, **options)

        return fail


async def test_206_a_database_that_cannot_store_a_stream_costs_no_answer(client, tools, monkeypatch):
    monkeypatch.setattr(call_runners, "KEEP_TRYING", 0.2)
    monkeypatch.setattr(call_runners, "TRY_EVERY", 0.05)
    outage = Outage(monkeypatch, "open", "append", "finish", "read")

    @tools
    def slow(request) -> str:
        """Slow."""
        request.mcp.progress(1)
        return "done"

    messages = await (await client.call("slow", progress="p")).rest()
    assert [message.get("method") for message in messages] == ["notifications/progress", None]
    assert messages[-1]["result"]["content"][0]["text"] == "done"
    await wait_for(lambda: outage.failures > 1)
    assert await Stream.objects.acount() == 0


async def test_206_what_was_told_while_the_database_was_away_is_stored_when_it_is_back(client, tools, monkeypatch):
    monkeypatch.setattr(call_runners, "TRY_EVERY", 0.05)
    release = threading.Event()

    @tools
    def slow(request) -> str:
        """Slow."""
        request.mcp.progress(1, 2)
        release.wait(5)
        request.mcp.progress(2, 2)
        return "done"

    stream = await client.call("slow", progress="p")
    await stream.message()
    primed = stream.last_id.replace(".1", ".0")
    outage = Outage(monkeypatch, "append", "finish", "keep_alive")
    release.set()
    assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "done"
    await wait_for(lambda: outage.failures > 2)
    outage.is_on = False
    await wait_for(lambda: Stream.objects.get().state == "done")
    messages = await (await client.listen(primed)).rest()
    assert [message.get("params", {}).get("progress") for message in messages] == [1, 2, None]
    assert messages[-1]["result"]["content"][0]["text"] == "done"


async def test_206_a_question_waits_for_the_database(client, tools, monkeypatch):
    monkeypatch.setattr(call_runners, "TRY_EVERY", 0.05)
    outage = Outage(monkeypatch, "ask")

    @tools
    def greet(request) -> str:
        """Greet."""
        return f"Hello {request.mcp.ask('Who are you?', str, key='who')}"

    stream = await client.call("greet")
    await wait_for(lambda: outage.failures > 2)
    outage.is_on = False
    request = await stream.message()
    [name] = request["params"]["requestedSchema"]["properties"]
    await client.answer(request["id"], {"action": "accept", "content": {name: "Ann"}})
    assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "Hello Ann"


async def test_a_call_that_was_taken_for_dead_is_stopped_and_says_nothing_more(client, tools, monkeypatch):
    """Its process stood still, another worker told the client that it was interrupted, and now it goes on."""
    monkeypatch.setattr(StoredStream, "has_one_writer", lambda: False)
    monkeypatch.setattr(StoredStream, "keep_alive", lambda stream_ids: None)
    release, stopped, stores = threading.Event(), threading.Event(), threading.Event()

    @tools
    def long(request) -> str:
        """Long."""
        request.mcp.progress(1)
        release.wait(5)
        for number in range(2, 200):
            stores.wait(0.03)
            try:
                request.mcp.progress(number)
            except BaseException:
                stopped.set()
                raise
        return "done"

    stream = await client.call("long", progress="p")
    await stream.message()
    stream_id = stream.last_id.split(".")[0]
    await Stream.objects.aupdate(alive=timezone.now() - timedelta(seconds=600))
    found = await sync_to_async(StoredStream(stream_id).read)(1, end_if_abandoned=True)
    assert found.is_over
    release.set()
    await wait_for(stopped.is_set)
    answers = [message for message in await stream.rest() if "id" in message]
    assert ["interrupted" in answer["error"]["message"] for answer in answers] == [True]
    assert await StreamEvent.objects.filter(data__contains="result").acount() == 0


async def test_64_equal_ids_and_tokens_of_many_clients_are_never_crossed(token, tools, transactional_db):

    from mcp_django.testing import MCPClient
    from tests.factories import make_superuser

    @tools
    async def echo(request, word: str) -> str:
        """Echo."""
        request.mcp.progress(1, message=word)
        await asyncio.sleep(0.001 * (hash(word) % 7))
        return f"{request.user} {word}"

    @sync_to_async
    def sign_in(name):
        return MCPClient(make_superuser(name)).headers["Authorization"]

    async def use(name, header, number):
        client = SessionClient(header)
        await client.initialize()
        for turn in range(3):
            word = f"{name}-{number}-{turn}"
            progress, answer = await (await client.call("echo", progress="same", word=word)).rest()
            assert progress["params"]["message"] == word
            assert answer["result"]["content"][0]["text"] == f"{name} {word}"

    headers = {name: await sign_in(name) for name in ("ann", "bob", "cyd", "dan")}
    with configured(MAX_CONCURRENT_CALLS=100, RATES={"calls": None}):
        await asyncio.gather(*(use(name, header, n) for name, header in headers.items() for n in range(8)))


async def test_a_call_whose_id_cannot_be_stored_is_refused_before_it_runs(client, tools):
    done = []

    @tools
    def act(request) -> str:
        """Act."""
        done.append(True)
        return "done"

    call = {"jsonrpc": "2.0", "id": "a\0", "method": "tools/call", "params": {"name": "act", "arguments": {}}}
    status, _, body = await client.post(call)
    assert (status, json.loads(body)["error"]["code"], done) == (400, -32600, [])


async def test_an_answer_that_cannot_be_stored_is_refused_and_the_question_stays_open(client, tools):
    @tools
    def greet(request) -> str:
        """Greet."""
        return f"Hello {request.mcp.ask('Who are you?', str, key='who')}"

    stream = await client.call("greet")
    request = await stream.message()
    [name] = request["params"]["requestedSchema"]["properties"]
    bad = {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "accept", "content": {name: "A\0"}}}
    assert (await client.post(bad))[0] == 400
    await client.answer(request["id"], {"action": "accept", "content": {name: "Ann"}})
    assert (await stream.rest())[-1]["result"]["content"][0]["text"] == "Hello Ann"

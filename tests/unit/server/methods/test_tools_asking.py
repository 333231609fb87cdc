"""Calls that ask, from the outside: rounds, states, and what a client that cannot be asked is told."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache
from django.db import transaction
from django.test import override_settings
from mcp_types import InputRequiredResult

from mcp_django import MCPSite, site
from mcp_django.context.questions import STATE_ERROR, Answers, Question
from mcp_django.context.request import MCPContext, MCPRequest
from mcp_django.exceptions import InputRequired
from mcp_django.functions.asked_parameters import Ask, Roots, Sample
from mcp_django.protocol.client_requests import ClientRequest
from mcp_django.protocol.eras import Call, LegacyEra
from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.kernel import Kernel
from mcp_django.server.methods.handler_interface import Asked
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser, make_user
from tests.question_rounds import (
    CANCEL,
    DECLINE,
    ELICITS,
    EVERYTHING,
    YES,
    accept,
    again,
    calling,
    only,
    sampled,
    send,
    text_of,
)
from tests.session_client import SessionClient
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db

calls: list[str] = []


@pytest.fixture(autouse=True)
def fresh(tools: Any) -> None:
    calls.clear()
    for function in (greet, ship, steps, everything, sure, gather):
        tools(function)


def greet(request: MCPRequest) -> str:
    """Greet the user."""
    calls.append("greet")
    return f"Hello, {request.mcp.ask('What is your name?', Name, key='user_name').name}!"


@dataclass
class Name:
    name: str


def ship(request: MCPRequest, order: int, carrier: Annotated[Literal["dhl", "ups"], Ask("Which carrier?")]) -> str:
    """Ship an order."""
    calls.append("ship")
    return f"{order} by {carrier}"


def steps(request: MCPRequest) -> str:
    """Ask twice, and write in between what must not stay."""
    with transaction.atomic():
        Author.objects.create(name="half")
        first = request.mcp.ask("First?", str, key="first")
        second = request.mcp.ask("Second?", int, key="second")
    return f"{first} {second}"


async def everything(
    request: MCPRequest,
    name: Annotated[str, Ask("Name?")],
    capital: Annotated[str, Sample("Capital of France?")],
    roots: Annotated[list, Roots()],  # type: ignore[type-arg]
) -> str:
    """Ask for everything at once."""
    return f"{name} {capital} {roots[0].uri}"


def sure(request: MCPRequest, rows: int) -> str:
    """Delete rows."""
    request.mcp.ask(f"Delete {rows} rows?", None, key="sure", proof=True)
    calls.append("deleted")
    return f"deleted {rows}"


async def gather(request: MCPRequest) -> str:
    """Ask in two tasks at the same time."""

    async def ask(key: str) -> Any:
        return request.mcp.ask(f"{key}?", str, key=key)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask("a")), group.create_task(ask("b"))]
    return " ".join(task.result() for task in tasks)


def client_of(capabilities: Any = ELICITS, **options: Any) -> MCPClient:
    return MCPClient(options.pop("user", None) or make_superuser(), capabilities=capabilities, **options)


def refused(client: MCPClient, params: Any, **more: Any) -> MCPError:
    with pytest.raises(MCPError) as error:
        send(client, params, **more)
    return error.value


# Rounds


def test_a_tool_asks_and_runs_again_with_the_answer() -> None:
    client, params = client_of(), calling("greet")
    asked = send(client, params)
    InputRequiredResult.model_validate(asked)
    key, question = only(asked)
    assert (key, question["message"], question["mode"]) == ("user_name", "What is your name?", "form")
    assert text_of(again(client, params, asked, accept(name="Ada"))) == "Hello, Ada!"
    assert calls == ["greet", "greet"]


def test_a_parameter_that_is_asked_for_is_no_argument() -> None:
    client, params = client_of(), calling("ship", order=7)
    schema = next(tool for tool in client.tools() if tool["name"] == "ship")["inputSchema"]
    assert list(schema["properties"]) == ["order", "answers", "confirm_token"]
    asked = send(client, params)
    assert calls == []
    assert text_of(again(client, params, asked, accept(carrier="ups"))) == "7 by ups"
    assert "carrier: unknown" in text_of(send(client, calling("ship", order=7, carrier="ups")))
    assert calls == ["ship"]


def test_wrong_arguments_are_told_before_anybody_is_asked() -> None:
    assert "order: missing" in text_of(send(client_of(), calling("ship")))


def test_answers_without_a_state_count_and_unknown_ones_are_ignored() -> None:
    given = {"user_name": accept(name="Ada"), "more": accept(x=1), "junk": DECLINE}
    assert text_of(send(client_of(), calling("greet"), inputResponses=given)) == "Hello, Ada!"


@pytest.mark.parametrize("given", [{}, {"wrong_key": accept(name="Ada")}], ids=["none", "wrong key"])
def test_78_a_missing_answer_is_asked_again(given: Any) -> None:
    client, params = client_of(), calling("greet")
    asked = again(client, params, send(client, params), given)
    assert only(asked)[0] == "user_name"


@pytest.mark.parametrize("given", [accept(), accept(name=5), accept(name=["x"]), {"action": "accept"}], ids=repr)
def test_78_a_wrong_answer_is_asked_again_with_the_reason(given: Any) -> None:
    _, question = only(send(client_of(), calling("greet"), inputResponses={"user_name": given}))
    assert question["message"].endswith("\n\nWhat is your name?")


@pytest.mark.parametrize("given", [12345, "Ada", {"action": "maybe"}, accept(name={"x": 1})], ids=repr)
def test_78_what_is_no_result_at_all_is_refused(given: Any) -> None:
    assert refused(client_of(), calling("greet"), inputResponses={"user_name": given}).code == -32602
    assert calls == []


@pytest.mark.parametrize(("answer", "said"), [(DECLINE, "declined"), (CANCEL, "dismissed")], ids=["decline", "cancel"])
def test_78_decline_and_cancel_end_the_call_without_effect(answer: Any, said: str) -> None:
    client, params = client_of(), calling("sure", rows=5)
    result = again(client, params, send(client, params), answer)
    assert result["isError"]
    assert text_of(result).startswith(f"The user {said}")
    assert "deleted" not in calls


def test_each_round_has_a_state_of_its_own_and_keeps_what_was_answered() -> None:
    client, params = client_of(), calling("steps")
    first = send(client, params)
    second = again(client, params, first, accept(first="one"))
    assert only(second)[0] == "second"
    assert first["requestState"] != second["requestState"]
    assert text_of(again(client, params, second, accept(second=2))) == "one 2"


def test_what_was_written_before_a_question_is_rolled_back() -> None:
    client, params = client_of(), calling("steps")
    second = again(client, params, send(client, params), accept(first="one"))
    assert not Author.objects.exists()
    again(client, params, second, accept(second=2))
    assert Author.objects.count() == 1


def test_all_kinds_of_questions_go_out_together() -> None:
    client, params = client_of(EVERYTHING), calling("everything")
    asked = send(client, params)
    InputRequiredResult.model_validate(asked)
    methods = {key: question["method"] for key, question in asked["inputRequests"].items()}
    assert methods == {
        "name": ClientRequest.ELICITATION,
        "capital": ClientRequest.SAMPLING,
        "roots": ClientRequest.ROOTS,
    }
    assert asked["inputRequests"]["roots"]["params"] == {}
    answers = {"name": accept(name="Ada"), "capital": sampled("Paris"), "roots": {"roots": [{"uri": "file:///a"}]}}
    assert text_of(again(client, params, asked, answers)) == "Ada Paris file:///a"
    partly = again(client, params, asked, {"capital": sampled("Paris")})
    assert list(partly["inputRequests"]) == ["name", "roots"]


def test_tasks_that_ask_at_the_same_time_ask_in_one_round() -> None:
    client, params = client_of(), calling("gather")
    asked = send(client, params)
    assert set(asked["inputRequests"]) <= {"a", "b"}
    while asked["resultType"] != "complete":
        answers = {key: accept(**{key: key.upper()}) for key in asked["inputRequests"]}
        asked = again(client, params, asked, answers)
    assert text_of(asked) == "A B"


# Prompts and resources


@pytest.fixture
def others() -> Iterator[None]:
    def introduce(request: MCPRequest, context: Annotated[str, Ask("What for?")]) -> str:
        """Introduce."""
        return f"Introduce for {context}."

    async def later(request: MCPRequest, context: Annotated[str, Ask("What for?")]) -> str:
        """Introduce, later."""
        return f"Later for {context}."

    def room(request: MCPRequest, number: int, key: Annotated[str, Ask("Key?")]) -> str:
        return f"{number}: {key}"

    async def hall(request: MCPRequest) -> str:
        return f"hall: {request.mcp.ask('Key?', str, key='key')}"

    for function in (introduce, later):
        site.add_prompt(function)
    site.add_resource("house://room/{number}", room)
    site.add_resource("house://hall", hall)
    yield
    for name in ("introduce", "later"):
        site.remove_prompt(name)
    for uri in ("house://room/{number}", "house://hall"):
        site.remove_resource(uri)


@pytest.mark.parametrize("name", ["introduce", "later"])
def test_a_prompt_may_ask(others: None, name: str) -> None:
    client, params = client_of(), {"name": name}
    listed = {prompt["name"]: prompt for prompt in client.request("prompts/list")["prompts"]}
    assert "arguments" not in listed[name]
    asked = send(client, params, "prompts/get")
    assert only(asked)[0] == "context"
    got = again(client, params, asked, accept(context="tea"), "prompts/get")
    assert got["messages"][0]["content"]["text"].endswith("for tea.")


@pytest.mark.parametrize(("uri", "text"), [("house://room/7", "7: k"), ("house://hall", "hall: k")])
def test_a_resource_may_ask(others: None, uri: str, text: str) -> None:
    client, params = client_of(), {"uri": uri}
    asked = send(client, params, "resources/read")
    assert "ttlMs" not in asked
    got = again(client, params, asked, accept(key="k"), "resources/read")
    assert got["contents"][0]["text"] == text


@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "introduce"}), ("resources/read", {"uri": "house://hall"})]
)
def test_78_a_declined_prompt_or_resource_is_an_error(others: None, method: str, params: Any) -> None:
    client = client_of()
    with pytest.raises(MCPError) as error:
        again(client, params, send(client, params, method), DECLINE, method)
    assert error.value.code == -32602
    assert "declined" in str(error.value)


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_77_a_prompt_cannot_ask_a_client_that_cannot_be_asked(others: None, version: str) -> None:
    error = refused(client_of({}, version=version), {"name": "introduce"}, method="prompts/get")
    assert error.code == (-32021 if version == "2026-07-28" else -32602)
    assert "elicitation" in str(error)


# What may not be asked


def test_77_what_the_client_did_not_declare_is_not_asked() -> None:
    client = client_of(ELICITS)
    error = refused(client, calling("everything"))
    assert error.code == -32021
    assert error.data == {"requiredCapabilities": {"sampling": {}, "roots": {}}}
    assert error.status == 400


def test_77_a_client_with_urls_alone_gets_no_form() -> None:
    result = send(client_of({"elicitation": {"url": {}}}), calling("greet"))
    assert result["structuredContent"]["input_required"] is True


def test_no_other_method_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(request: MCPRequest) -> bool:
        assert not request.mcp.can("elicitation")
        return bool(request.mcp.ask("May you?"))

    monkeypatch.setattr(site._tools["greet"], "has_permission", ask)
    error = refused(client_of(), {}, method="tools/list")
    assert error.code == -32603


def test_a_call_with_answers_to_a_tool_that_asks_nothing_is_a_call() -> None:
    make_author("Ada")
    given = {"x": accept(y=1)}
    assert send(client_of(), calling("list_models"), inputResponses=given)["resultType"] == "complete"


# States


def state_of(client: MCPClient, params: Any) -> str:
    state: str = send(client, params)["requestState"]
    calls.clear()
    return state


def test_73_a_changed_state_is_one_error_and_the_handler_does_not_run() -> None:
    client, params = client_of(), calling("greet")
    state = state_of(client, params)
    texts = set()
    for changed in (f"{state}-TAMPERED", state[:-1], "!" + state[1:], "", "x", state.replace(":", ".")):
        error = refused(client, params, requestState=changed, inputResponses={"user_name": accept(name="Ada")})
        texts.add(str(error))
        assert (error.code, error.status) == (-32602, 400)
    assert len(texts) == 1
    assert STATE_ERROR in texts.pop()
    assert calls == []


def test_74_a_state_is_for_its_call_and_its_user() -> None:
    client, params = client_of(), calling("sure", rows=5)
    state = state_of(client, params)
    other = MCPClient(make_user("other"), capabilities=ELICITS)
    given = {"sure": YES}
    for who, what in (
        (other, params),
        (client, calling("sure", rows=6)),
        (client, calling("greet")),
        (MCPClient(make_superuser("root2"), capabilities=ELICITS), params),
    ):
        error = refused(who, what, requestState=state, inputResponses=given)
        assert error.code == -32602
    assert calls == []


def test_79_a_state_lives_through_a_new_key_and_a_restart(settings: Any) -> None:
    client, params = client_of(), calling("sure", rows=5)
    asked = send(client, params)
    cache.clear()
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        assert text_of(again(client, params, asked, YES)) == "deleted 5"


def test_80_a_state_shows_nothing_of_what_was_answered() -> None:
    client, params = client_of(), calling("steps")
    asked = again(client, params, send(client, params), accept(first="secret-word"))
    assert "secret" not in json.dumps(asked)


def test_156_a_proof_is_used_up_by_the_call_that_brings_it() -> None:
    client, params = client_of(), calling("sure", rows=5)
    asked = send(client, params)
    assert text_of(again(client, params, asked, YES)) == "deleted 5"
    with pytest.raises(MCPError) as error:
        again(client, params, asked, YES)
    assert STATE_ERROR in str(error.value)
    assert calls == ["deleted"]
    assert only(send(client, params, inputResponses={"sure": YES}))[0] == "sure"


def test_answers_that_are_too_long_to_be_carried_are_told_to_the_model() -> None:
    client, params = client_of(), calling("steps")
    result = again(client, params, send(client, params), accept(first="x" * 50_000))
    assert result["isError"]
    assert "too long" in text_of(result)


# The older era


QUESTION = Question(
    key="k",
    method=ClientRequest.ELICITATION,
    params={"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
)


def legacy(method: str = "tools/call", **options: Any) -> tuple[MCPRequest, Call]:
    request = MCPRequest()
    options = {"version": "2025-11-25", "capabilities": ELICITS, "live": True, **options}
    request.mcp = MCPContext(site=MCPSite(), **options)
    call = Call(era=LegacyEra(), version="2025-11-25", method=method, params={}, id=1, client={}, capabilities={})
    return request, call


def test_in_the_older_era_the_transport_asks() -> None:
    request, call = legacy(last_progress=3.0)
    outcome = Kernel(request, call).pause([QUESTION])
    assert outcome == Asked((QUESTION,))
    # The next run goes on with progress where this one ended.
    assert Answers({}, request.mcp.answers.state([QUESTION])).progress == 3.0


def test_77_a_client_without_a_session_cannot_be_asked() -> None:
    request, call = legacy(live=False)
    with pytest.raises(InvalidParams, match="needs a session with a client that supports elicitation"):
        Kernel(request, call).pause([QUESTION])


def test_no_other_method_asks_in_the_older_era_either() -> None:
    request, call = legacy("tools/list")
    with pytest.raises(TypeError, match="tools/list cannot ask"):
        Kernel(request, call).pause([QUESTION])


def test_what_is_raised_to_ask_is_no_exception() -> None:
    assert not issubclass(InputRequired, Exception)


def parcels(
    request: MCPRequest, sizes: Annotated[list[Literal["s", "m", "l"]], Ask("Which sizes?")], tried: str = ""
) -> str:
    """Pack."""
    request.mcp.progress(1, 2)
    weight = request.mcp.ask("How heavy?", float, key="weight")
    request.mcp.progress(2, 2)
    return f"{sorted(sizes)} {weight}"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
class TestInASession:
    """The same calls by clients of the older era, which are asked by requests on the stream of the call."""

    async def begin(self, token: str, version: str) -> SessionClient:
        client = SessionClient(token, version=version, capabilities=ELICITS)
        await client.initialize()
        return client

    async def test_a_tool_asks_in_rounds(self, token: str, tools: Any, version: str) -> None:
        tools(parcels)
        client = await self.begin(token, version)
        stream = await client.call("parcels", progress="p")
        question = await stream.message()
        field = question["params"]["requestedSchema"]["properties"]["sizes"]
        assert field["type"] == ("array" if version >= "2025-11-25" else "string")
        wrong, right = (["x"], ["l", "s"]) if version >= "2025-11-25" else ("x", "l, s")
        await client.answer(question["id"], accept(sizes=wrong))
        question = await stream.message()
        assert question["params"]["message"].startswith('expected one of "s", "m", "l", got "x".')
        await client.answer(question["id"], accept(sizes=right))
        progress = await stream.message()
        assert progress["params"]["progress"] == 1
        question = await stream.message()
        await client.answer(question["id"], accept(weight=2.5))
        *told, answer = await stream.rest()
        # Progress only ever grows, though the call began anew.
        assert [message["params"]["progress"] for message in told] == [2]
        assert answer["result"]["content"][0]["text"] == "['l', 's'] 2.5"

    @pytest.mark.parametrize("answer", [YES, DECLINE, CANCEL], ids=["accept", "decline", "cancel"])
    async def test_78_a_deletion_waits_for_consent(self, token: str, version: str, answer: Any) -> None:
        author = await sync_to_async(make_author)("Ada")
        client = await self.begin(token, version)
        stream = await client.call("delete_record", model="testapp.author", pk=author.pk)
        question = await stream.message()
        assert question["params"]["message"].startswith("This deletes 1 object")
        assert await Author.objects.aexists()
        await client.answer(question["id"], answer)
        [result] = await stream.rest()
        accepted = answer["action"] == "accept"
        assert await Author.objects.aexists() is not accepted
        assert result["result"].get("isError", False) is not accepted

"""What the manifest demands where the server asks (`requirements/patterns.toml`, `requirements/client.toml`)."""

import asyncio
import json
import re
from dataclasses import dataclass

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured

from mcp_django import site
from mcp_django.conf import Settings
from mcp_django.models import Session, Stream
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser, make_user
from tests.protocol_messages import SERVER_KEY
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db

MODERN = "2026-07-28"
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
MCP = {"BASE_URL": "http://testserver"}


@dataclass
class Parcel:
    """What to send."""

    weight: int
    fragile: bool = False


def accept(**content):
    return {"action": "accept", "content": content}


YES = accept(_confirm="yes")
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m", "stopReason": "endTurn"}
ROOTS = {"roots": [{"uri": "file:///home/ada", "name": "home"}]}


@pytest.fixture
def client():
    return MCPClient(make_superuser(), capabilities=EVERYTHING)


@pytest.fixture
def asking(tools):
    """A tool that asks for everything that there is, one after the other."""

    def send_parcel(request, note: str = "") -> str:
        """Send a parcel."""
        parcel = request.mcp.ask("What shall be sent?", Parcel, key="parcel")
        town = request.mcp.sample("Which town?", key="town").text
        home = request.mcp.roots(key="home")[0].uri
        return f"{parcel.weight} kg to {town} from {home}"

    tools(send_parcel, read_only=True)


def call(client, tool, **more):
    return client.request("tools/call", name=tool, arguments={}, **more)


def answer_all(client, tool="send_parcel", rounds=9):
    """Make a call until it is done, as a client does, and return each result."""
    found = [call(client, tool)]
    given = {"elicitation/create": accept(weight=3), "sampling/createMessage": SAMPLED, "roots/list": ROOTS}
    while found[-1]["resultType"] == "input_required" and len(found) < rounds:
        asked = found[-1]["inputRequests"]
        responses = {key: given[question["method"]] for key, question in asked.items()}
        state = {"requestState": found[-1]["requestState"]} if "requestState" in found[-1] else {}
        found.append(call(client, tool, inputResponses=responses, **state))
    return found


# Rounds


def test_questions_are_of_three_kinds_each_under_a_key_of_its_own(client, asking):
    *asked, done = answer_all(client)
    assert done["content"][0]["text"] == "3 kg to Paris from file:///home/ada"
    questions = [(key, question["method"]) for result in asked for key, question in result["inputRequests"].items()]
    assert questions == [
        ("parcel", "elicitation/create"),
        ("town", "sampling/createMessage"),
        ("home", "roots/list"),
    ]
    for result in asked:
        assert result["resultType"] == "input_required"
        assert result.get("inputRequests") or result.get("requestState")
        assert result["_meta"][SERVER_KEY]["name"] == "django"


def test_what_is_asked_at_the_same_time_has_a_key_for_each(client, tools):
    async def compare(request) -> str:
        """Compare."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asking_for(request, word)) for word in ("red", "blue", "red again")]
        return " ".join(str(task.result()) for task in tasks)

    async def asking_for(request, word):
        return request.mcp.ask(f"How many {word} ones?", int)

    tools(compare, read_only=True)
    asked = call(client, "compare")
    assert len(asked["inputRequests"]) == 3
    numbers = dict(zip(asked["inputRequests"], (1, 2, 3), strict=True))
    fields = {
        key: next(iter(question["params"]["requestedSchema"]["properties"]))
        for key, question in asked["inputRequests"].items()
    }
    responses = {key: accept(**{fields[key]: number}) for key, number in numbers.items()}
    done = call(client, "compare", inputResponses=responses, requestState=asked["requestState"])
    assert sorted(done["content"][0]["text"].split()) == ["1", "2", "3"]


def test_a_call_that_is_not_made_again_leaves_nothing_behind(client, asking):
    before = Stream.objects.count(), Session.objects.count()
    for _ in range(3):
        assert call(client, "send_parcel")["resultType"] == "input_required"
    assert (Stream.objects.count(), Session.objects.count()) == before
    assert answer_all(client)[-1]["resultType"] == "complete"


@pytest.mark.parametrize(
    ("missing", "method", "rounds"),
    [("elicitation", "elicitation/create", 0), ("sampling", "sampling/createMessage", 1), ("roots", "roots/list", 2)],
)
def test_nothing_is_asked_that_the_client_did_not_declare(client, tools, missing, method, rounds):
    def need(request) -> str:
        """Need an answer."""
        match method:
            case "elicitation/create":
                return str(request.mcp.ask_url("Sign in", "https://shop.example/sign-in"))
            case "sampling/createMessage":
                return request.mcp.sample("Which town?").text
        return request.mcp.roots()[0].uri

    tools(need, read_only=True)
    client.capabilities = {name: value for name, value in EVERYTHING.items() if name != missing}
    response = client.send("tools/call", {"name": "need", "arguments": {}})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, -32021)
    assert missing in error["data"]["requiredCapabilities"]


def test_only_calls_prompts_and_reads_are_answered_with_a_question(client, tools):
    def city(request, value, context):
        return [request.mcp.ask("Which?", str)]

    def travel(request, to: str = "") -> str:
        """Travel."""
        return request.mcp.ask("Where to?", str, key="to")

    def visited(request) -> str:
        """Where one was."""
        return request.mcp.ask("Where?", str, key="to")

    tools(travel, read_only=True)
    site.add_prompt(travel, name="travel", complete={"to": city})
    site.add_resource("shop://visited", visited)
    try:
        for method, params in (
            ("tools/call", {"name": "travel", "arguments": {}}),
            ("prompts/get", {"name": "travel"}),
            ("resources/read", {"uri": "shop://visited"}),
        ):
            assert client.request(method, **params)["resultType"] == "input_required"
        completing = {"ref": {"type": "ref/prompt", "name": "travel"}, "argument": {"name": "to", "value": ""}}
        assert "error" in client.send("completion/complete", completing).json()
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover"):
            assert client.request(method)["resultType"] == "complete"
    finally:
        site.remove_prompt("travel")
        site.remove_resource("shop://visited")


# The state


def first_round(client, tool="send_parcel"):
    result = call(client, tool)
    return result["requestState"]


def test_a_state_that_was_touched_is_refused(client, asking):
    state = first_round(client)
    places = range(0, len(state), max(1, len(state) // 40))
    touched = [state[:place] + ("A" if state[place] != "A" else "B") + state[place + 1 :] for place in places]
    for wrong in (*touched, state[:-1], state + "A", state[1:], "", "x", state * 2):
        with pytest.raises(MCPError) as caught:
            call(client, "send_parcel", inputResponses={"parcel": accept(weight=1)}, requestState=wrong)
        assert caught.value.code == -32602


def test_a_state_fits_its_caller_and_its_call_alone_and_ends_soon(client, asking, tools, monkeypatch):
    def send_other(request) -> str:
        """Send another."""
        return str(request.mcp.ask("What shall be sent?", Parcel, key="parcel"))

    tools(send_other, read_only=True)
    state = first_round(client)
    answers = {"inputResponses": {"parcel": accept(weight=1)}, "requestState": state}
    other = MCPClient(make_user("other", "testapp.view_author"), capabilities=EVERYTHING)
    refused = [
        (other, {"name": "send_parcel", "arguments": {}}),
        (client, {"name": "send_other", "arguments": {}}),
        (client, {"name": "send_parcel", "arguments": {"note": "x"}}),
    ]
    for caller, params in refused:
        with pytest.raises(MCPError) as caught:
            caller.request("tools/call", **params, **answers)
        assert caught.value.code == -32602
    assert call(client, "send_parcel", **answers)["inputRequests"].keys() == {"town"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Settings, "QUESTION_TIMEOUT", -1)  # the time is over
        with pytest.raises(MCPError) as caught:
            call(client, "send_parcel", **answers)
    assert caught.value.code == -32602


def test_a_deletion_is_confirmed_once_and_only_by_who_was_asked(client):
    first, second = make_author("Ada"), make_author("Grace")
    params = {"name": "delete_record", "arguments": {"model": "testapp.author", "pk": first.pk}}
    asked = client.request("tools/call", **params)
    assert asked["resultType"] == "input_required"
    [key] = asked["inputRequests"]
    confirmed = {"inputResponses": {key: YES}, "requestState": asked["requestState"]}
    unasked = client.request("tools/call", **params, inputResponses={key: YES})
    assert unasked["resultType"] == "input_required", "an answer counts only with the proof that it was asked for"
    assert Author.objects.filter(pk=first.pk).exists()
    done = client.request("tools/call", **params, **confirmed)
    assert not done.get("isError"), done
    assert not Author.objects.filter(pk=first.pk).exists()
    Author(pk=first.pk, name="Ada").save()
    response = client.send("tools/call", {**params, **confirmed}).json()
    assert "error" in response or response["result"].get("isError") or response["result"]["resultType"] != "complete"
    assert set(Author.objects.values_list("pk", flat=True)) == {first.pk, second.pk}


# Answers


@pytest.mark.parametrize("responses", [[], "x", 5, {"parcel": 12345}, {"parcel": []}, {"parcel": {"action": "maybe"}}])
def test_malformed_answers_are_an_error_for_the_program(client, asking, responses):
    with pytest.raises(MCPError) as caught:
        call(client, "send_parcel", inputResponses=responses, requestState=first_round(client))
    assert (caught.value.status, caught.value.code) == (400, -32602)


def test_answers_that_nobody_asked_for_are_ignored(client, asking):
    responses = {"parcel": accept(weight=1), "other": accept(x="y"), "more": SAMPLED}
    result = call(client, "send_parcel", inputResponses=responses, requestState=first_round(client))
    assert result["inputRequests"].keys() == {"town"}


def test_what_is_missing_is_asked_for_again(client, asking):
    for responses in ({}, {"other": accept(weight=1)}):
        result = call(client, "send_parcel", inputResponses=responses, requestState=first_round(client))
        assert result["inputRequests"].keys() == {"parcel"}


@pytest.mark.parametrize("content", [{}, {"weight": "heavy"}, {"weight": 1.5}, {"weight": 3, "fragile": "perhaps"}])
def test_what_does_not_fit_the_form_is_asked_for_again(client, asking, content):
    result = call(client, "send_parcel", inputResponses={"parcel": accept(**content)}, requestState=first_round(client))
    assert result["inputRequests"].keys() == {"parcel"}
    assert "What shall be sent?" in result["inputRequests"]["parcel"]["params"]["message"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_who_declines_gets_an_answer_and_nothing_is_done(client, asking, action):
    result = call(
        client, "send_parcel", inputResponses={"parcel": {"action": action}}, requestState=first_round(client)
    )
    assert (result["resultType"], result["isError"]) == ("complete", True)
    author = make_author("Ada")
    params = {"name": "delete_record", "arguments": {"model": "testapp.author", "pk": author.pk}}
    asked = client.request("tools/call", **params)
    [key] = asked["inputRequests"]
    client.request("tools/call", **params, inputResponses={key: {"action": action}}, requestState=asked["requestState"])
    assert Author.objects.filter(pk=author.pk).exists()


# What is asked


def test_a_form_has_a_message_a_mode_and_a_flat_schema(client, asking):
    params = call(client, "send_parcel")["inputRequests"]["parcel"]["params"]
    assert params.keys() == {"mode", "message", "requestedSchema"}
    assert (params["mode"], params["message"]) == ("form", "What shall be sent?")
    schema = params["requestedSchema"]
    assert (schema["type"], schema["required"]) == ("object", ["weight"])
    assert {name: field["type"] for name, field in schema["properties"].items()} == {
        "weight": "integer",
        "fragile": "boolean",
    }


def test_a_page_is_asked_for_with_its_url_and_nothing_added(client, tools):
    def sign_in(request) -> str:
        """Sign in."""
        request.mcp.ask_url("Sign in to the shop.", "https://shop.example/sign-in", key="page")
        return "went there"

    tools(sign_in, read_only=True)
    asked = call(client, "sign_in")
    params = asked["inputRequests"]["page"]["params"]
    assert params == {"mode": "url", "message": "Sign in to the shop.", "url": "https://shop.example/sign-in"}
    done = call(client, "sign_in", inputResponses={"page": {"action": "accept"}}, requestState=asked["requestState"])
    assert done["content"][0]["text"] == "went there"


@pytest.mark.parametrize("url", ["not a url", "/admin/", "http://", "javascript:alert(1)", "https:///path", ""])
def test_what_is_no_url_of_a_page_is_never_sent(client, tools, url):
    def go(request) -> str:
        """Go there."""
        return str(request.mcp.ask_url("Go there.", url, key="page"))

    tools(go, read_only=True)
    result = client.send("tools/call", {"name": "go", "arguments": {}}).json().get("result", {})
    for question in result.get("inputRequests", {}).values():
        assert re.fullmatch(r"https?://[^/\s]+/?\S*", question["params"]["url"])


def test_a_mode_that_the_client_lacks_is_not_used(client, tools):
    def either(request) -> str:
        """Ask either way."""
        if request.mcp.can("elicitation.url"):
            request.mcp.ask_url("Sign in.", "https://shop.example/sign-in", key="page")
        return str(request.mcp.can("elicitation"))

    tools(either, read_only=True)
    for elicitation in ({}, {"form": {}}):
        client.capabilities = {"elicitation": elicitation}
        assert client.call("either").text == "True"
    client.capabilities = {"elicitation": {"url": {}}}
    assert call(client, "either")["inputRequests"]["page"]["params"]["mode"] == "url"


class Credentials(forms.Form):
    name = forms.CharField()
    password = forms.CharField(widget=forms.PasswordInput)


def test_a_password_is_never_asked_for_by_form(client, tools, caplog):
    def sign_in(request) -> str:
        """Sign in."""
        return str(request.mcp.ask("Who are you?", Credentials, key="who"))

    tools(sign_in, read_only=True)
    response = client.send("tools/call", {"name": "sign_in", "arguments": {}})
    assert "inputRequests" not in response.text
    assert response.json()["result"]["isError"] is True
    assert ImproperlyConfigured.__name__ in caplog.text


# Sampling


def test_a_message_for_the_model_has_a_role_and_content(client, tools):
    def summarize(request) -> str:
        """Summarize."""
        return request.mcp.sample(["One.", ("assistant", "Two."), "Three."], system="Be brief.", key="s").text

    tools(summarize, read_only=True)
    first, second = (call(client, "summarize")["inputRequests"]["s"]["params"] for _ in range(2))
    assert [message["role"] for message in first["messages"]] == ["user", "assistant", "user"]
    assert [message["content"]["text"] for message in first["messages"]] == ["One.", "Two.", "Three."]
    assert first == second, "nothing is carried from one request to the next"
    assert (first["systemPrompt"], first["maxTokens"]) == ("Be brief.", 1_000)
    assert not {"includeContext", "tools", "toolChoice"} & first.keys()


def test_tools_are_for_models_of_clients_that_take_them(client, tools):
    tool = {"name": "look", "inputSchema": {"type": "object"}}

    def work(request) -> str:
        """Let the model work."""
        return request.mcp.sample("Look.", tools=[tool], key="s").text

    tools(work, read_only=True)
    response = client.send("tools/call", {"name": "work", "arguments": {}}).json()
    assert response["error"]["code"] == -32021
    assert response["error"]["data"] == {"requiredCapabilities": {"sampling": {"tools": {}}}}
    client.capabilities = {"sampling": {"tools": {}}}
    assert call(client, "work")["inputRequests"]["s"]["params"]["tools"] == [tool]


@pytest.mark.parametrize(
    "answer",
    [
        {"role": "assistant", "model": "m"},
        {"role": "wizard", "content": {"type": "text", "text": "x"}, "model": "m"},
        {"role": "assistant", "content": {"type": "text"}, "model": "m"},
        {"role": "assistant", "content": "x", "model": "m"},
    ],
)
def test_what_a_model_answers_is_validated(client, tools, answer):
    def summarize(request) -> str:
        """Summarize."""
        return request.mcp.sample("One.", key="s").text

    tools(summarize, read_only=True)
    asked = call(client, "summarize")
    params = {"name": "summarize", "arguments": {}, "requestState": asked["requestState"]}
    response = client.send("tools/call", {**params, "inputResponses": {"s": answer}}).json()
    assert "error" in response or response["result"]["resultType"] == "input_required"
    assert json.dumps(answer) not in json.dumps(response)

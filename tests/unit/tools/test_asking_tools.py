"""Clients that cannot ask their user: questions as results, answers as arguments."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured
from jsonschema import Draft202012Validator

from mcp_django.context.confirmation import REFUSED
from mcp_django.context.request import MCPRequest
from mcp_django.functions.asked_parameters import Ask
from mcp_django.testing import MCPClient, MCPError, ToolCall
from mcp_django.tools.function_tools import FunctionTool
from tests.factories import make_superuser, make_user
from tests.question_rounds import ELICITS

pytestmark = pytest.mark.django_db

done: list[Any] = []


class ShippingForm(forms.Form):
    city = forms.CharField(max_length=5)
    express = forms.BooleanField(required=False)


@dataclass
class Shipped:
    by: str


def ship(
    request: MCPRequest,
    order: int,
    carrier: Annotated[str, Ask("Which carrier?")],
    details: Annotated[dict, Ask("Where to?", form=ShippingForm)],  # type: ignore[type-arg]
) -> str:
    """Ship an order."""
    done.append((order, carrier, details))
    return "shipped"


async def ship_later(request: MCPRequest, carrier: Annotated[str, Ask("Which carrier?")]) -> Shipped:
    """Ship an order later."""
    done.append(carrier)
    return Shipped(carrier)


def steps(request: MCPRequest) -> str:
    """Ask twice, and at last for consent."""
    name = request.mcp.ask("Name?", str, key="name")
    if request.mcp.ask(f"Age of {name}?", int, key="age") < 18:
        request.mcp.ask(f"{name} is young. Go on?", None, key="sure", proof=True)
    done.append(name)
    return f"{name} may"


def taken(request: MCPRequest, answers: str = "") -> str:
    """Has an argument of that name of its own."""
    return str(request.mcp.ask("Name?", str, key="name") if answers == "ask" else answers)


@pytest.fixture(autouse=True)
def fresh(tools: Any) -> None:
    done.clear()
    for function in (ship, ship_later, taken):
        tools(function)
    tools(steps, asks=True)


@pytest.fixture(params=["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def client(request: pytest.FixtureRequest) -> MCPClient:
    return MCPClient(make_superuser(), version=request.param)


@pytest.fixture
def modern() -> MCPClient:
    return MCPClient(make_superuser())


def question(result: ToolCall) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(result.text)
    assert result.structured in (None, found)
    assert found["input_required"] is True
    Draft202012Validator.check_schema(found["answers"])
    return found


def test_77_a_client_that_cannot_ask_gets_the_questions_as_a_result(client: MCPClient) -> None:
    result = client.call("ship", order=7)
    assert not result.is_error
    asked = question(result)
    assert asked["message"] == "Which carrier?\nWhere to?"
    assert asked["answers"]["required"] == ["carrier", "details"]
    carrier, details = asked["answers"]["properties"].values()
    assert carrier == {"type": "string", "title": "Carrier", "description": "Which carrier?"}
    assert (list(details["properties"]), details["description"]) == (["city", "express"], "Where to?")
    assert asked["expires_in"] == 600
    assert done == []
    answers = {"carrier": "dhl", "details": {"city": "Rome", "express": True}}
    result = client.call("ship", order=7, answers=answers, confirm_token=asked["confirm_token"])
    assert result.text == "shipped"
    assert done == [(7, "dhl", {"city": "Rome", "express": True})]


def test_an_async_tool_asks_in_the_same_way(client: MCPClient) -> None:
    result = client.call("ship_later")
    # What a client would check against the output schema of the tool.
    assert result.is_error
    token = question(result)["confirm_token"]
    again = client.call("ship_later", answers={"carrier": "dhl"}, confirm_token=token)
    assert (again.is_error, done) == (False, ["dhl"])


def test_nothing_that_breaks_the_output_schema_of_a_tool_is_structured(modern: MCPClient) -> None:
    """The official TypeScript client checks it in errors too, and throws the question away."""
    result = modern.call("ship_later")
    assert result.is_error
    assert result.structured is None
    assert question(result)["confirm_token"]


def test_answers_may_be_json_as_text(modern: MCPClient) -> None:
    token = question(modern.call("ship_later"))["confirm_token"]
    assert not modern.call("ship_later", answers='{"carrier": "dhl"}', confirm_token=token).is_error


def test_78_a_wrong_answer_is_asked_again_with_the_reason_and_a_new_token(modern: MCPClient) -> None:
    token = question(modern.call("ship", order=7))["confirm_token"]
    answers = {"carrier": "dhl", "details": {"city": "Washington"}}
    result = modern.call("ship", order=7, answers=answers, confirm_token=token)
    assert result.is_error
    asked = question(result)
    assert asked["errors"] == ["City: Ensure this value has at most 5 characters (it has 10)."]
    assert asked["confirm_token"] != token
    assert asked["answers"]["required"] == ["carrier", "details"]
    assert done == []


def test_later_questions_repeat_the_answers_before_them(modern: MCPClient) -> None:
    answers: dict[str, Any] = {}
    asked: Any = None
    for key, answer in (("name", "Ada"), ("age", 7), ("sure", True)):
        asked = question(modern.call("steps", **(with_token(answers, asked) if answers else {})))
        assert list(asked["answers"]["properties"]) == [*answers, key]
        answers[key] = answer
    assert modern.call("steps", **with_token(answers, asked)).text == "Ada may"
    assert done == ["Ada"]


def with_token(answers: Any, asked: Any) -> dict[str, Any]:
    return {"answers": answers, "confirm_token": asked["confirm_token"]}


def test_77_consent_to_something_else_is_no_consent(modern: MCPClient) -> None:
    asked: Any = None
    for answers in ({}, {"name": "Ada"}, {"name": "Ada", "age": 7}):
        asked = question(modern.call("steps", **(with_token(answers, asked) if answers else {})))
    other = question(modern.call("steps", **with_token({"name": "Bob", "age": 7, "sure": True}, asked)))
    assert other["message"] == "Bob is young. Go on?"
    assert other["errors"] == ["What you were asked about has changed."]
    assert done == []


def test_78_a_refusal_in_the_answers_ends_the_call(modern: MCPClient) -> None:
    asked: Any = None
    for answers in ({}, {"name": "Ada"}, {"name": "Ada", "age": 7}):
        asked = question(modern.call("steps", **(with_token(answers, asked) if answers else {})))
    result = modern.call("steps", **with_token({"name": "Ada", "age": 7, "sure": False}, asked))
    assert result.is_error
    assert "declined" in result.text
    assert done == []


def test_156_a_token_is_used_up(modern: MCPClient) -> None:
    arguments = with_token({"carrier": "dhl"}, question(modern.call("ship_later")))
    assert not modern.call("ship_later", **arguments).is_error
    assert modern.call("ship_later", **arguments).text == REFUSED
    assert done == ["dhl"]


def test_74_a_token_is_for_its_user_its_tool_and_its_arguments(modern: MCPClient) -> None:
    token = question(modern.call("ship", order=7))["confirm_token"]
    answers = {"carrier": "dhl", "details": {"city": "Rome"}}
    other = MCPClient(make_user("other"))
    for who, tool, arguments in (
        (other, "ship", {"order": 7}),
        (modern, "ship", {"order": 8}),
        (modern, "ship_later", {}),
        (modern, "steps", {"order": 7}),
    ):
        result = who.call(tool, **arguments, answers=answers, confirm_token=token)
        assert (result.is_error, result.text) == (True, REFUSED)
    for junk in ("x", "x:y:z", token[:-1], 7, ["x"]):
        assert modern.call("ship", order=7, answers=answers, confirm_token=junk).text == REFUSED
    assert done == []


def test_77_answers_without_a_token_are_refused(modern: MCPClient) -> None:
    result = modern.call("ship", order=7, answers={"carrier": "dhl", "details": {"city": "Rome"}})
    assert result.is_error
    assert result.text.startswith('Call without "answers" first; the result has the questions')
    assert modern.call("ship", order=7, answers=["x"], confirm_token="x").text.startswith("answers must be an object")


@pytest.mark.parametrize("empty", [None, "", {}], ids=["null", "text", "object"])
def test_arguments_that_a_model_left_empty_are_not_there(modern: MCPClient, empty: Any) -> None:
    question(modern.call("ship", order=7, answers=empty, confirm_token=None))


def test_a_token_that_needed_no_user_is_not_taken_from_a_client_that_can_ask(modern: MCPClient) -> None:
    token = question(modern.call("ship_later"))["confirm_token"]
    modern.capabilities = dict(ELICITS)
    result = modern.call("ship_later", answers={"carrier": "dhl"}, confirm_token=token)
    assert result.is_error
    assert "belongs to another call" in result.text
    modern.capabilities = {}
    assert not modern.call("ship_later", answers={"carrier": "dhl"}, confirm_token=token).is_error


def test_a_tool_with_such_an_argument_of_its_own_keeps_it(modern: MCPClient) -> None:
    assert modern.call("taken", answers="mine").text == "mine"
    with pytest.raises(MCPError) as error:
        modern.call("taken", answers="ask")
    assert error.value.code == -32021


def test_what_asks_says_so_in_its_schema() -> None:
    def plain(request: Any) -> str:
        """Ask nothing."""
        return ""

    assert "confirm_token" not in FunctionTool(plain, destructive=False).input_schema["properties"]
    assert list(FunctionTool(plain).input_schema["properties"]) == ["confirm_token"]
    assert list(FunctionTool(plain, asks=True).input_schema["properties"]) == ["answers", "confirm_token"]
    own = {"type": "object", "properties": {}, "required": []}
    assert "answers" in FunctionTool(plain, asks=True, input_schema=own).input_schema["properties"]


def test_a_tool_that_asks_cannot_have_such_an_argument() -> None:
    with pytest.raises(ImproperlyConfigured, match="cannot have a parameter named answers"):
        FunctionTool(taken, asks=True)

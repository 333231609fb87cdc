"""Tools and prompts that ask the client first: its user, its model, or the client itself."""

import json
from dataclasses import dataclass
from typing import Annotated

import mcp_django as mcp
from mcp_django.protocol.errors import MissingClientCapability

MAX_TOKENS = 100


def form(*required, **fields):
    """The JSON Schema of a form."""
    return {"type": "object", "properties": fields, "required": list(required)}


PERSON = form(
    "username",
    "email",
    username={"type": "string", "description": "The name of a user"},
    email={"type": "string", "description": "The address of a user"},
)
DEFAULTS = form(
    name={"type": "string", "description": "A name", "default": "John Doe"},
    age={"type": "integer", "description": "An age", "default": 30},
    score={"type": "number", "description": "A score", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "description": "Whether it was checked", "default": True},
)
TITLED = [{"const": f"value{number}", "title": f"Title {number}"} for number in (1, 2, 3)]
CHOICES = form(
    untitledSingle={"type": "string", "enum": ["option1", "option2", "option3"]},
    titledSingle={"type": "string", "oneOf": TITLED},
    legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    untitledMulti={"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    titledMulti={"type": "array", "items": {"anyOf": TITLED}},
)
NAME = form("name", name={"type": "string"})
OK = form("ok", ok={"type": "boolean"})


def ask_name(request, key="user_name"):
    return request.mcp.ask("What is your name?", NAME, key=key)["name"]


# Tools of the scenario server-stateless


@mcp.tool(destructive=False)
def test_missing_capability(request):
    """Refuses clients that did not declare sampling."""
    if "sampling" not in request.mcp.capabilities:
        raise MissingClientCapability({"sampling": {}})
    return "The client can sample."


@mcp.tool(destructive=False)
def test_streaming_elicitation(request):
    """Answers without asking the client anything."""
    return "Nothing was asked."


# One question


@mcp.tool(destructive=False)
def test_elicitation(request, message: str):
    """Asks the user for a name and an address."""
    return f"User response: {json.dumps(request.mcp.ask(message, PERSON))}"


@mcp.tool(destructive=False)
def test_elicitation_sep1034_defaults(request):
    """Asks with a form that is filled in already."""
    return f"User response: {json.dumps(request.mcp.ask('Please look this over.', DEFAULTS))}"


@mcp.tool(destructive=False)
def test_elicitation_sep1330_enums(request):
    """Asks for choices of every kind."""
    return f"User response: {json.dumps(request.mcp.ask('Please choose.', CHOICES))}"


@mcp.tool(destructive=False)
def test_sampling(request, prompt: str):
    """Asks the model of the client."""
    return f"LLM response: {request.mcp.sample(prompt, max_tokens=MAX_TOKENS).text}"


@mcp.tool(destructive=False)
def test_input_required_result_elicitation(request):
    """Asks the user for a name."""
    return f"Hello, {ask_name(request)}!"


@mcp.tool(destructive=False)
def test_input_required_result_sampling(request):
    """Asks the model of the client for a capital."""
    answer = request.mcp.sample("What is the capital of France?", max_tokens=MAX_TOKENS, key="capital_question")
    return f"LLM response: {answer.text}"


@mcp.tool(destructive=False)
def test_input_required_result_list_roots(request):
    """Asks the client for its roots."""
    return f"Roots: {', '.join(root.uri for root in request.mcp.roots(key='client_roots'))}"


@mcp.tool(destructive=False)
def test_input_required_result_request_state(request):
    """Asks for a confirmation that comes back with a state."""
    request.mcp.ask("Please confirm.", OK, key="confirm")
    return "state-ok"


@mcp.tool(destructive=False)
def test_input_required_result_tampered_state(request):
    """Asks for a confirmation, whose state may not be changed on the way."""
    request.mcp.ask("Please confirm.", OK, key="confirm")
    return "The state was not changed."


# Several questions


@dataclass
class Name:
    """What the form for a name gives."""

    name: str


@mcp.tool(destructive=False)
def test_input_required_result_multiple_inputs(
    request,
    user_name: Annotated[Name, mcp.Ask("What is your name?")],
    greeting: Annotated[str, mcp.Sample("Generate a greeting.", max_tokens=MAX_TOKENS)],
    client_roots: Annotated[list, mcp.Roots()],
):
    """Asks the user, the model and the client at once."""
    return f"{user_name.name} was greeted with {greeting!r} in {len(client_roots)} roots."


@mcp.tool(destructive=False)
def test_input_required_result_multi_round(request):
    """Asks for a name, and then for a colour."""
    name = ask_name(request, key="step1")
    colour = request.mcp.ask(f"Which colour do you like, {name}?", form("color", color={"type": "string"}), key="step2")
    return f"{name} likes {colour['color']}."


@mcp.tool(destructive=False)
def test_input_required_result_capabilities(request):
    """Asks the user where the client can, and else the model."""
    if request.mcp.can("elicitation"):
        return f"Hello, {ask_name(request)}!"
    return request.mcp.sample("Generate a greeting.", max_tokens=MAX_TOKENS, key="greeting").text


@mcp.prompt
def test_input_required_result_prompt(request):
    """Asks for the context of the prompt."""
    context = request.mcp.ask("What is it about?", form("context", context={"type": "string"}), key="user_context")
    return f"Please write about {context['context']}."

"""What the server asks the client for, in each revision, and what clients answer."""

import json
from typing import Any

import pytest
from mcp_types import MissingRequiredClientCapabilityErrorData

from mcp_django.protocol.client_requests import ClientRequest
from mcp_django.protocol.messages import Message
from mcp_django.protocol.versions import Revisions
from tests.protocol_messages import MODERN
from tests.protocol_schemas import check_wire

pytestmark = pytest.mark.one_django

COLOURS = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]
FORM: dict[str, Any] = {
    "mode": "form",
    "message": "Which?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "a"},
            "colour": {"type": "string", "oneOf": COLOURS},
            "colours": {"type": "array", "items": {"anyOf": COLOURS}, "minItems": 1},
        },
        "required": ["name"],
    },
}
URL = {"mode": "url", "message": "Sign in", "url": "https://shop.example/sign-in"}
TEXT = {"type": "text", "text": "a"}
AUDIO = {"type": "audio", "data": "YQ==", "mimeType": "audio/wav"}
USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
SAMPLE: dict[str, Any] = {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 9, "systemPrompt": "s"}
TOOL = {"name": "t", "inputSchema": {"type": "object"}}
WITH_TOOLS = {**SAMPLE, "tools": [TOOL], "toolChoice": {"mode": "auto"}}
NAMES = {
    ClientRequest.ELICITATION: "ElicitRequest",
    ClientRequest.SAMPLING: "CreateMessageRequest",
    ClientRequest.ROOTS: "ListRootsRequest",
}


# What a client can be asked


@pytest.mark.parametrize(
    ("method", "params", "since"),
    [
        (ClientRequest.ROOTS, {}, "2024-11-05"),
        (ClientRequest.SAMPLING, SAMPLE, "2024-11-05"),
        (ClientRequest.ELICITATION, FORM, "2025-06-18"),
        (ClientRequest.ELICITATION, {"message": "m"}, "2025-06-18"),
        (ClientRequest.ELICITATION, URL, "2025-11-25"),
    ],
)
@pytest.mark.parametrize("version", Revisions.SUPPORTED)
def test_a_revision_knows_what_it_can_ask(method: str, params: Any, since: str, version: str) -> None:
    assert ClientRequest(method, params).is_known(version) is Revisions.is_at_least(version, since)


@pytest.mark.parametrize("method", ["ping", "tools/call", "elicitation/Create", "", "__class__"])
def test_nothing_else_is_asked(method: str) -> None:
    assert not any(ClientRequest(method, {}).is_known(version) for version in Revisions.SUPPORTED)
    with pytest.raises(ValueError, match="is not a request to a client"):
        ClientRequest(method, {}).required_capability()
    with pytest.raises(ValueError, match="does not have"):
        ClientRequest(method, {}).shape(MODERN)
    with pytest.raises(ValueError, match="not a result"):
        ClientRequest(method, {}).read_result(MODERN, {})


@pytest.mark.parametrize(
    ("capabilities", "form", "url"),
    [
        ({}, False, False),
        ({"elicitation": None}, False, False),
        ({"elicitation": True}, False, False),
        ({"elicitation": {}}, True, False),
        ({"elicitation": {"form": {}}}, True, False),
        ({"elicitation": {"url": {}}}, False, True),
        ({"elicitation": {"form": {}, "url": {}}}, True, True),
        ({"elicitation": {"form": {}, "url": None}}, True, False),
        ({"elicitation": {"url": True}}, False, False),
        ({"elicitation": {"other": {}}}, True, False),
        ({"sampling": {}, "roots": {}}, False, False),
    ],
)
def test_77_forms_and_urls_are_declared_apart(capabilities: dict[str, Any], form: bool, url: bool) -> None:
    assert ClientRequest(ClientRequest.ELICITATION, FORM).is_supported(capabilities) is form
    assert ClientRequest(ClientRequest.ELICITATION, {"message": "m"}).is_supported(capabilities) is form
    assert ClientRequest(ClientRequest.ELICITATION, URL).is_supported(capabilities) is url


@pytest.mark.parametrize(
    ("capabilities", "plain", "tools", "roots"),
    [
        ({}, False, False, False),
        ({"sampling": {}, "roots": {"listChanged": True}}, True, False, True),
        ({"sampling": {"tools": {}}, "roots": {}}, True, True, True),
        ({"sampling": {"context": {}}}, True, False, False),
        ({"sampling": True, "roots": []}, False, False, False),
        ({"sampling": {"tools": True}, "roots": None}, True, False, False),
        ({"elicitation": {}}, False, False, False),
    ],
)
def test_77_sampling_tools_and_roots_are_declared_apart(
    capabilities: dict[str, Any], plain: bool, tools: bool, roots: bool
) -> None:
    assert ClientRequest(ClientRequest.SAMPLING, SAMPLE).is_supported(capabilities) is plain
    assert ClientRequest(ClientRequest.SAMPLING, WITH_TOOLS).is_supported(capabilities) is tools
    assert ClientRequest(ClientRequest.ROOTS, {}).is_supported(capabilities) is roots


@pytest.mark.parametrize(
    ("method", "params", "required"),
    [
        (ClientRequest.ELICITATION, FORM, {"elicitation": {"form": {}}}),
        (ClientRequest.ELICITATION, URL, {"elicitation": {"url": {}}}),
        (ClientRequest.SAMPLING, SAMPLE, {"sampling": {}}),
        (ClientRequest.SAMPLING, WITH_TOOLS, {"sampling": {"tools": {}}}),
        (ClientRequest.ROOTS, {}, {"roots": {}}),
    ],
)
def test_77_the_capability_that_is_missing_is_the_one_that_would_do(method: str, params: Any, required: Any) -> None:
    assert ClientRequest(method, params).required_capability() == required
    MissingRequiredClientCapabilityErrorData.model_validate({"requiredCapabilities": required})
    assert ClientRequest(method, params).is_supported(required)


# Wire forms


QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    (ClientRequest.ROOTS, {}),
    (ClientRequest.SAMPLING, SAMPLE),
    (ClientRequest.SAMPLING, WITH_TOOLS),
    (ClientRequest.SAMPLING, {**SAMPLE, "messages": [{"role": "user", "content": [TEXT, AUDIO]}]}),
    (
        ClientRequest.SAMPLING,
        {**SAMPLE, "messages": [{"role": "assistant", "content": USE}, {"role": "user", "content": AUDIO}]},
    ),
    (ClientRequest.ELICITATION, FORM),
    (ClientRequest.ELICITATION, {name: FORM[name] for name in ("message", "requestedSchema")}),
    (ClientRequest.ELICITATION, URL),
]
CASES = [
    (*question, version)
    for question in QUESTIONS
    for version in Revisions.SUPPORTED
    if ClientRequest(question[0], {}).is_known(version)
]


@pytest.mark.parametrize(
    ("method", "params", "version"), [case for case in CASES if ClientRequest(case[0], case[1]).is_known(case[2])]
)
def test_every_question_is_one_of_the_revision(method: str, params: dict[str, Any], version: str) -> None:
    before = json.dumps(params)
    wire = json.loads(Message(method, ClientRequest(method, params).shape(version), "a.1").encode())
    check_wire(version, NAMES[method], wire)
    if version == MODERN:
        asked = {"resultType": "input_required", "inputRequests": {"a": {"method": method, "params": wire["params"]}}}
        check_wire(version, "InputRequiredResult", asked)
    else:
        check_wire(version, "JSONRPCRequest", wire)
    assert json.dumps(params) == before, "the question itself is left as it was"


@pytest.mark.parametrize("version", Revisions.SUPPORTED)
@pytest.mark.parametrize(("method", "params"), [(ClientRequest.ELICITATION, FORM), (ClientRequest.ELICITATION, URL)])
def test_what_a_revision_cannot_ask_is_not_asked(method: str, params: dict[str, Any], version: str) -> None:
    if not ClientRequest(method, params).is_known(version):
        with pytest.raises(ValueError, match="does not have"):
            ClientRequest(method, params).shape(version)


@pytest.mark.parametrize(("version", "mode"), [("2025-06-18", None), ("2025-11-25", "form"), (MODERN, "form")])
def test_a_form_says_its_mode_to_those_who_know_modes(version: str, mode: str | None) -> None:
    wire = ClientRequest(ClientRequest.ELICITATION, FORM).shape(version)
    assert wire.get("mode") == mode
    assert wire["message"] == "Which?"
    assert wire["requestedSchema"]["required"] == ["name"]
    assert (wire["requestedSchema"]["properties"]["colours"]["type"] == "string") is (version == "2025-06-18")


def test_a_url_has_an_identifier_in_the_one_revision_that_has_them() -> None:
    first, again = (
        ClientRequest(ClientRequest.ELICITATION, URL).shape("2025-11-25"),
        ClientRequest(ClientRequest.ELICITATION, URL).shape("2025-11-25"),
    )
    other = ClientRequest(ClientRequest.ELICITATION, {**URL, "url": "https://shop.example/other"}).shape("2025-11-25")
    assert first == again
    assert first["elicitationId"] != other["elicitationId"]
    assert (
        ClientRequest(ClientRequest.ELICITATION, {**URL, "elicitationId": "mine"}).shape("2025-11-25")["elicitationId"]
        == "mine"
    )
    assert ClientRequest(ClientRequest.ELICITATION, {**URL, "elicitationId": "mine"}).shape(MODERN) == URL


@pytest.mark.parametrize("version", Revisions.SUPPORTED)
def test_tools_of_sampling_are_for_those_who_know_them(version: str) -> None:
    wire = ClientRequest(ClientRequest.SAMPLING, WITH_TOOLS).shape(version)
    assert wire == (WITH_TOOLS if Revisions.is_at_least(version, "2025-11-25") else SAMPLE)


@pytest.mark.parametrize(
    ("version", "contents"),
    [
        (
            "2024-11-05",
            [TEXT, {"type": "text", "text": "[audio, audio/wav]"}, {"type": "text", "text": json.dumps(USE)}],
        ),
        ("2025-03-26", [TEXT, AUDIO, {"type": "text", "text": json.dumps(USE)}]),
        ("2025-06-18", [TEXT, AUDIO, {"type": "text", "text": json.dumps(USE)}]),
    ],
)
def test_blocks_of_a_message_are_messages_of_their_own_before_2025_11_25(version: str, contents: list[Any]) -> None:
    params = {**SAMPLE, "messages": [{"role": "user", "content": [TEXT, AUDIO, USE], "_meta": {"a": 1}}]}
    assert ClientRequest(ClientRequest.SAMPLING, params).shape(version)["messages"] == [
        {"role": "user", "content": block} for block in contents
    ]
    assert ClientRequest(ClientRequest.SAMPLING, params).shape("2025-11-25") == params


# Answers


ANSWER = {"role": "assistant", "content": TEXT, "model": "m"}


@pytest.mark.parametrize("version", Revisions.SUPPORTED)
@pytest.mark.parametrize(
    ("method", "result"),
    [
        (ClientRequest.ROOTS, {"roots": []}),
        (ClientRequest.ROOTS, {"roots": [{"uri": "file:///a", "name": "A"}], "_meta": {"a": 1}}),
        (ClientRequest.SAMPLING, ANSWER),
        (ClientRequest.SAMPLING, {**ANSWER, "stopReason": "endTurn"}),
        (ClientRequest.ELICITATION, {"action": "accept", "content": {"a": "b", "c": 1, "d": 1.5, "e": True}}),
        (ClientRequest.ELICITATION, {"action": "decline"}),
        (ClientRequest.ELICITATION, {"action": "cancel"}),
    ],
)
def test_an_answer_comes_as_the_client_gave_it(method: str, result: dict[str, Any], version: str) -> None:
    if ClientRequest(method, {}).is_known(version):
        assert ClientRequest(method, {}).read_result(version, result) == result
    else:
        with pytest.raises(ValueError, match="not a result"):
            ClientRequest(method, {}).read_result(version, result)


@pytest.mark.parametrize(
    ("method", "result", "found"),
    [
        (ClientRequest.SAMPLING, {**ANSWER, "stopReason": None, "_meta": None}, ANSWER),
        (ClientRequest.ELICITATION, {"action": "accept"}, {"action": "accept", "content": {}}),
        (ClientRequest.ELICITATION, {"action": "accept", "content": None}, {"action": "accept", "content": {}}),
        (
            ClientRequest.ELICITATION,
            {"action": "accept", "content": {"a": None, "b": 0}},
            {"action": "accept", "content": {"b": 0}},
        ),
        (ClientRequest.ELICITATION, {"action": "decline", "content": {"a": "b"}}, {"action": "decline"}),
        (ClientRequest.ELICITATION, {"action": "cancel", "content": None, "x": 1}, {"action": "cancel"}),
    ],
)
def test_78_what_means_nothing_is_left_out(method: str, result: dict[str, Any], found: dict[str, Any]) -> None:
    assert ClientRequest(method, {}).read_result(MODERN, result) == found


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("method", "result"),
    [
        *((method, result) for method in NAMES for result in (None, [], "a", 12345, True, {}, {"error": {}})),
        (ClientRequest.ROOTS, {"roots": None}),
        (ClientRequest.ROOTS, {"roots": [{"uri": 1}]}),
        (ClientRequest.ROOTS, {"roots": ["file:///a"]}),
        (ClientRequest.SAMPLING, {**ANSWER, "role": "system"}),
        (ClientRequest.SAMPLING, {**ANSWER, "content": "a"}),
        (ClientRequest.SAMPLING, {**ANSWER, "content": {"type": "video"}}),
        (ClientRequest.SAMPLING, {**ANSWER, "model": None}),
        (ClientRequest.ELICITATION, {"action": "approve"}),
        (ClientRequest.ELICITATION, {"action": "ACCEPT"}),
        (ClientRequest.ELICITATION, {"action": True}),
        (ClientRequest.ELICITATION, {"action": "accept", "content": []}),
        (ClientRequest.ELICITATION, {"action": "accept", "content": "a"}),
        (ClientRequest.ELICITATION, {"action": "accept", "content": {"a": {"b": 1}}}),
        (ClientRequest.ELICITATION, {"action": "accept", "content": {"a": [1]}}),
    ],
)
def test_78_another_answer_is_refused_in_a_few_words(method: str, result: Any, version: str) -> None:
    with pytest.raises(ValueError, match="the answer is not a result of the method") as caught:
        ClientRequest(method, {}).read_result(version, result)
    assert len(str(caught.value)) < 300


def test_78_the_refusal_repeats_no_value() -> None:
    with pytest.raises(ValueError, match="roots") as caught:
        ClientRequest(ClientRequest.ROOTS, {}).read_result(MODERN, {"roots": ["s3cret"]})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "result", "since"),
    [
        (ClientRequest.ELICITATION, {"action": "accept", "content": {"a": ["b"]}}, "2025-11-25"),
        (ClientRequest.SAMPLING, {**ANSWER, "content": AUDIO}, "2025-03-26"),
        (ClientRequest.SAMPLING, {**ANSWER, "content": USE}, "2025-11-25"),
        (ClientRequest.SAMPLING, {**ANSWER, "content": [TEXT, USE]}, "2025-11-25"),
    ],
)
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN])
def test_78_an_answer_of_a_newer_revision_is_refused(method: str, result: Any, since: str, version: str) -> None:
    if Revisions.is_at_least(version, since):
        assert ClientRequest(method, {}).read_result(version, result) == result
    else:
        with pytest.raises(ValueError, match="not a result"):
            ClientRequest(method, {}).read_result(version, result)


def test_an_answer_to_a_form_comes_in_the_form_that_was_meant() -> None:
    result = {"action": "accept", "content": {"name": "a", "colours": "Red, Green"}}
    assert ClientRequest(ClientRequest.ELICITATION, FORM).read_result("2025-06-18", result)["content"] == {
        "name": "a",
        "colours": ["r", "g"],
    }
    assert (
        ClientRequest(ClientRequest.ELICITATION, {}).read_result("2025-06-18", result)["content"]["colours"]
        == "Red, Green"
    )
    assert (
        ClientRequest(ClientRequest.ELICITATION, FORM).read_result(MODERN, result)["content"]["colours"] == "Red, Green"
    )
    assert ClientRequest(ClientRequest.ELICITATION, URL).read_result(MODERN, {"action": "accept"}) == {
        "action": "accept",
        "content": {},
    }

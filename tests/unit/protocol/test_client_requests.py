"""What the server asks the client for, in each revision, and what clients answer."""

import json
from typing import Any

import pytest
from mcp_types import MissingRequiredClientCapabilityErrorData

from mcp_django.protocol.client_requests import (
    ELICITATION,
    ROOTS,
    SAMPLING,
    method_known,
    read_result,
    required_capability,
    shape,
    supports,
)
from mcp_django.protocol.messages import encode, request
from mcp_django.protocol.versions import SUPPORTED, is_at_least
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
NAMES = {ELICITATION: "ElicitRequest", SAMPLING: "CreateMessageRequest", ROOTS: "ListRootsRequest"}


# What a client can be asked


@pytest.mark.parametrize(
    ("method", "params", "since"),
    [
        (ROOTS, {}, "2024-11-05"),
        (SAMPLING, SAMPLE, "2024-11-05"),
        (ELICITATION, FORM, "2025-06-18"),
        (ELICITATION, {"message": "m"}, "2025-06-18"),
        (ELICITATION, URL, "2025-11-25"),
    ],
)
@pytest.mark.parametrize("version", SUPPORTED)
def test_a_revision_knows_what_it_can_ask(method: str, params: Any, since: str, version: str) -> None:
    assert method_known(method, version, params) is is_at_least(version, since)


@pytest.mark.parametrize("method", ["ping", "tools/call", "elicitation/Create", "", "__class__"])
def test_nothing_else_is_asked(method: str) -> None:
    assert not any(method_known(method, version) for version in SUPPORTED)
    with pytest.raises(ValueError, match="is not a request to a client"):
        required_capability(method, {})
    with pytest.raises(ValueError, match="does not have"):
        shape(method, {}, MODERN)
    with pytest.raises(ValueError, match="not a result"):
        read_result(method, MODERN, {})


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
    assert supports(capabilities, ELICITATION, FORM) is form
    assert supports(capabilities, ELICITATION, {"message": "m"}) is form
    assert supports(capabilities, ELICITATION, URL) is url


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
    assert supports(capabilities, SAMPLING, SAMPLE) is plain
    assert supports(capabilities, SAMPLING, WITH_TOOLS) is tools
    assert supports(capabilities, ROOTS, {}) is roots


@pytest.mark.parametrize(
    ("method", "params", "required"),
    [
        (ELICITATION, FORM, {"elicitation": {"form": {}}}),
        (ELICITATION, URL, {"elicitation": {"url": {}}}),
        (SAMPLING, SAMPLE, {"sampling": {}}),
        (SAMPLING, WITH_TOOLS, {"sampling": {"tools": {}}}),
        (ROOTS, {}, {"roots": {}}),
    ],
)
def test_77_the_capability_that_is_missing_is_the_one_that_would_do(method: str, params: Any, required: Any) -> None:
    assert required_capability(method, params) == required
    MissingRequiredClientCapabilityErrorData.model_validate({"requiredCapabilities": required})
    assert supports(required, method, params)


# Wire forms


QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    (ROOTS, {}),
    (SAMPLING, SAMPLE),
    (SAMPLING, WITH_TOOLS),
    (SAMPLING, {**SAMPLE, "messages": [{"role": "user", "content": [TEXT, AUDIO]}]}),
    (SAMPLING, {**SAMPLE, "messages": [{"role": "assistant", "content": USE}, {"role": "user", "content": AUDIO}]}),
    (ELICITATION, FORM),
    (ELICITATION, {name: FORM[name] for name in ("message", "requestedSchema")}),
    (ELICITATION, URL),
]
CASES = [(*question, version) for question in QUESTIONS for version in SUPPORTED if method_known(question[0], version)]


@pytest.mark.parametrize(
    ("method", "params", "version"), [case for case in CASES if method_known(case[0], case[2], case[1])]
)
def test_every_question_is_one_of_the_revision(method: str, params: dict[str, Any], version: str) -> None:
    before = json.dumps(params)
    wire = json.loads(encode(request("a.1", method, shape(method, params, version))))
    check_wire(version, NAMES[method], wire)
    if version == MODERN:
        asked = {"resultType": "input_required", "inputRequests": {"a": {"method": method, "params": wire["params"]}}}
        check_wire(version, "InputRequiredResult", asked)
    else:
        check_wire(version, "JSONRPCRequest", wire)
    assert json.dumps(params) == before, "the question itself is left as it was"


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize(("method", "params"), [(ELICITATION, FORM), (ELICITATION, URL)])
def test_what_a_revision_cannot_ask_is_not_asked(method: str, params: dict[str, Any], version: str) -> None:
    if not method_known(method, version, params):
        with pytest.raises(ValueError, match="does not have"):
            shape(method, params, version)


@pytest.mark.parametrize(("version", "mode"), [("2025-06-18", None), ("2025-11-25", "form"), (MODERN, "form")])
def test_a_form_says_its_mode_to_those_who_know_modes(version: str, mode: str | None) -> None:
    wire = shape(ELICITATION, FORM, version)
    assert wire.get("mode") == mode
    assert wire["message"] == "Which?"
    assert wire["requestedSchema"]["required"] == ["name"]
    assert (wire["requestedSchema"]["properties"]["colours"]["type"] == "string") is (version == "2025-06-18")


def test_a_url_has_an_identifier_in_the_one_revision_that_has_them() -> None:
    first, again = shape(ELICITATION, URL, "2025-11-25"), shape(ELICITATION, URL, "2025-11-25")
    other = shape(ELICITATION, {**URL, "url": "https://shop.example/other"}, "2025-11-25")
    assert first == again
    assert first["elicitationId"] != other["elicitationId"]
    assert shape(ELICITATION, {**URL, "elicitationId": "mine"}, "2025-11-25")["elicitationId"] == "mine"
    assert shape(ELICITATION, {**URL, "elicitationId": "mine"}, MODERN) == URL


@pytest.mark.parametrize("version", SUPPORTED)
def test_tools_of_sampling_are_for_those_who_know_them(version: str) -> None:
    wire = shape(SAMPLING, WITH_TOOLS, version)
    assert wire == (WITH_TOOLS if is_at_least(version, "2025-11-25") else SAMPLE)


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
    assert shape(SAMPLING, params, version)["messages"] == [{"role": "user", "content": block} for block in contents]
    assert shape(SAMPLING, params, "2025-11-25") == params


# Answers


ANSWER = {"role": "assistant", "content": TEXT, "model": "m"}


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize(
    ("method", "result"),
    [
        (ROOTS, {"roots": []}),
        (ROOTS, {"roots": [{"uri": "file:///a", "name": "A"}], "_meta": {"a": 1}}),
        (SAMPLING, ANSWER),
        (SAMPLING, {**ANSWER, "stopReason": "endTurn"}),
        (ELICITATION, {"action": "accept", "content": {"a": "b", "c": 1, "d": 1.5, "e": True}}),
        (ELICITATION, {"action": "decline"}),
        (ELICITATION, {"action": "cancel"}),
    ],
)
def test_an_answer_comes_as_the_client_gave_it(method: str, result: dict[str, Any], version: str) -> None:
    if method_known(method, version):
        assert read_result(method, version, result) == result
    else:
        with pytest.raises(ValueError, match="not a result"):
            read_result(method, version, result)


@pytest.mark.parametrize(
    ("method", "result", "found"),
    [
        (SAMPLING, {**ANSWER, "stopReason": None, "_meta": None}, ANSWER),
        (ELICITATION, {"action": "accept"}, {"action": "accept", "content": {}}),
        (ELICITATION, {"action": "accept", "content": None}, {"action": "accept", "content": {}}),
        (ELICITATION, {"action": "accept", "content": {"a": None, "b": 0}}, {"action": "accept", "content": {"b": 0}}),
        (ELICITATION, {"action": "decline", "content": {"a": "b"}}, {"action": "decline"}),
        (ELICITATION, {"action": "cancel", "content": None, "x": 1}, {"action": "cancel"}),
    ],
)
def test_78_what_means_nothing_is_left_out(method: str, result: dict[str, Any], found: dict[str, Any]) -> None:
    assert read_result(method, MODERN, result) == found


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("method", "result"),
    [
        *((method, result) for method in NAMES for result in (None, [], "a", 12345, True, {}, {"error": {}})),
        (ROOTS, {"roots": None}),
        (ROOTS, {"roots": [{"uri": 1}]}),
        (ROOTS, {"roots": ["file:///a"]}),
        (SAMPLING, {**ANSWER, "role": "system"}),
        (SAMPLING, {**ANSWER, "content": "a"}),
        (SAMPLING, {**ANSWER, "content": {"type": "video"}}),
        (SAMPLING, {**ANSWER, "model": None}),
        (ELICITATION, {"action": "approve"}),
        (ELICITATION, {"action": "ACCEPT"}),
        (ELICITATION, {"action": True}),
        (ELICITATION, {"action": "accept", "content": []}),
        (ELICITATION, {"action": "accept", "content": "a"}),
        (ELICITATION, {"action": "accept", "content": {"a": {"b": 1}}}),
        (ELICITATION, {"action": "accept", "content": {"a": [1]}}),
    ],
)
def test_78_another_answer_is_refused_in_a_few_words(method: str, result: Any, version: str) -> None:
    with pytest.raises(ValueError, match="the answer is not a result of the method") as caught:
        read_result(method, version, result)
    assert len(str(caught.value)) < 300


def test_78_the_refusal_repeats_no_value() -> None:
    with pytest.raises(ValueError, match="roots") as caught:
        read_result(ROOTS, MODERN, {"roots": ["s3cret"]})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "result", "since"),
    [
        (ELICITATION, {"action": "accept", "content": {"a": ["b"]}}, "2025-11-25"),
        (SAMPLING, {**ANSWER, "content": AUDIO}, "2025-03-26"),
        (SAMPLING, {**ANSWER, "content": USE}, "2025-11-25"),
        (SAMPLING, {**ANSWER, "content": [TEXT, USE]}, "2025-11-25"),
    ],
)
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN])
def test_78_an_answer_of_a_newer_revision_is_refused(method: str, result: Any, since: str, version: str) -> None:
    if is_at_least(version, since):
        assert read_result(method, version, result) == result
    else:
        with pytest.raises(ValueError, match="not a result"):
            read_result(method, version, result)


def test_an_answer_to_a_form_comes_in_the_form_that_was_meant() -> None:
    result = {"action": "accept", "content": {"name": "a", "colours": "Red, Green"}}
    assert read_result(ELICITATION, "2025-06-18", result, FORM)["content"] == {"name": "a", "colours": ["r", "g"]}
    assert read_result(ELICITATION, "2025-06-18", result)["content"]["colours"] == "Red, Green"
    assert read_result(ELICITATION, MODERN, result, FORM)["content"]["colours"] == "Red, Green"
    assert read_result(ELICITATION, MODERN, {"action": "accept"}, URL) == {"action": "accept", "content": {}}

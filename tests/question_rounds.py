"""A client that answers: the rounds of a call that asks."""

from collections.abc import Mapping
from typing import Any

from mcp_django.testing import MCPClient

ELICITS = {"elicitation": {}}
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
DECLINE = {"action": "decline"}
CANCEL = {"action": "cancel"}


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


YES = accept(_confirm="yes")


def sampled(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m", "stopReason": "endTurn"}


def calling(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def send(client: MCPClient, params: Mapping[str, Any], method: str = "tools/call", **more: Any) -> dict[str, Any]:
    return client.request(method, **params, **more)


def again(
    client: MCPClient, params: Mapping[str, Any], asked: Mapping[str, Any], answers: Any, method: str = "tools/call"
) -> dict[str, Any]:
    """Make the call again with answers by key, or with the one answer to the one question."""
    if "action" in answers:
        answers = {only(asked)[0]: answers}
    state = {"requestState": asked["requestState"]} if "requestState" in asked else {}
    return client.request(method, **params, inputResponses=answers, **state)


def only(asked: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the key and the parameters of the only question."""
    assert asked["resultType"] == "input_required"
    [(key, question)] = asked["inputRequests"].items()
    return key, question["params"]


def text_of(result: Mapping[str, Any]) -> str:
    """Return the text of a result that is none of a question."""
    assert result["resultType"] == "complete"
    text: str = result["content"][0]["text"]
    return text

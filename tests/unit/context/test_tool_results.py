"""Results of tools on the wire."""

import json

import orjson

from mcp_django.context.tool_results import ToolResult
from mcp_django.exceptions import ToolError
from mcp_django.protocol.content import Text


def wire(result):
    return json.loads(orjson.dumps(result.to_wire()))


def test_the_first_block_is_the_json_of_the_structured_content():
    found = wire(ToolResult(structured={"a": [1, "ü"]}))
    assert found["structuredContent"] == {"a": [1, "ü"]}
    assert json.loads(found["content"][0]["text"]) == found["structuredContent"]
    assert "isError" not in found


def test_content_blocks_follow_the_structured_content():
    found = wire(ToolResult(structured={}, content=[Text("more")]))
    assert [block["text"] for block in found["content"]] == ["{}", "more"]


def test_an_error_is_bounded_text_with_the_flag():
    found = wire(ToolResult.of_error(ToolError("x" * 5_000)))
    assert found["isError"] is True
    assert len(found["content"][0]["text"]) == 1_050

import json

import orjson

from mcp_django.exceptions import ToolError
from mcp_django.protocol.content import Text
from mcp_django.tools.base import Tool, ToolResult, error_result


class Greet(Tool):
    name = "greet"
    description = "Say hello."
    read_only = True


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
    found = wire(error_result(ToolError("x" * 5_000)))
    assert found["isError"] is True
    assert len(found["content"][0]["text"]) == 1_500


def test_R7_a_definition_has_no_optional_key_without_a_value():
    found = Greet().definition()
    assert set(found) == {"name", "description", "inputSchema", "annotations"}


def test_R27_all_four_hints_are_explicit_and_agree_with_each_other():
    hints = Greet().definition()["annotations"]
    assert hints == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }


def test_a_tool_is_destructive_unless_it_says_otherwise():
    assert Tool.destructive
    assert not Tool.read_only

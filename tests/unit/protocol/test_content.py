"""Content blocks as the newest revision has them."""

import base64
from typing import Any

import pytest
from mcp_types.methods import serialize_server_result

from mcp_django.protocol.content import Audio, Content, EmbeddedResource, Image, ResourceLink, Text
from tests.protocol_messages import MODERN

pytestmark = pytest.mark.one_django

DATA = bytes(range(256))
ENCODED = base64.b64encode(DATA).decode()
URI = "django://shop/order/1"

CASES: list[tuple[Content, dict[str, Any]]] = [
    (Text(""), {"type": "text", "text": ""}),
    (Text("é\n\u2028"), {"type": "text", "text": "é\n\u2028"}),
    (Image(DATA), {"type": "image", "data": ENCODED, "mimeType": "image/png"}),
    (Image(b"", "image/webp"), {"type": "image", "data": "", "mimeType": "image/webp"}),
    (Audio(DATA), {"type": "audio", "data": ENCODED, "mimeType": "audio/wav"}),
    (
        EmbeddedResource(URI, "text"),
        {"type": "resource", "resource": {"uri": URI, "mimeType": "text/plain", "text": "text"}},
    ),
    (
        EmbeddedResource(URI, DATA, "image/png"),
        {"type": "resource", "resource": {"uri": URI, "mimeType": "image/png", "blob": ENCODED}},
    ),
    (ResourceLink(URI, "Order 1"), {"type": "resource_link", "uri": URI, "name": "Order 1"}),
    (
        ResourceLink(URI, "Order 1", "An order", "application/json", {"a": 1}),
        {
            "type": "resource_link",
            "uri": URI,
            "name": "Order 1",
            "description": "An order",
            "mimeType": "application/json",
            "_meta": {"a": 1},
        },
    ),
]


@pytest.mark.parametrize(("content", "wire"), CASES)
def test_each_block_has_its_json_and_no_empty_key(content: Content, wire: dict[str, Any]) -> None:
    assert content.to_wire() == wire


@pytest.mark.parametrize("content", [content for content, _ in CASES])
def test_each_block_is_one_that_the_schema_knows(content: Content) -> None:
    wire = content.to_wire()
    result = serialize_server_result("tools/call", MODERN, {"resultType": "complete", "content": [wire]})
    assert result["content"] == [wire], "the schema drops what it does not know"


@pytest.mark.parametrize("body", ["", "text", b"", b"\x00"])
def test_contents_are_those_of_a_read_resource(body: str | bytes) -> None:
    contents = EmbeddedResource(URI, body).contents()
    result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "contents": [contents]}
    assert serialize_server_result("resources/read", MODERN, result)["contents"] == [contents]
    assert ("text" in contents) == isinstance(body, str)
    assert ("blob" in contents) == isinstance(body, bytes)


def test_blocks_are_values() -> None:
    assert Text("a") == Text("a")
    with pytest.raises(AttributeError):
        Text("a").text = "b"  # type: ignore[misc]

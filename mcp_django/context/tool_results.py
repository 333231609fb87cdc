"""Results of tools (specification, server/tools, Tool Result), errors for the AI model included."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import orjson

from ..exceptions import ToolError
from ..protocol.content import Content, Text


@dataclass(slots=True)
class ToolResult:
    """The result of a tool: ``structured`` (a JSON object), or content blocks, or both. The JSON of ``structured`` also
    becomes the first block, because half of the clients show the model only one of the two."""

    structured: Mapping[str, Any] | None = None
    content: list[Content] = field(default_factory=list)
    is_error: bool = False

    # Maximum characters of an error, about 300 tokens of an AI model.
    MAX_ERROR: ClassVar[int] = 1_050

    @classmethod
    def of_error(cls, error: ToolError, last: str = "") -> "ToolResult":
        """Return the tool result that tells the AI model an error; ``last`` ends its text, however long the error
        is."""
        return cls(content=[Text(error.message[: cls.MAX_ERROR - len(last)] + last)], is_error=True)

    @property
    def length(self) -> int:
        """The characters of its texts and of its structured part."""
        length = sum(len(block.text) for block in self.content if isinstance(block, Text))
        if self.structured is not None:
            length += len(orjson.dumps(self.structured, default=str, option=orjson.OPT_NON_STR_KEYS))
        return length

    def to_wire(self) -> dict[str, Any]:
        """Return the tool result as JSON (``CallToolResult``); structured content is serialised once, for both."""
        wire: dict[str, Any] = {"content": [block.to_wire() for block in self.content]}
        if self.structured is not None:
            encoded = orjson.dumps(self.structured, default=str, option=orjson.OPT_NON_STR_KEYS)
            wire["content"].insert(0, Text(encoded.decode()).to_wire())
            wire["structuredContent"] = orjson.Fragment(encoded)
        if self.is_error:
            wire["isError"] = True
        return wire


@dataclass(slots=True)
class StoredResult(ToolResult):
    """The result of a tool that was made before, as JSON (``CallToolResult``)."""

    wire: Mapping[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """Return the tool result as it was stored."""
        return dict(self.wire)

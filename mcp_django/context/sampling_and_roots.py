"""Questions to the client's model and to the client itself, and their answers (client/sampling, client/roots)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sampled:
    """The result of sampling: the ``text`` of the client's AI model, ``content`` blocks and stop reason."""

    text: str
    content: tuple[Mapping[str, Any], ...]
    model: str = ""
    stop_reason: str = ""

    @classmethod
    def read(cls, result: Mapping[str, Any]) -> "Sampled":
        """Return what the client's model answered, from the result of ``sampling/createMessage``."""
        content = result["content"]
        blocks = tuple(content if isinstance(content, list) else [content])
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        return cls(text, blocks, result.get("model", ""), result.get("stopReason", ""))


@dataclass(frozen=True, slots=True)
class Root:
    """One of the client's roots, a ``file://`` URI. A root is the client's claim, not a permission."""

    uri: str
    name: str = ""

    @classmethod
    def read_all(cls, result: Mapping[str, Any]) -> "list[Root]":
        """Return the roots of the client, from the result of ``roots/list``."""
        return [cls(root["uri"], root.get("name") or "") for root in result["roots"]]


def sampling_params(messages: Any, max_tokens: int, system: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a sampling request (``sampling/createMessage``).

    ``messages`` is a text, or a list of texts, pairs of role and text, objects with ``role`` and ``content``, and
    ``SamplingMessage`` objects as they are on the wire. ``more`` has further parameters, such as ``temperature``.
    """
    items: Iterable[Any] = [messages] if isinstance(messages, str) else messages
    params: dict[str, Any] = {"messages": [_message(item) for item in items], "maxTokens": max_tokens}
    if system:
        params["systemPrompt"] = system
    return {**params, **more}


def _message(item: Any) -> Any:
    if isinstance(item, Mapping):
        return item
    item = ("user", item) if isinstance(item, str) else item
    role, content = item if isinstance(item, tuple) else (item.role, item.content)
    block = {"type": "text", "text": content} if isinstance(content, str) else content.to_wire()
    return {"role": role, "content": block}

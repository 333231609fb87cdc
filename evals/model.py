"""Language models over HTTP: a conversation with tools, by Anthropic's API or OpenAI's, which others speak too."""

import json
import os
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, ClassVar, Final

TIMEOUT: Final = 180
# Answers that say "later", and seconds before the first of the next tries; each waits twice as long as the one before.
RETRIED: Final = frozenset({408, 409, 429, 500, 502, 503, 529})
TRIES: Final = 5
PAUSE: Final = 2.0
MAX_OUTPUT: Final = 4_000
# Characters of what a provider says of a refusal.
MAX_REFUSAL: Final = 500


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would take the key along."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Return no request: the redirect is an error."""


_OPENER: Final = urllib.request.build_opener(_Stay)


class ModelError(Exception):
    """The model cannot be asked; the text says why, and holds no key."""


@dataclass(frozen=True)
class Use:
    """A call of a tool that the model wants; ``arguments`` is None where they are no JSON object."""

    id: str
    tool: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True)
class Turn:
    """What the model says, which tools it wants called, and how many tokens it has ``read`` and ``written``."""

    text: str
    uses: Sequence[Use]
    read: int
    written: int


class Conversation(ABC):
    """One conversation with a model."""

    base_url: ClassVar[str]
    key_name: ClassVar[str]

    def __init__(self, model: str, system: str, tools: Sequence[Mapping[str, Any]], base_url: str = "") -> None:
        self.model, self.system, self.tools = model, system, [self._tool(tool) for tool in tools]
        self.url = (base_url or self.base_url).rstrip("/")
        self.key = os.environ.get(self.key_name, "")
        if not self.key:
            raise ModelError(f"{self.key_name} is not set.")
        self.messages: list[dict[str, Any]] = []

    def say(self, text: str) -> Turn:
        """Send a text of the user and return the model's turn.

        Raises:
            ModelError: the provider refuses, or does not answer.
        """
        self.messages.append({"role": "user", "content": text})
        return self._turn()

    @abstractmethod
    def give(self, results: Sequence[tuple[Use, str, bool]]) -> Turn:
        """Send what the calls of the last turn returned, and whether they failed; return the next turn."""

    @abstractmethod
    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any]: ...

    @abstractmethod
    def _turn(self) -> Turn: ...

    def _post(self, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **headers})
        for attempt in range(1, TRIES + 1):
            try:
                with _OPENER.open(request, timeout=TIMEOUT) as response:
                    found = json.load(response)
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace").replace(self.key, "***")[:MAX_REFUSAL]
                if error.code not in RETRIED or attempt == TRIES:
                    raise ModelError(f"{self.url} answered {error.code}: {said}") from None
            except (OSError, ValueError, HTTPException) as error:
                if attempt == TRIES:
                    raise ModelError(f"{self.url} did not answer: {error}") from None
            else:
                if isinstance(found, dict):
                    return found
                raise ModelError(f"{self.url} answered with something else than an object.")
            time.sleep(PAUSE * 2 ** (attempt - 1))
        raise AssertionError


class Anthropic(Conversation):
    """The Messages API."""

    base_url = "https://api.anthropic.com"
    key_name = "ANTHROPIC_API_KEY"

    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "name": tool["name"],
            "description": tool.get("description", ""),
            "input_schema": tool["inputSchema"],
        }

    def give(self, results: Sequence[tuple[Use, str, bool]]) -> Turn:
        """See :meth:`Conversation.give`."""
        content = [
            {"type": "tool_result", "tool_use_id": use.id, "content": text, "is_error": failed}
            for use, text, failed in results
        ]
        self.messages.append({"role": "user", "content": content})
        return self._turn()

    def _turn(self) -> Turn:
        body = {"model": self.model, "max_tokens": MAX_OUTPUT, "system": self.system}
        headers = {"x-api-key": self.key, "anthropic-version": "2023-06-01"}
        found = self._post("/v1/messages", headers, {**body, "tools": self.tools, "messages": self.messages})
        blocks = found.get("content") or []
        self.messages.append({"role": "assistant", "content": blocks})
        uses = [
            Use(block["id"], block["name"], block["input"] if isinstance(block["input"], dict) else None)
            for block in blocks
            if block["type"] == "tool_use"
        ]
        text = "".join(block.get("text", "") for block in blocks if block["type"] == "text")
        usage = found.get("usage", {})
        return Turn(text, uses, usage.get("input_tokens", 0), usage.get("output_tokens", 0))


class OpenAI(Conversation):
    """The chat completions API, which many servers of models speak."""

    base_url = "https://api.openai.com/v1"
    key_name = "OPENAI_API_KEY"

    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        function = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["inputSchema"]}
        return {"type": "function", "function": function}

    def give(self, results: Sequence[tuple[Use, str, bool]]) -> Turn:
        """See :meth:`Conversation.give`."""
        self.messages += [{"role": "tool", "tool_call_id": use.id, "content": text} for use, text, _ in results]
        return self._turn()

    def _turn(self) -> Turn:
        messages = [{"role": "system", "content": self.system}, *self.messages]
        headers = {"Authorization": f"Bearer {self.key}"}
        body = {"model": self.model, "messages": messages, "tools": self.tools}
        found = self._post("/chat/completions", headers, body)
        try:
            message = found["choices"][0]["message"]
        except (KeyError, IndexError, TypeError):
            raise ModelError(f"{self.url} answered without a message.") from None
        self.messages.append(message)
        uses = [
            Use(call["id"], call["function"]["name"], _object(call["function"].get("arguments", "")))
            for call in message.get("tool_calls") or []
        ]
        usage = found.get("usage") or {}
        read, written = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        return Turn(message.get("content") or "", uses, read, written)


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


PROVIDERS: Final[Mapping[str, type[Conversation]]] = {"anthropic": Anthropic, "openai": OpenAI}

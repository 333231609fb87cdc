"""``MCPClient``: a test client that calls the endpoint in the process of a test, with a real token.

It posts to the mounted endpoint through Django's test client, so a test includes routing, authentication, scopes and
the protocol. Use it in a ``TestCase``: everything runs in the test's own thread and transaction.
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.test import Client

from .oauth.resource_urls import resource_url
from .oauth.stored_tokens import issue_token
from .protocol.client_requests import ClientRequest
from .protocol.eras import client_meta
from .protocol.headers import NAME_SOURCES
from .protocol.versions import Revisions
from .schema.consent import ConsentForm
from .scopes import Scope

__all__ = ["MCPClient", "MCPError", "ToolCall"]


class MCPError(AssertionError):
    """Raised when the server answers with a JSON-RPC error, or with no JSON-RPC at all."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(f"HTTP {status}: {error}")
        self.status = status
        self.code = error.get("code")
        self.data = error.get("data")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a tool answered: the ``text`` of its first block, ``structured`` content, and ``is_error``."""

    text: str
    structured: Any
    is_error: bool
    content: list[Any]


class MCPClient:
    """A client that is signed in as ``user`` with ``scopes``, or not signed in without a user.

    ``version`` is the protocol revision to speak; ``path`` is where the endpoint is mounted; ``name`` is the name of
    the client. ``answers`` are given, by key, to the questions of a call until it has none left: the content of a form,
    True to confirm, None to decline, or for another question the client's whole result. Only clients of 2026-07-28 are
    asked here.
    """

    def __init__(
        self,
        user: AbstractBaseUser | None = None,
        *,
        scopes: Iterable[str] = (Scope.READ, Scope.WRITE),
        path: str = "/mcp",
        version: str = Revisions.LATEST,
        capabilities: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
        name: str = "mcp_django.testing",
    ) -> None:
        self.path = path
        self.name = name
        self.version = version
        self.answers = answers
        self.capabilities = dict(capabilities or ({} if answers is None else EVERYTHING))
        self.headers: dict[str, str] = {"Accept": "application/json, text/event-stream"}
        if user is not None:
            token = issue_token(user, scopes=scopes, resource=resource_url(None, path))
            self.headers["Authorization"] = f"Bearer {token}"
        self.http = Client()
        self._ids = itertools.count(1)

    def post(self, body: bytes | str, **headers: str) -> Any:
        """Post a body as it is, and return Django's response."""
        return self.http.post(self.path, body, content_type="application/json", headers={**self.headers, **headers})

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Call an MCP method and return its result. Raises :class:`MCPError` if the answer is not a result."""
        response = self.send(method, params)
        message = json.loads(response.content) if response.content else {}
        if "result" not in message:
            raise MCPError(response.status_code, message.get("error", {}))
        result: dict[str, Any] = message["result"]
        if self.answers is None or result.get("resultType") != "input_required":
            return result
        responses = {key: self._answer(key, question) for key, question in result.get("inputRequests", {}).items()}
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return self.request(method, **{**params, "inputResponses": responses, **state})

    def _answer(self, key: str, question: Mapping[str, Any]) -> Any:
        assert self.answers is not None
        if key not in self.answers:
            message = question["params"].get("message", question["method"])
            raise AssertionError(f"There is no answer to {key!r}: {message}")
        answer = self.answers[key]
        if question["method"] != ClientRequest.ELICITATION:
            return answer
        if answer is None:
            return {"action": "decline"}
        return {"action": "accept", "content": {ConsentForm.FIELD: ConsentForm.YES} if answer is True else answer}

    def send(self, method: str, params: Mapping[str, Any]) -> Any:
        """Call an MCP method and return Django's response, whatever it is."""
        headers = {"MCP-Protocol-Version": self.version}
        sent = dict(params)
        if self.version in Revisions.MODERN:
            meta = client_meta(self.name, self.version, self.capabilities)
            sent["_meta"] = {**meta, **sent.get("_meta", {})}
            headers["Mcp-Method"] = method
            if name := params.get(NAME_SOURCES.get(method, "")):
                headers["Mcp-Name"] = str(name)
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": sent}
        return self.post(json.dumps(body), **headers)

    def tools(self) -> list[dict[str, Any]]:
        """Return the definitions of the tools that the user may use."""
        definitions: list[dict[str, Any]] = self.request("tools/list")["tools"]
        return definitions

    def call(self, tool: str, **arguments: Any) -> ToolCall:
        """Call a tool and return its result, also an error for the AI model (``is_error``)."""
        result = self.request("tools/call", name=tool, arguments=arguments)
        content = result["content"]
        text = content[0].get("text", "") if content else ""
        return ToolCall(text, result.get("structuredContent"), result.get("isError", False), content)

    def read(self, uri: str) -> list[dict[str, Any]]:
        """Read a resource and return its contents."""
        contents: list[dict[str, Any]] = self.request("resources/read", uri=uri)["contents"]
        return contents


EVERYTHING: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}

"""``MCPClient``: a test client that calls the endpoint in the process of a test, with a real token.

It posts to the mounted endpoint through Django's test client, so a test includes routing, authentication, scopes and
the protocol. Use it in a ``TestCase``: everything runs in the test's own thread and transaction.
"""

import itertools
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.auth.base_user import AbstractBaseUser
from django.test import Client

from .oauth.resource_urls import resource_url
from .oauth.stored_tokens import issue_token
from .protocol.client_requests import ClientRequest
from .protocol.eras import client_meta
from .protocol.headers import NAME_SOURCES
from .protocol.tasks import EXTENSION
from .protocol.versions import Revisions
from .schema.consent import ConsentForm
from .scopes import Scope
from .tasks import run_task
from .tasks.engines import without_tasks

__all__ = ["MCPClient", "MCPError", "ToolCall"]

# Seconds between two looks at a task that another worker runs.
LOOK_EVERY: Final = 0.1


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

    No call goes on as a task: each runs in its request. Only for a client that declares in its ``capabilities`` that it
    takes tasks, calls become tasks as they do elsewhere; ``call`` runs them to their end. Use it for such a client in a
    ``TransactionTestCase``: the task's own connections have to see its row.
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
        # Whether calls can become tasks.
        self.makes_tasks = EXTENSION in (self.capabilities.get("extensions") or ())
        self.headers: dict[str, str] = {"Accept": "application/json, text/event-stream"}
        if user is not None:
            token = issue_token(user, scopes=scopes, resource=resource_url(None, path))
            self.headers["Authorization"] = f"Bearer {token}"
        self.http = Client()
        self._ids = itertools.count(1)

    def post(self, body: bytes | str, **headers: str) -> Any:
        """Post a body as it is, and return Django's response."""
        with nullcontext() if self.makes_tasks else without_tasks():
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
        if result.get("resultType") == "task":
            result = self._result_of(result["taskId"])
        content = result["content"]
        text = content[0].get("text", "") if content else ""
        return ToolCall(text, result.get("structuredContent"), result.get("isError", False), content)

    def _result_of(self, task_id: str) -> dict[str, Any]:
        """Run a task to its end here, unless a worker has it, and return its result. Raises :class:`MCPError` if it was
        cancelled, or ended with an error of the protocol."""
        while True:
            run_task(task_id)
            found = self.request("tasks/get", taskId=task_id)
            match found["status"]:
                case "completed":
                    result: dict[str, Any] = found["result"]
                    return result
                case "working":
                    time.sleep(LOOK_EVERY)
                case "input_required" if self.answers is not None:
                    given = {key: self._answer(key, question) for key, question in found["inputRequests"].items()}
                    self.request("tasks/update", taskId=task_id, inputResponses=given)
                case _:
                    raise MCPError(200, found.get("error") or found)

    def read(self, uri: str) -> list[dict[str, Any]]:
        """Read a resource and return its contents."""
        contents: list[dict[str, Any]] = self.request("resources/read", uri=uri)["contents"]
        return contents


EVERYTHING: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}

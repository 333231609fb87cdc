"""A measured call: as request bytes for each contender, and what a right answer holds."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .load import Answer, BadAnswer, Check
from .servers import Contender

LEGACY, MODERN = "2025-11-25", "2026-07-28"
OK = 200
# The answers to one request differ in the time within a cursor, and in whether a write has changed anything.
SLACK = 0.1


@dataclass(frozen=True)
class Call:
    """One call, the same for all contenders that have it.

    ``method`` and ``params`` are what MCP servers get, ``path`` is what bare views get. ``essence`` takes from a result
    what has to be the same for every contender, and for every call of one ``essence_of``.
    """

    name: str
    title: str
    method: str
    params: Mapping[str, Any]
    path: str | None
    essence: Callable[[Mapping[str, Any]], Any]
    sdk: bool = True
    # Calls of one group are compared with each other, and so measured in turns.
    group: str = ""
    essence_of: str = ""
    # The contenders that are asked; none: all that can be.
    only: frozenset[str] = frozenset()
    # Of a write, one request after the other, so that each changes something.
    values: Sequence[Mapping[str, Any]] = ()

    def has(self, contender: Contender) -> bool:
        """Return whether the contender can be asked."""
        if self.only and contender.name not in self.only:
            return False
        if not contender.speaks_mcp:
            return self.path is not None
        return self.sdk or not contender.application.startswith("sdk")

    def requests(self, contender: Contender, port: int, token: str, revision: str) -> list[bytes]:
        """Return the bytes of the requests, which are sent in turns."""
        if contender.speaks_mcp:
            return [
                mcp_request(port, self.method, params, token=token, revision=revision) for params in self.all_params()
            ]
        assert self.path is not None
        headers = {"Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {token}"}
        if not self.values:
            return [http_request("GET", self.path, headers)]
        headers["Content-Type"] = "application/json"
        bodies = [json.dumps(values).encode() for values in self.values]
        return [http_request("POST", self.path, headers | {"Content-Length": str(len(body))}, body) for body in bodies]

    def all_params(self) -> Sequence[Mapping[str, Any]]:
        """Return the params of the requests of MCP."""
        arguments = self.params.get("arguments", {})
        changed: list[Mapping[str, Any]] = [
            {**self.params, "arguments": {**arguments, "values": values}} for values in self.values
        ]
        return changed or [self.params]

    def read(self, contender: Contender, answer: Answer) -> Any:
        """Return the essence of an answer.

        Raises:
            BadAnswer: it is not the answer to this call.
        """
        try:
            document = json.loads(answer.body)
            result = document["result"] if contender.speaks_mcp else document
            if answer.status != OK or result.get("isError"):
                raise BadAnswer("an error")
            return self.essence(result.get("structuredContent", result))
        except Exception as error:
            what = f"{contender.title}, {self.name}: {answer.status} {answer.body[:500]!r}"
            raise BadAnswer(f"{what} ({error!r})") from error


def http_request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return an HTTP/1.1 request."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def mcp_request(port: int, method: str, params: Mapping[str, Any], *, token: str, revision: str) -> bytes:
    """Return the POST of one JSON-RPC request, complete in itself in either era."""
    headers = {
        "Host": f"127.0.0.1:{port}",
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
    }
    if revision == MODERN:
        meta = {
            "io.modelcontextprotocol/protocolVersion": revision,
            "io.modelcontextprotocol/clientInfo": {"name": "benchmarks", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {**params, "_meta": meta}
        headers["Mcp-Method"] = method
        if name := params.get("name") or params.get("uri"):
            headers["Mcp-Name"] = name
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return http_request("POST", "/mcp", headers | {"Content-Length": str(len(body))}, body)


def checker(model_answer: Answer) -> Check:
    """Return a quick check of further answers: success, and as long an answer as the one that was read."""
    expected = len(model_answer.body)

    def check(answer: Answer) -> None:
        if answer.status != OK or abs(len(answer.body) - expected) > expected * SLACK:
            raise BadAnswer(f"{answer.status} {answer.body[:500]!r}")

    return check

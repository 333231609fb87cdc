"""A client that may turn to any of several workers with each request."""

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

MODERN = "2026-07-28"
TIMEOUT = httpx2.Timeout(20)


class Stream:
    """An event stream that is being read."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.lines = response.aiter_lines()
        self.last_id: str | None = None

    async def message(self) -> Any:
        """The next message, None at the end of the stream."""
        data = ""
        async for line in self.lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "data":
                data = value
            elif not line and data:
                return json.loads(data)
        return None

    async def primed(self) -> str:
        """The id that the stream begins with."""
        async for line in self.lines:
            if line.startswith("id: "):
                self.last_id = line.removeprefix("id: ")
                return self.last_id
        raise AssertionError("the stream has no id")

    async def rest(self) -> list[Any]:
        found = []
        while (message := await self.message()) is not None:
            found.append(message)
        return found


class Client:
    """One client with one token, in either era."""

    def __init__(self, http: httpx2.AsyncClient, token: str, *, version: str = "2025-11-25") -> None:
        self.http, self.token, self.version = http, token, version
        self.session: str | None = None
        self.ids = itertools.count(1)

    def headers(self, **more: str | None) -> dict[str, str]:
        sent = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": self.version,
            "Mcp-Session-Id": self.session,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        return {name: value for name, value in sent.items() if value}

    def message(self, method: str, params: Any = None) -> dict[str, Any]:
        params = dict(params or {})
        if self.version == MODERN:
            prefix = "io.modelcontextprotocol"
            params["_meta"] = {
                f"{prefix}/protocolVersion": MODERN,
                f"{prefix}/clientCapabilities": {"elicitation": {}},
                **params.get("_meta", {}),
            }
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}

    @asynccontextmanager
    async def stream(self, url: str, method: str, params: Any = None) -> AsyncIterator[Stream]:
        """Make a request whose answer is a stream."""
        name = (params or {}).get("name")
        modern = {"Mcp_Method": method, "Mcp_Name": name} if self.version == MODERN else {}
        message = self.message(method, params)
        headers = self.headers(**modern)
        async with self.http.stream("POST", url, json=message, headers=headers, timeout=TIMEOUT) as response:
            assert response.headers["content-type"] == "text/event-stream", await response.aread()
            yield Stream(response)

    @asynccontextmanager
    async def listen(self, url: str, last_event_id: str | None = None) -> AsyncIterator[Stream]:
        """Open the session's stream of changes, or go on with a stream."""
        headers = self.headers(Last_Event_ID=last_event_id)
        async with self.http.stream("GET", url, headers=headers, timeout=TIMEOUT) as response:
            assert response.status_code == 200, await response.aread()
            yield Stream(response)

    async def post(self, url: str, body: Any) -> httpx2.Response:
        return await self.http.post(url, json=body, headers=self.headers(), timeout=TIMEOUT)

    async def initialize(self, url: str) -> None:
        params = {
            "protocolVersion": self.version,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "tests", "version": "1"},
        }
        response = await self.post(url, self.message("initialize", params))
        self.session = response.headers["mcp-session-id"]
        response = await self.post(url, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert response.status_code == 202

    async def result(self, url: str, method: str, params: Any = None) -> Any:
        response = await self.post(url, self.message(method, params))
        assert "result" in response.json(), response.text
        return response.json()["result"]

    async def call(self, url: str, tool: str, **arguments: Any) -> Any:
        """Call a tool whose answer is JSON."""
        result = await self.result(url, "tools/call", {"name": tool, "arguments": arguments})
        return result.get("structuredContent") or result["content"][0]["text"]

    async def answer(self, url: str, identifier: Any, result: Any) -> None:
        response = await self.post(url, {"jsonrpc": "2.0", "id": identifier, "result": result})
        assert response.status_code == 202, response.text

"""A client of the handshake era over the consumer itself: a session, calls, streams."""

import itertools
import json
from typing import Any

from mcp_django import site
from mcp_django.transports.http.streamable_http import as_application
from tests.asgi_client import Exchange, http_scope

ELICITATION = {"elicitation": {}, "sampling": {}, "roots": {}}


def read_event(block: bytes) -> dict[str, str]:
    """Return the fields of one event; a comment has none."""
    lines = block.decode().strip("\n").split("\n")
    fields = (line.split(":", 1) for line in lines if line and not line.startswith(":"))
    return {name: value.removeprefix(" ") for name, value in fields}


class EventStream:
    """An event stream that is being read."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.status = 0
        self.headers: dict[str, str] = {}
        self.last_id: str | None = None
        self.retry: str | None = None
        self.is_over = False
        self._blocks: list[bytes] = []

    async def start(self, timeout: float = 20) -> "EventStream":
        start = await self.exchange.next(timeout)
        self.status = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return self

    async def block(self, timeout: float = 20) -> dict[str, str] | None:
        """Return the next event with any field, None at the end of the stream."""
        while True:
            while self._blocks:
                found = read_event(self._blocks.pop(0))
                if found:
                    self.last_id = found.get("id", self.last_id)
                    self.retry = found.get("retry", self.retry)
                    return found
            if self.is_over:
                return None
            message = await self.exchange.next(timeout)
            self._blocks = [block for block in message.get("body", b"").split(b"\n\n") if block]
            self.is_over = not message.get("more_body", False)

    async def message(self, timeout: float = 20) -> Any:
        """Return the next JSON-RPC message, None at the end of the stream."""
        while (found := await self.block(timeout)) is not None:
            if found.get("data"):
                return json.loads(found["data"])
        return None

    async def rest(self) -> list[Any]:
        """Return all messages until the end."""
        found = []
        while (message := await self.message()) is not None:
            found.append(message)
        return found

    async def close(self) -> None:
        await self.exchange.disconnect()
        await self.exchange.communicator.wait(5)


class SessionClient:
    """One client with a token (the whole ``Authorization`` header)."""

    def __init__(
        self,
        token: str,
        *,
        version: str = "2025-11-25",
        capabilities: Any = None,
        application: Any = None,
        name: str = "tests",
    ) -> None:
        self.token, self.version, self.name = token, version, name
        self.capabilities = {} if capabilities is None else capabilities
        self.application = application or as_application(site)
        self.session: str | None = None
        self.ids = itertools.count(1)

    def open(self, method: str = "POST", **headers: str) -> Exchange:
        sent = {"authorization": self.token, "mcp_protocol_version": self.version}
        if self.session is not None:
            sent["mcp_session_id"] = self.session
        sent |= headers
        return Exchange(self.application, http_scope(method=method, **{k: v for k, v in sent.items() if v}))

    async def initialize(self) -> Any:
        params = {
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": self.name, "version": "1"},
        }
        status, headers, body = await self.send("initialize", params)
        assert status == 200, body
        self.session = headers.get("mcp-session-id")
        await self.notify("notifications/initialized")
        return json.loads(body)["result"]

    async def post(self, body: Any, **headers: str) -> tuple[int, dict[str, str], bytes]:
        exchange = self.open(**headers)
        await exchange.send(body)
        return await exchange.answer()

    def message(self, method: str, params: Any = None) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params or {}}

    async def send(self, method: str, params: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return await self.post(self.message(method, params), **headers)

    async def result(self, method: str, params: Any = None) -> Any:
        status, _, body = await self.send(method, params)
        answer = json.loads(body)
        assert "result" in answer, (status, answer)
        return answer["result"]

    async def error(self, method: str, params: Any = None) -> Any:
        _, _, body = await self.send(method, params)
        return json.loads(body)["error"]

    async def notify(self, method: str, params: Any = None) -> None:
        status, _, _ = await self.post({"jsonrpc": "2.0", "method": method, "params": params or {}})
        assert status == 202

    async def answer(self, identifier: str, result: Any) -> None:
        """Answer a request of the server's."""
        status, _, _ = await self.post({"jsonrpc": "2.0", "id": identifier, "result": result})
        assert status == 202

    async def call(self, tool: str, progress: Any = None, **arguments: Any) -> EventStream:
        """Call a tool and return the stream that answers."""
        meta = {"_meta": {"progressToken": progress}} if progress is not None else {}
        exchange = self.open()
        await exchange.send(self.message("tools/call", {"name": tool, "arguments": arguments, **meta}))
        return await EventStream(exchange).start()

    async def listen(self, last_event_id: str | None = None) -> EventStream:
        """Open the GET stream, or go on with a stream after an event."""
        exchange = self.open("GET", **({"last_event_id": last_event_id} if last_event_id else {}))
        await exchange.send(b"")
        return await EventStream(exchange).start()

    async def end(self) -> int:
        exchange = self.open("DELETE")
        await exchange.send(b"")
        return (await exchange.answer())[0]

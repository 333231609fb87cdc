"""One request to an ASGI application, message by message, as a server would send it."""

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator

JSON = "application/json, text/event-stream"


def http_scope(path: str = "/mcp", method: str = "POST", **headers: str) -> dict[str, Any]:
    """Make the scope; `accept_language="de"` becomes the header `Accept-Language`."""
    named = {"host": "testserver", "content-type": "application/json", "accept": JSON}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "scheme": "http",
        "client": ("127.0.0.1", 50000),
        "server": ("testserver", 80),
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }


class Exchange:
    """A request that is under way."""

    def __init__(self, application: Any, scope: dict[str, Any]) -> None:
        self.communicator = ApplicationCommunicator(application, scope)

    async def send(self, body: Any, more: bool = False) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.communicator.send_input({"type": "http.request", "body": data, "more_body": more})

    async def disconnect(self) -> None:
        await self.communicator.send_input({"type": "http.disconnect"})

    async def next(self, timeout: float = 20) -> Any:
        return await self.communicator.receive_output(timeout)

    async def answer(self, timeout: float = 20) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and whole body."""
        start = await self.next(timeout)
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        body, more = b"", True
        while more:
            message = await self.next(timeout)
            body += message.get("body", b"")
            more = message.get("more_body", False)
        await self.communicator.wait(timeout)
        return start["status"], headers, body


def events(body: bytes) -> list[Any]:
    """Return the JSON of each event of a stream."""
    blocks = [block for block in body.decode().split("\n\n") if "data: {" in block]
    return [json.loads(block.split("data: ", 1)[1]) for block in blocks]

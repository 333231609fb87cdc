"""One request to an ASGI application, message by message, as a server would send it."""

import asyncio
import contextlib
import gc
import json
from collections.abc import Callable, Iterator
from typing import Any

from asgiref.testing import ApplicationCommunicator

JSON = "application/json, text/event-stream"
# Seconds until what does not come counts as not coming: the machine may be busy.
PATIENCE = 30


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

    async def next(self, timeout: float = PATIENCE) -> Any:
        return await self.communicator.receive_output(timeout)

    async def answer(self, timeout: float = PATIENCE) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and whole body."""
        start = await self.next(timeout)
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        body, more = b"", True
        while more:
            message = await self.next(timeout)
            body += message.get("body", b"")
            more = message.get("more_body", False)
        await self.over(timeout)
        return start["status"], headers, body

    async def over(self, timeout: float = PATIENCE) -> None:
        """Return when the application has returned."""
        await self.communicator.wait(timeout)


class Waiting:
    """A tool `wait` that goes on until it is stopped, and the events of its begin and end."""

    def __init__(self, tools: Callable[..., None]) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

        async def wait(request) -> str:  # type: ignore[no-untyped-def]
            """Wait."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return "waited"

        tools(wait, read_only=True)


@contextlib.contextmanager
def nothing_reported() -> Iterator[None]:
    """Fail when asyncio reports something of the block, such as an exception that nobody took."""
    loop, reports = asyncio.get_running_loop(), []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    try:
        yield
        # What is reported when it is collected.
        gc.collect()
    finally:
        loop.set_exception_handler(before)
    assert reports == []


def events(body: bytes) -> list[Any]:
    """Return the JSON of each event of a stream."""
    blocks = [block for block in body.decode().split("\n\n") if "data: {" in block]
    return [json.loads(block.split("data: ", 1)[1]) for block in blocks]

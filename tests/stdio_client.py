"""A client that speaks with the server over pipes, in this process."""

import asyncio
import contextlib
import itertools
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Any

from channels.db import database_sync_to_async

from mcp_django import site
from mcp_django.transports.stdio.server import StdioServer
from tests.factories import make_superuser
from tests.protocol_messages import CAPABILITIES_KEY, META, PARAMS

TIMEOUT = 20


def in_thread(function: Any) -> Any:
    """Run the function in any thread, whose connection to the database does not outlive it."""
    return database_sync_to_async(function, thread_sensitive=False)


READ_WRITE = ("mcp:read", "mcp:write")


class Talk:
    """The client's ends of the pipes, and the server that has the others."""

    pipe: asyncio.ReadTransport
    running: "asyncio.Future[None]"

    def __init__(self, server: StdioServer, to_server: int, from_server: int) -> None:
        self.server, self.to_server, self.from_server = server, to_server, from_server
        self.ids = itertools.count(1)
        self.reader = asyncio.StreamReader(limit=2**24)
        self.aside: list[Any] = []
        # A thread writes: the server, whose loop is this one, may have to read before there is room in the pipe.
        self.outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self.writer = threading.Thread(target=self._write)
        self.writer.start()

    def _write(self) -> None:
        with os.fdopen(self.to_server, "wb", buffering=0) as file, contextlib.suppress(BrokenPipeError):
            while (data := self.outgoing.get()) is not None:
                while data:
                    data = data[file.write(data) :]

    def send(self, message: Any) -> None:
        """Send a message, or bytes as they are."""
        self.outgoing.put(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    async def receive(self) -> Any:
        """The next message, which must come soon and be one line."""
        if self.aside:
            return self.aside.pop(0)
        line = await asyncio.wait_for(self.reader.readline(), TIMEOUT)
        assert line.endswith(b"\n")
        return json.loads(line)

    async def rest(self) -> list[Any]:
        """Every message until the server closes its output."""
        data = await asyncio.wait_for(self.reader.read(), TIMEOUT)
        return [*self.aside, *map(json.loads, data.splitlines())]

    def ask(self, method: str, params: Any = None, **members: Any) -> int:
        """Send a request of the handshake era; return its id."""
        identifier = next(self.ids)
        params = {**PARAMS.get(method, {}), **(params or {})}
        self.send({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params, **members})
        return identifier

    def ask_modern(self, method: str, params: Any = None, capabilities: Any = None, **meta: Any) -> int:
        """Send a request of 2026-07-28; return its id."""
        meta = {**META, CAPABILITIES_KEY: capabilities or {}, **meta}
        return self.ask(method, {**(params or {}), "_meta": meta})

    def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def answer(self, identifier: int) -> Any:
        """The answer to a request; other messages stay for `receive`."""
        for message in self.aside:
            if message.get("id") == identifier and "method" not in message:
                self.aside.remove(message)
                return message
        while True:
            waiting, self.aside = self.aside, []
            message = await self.receive()
            self.aside = waiting
            if message.get("id") == identifier and "method" not in message:
                return message
            self.aside.append(message)

    async def call(self, method: str, params: Any = None) -> Any:
        """The result of a request of the handshake era."""
        return (await self.answer(self.ask(method, params)))["result"]

    async def call_modern(self, method: str, params: Any = None, **options: Any) -> Any:
        """The result of a request of 2026-07-28."""
        return (await self.answer(self.ask_modern(method, params, **options)))["result"]

    async def begin(self, version: str = "2025-11-25", **capabilities: Any) -> Any:
        """Shake hands; return the result of `initialize`."""
        result = await self.call("initialize", {"protocolVersion": version, "capabilities": capabilities})
        self.tell("notifications/initialized")
        return result

    def stop_reading(self) -> None:
        """Let what the server says stay in the pipe."""
        self.pipe.pause_reading()

    def go_on_reading(self) -> None:
        """Read again."""
        self.pipe.resume_reading()

    def hang_up(self) -> None:
        """Close the server's output."""
        self.pipe.close()

    def leave(self) -> None:
        """Close the server's input."""
        self.outgoing.put(None)


@asynccontextmanager
async def talk(user: Any = None, scopes: tuple[str, ...] = READ_WRITE, mcp_site: Any = site) -> AsyncIterator[Talk]:
    """Run a server for a user, a superuser by default, until the block ends; it must end by itself."""
    user = user or await in_thread(make_superuser)()
    server_in, to_server = os.pipe()
    from_server, server_out = os.pipe()
    client = Talk(StdioServer(mcp_site, user, scopes, (server_in, server_out)), to_server, from_server)
    loop = asyncio.get_running_loop()
    client.pipe, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(client.reader), os.fdopen(from_server, "rb")
    )
    client.running = asyncio.ensure_future(client.server.run())
    # As when the process ends.
    client.running.add_done_callback(lambda _: os.close(server_out))
    try:
        yield client
    finally:
        client.leave()
        await asyncio.wait_for(client.running, TIMEOUT)
        client.pipe.close()
        os.close(server_in)
        await in_thread(client.writer.join)(TIMEOUT)


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    """The parameters of a call of a tool."""
    return {"name": name, "arguments": arguments}


class Gate:
    """A tool that waits until it is let go."""

    def __init__(self) -> None:
        self.begun, self.release, self.ended = threading.Event(), threading.Event(), threading.Event()

    def wait(self, request: Any) -> str:
        self.begun.set()
        while not self.release.wait(0.01):
            request.mcp.progress(1)
        self.ended.set()
        return "done"

    async def until_begun(self) -> None:
        assert await in_thread(self.begun.wait)(TIMEOUT)

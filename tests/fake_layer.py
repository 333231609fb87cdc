"""A channel layer of one process that loses messages, fails and hangs when told to."""

import asyncio
import itertools
import json
from typing import Any


class Server:
    """What the layers of several processes have in common."""

    def __init__(self) -> None:
        self.groups: dict[str, set[str]] = {}
        self.queues: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self.calls: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.lost = 0
        self.names = itertools.count()
        self.changed = asyncio.Condition()

    async def called(self, name: str) -> None:
        self.calls.append(name)
        await self.notify()
        if self.error is not None:
            raise self.error

    async def notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def wait(self, condition: Any) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(condition)

    def break_connections(self, error: Exception) -> None:
        """Fail everything, what waits included."""
        self.error = error
        for queue in self.queues.values():
            queue.put_nowait({"error": error})


class FakeLayer:
    """The part of a layer's interface that the app uses."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def new_channel(self) -> str:
        await self.server.called("new_channel")
        name = f"channel{next(self.server.names)}"
        self.server.queues[name] = asyncio.Queue()
        return name

    async def group_add(self, group: str, channel: str) -> None:
        await self.server.called("group_add")
        self.server.groups.setdefault(group, set()).add(channel)

    async def group_discard(self, group: str, channel: str) -> None:
        await self.server.called("group_discard")
        self.server.groups.get(group, set()).discard(channel)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        await self.server.called("group_send")
        self.server.sent.append(json.loads(message["body"]))
        if self.server.lost:
            self.server.lost -= 1
            return
        for channel in self.server.groups.get(group, ()):
            self.server.queues[channel].put_nowait(dict(message))

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        await self.server.called("send")
        self.server.queues[channel].put_nowait(dict(message))

    async def receive(self, channel: str) -> dict[str, Any]:
        message = await self.server.queues[channel].get()
        if "error" in message:
            raise message["error"]
        return message

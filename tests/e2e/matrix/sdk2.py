"""The second generation of the Python package, in both eras."""

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp.client.session
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from walk import ROOT, Ear, answer, sampled

LOG_LEVEL = "io.modelcontextprotocol/logLevel"
READ_TIMEOUT = 60


def wire(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


class Sdk2:
    """A client, with JSON for whatever the package has classes for."""

    def __init__(self, client: Any, ear: Ear, transport: str, asked: list[dict[str, Any]]) -> None:
        self.client, self.ear, self.transport, self.asked = client, ear, transport, asked

    @property
    def modern(self) -> bool:
        return self.client.protocol_version >= "2026-07-28"

    def hello(self) -> dict[str, Any]:
        return {
            "version": self.client.protocol_version,
            "server": self.client.server_info.name,
            "capabilities": wire(self.client.server_capabilities),
            "instructions": self.client.instructions,
            "session": self.ear.session,
        }

    def unique(self, name: str) -> str:
        return f"{name}-{uuid.uuid4().hex}"

    async def ready(self) -> None:
        if self.transport == "http" and not self.modern:
            await self.ear.until_stream()

    async def ping(self) -> dict[str, Any]:
        # The newest revision has no ping.
        return {} if self.modern else wire(await self.client.send_ping())

    async def page(self, member: str, cursor: str | None) -> dict[str, Any]:
        name = {"resourceTemplates": "list_resource_templates"}.get(member, f"list_{member}")
        return wire(await getattr(self.client, name)(cursor=cursor))

    async def call(
        self, name: str, arguments: dict[str, Any], progress: list[Any] | None = None, level: str | None = None
    ) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if level is not None and self.modern:
            options["meta"] = {LOG_LEVEL: level}
        elif level is not None:
            await self.client.session.set_logging_level(level)
        if progress is not None:

            async def tell(done: float, total: float | None, message: str | None) -> None:
                progress.append([done, total])

            options["progress_callback"] = tell
        return wire(await self.client.call_tool(name, arguments, **options))

    async def structured(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await self.call(name, arguments)
        assert not result.get("isError"), result
        return json.loads(result["content"][0]["text"])

    async def read(self, uri: str) -> dict[str, Any]:
        return wire(await self.client.read_resource(uri))

    async def prompt(self, name: str, arguments: dict[str, str] | None) -> dict[str, Any]:
        return wire(await self.client.get_prompt(name, arguments))

    async def complete(self, ref: dict[str, str], argument: str, value: str) -> Any:
        kinds: dict[str, Any] = {"ref/prompt": types.PromptReference, "ref/resource": types.ResourceTemplateReference}
        found = await self.client.complete(kinds[ref["type"]](**ref), {"name": argument, "value": value})
        return wire(found)["completion"]["values"]

    async def code(self, attempt: Callable[[], Awaitable[Any]]) -> int | None:
        try:
            await attempt()
        except MCPError as error:
            return error.code
        return None

    async def outcome(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await attempt()
        except MCPError as error:
            return {"code": error.code, "message": error.message}

    @asynccontextmanager
    async def watch(self, uris: Sequence[str], lists: Sequence[str] = ()) -> AsyncIterator[None]:
        if self.modern:
            asked = {f"{kind}_list_changed": True for kind in lists}
            async with self.client.listen(resource_subscriptions=uris, **asked) as subscription:
                assert list(subscription.honored.resource_subscriptions or ()) == list(uris)
                yield
            return
        for uri in uris:
            await self.client.session.subscribe_resource(uri)
        yield
        for uri in uris:
            await self.client.session.unsubscribe_resource(uri)

    async def abandon(self, name: str, arguments: dict[str, Any], started: Callable[[], Awaitable[None]]) -> None:
        """Make a call, and cancel it once it has begun."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.client.call_tool, name, arguments)
            await started()
            group.cancel_scope.cancel()


class Returned:
    """A session on a new connection: no handshake, as there was one already."""

    def __init__(self, session: ClientSession, ear: Ear) -> None:
        self.session, self.ear = session, ear

    async def ping(self) -> dict[str, Any]:
        return wire(await self.session.send_ping())

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return wire(await self.session.call_tool(name, arguments))


@asynccontextmanager
async def connect(given: dict[str, Any], ear: Ear, session_id: str | None) -> AsyncIterator[Any]:
    """Connect, or come back to the session of this id."""
    if not given["modern"]:
        mcp.client.session.LATEST_HANDSHAKE_VERSION = given["offer"]
    ear.watch_http(httpx2)
    asked: list[dict[str, Any]] = []

    async def listen(message: Any) -> None:
        if isinstance(message, Exception):
            ear.troubles.append(repr(message))
        else:
            ear.hear(message.method, wire(message.params) if message.params else {})

    async def elicit(context: Any, params: Any) -> Any:
        asked.append({"method": "elicitation/create", "params": wire(params)})
        return types.ElicitResult.model_validate(answer(wire(params)))

    async def sample(context: Any, params: Any) -> Any:
        asked.append({"method": "sampling/createMessage", "params": wire(params)})
        return types.CreateMessageResult.model_validate(sampled(wire(params)))

    async def roots(context: Any) -> Any:
        asked.append({"method": "roots/list"})
        return types.ListRootsResult.model_validate({"roots": [ROOT]})

    callbacks: dict[str, Any] = {
        "message_handler": listen,
        "elicitation_callback": elicit,
        "sampling_callback": sample,
        "list_roots_callback": roots,
    }
    async with AsyncExitStack() as stack:
        transport = await open_transport(given, session_id, stack)
        if session_id is not None:
            read, write = await stack.enter_async_context(transport)
            yield Returned(await stack.enter_async_context(ClientSession(read, write, **callbacks)), ear)
            return
        # A machine that runs four servers and a suite beside them may take longer to start one than clients wait.
        mcp.client.session.DISCOVER_TIMEOUT_SECONDS = READ_TIMEOUT
        mode = "auto" if given["modern"] else "legacy"
        client = await stack.enter_async_context(Client(transport, mode=mode, **callbacks))
        yield Sdk2(client, ear, given["transport"], asked)


async def open_transport(given: dict[str, Any], session_id: str | None, stack: AsyncExitStack) -> Any:
    if given["transport"] == "stdio":
        command, *arguments = given["command"]
        return stdio_client(StdioServerParameters(command=command, args=arguments, env=given["env"]))
    if given["transport"] == "sse":
        return sse_client(given["url"])
    headers = {"mcp-session-id": session_id, "mcp-protocol-version": given["offer"]} if session_id else {}
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=READ_TIMEOUT))
    return streamable_http_client(given["url"], http_client=http, terminate_on_close=not given.get("keep"))

"""The first generation of the Python package, from 1.8 to 1.30."""

import inspect
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl, BaseModel
from walk import ROOT, Ear, answer, sampled

PROGRESS = "notifications/progress"
CONNECT_TIMEOUT = 40
LISTS = {
    "tools": ("list_tools", "tools/list", types.ListToolsResult),
    "resources": ("list_resources", "resources/list", types.ListResourcesResult),
    "resourceTemplates": (
        "list_resource_templates",
        "resources/templates/list",
        types.ListResourceTemplatesResult,
    ),
    "prompts": ("list_prompts", "prompts/list", types.ListPromptsResult),
}


class Request(BaseModel):
    """A request with parameters that the package has no place for."""

    method: str
    params: dict[str, Any]


def wire(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


class Sdk1:
    """A session, with JSON for whatever the package has classes for."""

    def __init__(self, session: ClientSession, ear: Ear, transport: str) -> None:
        self.session, self.ear, self.transport = session, ear, transport
        self.asked: list[dict[str, Any]] = []
        self.greeting: dict[str, Any] = {}
        self._tokens = (f"token-{number}" for number in itertools.count())

    async def greet(self) -> None:
        self.greeting = wire(await self.session.initialize())

    def hello(self) -> dict[str, Any]:
        return {
            "version": self.greeting["protocolVersion"],
            "server": self.greeting["serverInfo"]["name"],
            "capabilities": self.greeting["capabilities"],
            "instructions": self.greeting["instructions"],
            "session": self.ear.session,
        }

    def unique(self, name: str) -> str:
        return f"{name}-{uuid.uuid4().hex}"

    async def ready(self) -> None:
        if self.transport == "http":
            await self.ear.until_stream()

    async def ping(self) -> dict[str, Any]:
        return wire(await self.session.send_ping())

    async def request(self, method: str, params: dict[str, Any], result: Any) -> dict[str, Any]:
        return wire(await self.session.send_request(Request(method=method, params=params), result))

    async def page(self, member: str, cursor: str | None) -> dict[str, Any]:
        name, method, result = LISTS[member]
        list_page = getattr(self.session, name)
        if cursor is None:
            return wire(await list_page())
        known = inspect.signature(list_page).parameters
        if "params" in known:
            return wire(await list_page(params=types.PaginatedRequestParams(cursor=cursor)))
        if "cursor" in known:
            return wire(await list_page(cursor=cursor))
        # 1.8 knows of pages and has no way to ask for one.
        return await self.request(method, {"cursor": cursor}, result)

    async def call(
        self, name: str, arguments: dict[str, Any], progress: list[Any] | None = None, level: str | None = None
    ) -> dict[str, Any]:
        if level is not None:
            await self.session.set_logging_level(level)
        if progress is None:
            return wire(await self.session.call_tool(name, arguments))
        if "progress_callback" in inspect.signature(self.session.call_tool).parameters:

            async def tell(done: float, total: float | None, message: str | None) -> None:
                progress.append([done, total])

            return wire(await self.session.call_tool(name, arguments, progress_callback=tell))
        token = next(self._tokens)
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": token}}
        found = await self.request("tools/call", params, types.CallToolResult)
        mine = [told for method, told in self.ear.heard if method == PROGRESS and told["progressToken"] == token]
        progress.extend([told["progress"], told.get("total")] for told in mine)
        return found

    async def structured(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What a tool gives; clients of older revisions find it in the text."""
        result = await self.call(name, arguments)
        assert not result.get("isError"), result
        return json.loads(result["content"][0]["text"])

    async def read(self, uri: str) -> dict[str, Any]:
        return wire(await self.session.read_resource(AnyUrl(uri)))

    async def prompt(self, name: str, arguments: dict[str, str] | None) -> dict[str, Any]:
        return wire(await self.session.get_prompt(name, arguments))

    async def complete(self, ref: dict[str, str], argument: str, value: str) -> Any:
        kind = {"ref/prompt": "PromptReference", "ref/resource": "ResourceTemplateReference"}[ref["type"]]
        reference = getattr(types, kind, None) or types.ResourceReference
        found = await self.session.complete(reference(**ref), {"name": argument, "value": value})
        return wire(found)["completion"]["values"]

    async def code(self, attempt: Callable[[], Awaitable[Any]]) -> int | None:
        try:
            await attempt()
        except McpError as error:
            return error.error.code
        return None

    async def outcome(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await attempt()
        except McpError as error:
            return {"code": error.error.code, "message": error.error.message}

    @asynccontextmanager
    async def watch(self, uris: Sequence[str], lists: Sequence[str] = ()) -> AsyncIterator[None]:
        for uri in uris:
            await self.session.subscribe_resource(AnyUrl(uri))
        yield
        for uri in uris:
            await self.session.unsubscribe_resource(AnyUrl(uri))

    async def abandon(self, name: str, arguments: dict[str, Any], started: Callable[[], Awaitable[None]]) -> None:
        """Make a call, and cancel it once it has begun; the package leaves the notification to its user."""
        identifiers: list[int] = []

        async def call() -> None:
            identifiers.append(self.session._request_id)
            await self.session.call_tool(name, arguments)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await anyio.lowlevel.checkpoint()
            await started()
            notification = {"method": "notifications/cancelled", "params": {"requestId": identifiers[0]}}
            await self.session.send_notification(types.ClientNotification.model_validate(notification))
            group.cancel_scope.cancel()


@asynccontextmanager
async def connect(given: dict[str, Any], ear: Ear, session_id: str | None) -> AsyncIterator[Sdk1]:
    """Connect, or come back to the session of this id."""
    types.LATEST_PROTOCOL_VERSION = given["offer"]
    ear.watch_http(httpx)
    clients: list[Sdk1] = []

    async def listen(message: Any) -> None:
        if isinstance(message, Exception):
            ear.troubles.append(repr(message))
        elif isinstance(message, types.ServerNotification):
            ear.hear(message.root.method, wire(message.root.params) if message.root.params else {})

    async def elicit(context: Any, params: Any) -> Any:
        clients[0].asked.append({"method": "elicitation/create", "params": wire(params)})
        return types.ElicitResult(**answer(wire(params)))

    async def sample(context: Any, params: Any) -> Any:
        clients[0].asked.append({"method": "sampling/createMessage", "params": wire(params)})
        return types.CreateMessageResult(**sampled(wire(params)))

    async def roots(context: Any) -> Any:
        clients[0].asked.append({"method": "roots/list"})
        return types.ListRootsResult(roots=[types.Root(**ROOT)])

    callbacks: dict[str, Any] = {"message_handler": listen, "sampling_callback": sample, "list_roots_callback": roots}
    if "elicitation_callback" in inspect.signature(ClientSession.__init__).parameters:
        callbacks["elicitation_callback"] = elicit
    async with streams(given, session_id) as (read, write), ClientSession(read, write, **callbacks) as session:
        client = Sdk1(session, ear, given["transport"])
        clients.append(client)
        if session_id is None:
            # Some versions wait for ever for a server that has gone.
            with anyio.fail_after(CONNECT_TIMEOUT):
                await client.greet()
        yield client


@asynccontextmanager
async def streams(given: dict[str, Any], session_id: str | None) -> AsyncIterator[tuple[Any, Any]]:
    if given["transport"] == "stdio":
        command, *arguments = given["command"]
        async with stdio_client(StdioServerParameters(command=command, args=arguments, env=given["env"])) as pair:
            yield pair
    elif given["transport"] == "sse":
        async with sse_client(given["url"]) as pair:
            yield pair
    else:
        headers = {"mcp-session-id": session_id, "mcp-protocol-version": given["offer"]} if session_id else {}
        end = not given.get("keep")
        async with streamablehttp_client(given["url"], headers=headers, terminate_on_close=end) as (read, write, _):
            yield read, write

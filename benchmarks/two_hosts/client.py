"""A client of MCP that turns to the proxy with each request, in either era."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from benchmarks.calls import MODERN

from .cluster import URL

HOST = "bench.example"
ENDPOINT = f"{URL}/mcp"
# Seconds without a byte after which a client gives up; the proxy does so earlier.
PATIENCE = 60
META = "io.modelcontextprotocol"
TASKS = f"{META}/tasks"
# Statuses of a proxy that has no answer: what was asked for may have been done.
UNKNOWN = frozenset({502, 504})


class Trouble(Exception):
    """A request that was not answered as it should be; `kind` says how."""

    def __init__(self, kind: str, text: str, again: float = 0.5) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text, self.again = kind, text, again


# Kinds of trouble: no answer, so that nobody knows; a refusal that says that it was not done; an error of the tool.
NO_ANSWER, REFUSED, TOOL_ERROR = "no answer", "refused", "tool error"


def refusal(response: httpx2.Response) -> Trouble:
    """Return what an answer with an error status says."""
    text = response.text[:300]
    if response.status_code in UNKNOWN:
        return Trouble(NO_ANSWER, f"{response.status_code} of the proxy")
    again = response.headers.get("retry-after", "")
    return Trouble(REFUSED, f"{response.status_code} {text}", float(again) if again.isdigit() else 0.5)


class Stream:
    """An event stream that is being read; `size` are its bytes so far."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.last_id: str | None = None
        self.size = 0
        self.lines = response.aiter_lines()

    async def message(self) -> Any:
        """Return the next message, None at the end of the stream."""
        data = ""
        try:
            async for line in self.lines:
                self.size += len(line) + 1
                name, _, value = line.partition(": ")
                if name == "id":
                    self.last_id = value
                elif name == "data":
                    data = value
                elif not line and data:
                    return json.loads(data)
        except httpx2.TransportError as error:
            raise Trouble(NO_ANSWER, f"the stream broke: {type(error).__name__}") from error
        return None


class Client:
    """One client of one person. `elicits`: it can put questions to the person. `tasks`: it takes tasks."""

    def __init__(
        self, http: httpx2.AsyncClient, token: str, *, era: str = MODERN, elicits: bool = False, tasks: bool = False
    ) -> None:
        self.http, self.token, self.era = http, token, era
        self.capabilities: dict[str, Any] = {"elicitation": {}} if elicits else {}
        if tasks:
            self.capabilities["extensions"] = {TASKS: {}}
        self.session: str | None = None
        self.ids = itertools.count(1)

    def headers(self, **more: str | None) -> dict[str, str]:
        """Return the headers of a request."""
        sent = {
            "Host": HOST,
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": self.era,
            "Mcp-Session-Id": self.session,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        return {name: value for name, value in sent.items() if value}

    def message(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request of MCP."""
        params = dict(params)
        if self.era == MODERN:
            own = {
                f"{META}/protocolVersion": MODERN,
                f"{META}/clientInfo": {"name": "two-hosts", "version": "1"},
                f"{META}/clientCapabilities": self.capabilities,
            }
            params["_meta"] = {**own, **params.get("_meta", {})}
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}

    @asynccontextmanager
    async def post(self, body: Mapping[str, Any], patience: float = PATIENCE) -> AsyncIterator[httpx2.Response]:
        """Send a message and give the answer, whose body is still to be read.

        Raises:
            Trouble: there is none, or it is an error.
        """
        params = body.get("params", {})
        modern = self.era == MODERN and "method" in body
        named = params.get("name") or params.get("uri") or params.get("taskId")
        headers = self.headers(Mcp_Method=body["method"] if modern else None, Mcp_Name=named if modern else None)
        timeout = httpx2.Timeout(patience, connect=5)
        try:
            async with self.http.stream("POST", ENDPOINT, json=body, headers=headers, timeout=timeout) as response:
                if response.status_code >= 300:
                    await response.aread()
                    raise refusal(response)
                yield response
        except httpx2.TransportError as error:
            raise Trouble(NO_ANSWER, type(error).__name__) from error

    @asynccontextmanager
    async def listen(self, last_id: str | None = None) -> AsyncIterator[Stream]:
        """Open the session's stream of changes, or go on with the stream of a call.

        Raises:
            Trouble: there is none.
        """
        headers = self.headers(Accept="text/event-stream", Last_Event_ID=last_id)
        timeout = httpx2.Timeout(PATIENCE, connect=5)
        try:
            async with self.http.stream("GET", ENDPOINT, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise refusal(response)
                yield Stream(response)
        except httpx2.TransportError as error:
            raise Trouble(NO_ANSWER, type(error).__name__) from error

    async def result(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of a request.

        Raises:
            Trouble: there is none.
        """
        async with self.post(self.message(method, params or {})) as response:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                answer = await last_of(Stream(response))
            else:
                answer = json.loads(await response.aread())
        return result_of(answer)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return what a tool gives, as structured content where it gives that.

        Raises:
            Trouble: the call fails.
        """
        result = await self.result("tools/call", {"name": tool, "arguments": arguments})
        return content_of(result)

    async def initialize(self) -> None:
        """Begin a session.

        Raises:
            Trouble: there is none.
        """
        self.session = None
        client = {"name": "two-hosts", "version": "1"}
        params = {"protocolVersion": self.era, "capabilities": self.capabilities, "clientInfo": client}
        async with self.post(self.message("initialize", params)) as response:
            session = response.headers["mcp-session-id"]
            await response.aread()
        self.session = session
        await self.tell({"method": "notifications/initialized"})

    async def tell(self, message: Mapping[str, Any]) -> None:
        """Send what has no result: a notification, or an answer to a question.

        Raises:
            Trouble: it was not taken.
        """
        async with self.post({"jsonrpc": "2.0", **message}) as response:
            await response.aread()


async def last_of(stream: Stream) -> dict[str, Any]:
    """Return the answer at the end of a call's stream.

    Raises:
        Trouble: it ends without one.
    """
    while (message := await stream.message()) is not None:
        if "result" in message or "error" in message:
            found: dict[str, Any] = message
            return found
    raise Trouble(NO_ANSWER, "the stream of the call ended without an answer")


def result_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result in an answer.

    Raises:
        Trouble: it is an error.
    """
    if "result" not in answer:
        raise Trouble(REFUSED, json.dumps(answer.get("error"))[:300])
    result: dict[str, Any] = answer["result"]
    return result


def content_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a tool's result.

    Raises:
        Trouble: the tool says that it failed.
    """
    texts = [block.get("text", "") for block in result.get("content", ())]
    if result.get("isError"):
        raise Trouble(TOOL_ERROR, " ".join(texts)[:300])
    structured: dict[str, Any] | None = result.get("structuredContent")
    return structured or {"text": " ".join(texts)}


async def pause(seconds: float, over: asyncio.Event) -> None:
    """Wait so many seconds, or until the run is over."""
    try:
        await asyncio.wait_for(over.wait(), seconds)
    except TimeoutError:
        return

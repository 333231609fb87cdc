"""FastMCP's client: makes the calls that it is given and tells how each went, as `tests/e2e/node/tasks.mjs` does.

It runs in an environment of its own, which has none of the project's packages.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.auth import BearerAuth
from fastmcp.exceptions import ToolError
from fastmcp_tasks import ToolTask, call_tool_task

LOOK_EVERY = 0.2


async def run(client: Client, call: dict[str, Any]) -> dict[str, Any]:
    """Make one call by a handle, and watch its task until it needs something or has ended."""
    task = await call_tool_task(client, call["tool"], call["params"], raise_on_error=False)
    told: dict[str, Any] = {"kind": "task", "statuses": ["working"], "messages": [], "ttl": task.create_result.ttl_ms}
    async for status in statuses(task):
        told["statuses"].append(status.status)
        if status.status_message:
            told["messages"].append(status.status_message)
            if call.get("cancel"):
                await task.cancel()
    if told["statuses"][-1] == "cancelled":
        return told | {"outcome": "cancelled"}
    result = await task.result()
    content = [{"type": "text", "text": block.text} for block in result.content]
    return told | {"outcome": "completed", "result": {"content": content, "isError": result.is_error}}


async def statuses(task: ToolTask) -> Any:
    """Yield how a task stands, until it is no longer being worked on."""
    while True:
        status = await task.status()
        yield status
        if status.status != "working":
            return
        await asyncio.sleep(LOOK_EVERY)


async def main(given: dict[str, Any]) -> None:
    asked: list[str] = []
    answers: dict[str, Any] = {}

    async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
        asked.append(message)
        return {field: answers[field] for field in params.requested_schema["properties"]}

    told = {}
    async with Client(given["url"], auth=BearerAuth(given["token"]), elicitation_handler=elicit) as client:
        for name, call in given["calls"].items():
            asked.clear()
            answers.update(call.get("answers", {}))
            told[name] = await run(client, call) | {"asked": [*asked]}
        try:
            # In plain words, as those do who know nothing of tasks.
            await client.call_tool("fail", {})
        except ToolError as error:
            told["plain"] = str(error)
    print(json.dumps(told))


asyncio.run(main(json.loads(sys.argv[1])))

"""Tools whose calls go on as tasks, and one whose calls never do."""

import asyncio
import time
from typing import Annotated

import mcp_django as mcp
from mcp_django.protocol.errors import InternalError

from .questions import Name, form

PAUSE = 0.2
CONFIRM = form("confirm", confirm={"type": "boolean"})
NAME_AND_CONFIRM = form("name", name={"type": "string"}, confirm={"type": "boolean"})


@mcp.tool(destructive=False)
def greet(request, name: str):
    """Greets somebody at once."""
    return f"Hello, {name}!"


@mcp.tool(destructive=False, task=True)
def slow_compute(request, seconds: int, label: str = ""):
    """Takes so many seconds, unless it is cancelled before."""
    for step in range(int(seconds / PAUSE)):
        request.mcp.progress(step * PAUSE, seconds)
        time.sleep(PAUSE)
    return f"Computed {label or 'it'} for {seconds} s."


@mcp.tool(destructive=False, task=mcp.task(required=True))
def failing_job(request):
    """Fails in a way that a model may read, and always as a task."""
    time.sleep(PAUSE)
    raise mcp.ToolError("This job intentionally fails.")


@mcp.tool(destructive=False, task=True)
def protocol_error_job(request):
    """Fails with an error of the protocol."""
    raise InternalError("This job intentionally ends with an error of the protocol.")


@mcp.tool(destructive=False, task=True)
def confirm_delete(request, filename: str):
    """Asks the user on its way."""
    is_confirmed = request.mcp.ask(f"Delete {filename}?", CONFIRM, key="confirm")["confirm"]
    return f"{filename} was {'deleted' if is_confirmed else 'left alone'}."


@mcp.tool(destructive=False, task=True)
async def multi_input(request):
    """Asks the user two things at the same time, on its way."""

    async def ask(what):
        return request.mcp.ask(f"Which {what}?", NAME_AND_CONFIRM, key=what)["name"]

    async with asyncio.TaskGroup() as group:
        found = [group.create_task(ask(what)) for what in ("source", "target")]
    source, target = (task.result() for task in found)
    return f"Copied {source} to {target}."


@mcp.tool(destructive=False, task=mcp.task(required=True))
def test_tool_with_task(request, user_name: Annotated[Name, mcp.Ask("What is your name?")]):
    """Asks for a name before it goes on as a task."""
    return f"Hello, {user_name.name}!"

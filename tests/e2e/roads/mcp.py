"""Tools that leave marks on the disk, so that a test sees what became of them when nobody listens any more."""

import asyncio
import os
import time
from pathlib import Path

import mcp_django as mcp
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import Cancelled

STEP = 0.05
LONGEST = 20


def mark(name: str, what: str) -> None:
    (Path(os.environ["E2E_MARKERS"]) / f"{name}.{what}").touch()


@mcp.tool(read_only=True)
async def wait_async(request: MCPRequest, name: str, seconds: float = LONGEST) -> str:
    """Waits on the event loop."""
    mark(name, "started")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        mark(name, "cancelled")
        raise
    mark(name, "finished")
    return "waited"


@mcp.tool(read_only=True)
def wait_sync(request: MCPRequest, name: str, seconds: float = LONGEST) -> str:
    """Waits in a thread, and tells of it."""
    mark(name, "started")
    try:
        for step in range(round(seconds / STEP)):
            time.sleep(STEP)
            request.mcp.progress(step + 1)
    except Cancelled:
        mark(name, "cancelled")
        raise
    mark(name, "finished")
    return "waited"


@mcp.tool(read_only=True)
def count_to(request: MCPRequest, number: int) -> str:
    """Counts, and tells of each step."""
    for step in range(1, number + 1):
        request.mcp.progress(step, number, f"step {step}")
    return f"counted to {number}"

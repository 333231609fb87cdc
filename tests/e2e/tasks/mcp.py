"""Tools that the tests of tasks call: each says in a file which process does its work."""

import os
import time
from pathlib import Path

import mcp_django as mcp


def note(place: str, text: str) -> None:
    with Path(place).open("a") as notes:
        notes.write(f"{os.getpid()} {text}\n")


@mcp.tool(read_only=True, task=True)
def count(request, place: str, steps: int = 4, seconds: float = 0.4) -> str:
    """Count slowly, and tell of each step."""
    note(place, "begun")
    try:
        for step in range(1, steps + 1):
            time.sleep(seconds)
            request.mcp.progress(step, steps, f"step {step} of {steps}")
    except BaseException:
        note(place, "stopped")
        raise
    note(place, "done")
    return f"counted to {steps}"


@mcp.tool(destructive=False, idempotent=True, task=True)
def ask_on_the_way(request, place: str) -> str:
    """Ask two questions after the work has begun."""
    note(place, "begun")
    name = request.mcp.ask("Who is it for?", str, key="name")
    pieces = request.mcp.ask(f"How many for {name}?", int, key="pieces")
    note(place, "done")
    return f"{pieces} for {name}"


@mcp.tool(destructive=False, task=True)
def fail(request) -> str:
    """Fail as tools do."""
    raise mcp.ToolError("There is nothing to do.")


@mcp.tool(read_only=True, task=True)
def recite(request, lines: int = 10_000) -> str:
    """Recite more than a result can hold."""
    return "\n".join(f"line {number}" for number in range(lines))

"""Tools that the tests of several workers call."""

import os
import time
from pathlib import Path

import mcp_django as mcp
from mcp_django.runtime import cache_and_rate_limits

# A busy machine is no cache that is away.
cache_and_rate_limits.PATIENCE = 30.0  # type: ignore[misc]


@mcp.tool(read_only=True)
def which_worker(request) -> str:
    """The process that answers."""
    return str(os.getpid())


@mcp.tool(read_only=True)
def talk(request) -> str:
    """Log something."""
    request.mcp.log("info", "hello")
    return "talked"


@mcp.tool(destructive=False)
def greet(request, place: str) -> str:
    """Ask who is there, and say in a file that it was done."""
    name = request.mcp.ask("Who is there?", str, key="name")
    with Path(place).open("a") as done:
        done.write(f"{name} by {os.getpid()}\n")
    return f"Hello {name}"


@mcp.tool(destructive=False)
def wait_for(request, place: str) -> str:
    """Tell of progress until a file is there."""
    done = 0
    while not Path(place).exists():
        done += 1
        request.mcp.progress(done)
        time.sleep(0.05)
    return "it is there"

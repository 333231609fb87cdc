"""The tests of this folder run under both event loops that servers have: timers of one are not those of the other."""

import asyncio
from typing import Any

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Any]:
    """Name asyncio's own loop, and that of `uvicorn[standard]`."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

"""The tests of this folder run under both event loops that servers have: timers of one are not those of the other.

Where they run for another version of Django, each runs under the loop that comes with this version of Python.
"""

import asyncio
from typing import Any

import uvloop

from tests.cases import DIVIDED


def pytest_asyncio_loop_factories() -> dict[str, Any]:
    """Name asyncio's own loop, and that of `uvicorn[standard]`."""
    factories = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop} if DIVIDED == "every" else factories

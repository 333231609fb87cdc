"""What the project offers: its models, and tools that report, ask, and take their time."""

import time

from django.db.models import Model

import mcp_django as mcp
from mcp_django.context.request import MCPRequest

from .models import Counter, Entry, Row


class Everything(mcp.ModelExposure):
    """All columns of a model, also for writing."""

    search_fields = ()


def register(model: type[Model], *fields: str) -> None:
    """Expose a model with these columns."""
    mcp.register(model)(type(f"{model.__name__}Exposure", (Everything,), {"fields": ["id", *fields]}))


register(Entry, "key", "number")
register(Row, "number", "name", "amount")
register(Counter, "value")


@mcp.tool(read_only=True)
def count_to(request: MCPRequest, steps: int, pause: float) -> int:
    """Count, and report each step."""
    for step in range(1, steps + 1):
        request.mcp.progress(step, steps)
        time.sleep(pause)
    return steps


@mcp.tool(destructive=False)
def sign(request: MCPRequest, key: str) -> str:
    """Ask for a name, and write an entry."""
    name = request.mcp.ask("Who signs?", str, key="name")
    Entry._default_manager.create(key=key)
    return f"{key} signed by {name}"


@mcp.tool(destructive=True)
def pay(request: MCPRequest, key: str) -> str:
    """Write an entry, once it is confirmed."""
    Entry._default_manager.create(key=key)
    return key


@mcp.tool(destructive=False, task=mcp.task(atomic=True))
def settle(request: MCPRequest, key: str, pause: float) -> str:
    """Write an entry in the transaction that ends the task."""
    Entry._default_manager.create(key=key)
    for step in range(1, 5):
        request.mcp.progress(step, 4)
        time.sleep(pause / 4)
    return key


@mcp.tool(destructive=False, task=True)
def post(request: MCPRequest, key: str, pause: float) -> str:
    """Write an entry at once, and go on for a while."""
    Entry._default_manager.create(key=key)
    time.sleep(pause)
    return key

"""Tools that keep a transaction open, and tools that tell more than a client reads."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from django.db import transaction
from django.db.models import F

import mcp_django as mcp
from example_project.shop.models import Product
from mcp_django.context.request import MCPRequest
from mcp_django.transports.http import asgi_consumer, django_views

STEP = 0.1
# Seconds after which a client that reads nothing is cut off: long enough to fill all that is not bounded, and a third
# of what they are elsewhere.
asgi_consumer.WRITE_TIMEOUT = django_views.WRITE_TIMEOUT = 5.0  # type: ignore[misc]


@mcp.tool(permissions=["shop.change_product"], destructive=False)
def raise_prices(request: MCPRequest, seconds: float) -> str:
    """Adds one to the price of each product and keeps the transaction open."""
    with transaction.atomic():
        changed = Product.objects.update(price=F("price") + 1)
        tell(request, seconds)
    return f"raised {changed}"


@mcp.tool(read_only=True)
def look_around(request: MCPRequest, seconds: float) -> str:
    """Takes its time and changes nothing."""
    tell(request, seconds)
    return "looked"


def tell(request: MCPRequest, seconds: float) -> None:
    """Tell of progress for so long."""
    steps = round(seconds / STEP)
    for step in range(1, steps + 1):
        time.sleep(STEP)
        request.mcp.progress(step, steps)


@mcp.tool(read_only=True)
async def chatter(request: MCPRequest, seconds: float) -> str:
    """Tells of progress in many words."""
    until, step = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        step += 1
        request.mcp.progress(step, None, "x" * 100_000)
        await asyncio.sleep(STEP / 4)
    return "said"


@mcp.resource("strained://large")
def large(request: MCPRequest) -> str:
    """What is too long to be read."""
    return "x" * 5_000_000


@mcp.resource("strained://piece")
def piece(request: MCPRequest) -> str:
    """What is sent as one piece."""
    return "x" * 60_000


@mcp.tool(read_only=True)
async def strain(request: MCPRequest) -> dict[str, int]:
    """The MiB that the worker takes, and the sockets that it has open."""
    status = Path("/proc/self/status").read_text()
    sockets = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            sockets += str(descriptor.readlink()).startswith("socket:")
    return {"mib": int(status.split("VmRSS:")[1].split()[0]) // 1024, "sockets": sockets}

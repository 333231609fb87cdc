"""Tools of the crowd, whose calls go on as tasks."""

import os
import time
from pathlib import Path

import mcp_django as mcp
from mcp_django.tasks import heartbeats, stored_tasks
from mcp_django.tasks.stored_tasks import StoredTask

from .models import Entry

WORKER = os.environ.get("CROWD_WORKER", "")
# Milliseconds of a lease, where a test is to see several end.
LEASE = int(os.environ.get("CROWD_LEASE", 0))
if LEASE:
    stored_tasks.LEASE = LEASE  # type: ignore[misc]
    StoredTask.HEARTBEAT = LEASE / 4_000
    heartbeats.LOOK_EVERY = LEASE / 10_000  # type: ignore[misc]


@mcp.tool(destructive=False, task=mcp.task(atomic=True))
def write_at_once(request, number: int) -> str:
    """Write a number down, in one transaction with the end of the task."""
    Entry.objects.create(number=number, worker=WORKER)
    return str(number)


@mcp.tool(destructive=False, task=True)
def write(request, number: int) -> str:
    """Write a number down."""
    Entry.objects.create(number=number, worker=WORKER)
    return str(number)


def _wait(number: int, place: str) -> str:
    Entry.objects.create(number=number, worker=WORKER)
    began = Path(place) / f"{number} at {WORKER}"
    began.touch()
    while not (Path(place) / "go on").exists():
        time.sleep(0.05)
    return str(number)


@mcp.tool(destructive=False, task=mcp.task(atomic=True))
def wait_at_once(request, number: int, place: str) -> str:
    """Write a number down, and wait until a file is there, in one transaction with the end of the task."""
    return _wait(number, place)


@mcp.tool(destructive=False, task=True)
def wait(request, number: int, place: str) -> str:
    """Write a number down, and wait until a file is there."""
    return _wait(number, place)

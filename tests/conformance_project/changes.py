"""Tools that log, change things that clients watch, or take their time.

Workers share what these tools remember through the cache.
"""

import asyncio
from dataclasses import dataclass

from django.core.cache import cache

import mcp_django as mcp

from .models import Note

PAUSE = 0.05
LONGEST = 30
HOUR = 3600
WATCHED = "test://watched-resource"


# Log messages


@mcp.tool(destructive=False)
async def test_tool_with_logging(request):
    """Logs three messages while it works."""
    request.mcp.log("info", "Tool execution started")
    await asyncio.sleep(PAUSE)
    request.mcp.log("info", "Tool processing data")
    await asyncio.sleep(PAUSE)
    request.mcp.log("info", "Tool execution completed")
    return "Logged three messages."


@mcp.tool(destructive=False)
def test_logging_tool(request):
    """Logs one message, which only those see who asked for it."""
    request.mcp.log("info", "A message of the logging tool", logger="conformance")
    return "Logged one message."


# Lists


def toggle(name):
    """Turn what is off on, and the other way round, for all workers."""
    if not cache.add(f"on:{name}", True, HOUR):
        cache.delete(f"on:{name}")


def is_on(name):
    """A permission: what is off is not there."""
    return lambda request: cache.get(f"on:{name}") is not None


@mcp.tool(permission=is_on("tool"), destructive=False)
def sometimes_a_tool(request):
    """Comes and goes."""
    return "I am here."


@mcp.prompt(permission=is_on("prompt"))
def sometimes_a_prompt(request):
    """Comes and goes."""
    return "I am here."


@mcp.tool(destructive=False)
def test_trigger_tool_change(request):
    """Adds a tool, or removes it again."""
    toggle("tool")
    mcp.notify_list_changed("tools")
    return "The list of tools has changed."


@mcp.tool(destructive=False)
def test_trigger_prompt_change(request):
    """Adds a prompt, or removes it again."""
    toggle("prompt")
    mcp.notify_list_changed("prompts")
    return "The list of prompts has changed."


# Resources


@dataclass
class Written:
    """A note that was written."""

    uri: str
    title: str


def written(note):
    return Written(f"django://{Note._meta.app_label}/{Note._meta.model_name}/{note.pk}", note.title)


@mcp.resource(WATCHED, mime_type="text/plain")
def watched_resource(request):
    """Text that a tool changes."""
    return f"It was changed {cache.get('changes', 0)} times."


@mcp.tool(destructive=False)
def change_watched_resource(request):
    """Changes a resource that is no row."""
    cache.add("changes", 0, HOUR)
    cache.incr("changes")
    mcp.notify_changed(WATCHED)
    return "The resource has changed."


@mcp.tool(destructive=False)
def write_note(request, title: str) -> Written:
    """Adds a row."""
    return written(Note.objects.create(title=title))


@mcp.tool(destructive=False)
def change_note(request, note: Note, title: str) -> Written:
    """Changes a row."""
    note.title = title
    note.save()
    return written(note)


# Time


@mcp.tool(destructive=False)
async def wait_for_cancellation(request, name: str):
    """Waits until it is cancelled, and leaves a mark under a name."""
    cache.set(f"wait:{name}", "started")
    try:
        await asyncio.sleep(LONGEST)
    except asyncio.CancelledError:
        cache.set(f"wait:{name}", "cancelled")
        raise
    cache.set(f"wait:{name}", "finished")
    return "Nobody cancelled it."


@mcp.tool(destructive=False)
def look_for_cancellation(request, name: str):
    """What has become of the call that waits under this name: nothing, started, cancelled or finished."""
    return cache.get(f"wait:{name}", "nothing")


@mcp.tool(destructive=False)
async def test_reconnection(request):
    """Closes its own stream; the client comes back for the result."""
    request.mcp.close_stream()
    await asyncio.sleep(PAUSE * 3)
    return "The stream was closed and the call went on."

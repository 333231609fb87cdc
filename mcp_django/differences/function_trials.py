"""Functions of the project that are tools: tried by running them and rolling them back.

Nobody knows before which rows they write, so only the tables are told, with what else a rehearsal sees.
"""

from collections.abc import Callable, Iterator
from typing import Any

from django.contrib.auth import get_user_model

from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..orm.database_writes import refusals
from ..protocol.content import Text
from .rehearsals import Rehearsal
from .trials import told_of, untried_of, without_progress
from .visible_tables import told_tables


def try_function(request: MCPRequest, run: Callable[[], ToolResult]) -> tuple[dict[str, Any], bool]:
    """Return what a function would do as JSON, and whether its result is an error. ``run`` calls the function.

    It runs in a transaction on the database with the users, and on that of the admin's history; a write to another one
    raises ``NotRehearsable``, like anything else that is not rolled back.
    """
    with without_progress(request), refusals(), Rehearsal(get_user_model(), request=request) as rehearsal:
        result = run()
    untried = untried_of(rehearsal)
    wire: dict[str, Any] = {"dry_run": True, "summary": "; ".join(_summary(rehearsal)) or "no difference"}
    wire |= told_of(rehearsal)
    if untried:
        wire["not_tried"] = untried
    wire["result"] = result.structured
    if result.structured is None:
        wire["result"] = "\n".join(block.text for block in result.content if isinstance(block, Text))
    return wire, result.is_error


def _summary(rehearsal: Rehearsal) -> Iterator[str]:
    if tables := told_tables(rehearsal, rehearsal.also_written):
        yield f"writes to {', '.join(tables)}"
    if count := len(rehearsal.mails):
        yield f"{count} mail{'s' if count != 1 else ''}"
    if count := len(rehearsal.callbacks):
        yield f"{count} function{'s' if count != 1 else ''} after the commit"

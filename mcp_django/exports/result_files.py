"""Results of tools that are too long to be sent, as files: a model gets their beginning, and its user all of it."""

import logging
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

import orjson
from django.db import Error as DatabaseUnavailable

from ..conf import settings
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..differences.kept_changes import KeptChange
from ..protocol.content import Content, ResourceLink, Text
from .kept_exports import KeptExport

logger = logging.getLogger("mcp_django.exports")

# Maximum lines and characters that are shown of a result, and characters of its short members.
LINES: Final = 20
CHARS: Final = 2_000
OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2
HOW: Final = ' The project can set STORAGES["mcp_exports"]: then such a result becomes a file.'


def as_file(
    request: MCPRequest, result: ToolResult, tool: str, *, read_only: bool, action: str = "", is_checked: bool = False
) -> ToolResult | None:
    """Return what is sent in place of a result that is too long: its beginning, and how to get a file with all of it.

    ``tool`` is the tool that whoever reads the file must be allowed to call. If clients compare its results with a
    schema (``is_checked``), what is returned is an error, which they do not compare. Returns None where no file can be
    kept: the project has no storage for it, the caller is anonymous, or the storage fails.
    """
    if KeptExport.storage() is None or not KeptChange.owner_of(request.user):
        return None
    parts = [block.text for block in result.content if isinstance(block, Text)]
    kind = "txt" if parts or result.structured is None else "json"
    if result.structured is not None:
        parts.insert(0, orjson.dumps(result.structured, default=str, option=OPTIONS).decode())
    whole = "\n\n".join(parts)
    # The tool that was called can be one that runs others.
    made = {"tool": tool, "called": request.mcp.record.tool or tool, "action": action, "read_only": read_only}
    about = {"model": request.mcp.record.model, "format": kind, "extension": kind}
    kept = KeptExport.new(request, **about, question={}, result=made)
    try:
        content = whole.encode(errors="replace")
        kept.finish(BytesIO(content), 0)
    except DatabaseUnavailable:
        kept.delete_file()
        raise
    except Exception as error:
        logger.warning("The result of %s could not be kept as a file: %s", tool, error)
        kept.delete()
        return None
    request.mcp.record.filed = len(content)
    request.mcp.record.left.append(kept.delete_file)
    logger.info("%s gets a result of %s as a file: %d characters", kept.row.username, tool, len(whole))

    most = min(CHARS, settings.RESULT_CHARS // 4)
    lines = whole.splitlines()
    told = {name: value for name, value in kept.told.items() if name != "rows"}
    told |= {"chars": len(whole), "lines": len(lines), "first_lines": "\n".join(lines[:LINES])[:most]}
    structured = {**dict(_short_members(result, most)), "result_file": told}
    blocks: list[Content] = [block for block in result.content if not isinstance(block, Text)]
    blocks.append(ResourceLink(kept.uri, kept.row.name, mime_type=kept.mime_type))
    return ToolResult(structured, blocks, is_error=result.is_error or is_checked)


def how_to_get_one() -> str:
    """Return how a project gets such results as files, "" if it has done that."""
    return HOW if KeptExport.storage() is None else ""


def _short_members(result: ToolResult, left: int) -> Iterator[tuple[str, Any]]:
    """Yield the members of a structured result that are short, such as whether the work was done."""
    for name, value in (result.structured or {}).items():
        length = len(orjson.dumps([name, value], default=str, option=orjson.OPT_NON_STR_KEYS))
        if length <= left:
            yield name, value
            left -= length

"""Read what a client wrote: objects sent as text, and the valid names nearest to a wrong one."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

from ..exceptions import ToolError
from ..protocol.errors import ParseError
from ..protocol.messages import MAX_DEPTH, MAX_ITEMS, TooMuch, decode_text
from .kinds import parse_text

MAX_LISTED: Final = 40


def alternatives(text: Any, names: Iterable[str]) -> str:
    """Return the names, the nearest to ``text`` first, as the end of an error message."""
    known = list(names)
    near = get_close_matches(text[:100], known, n=1, cutoff=0.6) if isinstance(text, str) else []
    meant = f"Did you mean {near[0]}? " if near else ""
    more = f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    return f"{meant}Valid: {', '.join(known[:MAX_LISTED]) or 'none'}{more}."


def json_or_text(value: Any) -> Any:
    """Return the JSON object or array that a text holds: some clients send those as text.

    Raises:
        ToolError: the JSON is over a bound of messages, which holds for all JSON that comes in.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return decode_text(value)
        except TooMuch:
            raise ToolError(f"The JSON is nested over {MAX_DEPTH} levels or has over {MAX_ITEMS} items.") from None
        except ParseError:
            return value
    return value


def is_short_text(value: Any, limit: int) -> bool:
    """Return whether the value is a text of at most ``limit`` characters that every database takes."""
    try:
        return len(parse_text(None, value)) <= limit and isinstance(value, str)
    except ValueError:
        return False

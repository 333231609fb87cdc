"""What of a ViewSet's answer is sent: no client shows a model more than ``RESULT_CHARS``."""

from typing import Any, Final

import orjson

from ..exceptions import ToolError
from ..schema.jsonable import clean_text
from .routes import Route

__all__ = ["fitting"]

# Characters of one text of an answer that does not fit as it is.
MAX_TEXT: Final = 300
# Room for the note that something was cut.
HEAD: Final = 200


def _size(data: Any) -> int:
    return len(orjson.dumps(data))


def fitting(route: Route, payload: dict[str, Any], room: int) -> dict[str, Any]:
    """Return the answer, its long texts and then its last rows cut off if it does not fit into ``room`` characters."""
    if _size(payload) <= room:
        return payload
    payload = _shortened(payload)
    head: dict[str, Any] = {"truncated": True, "note": f"Texts are cut after {MAX_TEXT} characters."}
    lists = {name: value for name, value in payload.items() if isinstance(value, list)}
    if _size({**head, **payload}) > room and lists:
        longest = max(lists, key=lambda name: _size(lists[name]))
        rows = lists[longest]
        kept = _first_rows(rows, room - HEAD - _size({**payload, longest: []}))
        head["note"] += f" Only the first {len(kept)} of {len(rows)} rows fit: ask for smaller pages or narrow it."
        payload = {**payload, longest: kept}
    if _size({**head, **payload}) <= room:
        return {**head, **payload}
    bound = f"The answer has more than {room} characters, which is the most that is sent"
    if route.method == "get":
        raise ToolError(f"{bound}: ask for less.")
    return {"done": True, "note": f"The work is done; do not call it again. {bound}."}


def _first_rows(rows: list[Any], room: int) -> list[Any]:
    kept = []
    for row in rows:
        room -= _size(row) + 1
        if room < 0:
            break
        kept.append(row)
    return kept


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_shortened(member) for member in value]
    return clean_text(value, MAX_TEXT) if isinstance(value, str) else value

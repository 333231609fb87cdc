"""Translate a ViewSet's response for a model: rows, one row, a file or a refusal, cut to ``RESULT_CHARS``."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import orjson
from django.http import HttpResponseBase

from ..actions.responses import read_response
from ..conf import settings
from ..context.results import ToolResult
from ..exceptions import ToolError
from ..schema.jsonable import clean_text, to_jsonable
from .errors import ELSEWHERE, is_json, refuse, render
from .inputs import Inputs
from .requests import RestRequest
from .routes import Route

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


ROWS: Final = "results"
# As paginators of REST framework call them, and what projects have beside them.
LINKS: Final = ("next", "previous", "prev", "first", "last")
# Of integers that every client reads exactly.
MAX_DIGITS: Final = 15


def read_answer(
    route: Route, request: RestRequest, response: HttpResponseBase, inputs: Inputs, arguments: Mapping[str, Any]
) -> ToolResult:
    """Return the result of a tool.

    Raises:
        ToolError: the view refused, or answered more than can be sent.
        NotFound: the view knows of no such row.
    """
    if 300 <= response.status_code < 400 and route.method != "get":
        return ToolResult(structured={"done": True, "note": ELSEWHERE})
    if response.status_code >= 300:
        refuse(route, response)
    render(response)
    if not is_json(response):
        return _file_result(route, request, response)
    content: bytes = getattr(response, "content", b"")
    if not content:
        given = {name: arguments[name] for name in route.parameters if name in arguments}
        return ToolResult(structured={"deleted" if route.method == "delete" else "done": True, **given})
    return ToolResult(structured=fitting(route, read_payload(request, content, inputs), request.mcp.result_chars))


def read_payload(request: RestRequest, content: bytes, inputs: Inputs) -> dict[str, Any]:
    """Return the JSON of an answer as an object; links to other pages become the arguments that lead there."""
    data = to_jsonable(json.loads(content))
    if isinstance(data, list):
        return {ROWS: data}
    if not isinstance(data, dict):
        return {"result": data}
    if not inputs.query or not any(isinstance(value, list) for value in data.values()):
        # No page: a row may have a field of that name.
        return data
    path = urlsplit(request.get_full_path()).path
    found: dict[str, Any] = {}
    for name, value in data.items():
        grouped = name == "links" and isinstance(value, dict)
        if not grouped and not (name in LINKS[:2] and isinstance(value, str | None)):
            found[name] = value
            continue
        for key, link in (value if grouped else {name: value}).items():
            # Any other link leads to where only REST clients get.
            if key in LINKS and isinstance(link, str) and urlsplit(link).path == path:
                found[key] = _link_arguments(link, request, inputs)
    return found


def _link_arguments(link: str, request: RestRequest, inputs: Inputs) -> dict[str, Any]:
    """Return the arguments that differ in the link; null for one that has to be left out."""
    values = parse_qs(urlsplit(link).query, keep_blank_values=True)
    return {
        name: _argument(values.get(name, []), schema.get("type"))
        for name, schema in inputs.query.items()
        if values.get(name, []) != request.GET.getlist(name)
    }


def _argument(values: list[str], kind: Any) -> Any:
    if kind == "array" or not values:
        return values or None
    text = values[-1]
    return int(text) if kind == "integer" and text.isdecimal() and len(text) <= MAX_DIGITS else text


# Files


def _file_result(route: Route, request: RestRequest, response: HttpResponseBase) -> ToolResult:
    try:
        answer = read_response(request, response)
    except ToolError:
        bound = f"a file larger than {settings.MAX_FILE_BYTES} bytes"
        raise ToolError(f"The view answered with {bound}, or a page with a form: neither can be sent.") from None
    if answer.file is None:
        return ToolResult(structured={"text": answer.text or (answer.page.message if answer.page else "")})
    uri = f"attachment:{route.name}/{answer.file.name}"
    described, content = answer.file.result(request.mcp.result_chars, uri)
    return ToolResult(structured={"file": described}, content=content)

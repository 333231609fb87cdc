"""What a ViewSet answered, for a model: rows, one row, a file, or why not."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from django.http import HttpResponseBase

from ..actions.responses import read_response
from ..conf import settings
from ..context.results import ToolResult
from ..exceptions import ToolError
from ..schema.jsonable import to_jsonable
from .errors import ELSEWHERE, is_json, refuse, render
from .fitting import fitting
from .inputs import Inputs
from .requests import RestRequest
from .routes import Route

__all__ = ["read_answer", "read_payload"]

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

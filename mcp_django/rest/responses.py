"""Translate a ViewSet's response for a model: rows, one row, a file or a refusal, cut to ``RESULT_CHARS``.

Files in it get URLs of this endpoint. The URLs of a storage would let anybody who has them bypass the endpoint, or do
not work from outside.
"""

import json
import math
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn
from urllib.parse import parse_qs, urlsplit

import orjson
from django.db.models import Manager
from django.db.models.fields.files import FieldFile
from django.http import HttpResponseBase, StreamingHttpResponse
from rest_framework.serializers import BaseSerializer, FileField, ListSerializer
from rest_framework.settings import api_settings
from rest_framework.utils.serializer_helpers import ReturnDict, ReturnList

from ..conf import settings
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..emulation.action_responses import read_response
from ..exceptions import NotFound, ToolError
from ..orm.access import access_of
from ..orm.column_values import pk_text
from ..orm.uris import Address, ParsedURI
from ..schema.json_values import to_jsonable
from ..schema.secrets import clean_text
from .parameters import Inputs
from .routes import Route

# Maximum characters of each text in a response that is too long.
MAX_TEXT: Final = 300
# Characters reserved for the note that something was cut.
HEAD: Final = 200
# Maximum number of errors in a refusal, and maximum characters of each.
MAX_LINES: Final = 8
MAX_LINE: Final = 300
ELSEWHERE: Final = "The view leads to another page, which cannot be followed here."
ROWS: Final = "results"
# Names of links to other pages: those of REST framework's paginators, and others that projects use.
LINKS: Final = ("next", "previous", "prev", "first", "last")
_ADDRESS: Final = re.compile("[/?]")
# Maximum digits of an integer that every client reads exactly.
MAX_DIGITS: Final = 15


def read_answer(
    route: Route, request: MCPRequest, response: HttpResponseBase, inputs: Inputs, arguments: Mapping[str, Any]
) -> ToolResult:
    """Return the tool result for a response; raise ``ToolError`` for an error or a redirect."""
    if 300 <= response.status_code < 400 and route.method != "get":
        return ToolResult(structured={"done": True, "note": ELSEWHERE})
    if response.status_code >= 300:
        refuse(route, response)
    _render(response)
    if not _is_json(response):
        try:
            answer = read_response(request, response)
        except ToolError:
            bound = f"a file larger than {settings.MAX_FILE_BYTES} bytes"
            raise ToolError(f"The view answered with {bound}, or a page with a form: neither can be sent.") from None
        if answer.file is None:
            return ToolResult(structured={"text": answer.text or (answer.page.message if answer.page else "")})
        described, blocks = answer.file.result(request, route.name)
        return ToolResult(structured={"file": described}, content=blocks)
    content: bytes = getattr(response, "content", b"")
    if not content:
        keys = {name: arguments[name] for name in route.parameters if name in arguments}
        return ToolResult(structured={"deleted" if route.method == "delete" else "done": True, **keys})
    return ToolResult(structured=_fitting(route, _payload(request, content, inputs), request.mcp.result_chars))


def _payload(request: MCPRequest, content: bytes, inputs: Inputs) -> dict[str, Any]:
    """Return a JSON response as an object, with links to other pages turned into arguments."""
    data = to_jsonable(json.loads(content))
    if isinstance(data, list):
        return {ROWS: data}
    if not isinstance(data, dict):
        return {"result": data}
    if not inputs.query or not any(isinstance(value, list) for value in data.values()):
        # The response is not a page, and a row can have a field with the name of a link.
        return data
    path = urlsplit(request.get_full_path()).path
    members: dict[str, Any] = {}
    for name, value in data.items():
        grouped = name == "links" and isinstance(value, dict)
        is_link = name in LINKS[:2] and (value is None or (isinstance(value, str) and _ADDRESS.search(value)))
        if not grouped and not is_link:
            members[name] = value
            continue
        for key, link in (value if grouped else {name: value}).items():
            # Drop any other link: only REST clients can follow it.
            if key in LINKS and isinstance(link, str) and urlsplit(link).path == path:
                # The arguments that are different for that page, null for one that has to be left out.
                values = parse_qs(urlsplit(link).query, keep_blank_values=True)
                members[key] = {
                    argument: _argument(values.get(argument, []), schema.get("type"))
                    for argument, schema in inputs.query.items()
                    if values.get(argument, []) != request.GET.getlist(argument)
                }
    return members


def _argument(values: list[str], kind: Any) -> Any:
    if kind == "array" or not values:
        return values or None
    text = values[-1]
    if kind == "integer" and text.isdecimal() and len(text) <= MAX_DIGITS:
        return int(text)
    return text


# Refusals


def _render(response: Any) -> None:
    if not getattr(response, "is_rendered", True):
        response.render()


def _is_json(response: HttpResponseBase) -> bool:
    """Return whether a rendered response is JSON, or empty, and no file."""
    if isinstance(response, StreamingHttpResponse):
        return False
    mime_type = response.headers.get("Content-Type", "").split(";")[0].strip().lower()
    attached = response.headers.get("Content-Disposition", "").startswith("attachment")
    is_empty = not getattr(response, "content", b"")
    return not attached and (is_empty or mime_type == "application/json" or mime_type.endswith("+json"))


def refuse(route: Route, response: HttpResponseBase) -> NoReturn:
    """Raise the ``ToolError`` for a response that is an error or a redirect."""
    _render(response)
    try:
        data = json.loads(getattr(response, "content", b"")) if _is_json(response) else None
    except ValueError:
        data = None
    lines = list(_problems(data, ""))
    more = [f"and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    status = response.status_code
    text = "\n".join([*lines[:MAX_LINES], *more])[:1_200]
    if status < 400:
        raise ToolError(ELSEWHERE)
    if status in (401, 403):
        raise ToolError(f"Permission denied. {text}".strip())
    if status == 404:
        # Missing, filtered and forbidden rows must look the same.
        raise NotFound if route.parameters or not text else ToolError(text)
    if status == 429:
        wait = response.headers.get("Retry-After", "")
        after = f"Wait {math.ceil(float(wait))} seconds" if wait.isdecimal() else "Wait a while"
        raise ToolError(f"Too many calls. {after}, then repeat the call.")
    if status >= 500:
        raise ToolError(f"The view failed with HTTP status {status}.")
    raise ToolError(f"Refused with HTTP status {status}:\n{text}" if status != 400 else f"Refused:\n{text}")


def _problems(data: Any, path: str) -> Iterator[str]:
    """Yield a line for each error in a response: ``items[0].quantity: A valid integer is required.``"""
    if isinstance(data, dict):
        for name, value in data.items():
            unnamed = name in ("detail", api_settings.NON_FIELD_ERRORS_KEY)
            yield from _problems(value, path if unnamed else f"{path}.{name}".lstrip("."))
    elif isinstance(data, list) and not all(isinstance(item, str) for item in data):
        for index, item in enumerate(data):
            yield from _problems(item, f"{path}[{index}]")
    elif data:
        text = clean_text(" ".join(data) if isinstance(data, list) else str(data), MAX_LINE)
        yield f"{path}: {text}" if path else text


# Answers that are too long


def _size(data: Any) -> int:
    return len(orjson.dumps(data))


def _fitting(route: Route, payload: dict[str, Any], room: int) -> dict[str, Any]:
    """Return a response cut to ``room`` characters: long texts first, then the last rows."""
    if _size(payload) <= room:
        return payload
    payload = _shortened(payload)
    head: dict[str, Any] = {"truncated": True, "note": f"Texts are cut after {MAX_TEXT} characters."}
    lists = {name: value for name, value in payload.items() if isinstance(value, list)}
    if _size({**head, **payload}) > room and lists:
        longest = max(lists, key=lambda name: _size(lists[name]))
        rows = lists[longest]
        fitting = []
        left = room - HEAD - _size({**payload, longest: []})
        for row in rows:
            left -= _size(row) + 1
            if left < 0:
                break
            fitting.append(row)
        head["note"] += f" Only the first {len(fitting)} of {len(rows)} rows fit: ask for smaller pages or narrow it."
        payload = {**payload, longest: fitting}
    if _size({**head, **payload}) <= room:
        return {**head, **payload}
    bound = f"The answer is longer than the limit of {room} characters"
    if route.method == "get":
        raise ToolError(f"{bound}: ask for less.")
    return {"done": True, "note": f"The work is done; do not call it again. {bound}."}


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_shortened(member) for member in value]
    if isinstance(value, str):
        return clean_text(value, MAX_TEXT)
    return value


# Links to files


def link_files(request: MCPRequest, data: Any) -> None:
    """Return data with download links, or the names of files, in place of their URLs.

    A file gets a link if the site exposes its row to the caller. The download checks the permission again.
    """
    if isinstance(data, (ReturnDict, ReturnList)):
        if _has_files(data.serializer):
            _link(request, data.serializer, data.serializer.instance, data)
    elif isinstance(data, (dict, list)):
        for item in data.values() if isinstance(data, dict) else data:
            link_files(request, item)


def _has_files(serializer: Any) -> bool:
    fields = getattr(getattr(serializer, "child", serializer), "fields", {})
    return any(
        isinstance(field, FileField) or (isinstance(field, BaseSerializer) and _has_files(field))
        for field in fields.values()
    )


def _link(request: MCPRequest, serializer: Any, found: Any, shown: Any) -> None:
    if isinstance(serializer, ListSerializer):
        rows = found.all() if isinstance(found, Manager) else found
        for row, item in zip(rows or (), shown, strict=False):
            _link(request, serializer.child, row, item)
        return
    for name, field in serializer.fields.items():
        if found is None or not isinstance(shown, dict) or not shown.get(name):
            continue
        if isinstance(field, FileField):
            file = field.get_attribute(found)
            if isinstance(file, FieldFile):
                shown[name] = _link_of(request, file)
        elif isinstance(field, BaseSerializer) and _has_files(field):
            _link(request, field, field.get_attribute(found), shown[name])


def _link_of(request: MCPRequest, file: FieldFile) -> str:
    row = file.instance
    name = file.field.name
    model = access_of(request).model_of(type(row))
    if model is None or name not in model.fields or not model.is_file(name):
        return posixpath.basename(file.name or "")
    url = ParsedURI(model.exposure.label, pk_text(row.pk), name).download_url(request)
    return url or Address(model).file(row.pk, name)

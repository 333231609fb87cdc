"""Explain a ViewSet's refusal in words that a model can act on."""

import json
import math
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from django.http import HttpResponseBase, StreamingHttpResponse
from rest_framework.settings import api_settings

from ..exceptions import NotFound, ToolError
from ..schema.jsonable import clean_text
from .routes import Route

MAX_LINES: Final = 8
MAX_LINE: Final = 300
ELSEWHERE: Final = "The view leads on to another page, which cannot be followed here."


def render(response: Any) -> None:
    """Write the content of a response that has yet to be rendered."""
    if not getattr(response, "is_rendered", True):
        response.render()


def is_json(response: HttpResponseBase) -> bool:
    """Return whether a response that is rendered is JSON, or empty, and no file."""
    if isinstance(response, StreamingHttpResponse):
        return False
    mime_type = response.headers.get("Content-Type", "").split(";")[0].strip().lower()
    attached = response.headers.get("Content-Disposition", "").startswith("attachment")
    is_empty = not getattr(response, "content", b"")
    return not attached and (is_empty or mime_type == "application/json" or mime_type.endswith("+json"))


def refuse(route: Route, response: HttpResponseBase) -> NoReturn:
    """Raise what a response that is an error, or leads elsewhere, means to a model.

    Raises:
        NotFound: 404 of a view whose URL names a row.
        ToolError: anything else.
    """
    render(response)
    status, text = response.status_code, "\n".join(_lines(_data(response)))[:1_200]
    if status < 400:
        raise ToolError(ELSEWHERE)
    if status in (401, 403):
        raise ToolError(f"Permission denied. {text}".strip())
    if status == 404:
        # One text for rows that are missing, filtered out and forbidden.
        raise NotFound if route.parameters or not text else ToolError(text)
    if status == 429:
        wait = response.headers.get("Retry-After", "")
        after = f"Wait {math.ceil(float(wait))} seconds" if wait.isdecimal() else "Wait a while"
        raise ToolError(f"Too many calls. {after}, then repeat the call.")
    if status >= 500:
        raise ToolError(f"The view failed with HTTP status {status}.")
    raise ToolError(f"Refused with HTTP status {status}:\n{text}" if status != 400 else f"Refused:\n{text}")


def _data(response: HttpResponseBase) -> Any:
    try:
        return json.loads(getattr(response, "content", b"")) if is_json(response) else None
    except ValueError:
        return None


def _lines(data: Any) -> list[str]:
    found = list(_problems(data, ""))
    more = [f"and {len(found) - MAX_LINES} more"] if len(found) > MAX_LINES else []
    return [*found[:MAX_LINES], *more]


def _problems(data: Any, path: str) -> Iterator[str]:
    """Yield a line for each thing that is wrong: ``items[0].quantity: A valid integer is required.``"""
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

"""Arguments and results of calls, where the project has them kept: without secrets, redacted, and up to a size.

What is named like a secret, or looks like one, is blanked first, then the project's own ``redact`` has its say. What
cannot be made safe is not kept.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson
from django.db.models import Model
from django.utils.module_loading import import_string

from ..conf import settings
from ..context.record import CallRecord
from ..context.request import MCPRequest
from ..protocol.errors import ProtocolError
from ..protocol.messages import decode
from ..sensitive import HIDDEN, MAX_NAME, is_sensitive, without_likely_secrets

logger = logging.getLogger("mcp_django")

# Bytes of the arguments, and of the result, unless ``max_bytes`` says otherwise.
MAX_BYTES: Final = 16 * 1024
# What an object calls the name of a field, and its value, where it is about one.
NAMED_BY: Final = ("field", "name", "path", "column")
VALUES: Final = ("value", "values", "equals")
# Parameters that are no arguments, or are signed.
LEFT_OUT: Final = frozenset({"_meta", "inputResponses", "requestState"})
# What stands at the end of what was cut.
CUT: Final = "…"


def is_wanted() -> bool:
    """Return whether arguments and results are kept."""
    return isinstance(settings.CALL_LOG, Mapping) and settings.CALL_LOG.get("capture") == "full"


def keep(request: MCPRequest, params: Mapping[str, Any]) -> None:
    """Have the record of a call hold what it came with, until :func:`captured`."""
    given = params.get("arguments") if request.mcp.record.method == "tools/call" else None
    if given is None:
        given = {name: value for name, value in params.items() if name not in LEFT_OUT}
    request.mcp.record.arguments = given


def captured(request: MCPRequest) -> tuple[str, str]:
    """Return the arguments and the result of a call as they may be kept: JSON, cut where it is long."""
    record: CallRecord = request.mcp.record
    exposure = request.mcp.site.exposures_by_label.get(record.model)
    model = exposure.model if exposure is not None else None
    try:
        arguments = blanked(record.arguments, model)
        result = blanked(_result_of(record.result), model)
        redact = _hook(settings.CALL_LOG.get("redact"))
        if redact is not None:
            arguments, result = redact(record.tool, arguments, result)
        return _text(arguments), _text(result)
    except Exception as error:
        # Its text may hold what was to be redacted.
        logger.error("What a call was about is not kept: redacting it failed (%s)", type(error).__name__)
        return "", ""


@lru_cache(maxsize=8)
def _hook(path: str | None) -> Callable[[str, Any, Any], tuple[Any, Any]] | None:
    return import_string(path) if path else None


def _result_of(body: bytes | None) -> Any:
    """Return the result or the error in a response; text that repeats the structured content is left out."""
    if not body:
        return None
    try:
        response = decode(body)
    except ProtocolError:
        return None
    if not isinstance(response, dict):
        return response
    result = response.get("result", response.get("error"))
    if isinstance(result, dict) and "structuredContent" in result:
        others = [block for block in result.get("content", ())[1:] if isinstance(block, dict)]
        return {**result, "content": others}
    return result


def _text(value: Any) -> str:
    if value is None:
        return ""
    most: int = settings.CALL_LOG.get("max_bytes", MAX_BYTES)
    text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    if not text.isprintable():
        # What turns the direction of a text, or is not seen, must not mislead whoever reads it.
        text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
    written = text.encode()
    if len(written) > most:
        return written[:most].decode(errors="ignore") + CUT
    return written.decode()


# Blanking


def blanked(value: Any, model: type[Model] | None = None) -> Any:
    """Return a JSON value with ``HIDDEN`` for what its name says is a secret, or what looks like one.

    ``model`` is what it is about, whose own fields can be secrets that their names alone do not tell.
    """
    if isinstance(value, Mapping):
        return _blanked_object(value, model)
    if isinstance(value, list | tuple):
        return [blanked(item, model) for item in value]
    return without_likely_secrets(value)


def _blanked_object(value: Mapping[Any, Any], model: type[Model] | None) -> dict[str, Any]:
    found = {str(name): _member(str(name), item, model) for name, item in value.items()}
    columns, rows = value.get("columns"), value.get("rows")
    if isinstance(columns, list) and isinstance(rows, list):
        found["rows"] = _blanked_rows(columns, rows, model)
    if any(_is_secret(value.get(name), model) for name in NAMED_BY):
        found |= {name: HIDDEN for name in VALUES if name in value}
    return found


def _member(name: str, item: Any, model: type[Model] | None) -> Any:
    is_nothing = item is None or item == "" or isinstance(item, bool)
    return item if is_nothing else HIDDEN if _is_secret(name, model) else blanked(item, model)


def _blanked_rows(columns: Iterable[Any], rows: Iterable[Any], model: type[Model] | None) -> list[Any]:
    secret = [_is_secret(name, model) for name in columns]
    if not any(secret):
        return [blanked(row, model) for row in rows]
    return [
        [HIDDEN if hide and item is not None else blanked(item, model) for hide, item in zip(secret, row, strict=False)]
        if isinstance(row, list)
        else HIDDEN
        for row in rows
    ]


def _is_secret(name: Any, model: type[Model] | None) -> bool:
    """Return whether this is the name of a secret, alone or with a lookup or a path."""
    if not isinstance(name, str):
        return False
    name = name[:MAX_NAME]
    parts = [name, *name.replace("__", ".").split(".")]
    return any(is_sensitive(part) or (model is not None and is_sensitive(part, model)) for part in parts)

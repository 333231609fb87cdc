"""Arguments and results of calls, where the project has them kept: without secrets, redacted, and up to a size.

What is named like a secret, or looks like one, is blanked first, then the project's own ``redact`` has its say. What
cannot be made safe is not kept.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from django.db.models import Model
from django.utils.module_loading import import_string

from ..conf import settings
from ..context.record import CallRecord
from ..context.request import MCPRequest
from ..protocol.errors import ProtocolError
from ..protocol.messages import decode
from ..schema.values import HIDDEN, MAX_NAME, is_sensitive, without_likely_secrets

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
    blank = Blanking(exposure.model if exposure is not None else None)
    try:
        arguments, result = blank.value(record.arguments), blank.value(_result_of(record.result))
        if redact := settings.CALL_LOG.get("redact"):
            arguments, result = import_string(redact)(record.tool, arguments, result)
        return _text(arguments), _text(result)
    except Exception as error:
        # Its text may hold what was to be redacted.
        logger.error("What a call was about is not kept: redacting it failed (%s)", type(error).__name__)
        return "", ""


def _result_of(body: bytes | None) -> Any:
    """Return the result or the error in a response; text that repeats the structured content is left out."""
    try:
        response = decode(body) if body else None
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
    return text if len(written) <= most else written[:most].decode(errors="ignore") + CUT


class Blanking:
    """Puts ``HIDDEN`` in JSON for what its name says is a secret, or what looks like one.

    ``model`` is what it is about, whose own fields can be secrets that their names alone do not tell.
    """

    def __init__(self, model: type[Model] | None = None) -> None:
        self.model = model

    def value(self, value: Any) -> Any:
        """Return a JSON value without its secrets."""
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if not isinstance(value, Mapping):
            return without_likely_secrets(value)
        found = {str(name): self._member(str(name), item) for name, item in value.items()}
        columns, rows = value.get("columns"), value.get("rows")
        if isinstance(columns, list) and isinstance(rows, list):
            secret = [self._is_secret(name) for name in columns]
            found["rows"] = [self._row(secret, row) for row in rows]
        if any(self._is_secret(value.get(name)) for name in NAMED_BY):
            found |= {name: HIDDEN for name in VALUES if name in value}
        return found

    def _member(self, name: str, item: Any) -> Any:
        is_nothing = item is None or item == "" or isinstance(item, bool)
        return item if is_nothing else HIDDEN if self._is_secret(name) else self.value(item)

    def _row(self, secret: Sequence[bool], row: Any) -> Any:
        if not any(secret):
            return self.value(row)
        if not isinstance(row, list):
            return HIDDEN
        hidden = zip(secret, row, strict=False)
        return [HIDDEN if hide and item is not None else self.value(item) for hide, item in hidden]

    def _is_secret(self, name: Any) -> bool:
        """Return whether this is the name of a secret, alone or with a lookup or a path."""
        if not isinstance(name, str):
            return False
        name = name[:MAX_NAME]
        parts = [name, *name.replace("__", ".").split(".")]
        return any(is_sensitive(part) or (self.model is not None and is_sensitive(part, self.model)) for part in parts)

"""What the log of calls keeps of arguments and results, if it captures them: JSON without secrets, cut."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from django.db.models import Model
from django.utils.module_loading import import_string

from ..conf import settings
from ..context.call_record import CallRecord
from ..context.request import MCPRequest
from ..protocol.errors import ProtocolError
from ..protocol.messages import decode
from ..schema.secrets import HIDDEN, is_sensitive
from .likely_secrets import without_likely_secrets

logger = logging.getLogger("mcp_django")

# Members of a JSON object that name a field, and members that hold the value of this field.
NAMED_BY: Final = ("field", "name", "path", "column")
VALUES: Final = ("value", "values", "equals")
# Parameters that are not arguments, or that are signed.
LEFT_OUT: Final = frozenset({"_meta", "inputResponses", "requestState"})
# Characters of a name that are looked at.
MAX_NAME: Final = 200
# Marks the end of a text that was cut.
CUT: Final = "…"


def captured(request: MCPRequest) -> tuple[str, str]:
    """Return the arguments and the result of a call as JSON, redacted and cut.

    Values that are named like a secret, or look like one, are blanked first. Then the project's own ``redact`` runs.
    If either fails, nothing is kept.
    """
    record: CallRecord = request.mcp.record
    exposure = request.mcp.site.find_exposure(record.model)
    blank = Blanking(exposure.model if exposure is not None else None)
    try:
        arguments = blank.value(record.arguments)
        result = blank.value(_result_of(record.result))
        if redact := settings.CALL_LOG["redact"]:
            arguments, result = import_string(redact)(record.tool, arguments, result)
        return _text(arguments), _text(result)
    except Exception as error:
        # Do not log the error's text: it may contain what was to be redacted.
        logger.error("What a call was about is not kept: redacting it failed (%s)", type(error).__name__)
        return "", ""


def _result_of(body: bytes | None) -> Any:
    """Return what is captured of a response: the result or error, without the text that repeats structured content."""
    try:
        response = decode(body) if body else None
    except ProtocolError:
        return None
    if not isinstance(response, dict):
        return response
    result = response.get("result", response.get("error"))
    if isinstance(result, dict) and "structuredContent" in result:
        return {**result, "content": [block for block in result.get("content", ())[1:] if isinstance(block, dict)]}
    return result


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    return json.dumps(char)[1:-1]


def _text(value: Any) -> str:
    if value is None:
        return ""
    most: int = settings.CALL_LOG["max_bytes"]
    text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    if not text.isprintable():
        # Escape invisible characters and those that turn the direction of a text: they can mislead the reader.
        text = "".join(map(_visible, text))
    written = text.encode()
    if len(written) <= most:
        return text
    return written[:most].decode(errors="ignore") + CUT


class Blanking:
    """Replaces secrets by ``HIDDEN`` in captured arguments and results.
    ``model`` is the call's model, if known: its fields can be secrets even if their names do not look like it."""

    def __init__(self, model: type[Model] | None = None) -> None:
        self.model = model

    def value(self, value: Any) -> Any:
        """Return a JSON value without its secrets."""
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if not isinstance(value, Mapping):
            return without_likely_secrets(value)
        members = {str(name): self._member(str(name), item) for name, item in value.items()}
        columns = value.get("columns")
        rows = value.get("rows")
        if isinstance(columns, list) and isinstance(rows, list):
            secret = [self._is_secret(name) for name in columns]
            members["rows"] = [self._row(secret, row) for row in rows]
        if any(self._is_secret(value.get(name)) for name in NAMED_BY):
            members |= {name: HIDDEN for name in VALUES if name in value}
        return members

    def _member(self, name: str, item: Any) -> Any:
        if item is None or item == "" or isinstance(item, bool):
            return item
        return HIDDEN if self._is_secret(name) else self.value(item)

    def _row(self, secret: Sequence[bool], row: Any) -> Any:
        if not any(secret):
            return self.value(row)
        if not isinstance(row, list):
            return HIDDEN
        return [self._cell(item, is_secret) for is_secret, item in zip(secret, row, strict=False)]

    def _cell(self, item: Any, is_secret: bool) -> Any:
        if is_secret and item is not None:
            return HIDDEN
        return self.value(item)

    def _is_secret(self, name: Any) -> bool:
        """Return whether a name is that of a secret, alone or with a lookup or a path."""
        if not isinstance(name, str):
            return False
        name = name[:MAX_NAME]
        parts = [name, *name.replace("__", ".").split(".")]
        return any(is_sensitive(part) or (self.model is not None and is_sensitive(part, self.model)) for part in parts)

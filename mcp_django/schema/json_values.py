"""Python values as JSON values, and texts that UTF-8 can hold."""

import base64
import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any, Final

from django.core.files import File
from django.db import models
from django.utils.functional import Promise

from .secrets import clean_text

MAX_DEPTH: Final = 64
MAX_LABEL: Final = 200
# Decimals with a larger exponent are written in scientific notation.
MAX_DIGITS: Final = 64
# Integers that a JSON number carries exactly (RFC 8259, section 6).
MAX_SAFE_INTEGER: Final = 2**53 - 1
# Iterables that are one value: a file becomes its name, not its lines.
TEXTS: Final = (str, bytes, bytearray, memoryview, Promise, File)


def to_jsonable(value: Any) -> Any:
    """Convert a Python value to a JSON value, whatever a project's function gave back.

    Dataclasses become objects, decimals exact text, dates ISO 8601, bytes Base64, enumerations their values, rows
    ``{"pk", "label"}``, NaN and infinity null, and integers that a JSON number cannot carry exactly text. Code points
    that are not Unicode are replaced, and any other object becomes its ``str()``.
    """
    return _convert(value, MAX_DEPTH)


def _convert(value: Any, depth: int) -> Any:
    if not depth:
        raise ValueError("the value is nested too deeply")
    if isinstance(value, enum.Enum):
        return _convert(value.value, depth - 1)
    if isinstance(value, Mapping):
        return {_key(key): _convert(member, depth - 1) for key, member in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _convert(getattr(value, field.name), depth - 1) for field in dataclasses.fields(value)}
    if isinstance(value, models.Model):
        return {"pk": _convert(value.pk, depth - 1), "label": clean_text(str(value), MAX_LABEL)}
    if isinstance(value, Iterable) and not isinstance(value, TEXTS):
        return [_convert(item, depth - 1) for item in value]
    return _leaf(value)


def _key(key: Any) -> str:
    converted = _leaf(key.value if isinstance(key, enum.Enum) else key)
    if isinstance(converted, str):
        return converted
    return clean_text(str(key))


def _leaf(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            if abs(value) <= MAX_SAFE_INTEGER:
                return int(value)
            return str(int(value))
        case float():
            return float(value) if math.isfinite(value) else None
        case Decimal():
            if not value.is_finite():
                return None
            if abs(value.adjusted()) < MAX_DIGITS:
                return format(value, "f")
            return str(value)
        case date() | time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case File():
            return clean_text(value.name or "") or None
        case _:
            return clean_text(str(value))

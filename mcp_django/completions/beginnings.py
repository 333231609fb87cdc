"""Prefix conditions on a column that an index can answer."""

import re
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from ..orm.kinds import kind_of

# What databases hold in their widest integer column.
MAX_INTEGER: Final = 2**63 - 1
MAX_DIGITS: Final = 19
_DIGITS: Final = re.compile(r"[1-9][0-9]{0,18}")
_HEX: Final = re.compile(r"[0-9a-f]{1,32}")


def beginning(path: str, field: Any, text: str) -> Q | None:
    """Return the condition that a column's text begins with this one, None for a type without that."""
    match kind_of(field).word:
        case "text":
            return Q((f"{path}__startswith", text))
        case "integer" if _DIGITS.fullmatch(text):
            return _digits(path, int(text), len(text))
        case "uuid":
            digits = text.lower().replace("-", "")
            if _HEX.fullmatch(digits):
                first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
                return Q((f"{path}__gte", first), (f"{path}__lte", last))
    return None


def _digits(path: str, number: int, length: int) -> Q:
    """Return the condition that an integer begins with these digits, as ranges that an index can find."""
    condition = Q((path, number))
    for zeros in range(1, MAX_DIGITS - length + 1):
        first = number * 10**zeros
        if first > MAX_INTEGER:
            break
        condition |= Q((f"{path}__gte", first), (f"{path}__lte", min(first + 10**zeros - 1, MAX_INTEGER)))
    return condition

"""Values of one type as JSON, a column at a time.

Each function returns the JSON of all values, or None where some value needs a look of its own: it is null, of another
class, or out of the range that JSON can carry. Asking the column once costs a tenth of asking each value.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

import orjson

from ..schema.values import MAX_SAFE_INTEGER, may_hold_secrets

Column = list[Any] | None
_TRUTH: Final = {bool, type(None)}
_WHOLE: Final = {int, type(None)}
_NUMBERS: Final = {float, type(None)}
# Neither an exponent nor "NaN" and "Infinity".
_PLAIN_NUMBERS: Final = re.compile(r"[0-9.-]*")


def texts(values: Sequence[Any], limit: int | None) -> Column:
    """Return texts of at most ``limit`` characters that UTF-8 can hold, and in which no secret could stand."""
    if set(map(type, values)) != {str} or (limit is not None and max(map(len, values)) > limit):
        return None
    whole = "".join(values)
    if may_hold_secrets(whole):
        return None
    if not whole.isascii():
        try:
            whole.encode()
        except UnicodeEncodeError:
            return None
    return list(values)


def plain(values: Sequence[Any]) -> Column:
    """Return truth values and nulls, or texts, which are JSON already."""
    types = set(map(type, values))
    if types <= _TRUTH:
        return list(values)
    return texts(values, None) if types == {str} else None


def integers(values: Sequence[Any]) -> Column:
    """Return integers that every client reads exactly (RFC 8259, section 6), and nulls."""
    types = set(map(type, values))
    if not types <= _WHOLE:
        return None
    known = values if types == {int} else [value for value in values if value is not None]
    exact = not known or (max(known) <= MAX_SAFE_INTEGER and min(known) >= -MAX_SAFE_INTEGER)
    return list(values) if exact else None


def floats(values: Sequence[Any]) -> Column:
    """Return finite numbers, and nulls."""
    types = set(map(type, values))
    if not types <= _NUMBERS:
        return None
    known = values if types == {float} else [value for value in values if value is not None]
    # What is not finite shows in the sum, and so does a sum that is too large: then each value is asked.
    return list(values) if math.isfinite(sum(known)) else None


def decimals(values: Sequence[Any]) -> Column:
    """Return the texts of decimals that are written without an exponent."""
    if set(map(type, values)) != {Decimal}:
        return None
    found = list(map(str, values))
    return found if _PLAIN_NUMBERS.fullmatch("".join(found)) else None


def iso_text(value: date | time) -> str:
    """Return the text of a date, time or datetime; UTC is a Z, which is the shorter to read."""
    text = value.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def dates(values: Sequence[Any]) -> Column:
    """Return the texts of dates, or of datetimes that are in UTC or in no zone, as :func:`iso_text` writes them."""
    types = set(map(type, values))
    # orjson rounds offsets to minutes, which no zone but UTC is sure to have.
    plain = types == {date} or (types == {datetime} and {value.tzinfo for value in values} <= {UTC, None})
    return list(orjson.loads(orjson.dumps(values, option=orjson.OPT_UTC_Z))) if plain else None

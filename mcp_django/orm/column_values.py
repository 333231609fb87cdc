"""Column values as JSON: each value by itself, or the whole column at once where its values are of one plain type.

No value can fail a page: NaN becomes null, text is made valid Unicode, and a value without a JSON form becomes text.
Integers beyond what every client reads exactly (RFC 8259, section 6) are sent as text. Checking a whole column at once
takes a tenth of the time of checking each value.
"""

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import lru_cache, partial
from html import unescape
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import models
from django.db.models import Model
from django.db.models.fields.files import FieldFile
from django.forms import MultiValueField
from django.utils.html import strip_tags
from django.utils.safestring import SafeString

from ..schema.json_values import MAX_SAFE_INTEGER
from ..schema.secrets import clean_text, may_hold_secrets, members
from .fields import kind_of

logger = logging.getLogger("mcp_django")

MAX_DEPTH: Final = 40
MAX_ITEMS: Final = 1000
# Maximum number of digits of a computed decimal.
MAX_DIGITS: Final = 100
Column = list[Any] | None
_TRUTH: Final = {bool, type(None)}
_WHOLE: Final = {int, type(None)}
_NUMBERS: Final = {float, type(None)}
# Decimals as text without an exponent, and neither "NaN" nor "Infinity".
_PLAIN_NUMBERS: Final = re.compile(r"[0-9.-]*")


# One value


def pk_text(value: Any) -> str:
    """Return the value of a key column as text; of a composite key, a JSON array of the texts of its columns."""
    if isinstance(value, tuple):
        return orjson.dumps([pk_text(part) for part in value]).decode()
    if hasattr(value, "isoformat"):
        return iso_text(value)
    return str(value)


def plain_key(shown: Any) -> Any:
    """Return the bare key from the JSON value of a primary key column, which is ``[key, label]`` for a relation."""
    if isinstance(shown, list) and len(shown) == 2:
        return shown[0]
    return shown


def _text(limit: int | None, hint: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (list, tuple, set, frozenset)):
        # The value of a custom field that holds several.
        return _json(limit, hint, value)
    plain = type(value) is str and value.isascii() and not may_hold_secrets(value)
    if plain and (limit is None or len(value) <= limit):
        return value
    return clean_text(str(value), limit, hint)


def _integer(value: Any) -> Any:
    if type(value) is not int:
        return _plain(value)
    if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return value
    return str(value)


def _float(value: Any) -> Any:
    return value if value is None or math.isfinite(value) else None


def _decimal(value: Any) -> Any:
    if value is None or not value.is_finite():
        return None
    return format(value, "f")


def _iso(value: Any) -> Any:
    return None if value is None else iso_text(value)


def _str(value: Any) -> Any:
    return None if value is None else str(value)


def _bytes(value: Any) -> Any:
    return None if value is None else f"<{len(value)} bytes>"


def _range(value: Any) -> Any:
    """Render a range column value as its two ends if only the first is in the range; any other range as text."""
    if value is None:
        return None
    usual = (value.lower_inc or value.lower is None) and not value.upper_inc
    if usual and not value.isempty:
        return [_leaf(value.lower), _leaf(value.upper)]
    return clean_text(str(value))


def _plain(value: Any) -> Any:
    # SQLite stores any value in any column.
    if value is None or type(value) is bool:
        return value
    return _leaf(value)


def _json(limit: int | None, hint: str, value: Any) -> Any:
    cleaned = _tree(value, MAX_DEPTH)
    if limit is not None and not isinstance(cleaned, (int, float, type(None))):
        text = cleaned if isinstance(cleaned, str) else orjson.dumps(cleaned).decode()
        if len(text) > limit:
            return clean_text(text, limit, hint)
    return cleaned


def _tree(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        if depth:
            return {clean_text(k): _tree(v, depth - 1) for k, v in members(value)}
        return "…"
    if isinstance(value, (list, tuple, set, frozenset, models.QuerySet)):
        if not depth:
            return "…"
        items = list(value[: MAX_ITEMS + 1]) if isinstance(value, models.QuerySet) else list(value)
        cut = ["…"] if len(items) > MAX_ITEMS else []
        return [_tree(item, depth - 1) for item in items[:MAX_ITEMS]] + cut
    return _leaf(value)


def _leaf(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case SafeString():
            # Escaped HTML may contain JSON: unescape it, so that clean_text() finds secrets in it.
            return clean_text(unescape(strip_tags(value)).strip())
        case str():
            return clean_text(str(value))
        case int():
            return _integer(int(value))
        case float():
            return _float(value)
        case Decimal():
            return _decimal(value)
        case datetime() | date() | time():
            return iso_text(value)
        case bytes() | bytearray() | memoryview():
            return _bytes(value)
        case FieldFile():
            return clean_text(value.name or "") or None
        case timedelta() | UUID() | _:
            return clean_text(str(value))


def render(value: Any, limit: int | None = None, hint: str = "") -> Any:
    """Render any column value as JSON; text is cut to ``limit`` characters, HTML of a display method loses its tags."""
    return _json(limit, hint, value)


def trimmed(value: Any, places: int | None) -> Any:
    """Round a decimal column value to the decimal places of its column."""
    if not isinstance(value, Decimal) or not value.is_finite() or places is None:
        return value
    return value.quantize(Decimal(1).scaleb(-places), context=Context(prec=MAX_DIGITS))


# Whole columns. Each function returns None if some value must be rendered by itself: it is null, of another class, or
# outside the range that JSON can carry.


def texts(values: Sequence[Any], limit: int | None) -> Column:
    """Render a column of text values, at most ``limit`` long, that UTF-8 can hold and that cannot hold a secret."""
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
    """Render a whole column of values that are JSON already: booleans and nulls, or texts."""
    types = set(map(type, values))
    if types <= _TRUTH:
        return list(values)
    return texts(values, None) if types == {str} else None


def integers(values: Sequence[Any]) -> Column:
    """Render a whole column of integer values and nulls that every client reads exactly (RFC 8259, section 6)."""
    types = set(map(type, values))
    if not types <= _WHOLE:
        return None
    known = values if types == {int} else [value for value in values if value is not None]
    exact = not known or (max(known) <= MAX_SAFE_INTEGER and min(known) >= -MAX_SAFE_INTEGER)
    return list(values) if exact else None


def floats(values: Sequence[Any]) -> Column:
    """Render a whole column of finite numbers and nulls."""
    types = set(map(type, values))
    if not types <= _NUMBERS:
        return None
    known = values if types == {float} else [value for value in values if value is not None]
    # NaN, infinity and an overflow all show in the sum: each value is then rendered by itself.
    return list(values) if math.isfinite(sum(known)) else None


def decimals(values: Sequence[Any]) -> Column:
    """Render a whole column of decimal values as texts without an exponent."""
    if set(map(type, values)) != {Decimal}:
        return None
    found = list(map(str, values))
    return found if _PLAIN_NUMBERS.fullmatch("".join(found)) else None


def iso_text(value: date | time) -> str:
    """Return the ISO text of a column value that is a date, time or datetime; UTC is written as Z, which is shorter."""
    text = value.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def dates(values: Sequence[Any]) -> Column:
    """Render a column of values that are dates, or datetimes in UTC or without a zone, as :func:`iso_text` does."""
    types = set(map(type, values))
    # orjson rounds offsets to minutes, so only UTC is sure to stay exact.
    plain = types == {date} or (types == {datetime} and {value.tzinfo for value in values} <= {UTC, None})
    if plain:
        return list(orjson.loads(orjson.dumps(values, option=orjson.OPT_UTC_Z)))
    return None


_BY_WORD: Final[Mapping[str, Callable[[Any], Any]]] = {
    "boolean": _plain,
    "integer": _integer,
    "number": _float,
    "decimal": _decimal,
    "datetime": _iso,
    "date": _iso,
    "time": _iso,
    "duration": _str,
    "uuid": _str,
    "ip": _plain,
    "bytes": _bytes,
    "range": _range,
}
# For a function that renders one value, the function that renders a whole column if its values allow it.
_BY_COLUMN: Final[Mapping[Any, Callable[[Sequence[Any]], list[Any] | None]]] = {
    _plain: plain,
    _integer: integers,
    _float: floats,
    _decimal: decimals,
    _iso: dates,
}


def field_renderer(field: Any, limit: int | None, hint: str) -> Callable[[Any], Any]:
    """Return the function that renders the values of a field's column as JSON."""
    kind = kind_of(field)
    word = kind.word
    if word == "text":
        return partial(_text, limit, hint)
    if word in ("file", "image"):
        return _str
    if kind.is_custom and word != "json":
        # A custom field may return any class.
        return partial(render, limit=limit, hint=hint)
    if word in _BY_WORD:
        return _BY_WORD[word]
    return partial(_json, limit, hint)


def render_columns(
    columns: Iterable[tuple[str, Callable[[Any], Any] | None, Sequence[Any]]],
) -> list[tuple[Sequence[Any], int]]:
    """Render column values as JSON, from name, renderer and values; without a renderer they are JSON already."""
    return [(values, 0) if render is None else render_column(name, render, values) for name, render, values in columns]


def render_column(name: str, renderer: Callable[[Any], Any], values: Sequence[Any]) -> tuple[list[Any], int]:
    """Turn column values into JSON, a whole column at once if possible, and count those that fail: they become null.

    A value of a custom class that the renderer cannot handle becomes its text.
    """
    whole = _whole(renderer, values)
    if whole is not None:
        return whole, 0
    try:
        return [renderer(value) for value in values], 0
    except Exception as error:
        first = error
    found = []
    failed = 0
    for value in values:
        try:
            found.append(_rendered(renderer, value))
        except Exception:
            found.append(None)
            failed += 1
    if failed:
        logger.warning("A value of column %r could not be shown", name, exc_info=first)
    return found, failed


def _rendered(renderer: Callable[[Any], Any], value: Any) -> Any:
    try:
        return renderer(value)
    except Exception:
        if not isinstance(value, list) and type(value).__str__ is object.__str__:
            raise
        return render(value)


def _whole(renderer: Callable[[Any], Any], values: Sequence[Any]) -> list[Any] | None:
    if isinstance(renderer, partial):
        if renderer.func is _text:
            return texts(values, renderer.args[0])
        if renderer.func is not render:
            return None
        # The type is unknown, but all values may be of one plain type.
        if set(map(type, values)) == {str}:
            return texts(values, renderer.keywords["limit"])
        return integers(values) or plain(values) or floats(values)
    quick = _BY_COLUMN.get(renderer)
    return quick(values) if quick is not None else None


# Values of a column that the project replaced by an attribute


# Types of values that forms and serializers take as they are.
PLAIN: Final = (str, bytes, bool, int, float, Decimal, date, time, timedelta, UUID, list, tuple, set, frozenset, dict)


def as_written(field: Any, row: Model) -> Any:
    """Read one of the columns whose attribute the project replaced, as forms and serializers take it from a row.

    ``str()`` of such a value is for people, such as HTML made from the stored source. If the form has several controls
    for a value, such as an amount and its currency, the value is a list of its parts.
    """
    value = getattr(row, field.attname)
    if value is None or isinstance(value, PLAIN):
        return value
    widget = _split_widget(field)
    if widget is None:
        return field.value_to_string(row)
    return list(map(_part, widget.decompress(value)))


@lru_cache(maxsize=8192)
def _split_widget(field: Any) -> Any:
    made = field.formfield()
    return made.widget if isinstance(made, MultiValueField) else None


def _part(value: Any) -> Any:
    if value is None or isinstance(value, PLAIN):
        return value
    return str(value)

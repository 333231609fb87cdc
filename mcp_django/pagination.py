"""Keyset pages: cursors that hold where a page ended, and the condition for the rows after it.

A cursor is opaque (specification, server/utilities/pagination): the sort values of the last row, encrypted because an
order may use a column that the caller does not see, signed, bound to user, site and query, and good for
``CURSOR_MAX_AGE`` seconds. Nothing is kept on the server, and any worker with the same keys can read it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import orjson
from django.core.exceptions import ValidationError
from django.db.models import F, Q
from django.db.models.expressions import Expression
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, IsNull, LessThan, LessThanOrEqual
from django.utils.duration import duration_string

from .conf import settings
from .context import MCPRequest
from .exceptions import ToolError
from .kinds import stored_field
from .protocol.errors import InvalidParams
from .sealing import SEPARATOR, seal, unseal

__all__ = ["CURSOR_ERROR", "OrderKey", "keyset", "list_cursor", "read_cursor", "read_list_cursor", "write_cursor"]

CURSOR_ERROR: Final = (
    "This cursor is not valid for this request: it is damaged, expired, or belongs to another query. "
    "Repeat the call without cursor to start from the first page."
)
SALT: Final = "mcp_django.pagination"
MAX_CURSOR: Final = 4096
MAX_KEY_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One column of an order: its path from the model, its field, its direction, and whether it may be NULL."""

    path: str
    field: Any
    descending: bool
    nullable: bool


# Cursors


def _salt(request: MCPRequest, purpose: str) -> str:
    return SEPARATOR.join([SALT, request.mcp.site.name, str(request.user.pk), purpose])


def _seal(request: MCPRequest, purpose: str, data: bytes) -> str:
    # Equal pages have equal cursors but for the time.
    return seal(_salt(request, purpose), data)


def _unseal(request: MCPRequest, purpose: str, text: Any) -> bytes | None:
    return unseal(_salt(request, purpose), text, settings.CURSOR_MAX_AGE, MAX_CURSOR)


def write_cursor(request: MCPRequest, purpose: str, keys: Sequence[OrderKey], values: Sequence[Any]) -> str:
    """Return the cursor of the row with these sort values; ``purpose`` names the model and all of its query.

    Raises:
        ToolError: a value is too long to be carried by a cursor.
    """
    data = orjson.dumps([_plain(value) for value in values])
    if len(data) > MAX_KEY_BYTES:
        names = ", ".join(key.path for key in keys[:3])
        raise ToolError(f"The order by {names} cannot be paged: its texts are too long. Choose another ordering.")
    return _seal(request, purpose, data)


def read_cursor(request: MCPRequest, purpose: str, keys: Sequence[OrderKey], text: Any) -> tuple[Any, ...]:
    """Return the sort values that the cursor holds, as Python values of their fields.

    Raises:
        ToolError: the cursor is not one that this caller got for this query, or has expired; one text for all.
    """
    data = _unseal(request, purpose, text)
    try:
        values = orjson.loads(data) if data is not None else []
        if len(values) != len(keys):
            raise ToolError(CURSOR_ERROR)
        return tuple(
            None if value is None else stored_field(key.field).to_python(value)
            for key, value in zip(keys, values, strict=True)
        )
    except (ValueError, ValidationError):
        raise ToolError(CURSOR_ERROR) from None


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, timedelta):
        return duration_string(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else str(value)


def list_cursor(request: MCPRequest, purpose: str, last: str) -> str:
    """Return the cursor of the page of a list (``resources/list``) after the entry named ``last``."""
    return _seal(request, purpose, last.encode())


def read_list_cursor(request: MCPRequest, purpose: str, text: Any) -> str:
    """Return the name of the entry after which the page starts.

    Raises:
        InvalidParams: the cursor is not one that this caller got for this list, or has expired.
    """
    data = _unseal(request, purpose, text)
    if data is None:
        raise InvalidParams(CURSOR_ERROR)
    return data.decode()


# Rows after a cursor


def keyset(
    keys: Sequence[OrderKey],
    nulls: Sequence[bool],
    bind: Callable[[int], Expression],
    *,
    nulls_largest: bool,
) -> Q:
    """Return the condition for the rows after the one whose sort values ``bind`` gives by position.

    ``nulls`` says which of those values are NULL; ``nulls_largest`` is where the database sorts NULL (PostgreSQL: as
    the largest value, SQLite: as the smallest). The leading column is bounded by itself as well, because databases use
    an index for ``a <= x AND (a < x OR …)`` but not for the disjunction alone.
    """
    key, is_null = keys[0], nulls[0]
    column = F(key.path)
    nulls_last = key.descending is not nulls_largest
    rest = keyset(keys[1:], nulls[1:], lambda i: bind(i + 1), nulls_largest=nulls_largest) if len(keys) > 1 else None
    if is_null:
        same = Q(IsNull(column, True)) & rest if rest is not None else None
        after = None if nulls_last else Q(IsNull(column, False))
        return _either(after, same)
    beyond, bound = (LessThan, LessThanOrEqual) if key.descending else (GreaterThan, GreaterThanOrEqual)
    after = Q(beyond(column, bind(0)))
    if key.nullable and nulls_last:
        after |= Q(IsNull(column, True))
        return _either(after, Q(Exact(column, bind(0))) & rest if rest is not None else None)
    if rest is None:
        return after
    return Q(bound(column, bind(0))) & (after | (Q(Exact(column, bind(0))) & rest))


def _either(first: Q | None, second: Q | None) -> Q:
    if first is not None and second is not None:
        return first | second
    # The last key is the primary key, which is never NULL, so that one of the two is there.
    found = first if first is not None else second
    assert found is not None
    return found

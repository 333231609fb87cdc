"""Primary keys that begin with what a person typed, or whose rows are found by it.

Each completion is a few bounded queries: of rows that the caller may view, for one more value than is shown, and never
a count.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.db.models import Q, QuerySet

from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound, ToolError
from ..orm.access import parse_pk
from ..orm.arguments import search_argument
from ..orm.columns import pk_text
from ..orm.lookups import Condition
from ..orm.ordering import default_ordering
from ..orm.queries import narrowed
from ..orm.relations import plain_label
from .base import MAX_TEXT, MAX_VALUES, NOTHING, Completion, capped
from .beginnings import beginning

# One more than is shown tells whether there are more.
LIMIT: Final = MAX_VALUES + 1


def is_searchable_text(text: str) -> bool:
    """Return whether a query may hold the text: PostgreSQL has no NUL."""
    return len(text) <= MAX_TEXT and "\0" not in text


def search_term(request: MCPRequest, exposure: Exposure, text: str) -> str:
    """Return the text as the exposure's search takes it, "" where it has none or does not take this text."""
    try:
        return search_argument(request, exposure, text)
    except ToolError:
        return ""


def complete_rows(
    request: MCPRequest, exposure: Exposure, text: str, conditions: Sequence[Condition] = ()
) -> Completion:
    """Return primary keys of rows that the caller may view, as they are spelt in URIs and arguments.

    First the row of that key, then keys that begin with the text, then rows whose label does, then what the exposure's
    search finds. ``conditions`` are such as :func:`~mcp_django.orm.access.find_filter` admits.
    """
    if not is_searchable_text(text):
        return NOTHING
    text = text.strip()
    names = [field.attname for field in exposure.opts.pk_fields]

    def keys() -> Iterator[str]:
        for rows in _row_queries(request, exposure, text, conditions):
            read = rows.values_list(*names)[:LIMIT]
            # Where a database compares without case, a key in other letters may stand before the one that was typed.
            yield from sorted((pk_text(row[0] if len(names) == 1 else row) for row in read), key=text.__ne__)

    return capped(keys())


def _row_queries(
    request: MCPRequest, exposure: Exposure, text: str, conditions: Sequence[Condition]
) -> Iterator[QuerySet[Any]]:
    keys = default_ordering(request, exposure)
    ordering = [("-" if key.descending else "") + key.path for key in keys if key.expression is None]
    rows = narrowed(request, exposure, conditions, "")
    if not text:
        yield rows.order_by(*ordering)
        return
    key = _key_condition(exposure, text)
    if key is not None:
        yield rows.filter(key).order_by("pk")
    label = plain_label(exposure)
    if label is not None:
        yield rows.filter(Q((f"{label}__istartswith", text))).order_by(label, "pk")
    if term := search_term(request, exposure, text):
        yield narrowed(request, exposure, conditions, term).order_by(*ordering)
    elif label is not None:
        yield rows.filter(Q((f"{label}__icontains", text))).order_by(*ordering)


def _key_condition(exposure: Exposure, text: str) -> Q | None:
    """Return the condition on the primary key: it is the text, or begins with it where its type has beginnings."""
    fields: Sequence[Any] = exposure.opts.pk_fields
    if len(fields) == 1:
        path, field = fields[0].name, fields[0]
        while field.is_relation:
            field = field.target_field
            path = f"{path}__{field.name}"
        condition = beginning(path, field, text)
        if condition is not None:
            return condition
    try:
        return Q(pk=parse_pk(exposure, text))
    except NotFound:
        return None

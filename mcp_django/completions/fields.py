"""Values by which a field may be filtered: of the field's type, or of the rows that the caller may view."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from django.db.models import Q

from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound, ToolError
from ..orm.access import get_exposure, related_exposure
from ..orm.columns import is_json_field, pk_text
from ..orm.filters import find_filter
from ..orm.kinds import choices_of, key_field, kind_of, parse_value, stored_field
from ..orm.lookups import Path
from ..orm.plans import prepare
from ..orm.queries import narrowed
from ..orm.replaced import is_replaced
from ..orm.unreadable import LOST, salvaged
from .base import NOTHING, Completion, capped, ranked
from .beginnings import beginning
from .rows import LIMIT, complete_rows, is_searchable_text

# The name of a computed value in its query.
COMPUTED: Final = "mcp_completed"


def complete_field(request: MCPRequest, label: str, name: str, text: str) -> Completion:
    """Return values by which the caller may filter the model's field ``name``.

    They are keys of related rows, the field's choices, true and false, or the values that the caller's rows have.
    """
    try:
        exposure = get_exposure(request, label)
    except NotFound:
        return NOTHING
    # A path through a relation could show values of related rows that the caller may not view.
    found = find_filter(request, exposure, name) if "__" not in name else None
    if found is None or is_json_field(found[0].field) or not is_searchable_text(text):
        return NOTHING
    field = found[0].field
    if is_replaced(getattr(field, "model", None), field):
        # The column holds something else than callers read.
        return NOTHING
    if field.is_relation:
        related = related_exposure(request, field)
        by_key = field.many_to_many or key_field(field).primary_key
        return complete_rows(request, related, text) if related is not None and by_key else NOTHING
    if field.choices:
        return ranked([(_spell(value), str(label)) for value, label in choices_of(field)], text.strip())
    if kind_of(field).word == "boolean":
        return ranked([("true", ""), ("false", "")], text.strip())
    return capped(_column_values(request, exposure, found[0], text.strip()))


def _column_values(request: MCPRequest, exposure: Exposure, of: Path, text: str) -> Iterator[str]:
    rows, path, field = narrowed(request, exposure, (), ""), of.column, of.field
    if of.expression is not None:
        # The name is that of a column of the admin, which the database has under another one or computes.
        rows, path = rows.annotate(**{COMPUTED: of.expression}), COMPUTED
    rows = rows.exclude(Q((path, None))).order_by(path)
    for condition in _value_conditions(path, field, text, rows.db):
        values = rows.filter(condition).values_list(path, flat=True).distinct()
        for value in salvaged(lambda start, stop, values=values: list(values[start:stop]), 0, LIMIT):  # type: ignore[misc]
            if value is not LOST:
                yield _spell(value)


def _value_conditions(path: str, field: Any, text: str, using: str) -> Iterator[Q]:
    if not text:
        yield Q()
    elif kind_of(field).word == "text":
        yield Q((f"{path}__istartswith", text))
        yield Q((f"{path}__icontains", text))
    elif (condition := beginning(path, stored_field(field), text)) is not None:
        yield condition
    else:
        try:
            value = parse_value(field, text)
            prepare(field, value, using)
        except (ValueError, ToolError):
            return
        yield Q((path, value))


def _spell(value: Any) -> str:
    """Return the text of a value as filters and typed arguments read it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else pk_text(value)

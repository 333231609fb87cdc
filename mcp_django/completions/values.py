"""Values that a client may offer for an argument of a prompt or resource template (server/utilities/completion).

They come from what the caller may view and nothing else: what is hidden is answered like what does not exist. Each
completion is a few bounded queries, for one more value than is shown, and never a count.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet

from ..context.request import MCPRequest
from ..exceptions import NotFound, ToolError
from ..orm.access import ModelAccess, access_of, parse_pk
from ..orm.arguments import search_argument
from ..orm.columns import is_replaced, pk_text
from ..orm.conditions import Condition
from ..orm.filters import find_filter
from ..orm.kinds import FieldPath, choices_of, is_json_field, key_field, kind_of, parse_value, stored_field
from ..orm.paging import client_order_key, default_ordering
from ..orm.plans import prepare
from ..orm.queries import narrowed
from ..orm.relations import plain_label
from ..orm.unreadable import LOST, salvaged_first
from ..schema.values import clean_text

# Of one answer (server/utilities/completion, Completion Results).
MAX_VALUES: Final = 100
# One more than is shown tells whether there are more.
LIMIT: Final = MAX_VALUES + 1
# Characters of what a person typed. Nothing that could be completed is longer.
MAX_TEXT: Final = 200
# A longer value is a text to read, not one to choose.
MAX_VALUE: Final = 1000
# What databases hold in their widest integer column.
MAX_INTEGER: Final = 2**63 - 1
MAX_DIGITS: Final = 19
BOOLEANS: Final = (("true", ""), ("false", ""))
# The name of a computed value in its query.
COMPUTED: Final = "mcp_completed"
_DIGITS: Final = re.compile(r"[1-9][0-9]{0,18}")
_HEX: Final = re.compile(r"[0-9a-f]{1,32}")


@dataclass(frozen=True, slots=True)
class Completion:
    """At most ``MAX_VALUES`` values, the best first; ``more`` says that there are others."""

    values: Sequence[str] = ()
    more: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return the member ``completion`` of a ``CompleteResult``; the total is there where all values are."""
        if self.more:
            return {"values": list(self.values), "hasMore": True}
        return {"values": list(self.values), "total": len(self.values)}


NOTHING: Final = Completion()


def is_usable(value: str) -> bool:
    """Return whether a client can send the value back as it is: not empty, not long, Unicode, without NUL."""
    return 0 < len(value) <= MAX_VALUE and "\0" not in value and clean_text(value) == value


def capped(values: Iterable[str]) -> Completion:
    """Return the completion of values that stand in their order already. Of an iterator no more is read than shown."""
    found: dict[str, None] = {}
    for value in values:
        if is_usable(value) and value not in found:
            if len(found) == MAX_VALUES:
                return Completion(tuple(found), more=True)
            found[value] = None
    return Completion(tuple(found))


def ranked(candidates: Iterable[tuple[str, str]], text: str) -> Completion:
    """Return those of a closed list of ``(value, label)`` that ``text`` stands for, whatever the case of its letters.

    First the value itself, then what begins with the text, then labels that do, then what holds it somewhere; values
    of one rank keep their order.
    """
    wanted = text.casefold()
    found: tuple[list[str], ...] = ([], [], [], [])
    for candidate, label in candidates:
        value, words = candidate.casefold(), label.casefold()
        tests = (
            value == wanted or not wanted,
            value.startswith(wanted),
            words.startswith(wanted),
            wanted in value or wanted in words,
        )
        if any(tests):
            found[tests.index(True)].append(candidate)
    return capped(value for values in found for value in values)


def beginning(path: str, field: Any, text: str) -> Q | None:
    """Return the condition that a column's text begins with this one, which an index can answer; None without one."""
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


def complete_field(request: MCPRequest, label: str, name: str, text: str) -> Completion:
    """Return values by which the caller may filter a field of the model with this label; see :class:`ModelValues`."""
    try:
        exposure = access_of(request).get_exposure(label)
    except NotFound:
        return NOTHING
    return ModelValues(access_of(request)[exposure]).of_field(name, text)


class ModelValues:
    """Values of one model that the caller may view."""

    def __init__(self, access: ModelAccess) -> None:
        self.access, self.request, self.exposure = access, access.request, access.exposure

    def keys(self, text: str, conditions: Sequence[Condition] = ()) -> Completion:
        """Return primary keys, as they are spelt in URIs and arguments.

        First the row of that key, then keys that begin with the text, then rows whose label does, then what the
        exposure's search finds. ``conditions`` are such as :func:`~mcp_django.orm.filters.find_filter` admits.
        """
        if not _is_searchable(text):
            return NOTHING
        text = text.strip()
        names = [field.attname for field in self.exposure.opts.pk_fields]

        def keys() -> Iterator[str]:
            for rows in self._rows(text, conditions):
                read = rows.values_list(*names)[:LIMIT]
                # Where a database compares without case, a key in other letters may stand before the one that was
                # typed.
                yield from sorted((pk_text(row[0] if len(names) == 1 else row) for row in read), key=text.__ne__)

        return capped(keys())

    def _rows(self, text: str, conditions: Sequence[Condition]) -> Iterator[QuerySet[Any]]:
        request, exposure = self.request, self.exposure
        order = default_ordering(request, exposure)
        ordering = [("-" if key.descending else "") + key.path for key in order if key.expression is None]
        rows = narrowed(request, exposure, conditions, "")
        if not text:
            yield rows.order_by(*ordering)
            return
        if (key := self._key_condition(text)) is not None:
            yield rows.filter(key).order_by("pk")
        label = plain_label(exposure)
        if label is not None:
            yield rows.filter(Q((f"{label}__istartswith", text))).order_by(label, "pk")
        try:
            term = search_argument(request, exposure, text)
        except ToolError:
            # There is no search, or it does not take this text.
            term = ""
        if term:
            yield narrowed(request, exposure, conditions, term).order_by(*ordering)
        elif label is not None:
            yield rows.filter(Q((f"{label}__icontains", text))).order_by(*ordering)

    def _key_condition(self, text: str) -> Q | None:
        """Return the condition on the primary key: it is the text, or begins with it where its type has beginnings."""
        fields: Sequence[Any] = self.exposure.opts.pk_fields
        if len(fields) == 1:
            path, field = fields[0].name, fields[0]
            while field.is_relation:
                field = field.target_field
                path = f"{path}__{field.name}"
            condition = beginning(path, field, text)
            if condition is not None:
                return condition
        try:
            return Q(pk=parse_pk(self.exposure, text))
        except NotFound:
            return None

    def of_field(self, name: str, text: str) -> Completion:
        """Return values by which the caller may filter the field.

        They are keys of related rows, the field's choices, true and false, or the values that the caller's rows have.
        """
        # A path through a relation could show values of related rows that the caller may not view.
        found = find_filter(access_of(self.request)[self.exposure], name) if "__" not in name else None
        if found is None or is_json_field(found[0].field) or not _is_searchable(text):
            return NOTHING
        field = found[0].field
        if is_replaced(getattr(field, "model", None), field):
            # The column holds something else than callers read.
            return NOTHING
        if field.is_relation:
            related = access_of(self.request).exposure_of(field.related_model)
            by_key = field.many_to_many or key_field(field).primary_key
            if related is None or not by_key:
                return NOTHING
            return ModelValues(access_of(self.request)[related]).keys(text)
        if field.choices:
            return ranked([(_spelt(value), str(label)) for value, label in choices_of(field)], text.strip())
        if kind_of(field).word == "boolean":
            return ranked(BOOLEANS, text.strip())
        return capped(self._column(found[0], text.strip()))

    def _column(self, of: FieldPath, text: str) -> Iterator[str]:
        rows, path, field = narrowed(self.request, self.exposure, (), ""), of.column, of.field
        if of.expression is not None:
            # The name is that of a column of the admin, which the database has under another one or computes.
            rows, path = rows.annotate(**{COMPUTED: of.expression}), COMPUTED
        rows = rows.exclude(Q((path, None))).order_by(path)
        for condition in _conditions(path, field, text, rows.db):
            values = rows.filter(condition).values_list(path, flat=True).distinct()
            for value in salvaged_first(values, LIMIT):
                if value is not LOST:
                    yield _spelt(value)

    def searched(self, text: str) -> Completion:
        """Return labels of rows, where a search looks for them."""
        label = plain_label(self.exposure)
        looked_at = {name.lstrip("^=@") for name in self.exposure.get_search_fields(self.request)}
        return self.of_field(label, text) if label is not None and label in looked_at else NOTHING

    def names(self, text: str, *, ordering: bool) -> Completion:
        """Return comma lists whose last member is completed to a field that the caller may see, or sort by."""
        written, member = last_member(text)
        sign = member[:1] if ordering and member[:1] in ("-", "+") else ""
        used = {name.strip().lstrip("-+") for name in written.split(",")}
        names = [name for name in self.access.fields if name not in used]
        if ordering:
            keys = ((name, client_order_key(self.request, self.exposure, name, descending=False)) for name in names)
            names = [name for name, key in keys if key is not None]
        found = ranked([(name, "") for name in names], member[len(sign) :])
        return Completion([f"{written}{sign}{name}" for name in found.values], found.more)


def _is_searchable(text: str) -> bool:
    """Return whether a query may hold the text: PostgreSQL has no NUL."""
    return len(text) <= MAX_TEXT and "\0" not in text


def _conditions(path: str, field: Any, text: str, using: str) -> Iterator[Q]:
    """Yield conditions for values that the text stands for, the narrowest first."""
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


def _spelt(value: Any) -> str:
    """Return the text of a value as filters and typed arguments read it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else pk_text(value)


def last_member(text: str) -> tuple[str, str]:
    """Return the part of a comma list that is written already, with its last comma, and the member being written."""
    written, comma, member = text.rpartition(",")
    space = member[: len(member) - len(member.lstrip(" "))]
    return written + comma + space, member[len(space) :]

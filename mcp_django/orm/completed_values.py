"""Values of a model's rows and fields that a client can choose from, as far as the caller may view them.

Hidden things look as if they did not exist. Each completion makes a few bounded queries, for one more value than it
returns, and never counts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, ClassVar, Final
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from ..context.databases import sorts_uuids_by_digits
from ..exceptions import NotFound, ToolError
from ..schema.secrets import clean_text
from .access import ModelAccess
from .allowed_filters import AllowedFilter
from .column_values import pk_text
from .columns import is_replaced
from .compiled_queries import prepare
from .conditions import Condition
from .fields import FieldPath, is_json_field, key_field, kind_of, parse_value, stored_field
from .hidden_parts import with_no_part_hidden
from .labels import plain_label
from .lookups import parse_condition
from .ordering import Orderings
from .pagination import narrowed
from .row_arguments import RowArguments
from .undecodable_values import UNDECODABLE, salvaged_first

# Maximum number of values in one answer (server/utilities/completion, Completion Results).
MAX_VALUES: Final = 100
# Maximum characters of the typed text; nothing that can be completed is longer.
MAX_TEXT: Final = 200
# Maximum characters of a completion value: longer ones are texts to read, not values to choose.
MAX_VALUE: Final = 1000
# The largest integer of the widest integer column, and its number of digits.
MAX_INTEGER: Final = 2**63 - 1
MAX_DIGITS: Final = 19
BOOLEANS: Final = (("true", ""), ("false", ""))
# The alias of a computed value in its query.
COMPUTED: Final = "mcp_completed"
# The numbers of digits after which a UUID has its hyphens.
UUID_PARTS: Final = (8, 12, 16, 20)
_DIGITS: Final = re.compile(r"[1-9][0-9]{0,18}")
_HEX: Final = re.compile(r"[0-9a-f]{1,32}")


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion: at most ``MAX_VALUES`` values, the best first; ``more`` says that there are more."""

    values: Sequence[str] = ()
    more: bool = False

    # Read one more value than is returned, to know whether there are more.
    LIMIT: ClassVar[int] = MAX_VALUES + 1

    def to_wire(self) -> dict[str, Any]:
        """Return the ``completion`` member of a ``CompleteResult``, with a total if all values are in it."""
        if self.more:
            return {"values": list(self.values), "hasMore": True}
        return {"values": list(self.values), "total": len(self.values)}

    @classmethod
    def of(cls, values: Iterable[str]) -> "Completion":
        """Return a completion of values in their order, at most ``MAX_VALUES``; read no further than needed."""
        found: dict[str, None] = {}
        for value in values:
            if is_usable(value) and value not in found:
                if len(found) == MAX_VALUES:
                    return cls(tuple(found), more=True)
                found[value] = None
        return cls(tuple(found))

    @classmethod
    def ranked(cls, candidates: Iterable[tuple[str, str]], text: str) -> "Completion":
        """Return a completion of the ``(value, label)`` pairs of a closed list that match the text, ignoring case.

        The exact value comes first, then values that begin with the text, then those whose labels do, then those that
        contain it; values of equal rank keep their order.
        """
        wanted = text.casefold()
        found: tuple[list[str], ...] = ([], [], [], [])
        for candidate, label in candidates:
            value = candidate.casefold()
            words = label.casefold()
            tests = (
                value == wanted or not wanted,
                value.startswith(wanted),
                words.startswith(wanted),
                wanted in value or wanted in words,
            )
            if any(tests):
                found[tests.index(True)].append(candidate)
        return cls.of(value for values in found for value in values)


NOTHING: Final = Completion()
NO_ROWS: Final[Mapping[str, tuple[type[Model], str]]] = MappingProxyType({})


def is_usable(value: str) -> bool:
    """Return whether a client can send the completion value back: not empty, not long, valid Unicode without NUL."""
    return 0 < len(value) <= MAX_VALUE and "\0" not in value and clean_text(value) == value


def beginning(path: str, field: Any, text: str, using: str) -> Q | None:
    """Return the condition for completion values that start with the typed text, for an index where one can serve it.

    ``using`` is the database in which they are found.
    """
    match kind_of(field).word:
        case "text":
            return Q((f"{path}__startswith", text))
        case "integer" if _DIGITS.fullmatch(text):
            return _digits(path, int(text), len(text))
        case "uuid":
            digits = text.lower().replace("-", "")
            if _HEX.fullmatch(digits):
                first = UUID(digits.ljust(32, "0"))
                if not sorts_uuids_by_digits(using):
                    hyphens = sum(len(digits) > place for place in UUID_PARTS)
                    return Q((f"{path}__istartswith", str(first)[: len(digits) + hyphens]))
                last = UUID(digits.ljust(32, "f"))
                return Q((f"{path}__gte", first), (f"{path}__lte", last))
    return None


def _digits(path: str, number: int, length: int) -> Q:
    """Return the condition for integer completions that start with the typed digits, as ranges for an index."""
    condition = Q((path, number))
    for zeros in range(1, MAX_DIGITS - length + 1):
        first = number * 10**zeros
        if first > MAX_INTEGER:
            break
        condition |= Q((f"{path}__gte", first), (f"{path}__lte", min(first + 10**zeros - 1, MAX_INTEGER)))
    return condition


class ModelValues:
    """Completions for the rows and fields of one model, from values that the caller may view."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure

    def keys(self, text: str, chosen: Mapping[str, tuple[type[Model], str]] = NO_ROWS) -> Completion:
        """Complete a primary key of the model's rows, as URIs and arguments spell it.

        The row with that key comes first, then keys that begin with the text, then rows whose label does, then results
        of the exposure's search. ``chosen`` are rows that have been chosen already, by name of a foreign key: model and
        key of each, such as that of the author whose books are wanted.
        """
        if not _is_searchable(text):
            return NOTHING
        text = text.strip()
        names = [field.attname for field in self.exposure.opts.pk_fields]
        pointing = (self._of_row(name, model, key) for name, (model, key) in chosen.items())
        conditions = [condition for condition in pointing if condition is not None]

        def keys() -> Iterator[str]:
            for rows in self._rows(text, conditions):
                read = rows.values_list(*names, flat=len(names) == 1)[: Completion.LIMIT]
                # Move the typed key to the front: a database that ignores case may return another spelling first.
                yield from sorted(map(pk_text, read), key=text.__ne__)

        return Completion.of(keys())

    def _rows(self, text: str, conditions: Sequence[Condition]) -> Iterator[QuerySet[Any]]:
        exposure = self.exposure
        ordering = []
        for order in Orderings(self.model).default().keys:
            if order.expression is None:
                ordering.append(f"-{order.path}" if order.descending else order.path)
        rows = narrowed(self.model, conditions, "")
        if not text:
            yield rows.order_by(*ordering)
            return
        if (key := self._key_condition(text, rows.db)) is not None:
            yield rows.filter(key).order_by("pk")
        label = plain_label(exposure)
        if label is not None:
            # A label is found by a part of it only if no part of it is hidden.
            labelled = rows.filter(with_no_part_hidden(label))
            yield labelled.filter(Q((f"{label}__istartswith", text))).order_by(label, "pk")
        try:
            term = RowArguments(self.model, {"search": text}).search()
        except ToolError:
            # There is no search, or it does not accept this text.
            term = ""
        if term:
            yield narrowed(self.model, conditions, term).order_by(*ordering)
        elif label is not None:
            yield labelled.filter(Q((f"{label}__icontains", text))).order_by(*ordering)

    def _key_condition(self, text: str, using: str) -> Q | None:
        """Return the condition for completions of a primary key: each begins with the typed text, or equals it."""
        fields: Sequence[Any] = self.exposure.opts.pk_fields
        if len(fields) == 1:
            path = fields[0].name
            field = fields[0]
            while field.is_relation:
                field = field.target_field
                path = f"{path}__{field.name}"
            condition = beginning(path, field, text, using)
            if condition is not None:
                return condition
        try:
            return Q(pk=self.model.parse_pk(text))
        except NotFound:
            return None

    def of_field(self, name: str, text: str) -> Completion:
        """Complete a field of the model with values by which the caller may filter.

        These are keys of related rows, the field's choices, true and false, or values from the caller's rows.
        """
        # A path through a relation could show values of related rows that the caller may not view.
        found = AllowedFilter.find(self.model, name) if "__" not in name else None
        if found is None or is_json_field(found.path.field) or not _is_searchable(text):
            return NOTHING
        field = found.path.field
        if is_replaced(getattr(field, "model", None), field):
            # The column does not hold the value that callers see.
            return NOTHING
        if field.is_relation:
            related = self.model.access.model_of(field.related_model)
            by_key = field.many_to_many or key_field(field).primary_key
            if related is None or not by_key:
                return NOTHING
            return ModelValues(related).keys(text)
        kind = kind_of(field)
        if field.choices:
            return Completion.ranked([(_spelt(value), str(label)) for value, label in kind.choices], text.strip())
        if kind.word == "boolean":
            return Completion.ranked(BOOLEANS, text.strip())
        return Completion.of(self._column(found[0], text.strip()))

    def _column(self, of: FieldPath, text: str) -> Iterator[str]:
        rows = narrowed(self.model, (), "")
        path = of.column
        field = of.field
        if of.expression is not None:
            # The name is that of an admin column, which the database has under another name or computes.
            rows = rows.annotate(**{COMPUTED: of.expression})
            path = COMPUTED
        rows = rows.exclude(Q((path, None))).order_by(path)
        for condition in _conditions(path, field, text, rows.db):
            values = rows.filter(condition).values_list(path, flat=True).distinct()
            for value in salvaged_first(values, Completion.LIMIT):
                if value is not UNDECODABLE:
                    yield _spelt(value)

    def _of_row(self, name: str, model: type[Model], text: str) -> Condition | None:
        """Return the condition that the foreign key of this name points to the row with this key.

        Returns None if it is no foreign key to that model by which the caller may filter, or if there is no such key.
        """
        target = AllowedFilter.find(self.model, name)
        if target is None or "exact" not in target.lookups:
            return None
        field = target.path.field
        by_key = field.is_relation and (field.many_to_many or key_field(field).primary_key)
        if not by_key or field.related_model is not model:
            return None
        try:
            return parse_condition(target.path, "exact", text)
        except ValueError:
            return None

    def searched(self, text: str) -> Completion:
        """Complete a search text with labels of rows, if the search includes labels."""
        label = plain_label(self.exposure)
        looked_at = {name.lstrip("^=@") for name in self.exposure.get_search_fields(self.request)}
        if label is not None and label in looked_at:
            return self.of_field(label, text)
        return NOTHING

    def names(self, text: str, *, ordering: bool) -> Completion:
        """Complete the last member of a comma-separated list with a field that the caller may see, or sort by."""
        written, member = last_member(text)
        sign = member[:1] if ordering and member[:1] in ("-", "+") else ""
        used = {name.strip().lstrip("-+") for name in written.split(",")}
        names = [name for name in self.model.fields if name not in used]
        if ordering:
            keys = ((name, Orderings(self.model).key(name)) for name in names)
            names = [name for name, key in keys if key is not None]
        found = Completion.ranked([(name, "") for name in names], member[len(sign) :])
        return Completion([f"{written}{sign}{name}" for name in found.values], found.more)


def _is_searchable(text: str) -> bool:
    """Return whether a completion query can contain the typed text: PostgreSQL does not accept NUL."""
    return len(text) <= MAX_TEXT and "\0" not in text


def _conditions(path: str, field: Any, text: str, using: str) -> Iterator[Q]:
    """Yield conditions for completion values that match the typed text, the narrowest first."""
    if not text:
        yield Q()
    elif kind_of(field).word == "text":
        yield Q((f"{path}__istartswith", text))
        yield Q((f"{path}__icontains", text))
    elif (condition := beginning(path, stored_field(field), text, using)) is not None:
        yield condition
    else:
        try:
            value = parse_value(field, text)
            prepare(field, value, using)
        except (ValueError, ToolError):
            return
        yield Q((path, value))


def _spelt(value: Any) -> str:
    """Return the text of a completion value in the form that filters and typed arguments accept."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return pk_text(value)


def last_member(text: str) -> tuple[str, str]:
    """Split a comma-separated list before its last member, the one to complete; return both parts."""
    written, comma, member = text.rpartition(",")
    space = member[: len(member) - len(member.lstrip(" "))]
    return written + comma + space, member[len(space) :]

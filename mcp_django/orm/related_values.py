"""Values of related lists: one value of each row, made of the rows that are linked to it, such as ``orders.sum.total``.

Each is one correlated subquery over the related rows that the caller may see, of columns that they could aggregate.
The value is then like any other that the database computes: pages show it, orders sort by it, and filters compare it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from django.db.models import Case, Count, F, Subquery, Value, When
from django.db.models.expressions import OrderBy
from django.db.models.functions import Coalesce
from django.db.models.lookups import IsNull

from .access import MAX_NAME, Link, ModelAccess
from .aggregates.functions import EDGES, FUNCTIONS
from .arithmetic import INTEGER
from .columns import Column, FieldColumn, RelationColumn
from .fields import stored_field
from .generic_links import GenericLink, list_named
from .path import NoField, Path, Target, guarded_name, guarded_paths, target_of

# The functions over a list; all but ``count`` take a column of its rows.
WORDS: Final = ("count", "sum", "avg", "min", "max", *EDGES)
# Stands between the column of the first or last row and the column that says which row this is.
BY: Final = "by"


class AverageColumn(FieldColumn):
    """The average of a column of related rows."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RelatedValue:
    """A value of a related list: what ``function`` makes of the rows of ``link``, to which ``path`` leads.

    ``name`` is its name in results, and ``target`` the value of the related rows, None for their number. The first or
    last row is that by ``order``.
    """

    name: str
    path: Path
    link: Link
    function: str
    target: Target | None = None
    order: Target | None = None

    @classmethod
    def read(cls, model: ModelAccess, text: str) -> "RelatedValue | None":
        """Return the value that a client means by ``orders.sum.total``, also with two underscores; None for no such.

        The caller must be able to follow the path, and to aggregate its column.
        """
        if len(text) > MAX_NAME:
            return None
        names = text.replace(".", "__").split("__")
        found = _list_in(model, names)
        if found is None:
            return None
        path, link, place = found
        return cls._of(path, link, names[place], names[place + 1 :])

    @classmethod
    def _of(cls, path: Path, link: Link, word: str, rest: Sequence[str]) -> "RelatedValue | None":
        """Return the value that a function over a list makes of the column that ``rest`` names, None for no such."""
        name = "__".join([*path.hops, path.last, word, *rest])
        if word == "count" or not rest:
            return cls(name, path, link, word) if word == "count" and not rest else None
        column = rest
        order: Sequence[str] = ()
        if word in EDGES and BY in rest:
            place = rest.index(BY)
            column = rest[:place]
            order = rest[place + 1 :]
        try:
            target = target_of(link.related, "__".join(column), FUNCTIONS[word].usable)
            if word not in EDGES:
                return cls(name, path, link, word, target)
            # A date says itself which row is the first or the last.
            if not order and not target.column.is_period():
                return None
            by = target_of(link.related, "__".join(order or column), lambda column: column.is_ordering())
        except NoField:
            return None
        return cls(name, path, link, word, target, by)

    @property
    def field(self) -> Any:
        """The field that the values are like."""
        if self.target is None:
            return INTEGER
        column = self.target.column
        return FUNCTIONS[self.function].result_of(column) if self.function in ("sum", "avg") else column.field

    @property
    def has_conditions(self) -> bool:
        """Whether it is the number of rows of a relation, for which filters have conditions of their own."""
        return self.target is None and not isinstance(self.link, GenericLink)

    @property
    def is_nullable(self) -> bool:
        """Whether a row can have no value."""
        return self.target is not None or bool(self.path.hops)

    @property
    def column(self) -> Column:
        """The value as a column of a page, whose ``path`` is its name in the query."""
        kind: Any = AverageColumn if self.function == "avg" else FieldColumn
        if self.target is not None and self.target.column.is_foreign_key:
            kind = RelationColumn
        return _column(kind, self.name, self.field, (*self.path.hops, self.path.last))

    @property
    def expression(self) -> Any:
        """The value as an expression: one subquery over the related rows, NULL behind hidden rows."""
        rows = self.link.rows(self.path.hops)
        if self.target is None:
            counted = Subquery(_in_one(rows, Count("*")), output_field=INTEGER)
            value: Any = Coalesce(counted, Value(0), output_field=INTEGER)
        elif self.order is None:
            function = FUNCTIONS[self.function]
            result = function.result_of(self.target.column)
            made = function.make(self.target.expression, output_field=result)
            value = Subquery(_in_one(rows, made), output_field=result)
        else:
            value = self._edge(rows, self.target, self.order)
        if self.path.hops and not self.path.guards:
            # A row without a related one has no list, which is not the same as an empty list.
            value = Case(When(IsNull(F("__".join([*self.path.hops, "pk"])), False), then=value))
        return self.path.guarded(value)

    def _edge(self, rows: Any, target: Target, order: Target) -> Subquery:
        """Return the value of the first or last row by an order, then by the key; rows without the order's value do
        not count, as in an aggregate."""
        descending = self.function == "last"
        names = ["mcp_place", *(field.attname for field in self.link.exposure.opts.pk_fields)]
        rows = rows.annotate(mcp_place=order.expression, mcp_value=target.expression)
        rows = rows.filter(IsNull(F("mcp_place"), False))
        rows = rows.order_by(*(OrderBy(F(name), descending=descending) for name in names))
        return Subquery(rows.values("mcp_value")[:1], output_field=stored_field(target.column.field))


class RelatedNames:
    """The names of values of lists that begin at a model, as far as the caller has them, for errors."""

    # A call such as ``sum(orders.total)``.
    _CALL: ClassVar = re.compile(r"(\w+)\(([\w.]+)\)")

    def __init__(self, model: ModelAccess) -> None:
        self.model = model

    def meant(self, text: str) -> list[str]:
        """Return the values that a name can mean which is none: by another column, or written as a call."""
        call = self._CALL.fullmatch(text[:MAX_NAME])
        if call is not None:
            word = call[1].lower()
            names = call[2].replace("__", ".").split(".")
            turned = [".".join([*names[:cut], word, *names[cut:]]) for cut in range(1, len(names) + 1)]
            return [name for name in turned if RelatedValue.read(self.model, name) is not None]

        names = text[:MAX_NAME].replace(".", "__").split("__")
        found = _list_in(self.model, names)
        if found is None:
            return []
        _, link, place = found
        start = ".".join(names[: place + 1])
        if names[place] == "count":
            return [start]
        return [f"{start}.{end}" for end in self._columns(link.related, names[place], names[place + 1 :])]

    @staticmethod
    def _columns(related: ModelAccess, word: str, rest: Sequence[str]) -> list[str]:
        """Return the columns that a function over a list takes."""
        columns = Column.all(related.exposure, related.fields)
        key = related.exposure.opts.pk
        usable = [column.name for column in columns if FUNCTIONS[word].usable(column) and column.field is not key]
        if word not in EDGES:
            return usable
        dates = [column.name for column in columns if column.is_period()]
        if rest[:1] and rest[0] in usable and rest[0] not in dates:
            usable = [rest[0]]
        return [*(name for name in usable if name in dates), *(f"{name}.by.{dates[0]}" for name in usable if dates)]

    @staticmethod
    def some_of(link: Link) -> list[str]:
        """Return a value of a list for each kind of column that its rows have: their number, a sum, the last date."""
        columns = Column.all(link.exposure, link.related.fields)
        key = link.exposure.opts.pk
        sums = [column.name for column in columns if column.is_summable() and column.field is not key]
        dates = [column.name for column in columns if column.is_period()]
        found = [f"{link.name}.count"]
        found += [f"{link.name}.sum.{name}" for name in sums[:1]]
        found += [f"{link.name}.last.{name}" for name in dates[:1]]
        return found


def guarded_values(model: ModelAccess, columns: Sequence[Column]) -> Mapping[str, Any]:
    """Return the expressions of columns that are no columns of the model's own table, by their names in the query:
    of paths that are NULL behind rows which the caller may not see, and of related lists."""
    found = dict(guarded_paths(model, columns))
    found.update(_values_of_lists(model, columns))
    return found


def _values_of_lists(model: ModelAccess, columns: Sequence[Column]) -> Iterator[tuple[str, Any]]:
    for column in columns:
        value = RelatedValue.read(model, column.name) if column.is_guarded else None
        if value is not None:
            yield column.path, value.expression


@lru_cache(maxsize=4096)
def _column(kind: Any, name: str, field: Any, through: tuple[str, ...]) -> Column:
    found: Column = kind(name, guarded_name(f"list {name}"), field, through=through, is_guarded=True)
    return found


def _list_in(model: ModelAccess, names: Sequence[str]) -> tuple[Path, Link, int] | None:
    """Return the path to the list that names begin with, the list, and the place of the function that follows it."""
    for place, word in enumerate(names):
        if place and word in WORDS:
            path = Path(model, names[:place])
            link = list_named(path.end, path.last) if path.is_whole else None
            if link is not None and link.to_many and not _has(link.related, word):
                return path, link, place
    return None


def _has(model: ModelAccess, name: str) -> bool:
    """Return whether the caller knows a field or a relation of this name, which is then meant."""
    return model.field_named(name) is not None or model.link(name) is not None


def _in_one(rows: Any, function: Any) -> Any:
    """Return the query of what an aggregate function makes of all rows together."""
    return rows.annotate(mcp_all=Value(1)).values("mcp_all").annotate(mcp_value=function).values("mcp_value")

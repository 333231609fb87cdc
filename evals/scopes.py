"""The tables of a SELECT statement, and which of them leads to one row of which other."""

import re
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

from sqlglot import exp

# What columns of dates are called.
DATE_NAMES: Final = re.compile(r"date|birth|\bdob\b|_at$|created|joined|day$", re.IGNORECASE)
# What columns are called that hold keys.
KEY_NAMES: Final = re.compile(r"(id|code|key|no|nr|number)$", re.IGNORECASE)
# What is unique in a table of which nothing is known.
USUAL_KEY: Final = frozenset({"id"})


def is_date(name: str) -> bool:
    """Return whether a column of that name holds dates, though it may be a text."""
    return DATE_NAMES.search(name) is not None


def conjuncts(node: Any) -> list[Any]:
    """Return the conditions that all hold."""
    if isinstance(node, exp.Paren) and isinstance(node.this, exp.And):
        return conjuncts(node.this)
    return [*conjuncts(node.left), *conjuncts(node.right)] if isinstance(node, exp.And) else [node]


def tables_in(node: Any) -> Iterator[str]:
    """Yield the names of the tables of a statement and its subqueries."""
    for table in node.find_all(exp.Table):
        yield table.name.lower()


def columns_of(node: Any) -> Iterator[Any]:
    """Yield the columns of a value, but for those of subqueries."""
    if isinstance(node, exp.Column):
        yield node
    elif isinstance(node, exp.Expression) and not isinstance(node, exp.Select):
        for child in node.iter_expressions():
            yield from columns_of(child)


class Scope:
    """The ``tables`` of a SELECT by their aliases, its ``conditions``, and what its joins need.

    ``unique`` are the columns that are unique, by tables, ``~name`` for one that is a foreign key too. A join that
    compares a unique column leads to one row; one of two columns that hold the same key leads to several.
    """

    def __init__(self, select: Any, unique: Mapping[str, Set[str]]) -> None:
        self.unique = unique
        self.forms: set[str] = set()
        self.obstacles: set[str] = set()
        # Those that outer joins may find no row of.
        self.optional: set[str] = set()
        self.tables: dict[str, str] = {}
        self.conditions: list[Any] = []
        self.to_one: dict[str, set[str]] = {}
        source, joins = select.args.get("from_"), select.args.get("joins") or []
        for item in [source.this if source is not None else None, *(join.this for join in joins)]:
            if isinstance(item, exp.Table):
                self.tables[item.alias_or_name.lower()] = item.name.lower()
        given = conjuncts(select.args["where"].this) if select.args.get("where") else []
        for join in joins:
            given = [*self._on(join), *given]
            self.optional |= {join.this.alias_or_name.lower()} if join.side == "LEFT" else set()
        self.absent = self._anti_join(joins, given)
        self._read(given)
        if len(self.tables) > 1:
            self.forms.add("outer-join" if self.optional else "join")
        if len({*self.tables.values()}) < len(self.tables):
            self.forms.add("self-join")
        self._check_linked()

    def _on(self, join: Any) -> list[Any]:
        if join.args.get("on") is not None:
            return conjuncts(join.args["on"])
        names = [name.name for name in join.args.get("using") or []]
        here, before = join.this.alias_or_name, [alias for alias in self.tables if alias != join.this.alias_or_name]
        return [exp.EQ(this=exp.column(name, before[0]), expression=exp.column(name, here)) for name in names if before]

    def _anti_join(self, joins: Any, given: list[Any]) -> str:
        """Take the table out that an outer join finds no row of, and return its alias."""
        for join in joins:
            alias = join.this.alias_or_name.lower()
            for part in given:
                tested = part.this if isinstance(part, exp.Is) else None
                if join.side == "LEFT" and isinstance(tested, exp.Column) and tested.table.lower() == alias:
                    self.forms.add("anti-join")
                    self.tables.pop(alias, None)
                    given[:] = [one for one in given if alias not in {*self._names(one)}]
                    self.optional.discard(alias)
                    return alias
        return ""

    def _names(self, node: Any) -> Iterator[str]:
        for column in node.find_all(exp.Column):
            yield column.table.lower()

    def _read(self, given: list[Any]) -> None:
        self.to_one = {alias: set() for alias in self.tables}
        self.linked: dict[str, set[str]] = {alias: set() for alias in self.tables}
        for part in given:
            columns: list[Any] = [part.left, part.right] if isinstance(part, exp.EQ) else []
            if len(columns) == 2 and all(isinstance(one, exp.Column) and one.table for one in columns):
                sides = [one.table.lower() for one in columns]
                if sides[0] != sides[1] and all(side in self.tables for side in sides) and self._link(*columns):
                    continue
            self.conditions.append(part)

    def _link(self, left: Any, right: Any) -> bool:
        """Return whether the columns are a key, which joins their tables."""
        sides = [(one.table.lower(), one.name.lower()) for one in (left, right)]
        known = [self.is_unique(self.tables[alias], name) for alias, name in sides]
        (one, one_name), (other, other_name) = sides
        if not any(known) and not self._is_key(one_name, other_name):
            return False
        self.linked[one].add(other)
        self.linked[other].add(one)
        # Of a one-to-one relation, only the side with the foreign key leads to the other one.
        points = [f"~{name}" in self.unique.get(self.tables[alias], ()) for alias, name in sides]
        if known[1] and not points[1]:
            self.to_one[one].add(other)
        if known[0] and not points[0]:
            self.to_one[other].add(one)
        return True

    def _is_key(self, one: str, other: str) -> bool:
        """Return whether two columns of these names hold the same key of a third table."""
        return (one == other and KEY_NAMES.search(one) is not None) and any(
            one in (name, f"{_singular(table)}{name}", f"{_singular(table)}_{name}")
            for table, names in self.unique.items()
            for name in names
        )

    def _check_linked(self) -> None:
        """Note tables that no key joins."""
        found, left = set(), [*self.tables][:1]
        while left:
            alias = left.pop()
            found.add(alias)
            left += self.linked[alias] - found
        if found != {*self.tables}:
            self.forms.add("join-by-value")

    def is_unique(self, table: str, column: str) -> bool:
        """Return whether no two rows of the table have the same value in the column."""
        return not {column.lower(), f"~{column.lower()}"}.isdisjoint(self.unique.get(table, USUAL_KEY))

    def table_of(self, column: Any) -> str:
        """Return the table of a column, "" where it is not said."""
        if not column.table and len(self.tables) == 1:
            return next(iter(self.tables.values()))
        return self.tables.get(column.table.lower(), "")

    def is_related(self, column: Any, inner: "Scope", other: Any) -> bool:
        """Return whether a column here and one of a subquery are the two sides of a key."""
        if not isinstance(other, exp.Column):
            return False
        names = column.name.lower(), other.name.lower()
        tables = self.table_of(column), inner.table_of(other)
        sides = [self.is_unique(table, name) for table, name in zip(tables, names, strict=True) if table]
        return any(sides) or self._is_key(*names)

    def aliases_of(self, node: Any) -> Iterator[str]:
        """Yield the aliases whose columns a value is made of."""
        for column in columns_of(node):
            if column.table.lower() in self.tables:
                yield column.table.lower()

    def root(self, wanted: Set[str]) -> str | None:
        """Return the table each row of which leads to one row of all that are wanted; None if there is none."""
        for alias in self.tables.keys() - self.optional:
            found, left = {alias}, [alias]
            while left:
                more = self.to_one[left.pop()] - found
                found |= more
                left += more
            if wanted <= found:
                return alias
        return None

    def plain(self, node: Any) -> str:
        """Return a condition as text without aliases."""
        copy = node.copy()
        for column in copy.find_all(exp.Column):
            column.set("table", None)
        return str(copy.sql()).lower()


def _singular(table: str) -> str:
    """Return what a table of Django's has in its rows: ``customer`` for ``shop_customer`` or ``customers``."""
    return table.rpartition("_")[2].removesuffix("s")

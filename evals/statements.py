"""Whole statements: ``UNION``, and subqueries in FROM, by their names (``WITH``) or in place."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from .scopes import conjuncts, tables_in
from .selects import RANKS, Need, SelectReader
from .values import aggregates, bare, has_aggregate, kind, without_factors


def read(sql: str, unique: Mapping[str, Set[str]] | None = None) -> Need:
    """Return what a statement of SQLite's SQL needs; ``unique`` names the columns that are unique, by their tables.

    Raises:
        sqlglot.errors.SqlglotError: it is none.
    """
    tree = sqlglot.parse_one(sql, read="sqlite")
    return Reader(unique or {}, {}).query(tree)


@dataclass
class Reader:
    """Reads statements of one database: ``unique`` columns by tables, and ``named`` subqueries (``WITH``)."""

    unique: Mapping[str, Set[str]]
    named: dict[str, Any]

    def query(self, node: Any) -> Need:
        """Return what a statement or a subquery needs."""
        while isinstance(node, exp.Subquery | exp.Paren):
            node = node.this
        for common in node.args["with_"].expressions if node.args.get("with_") else ():
            self.named[common.alias_or_name.lower()] = common.this
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node)
        if not isinstance(node, exp.Select):
            return Need(obstacles={"other statements"})
        return over_subquery(self, node) or SelectReader(self, node).read()

    def _set_operation(self, node: Any) -> Need:
        parts = [self.query(part) for part in (node.left, node.right)]
        need = Need(calls=0)
        for part in parts:
            need.add(part, part.calls)
        plain = [
            isinstance(part, exp.Select) and not part.args.get("group") and not part.args.get("limit")
            for part in (node.left, node.right)
        ]
        same = len({tuple(sorted(tables_in(part))) for part in (node.left, node.right)}) == 1
        if all(plain) and same and all(part.calls == 1 for part in parts):
            need.calls = 1
            need.forms.add("union" if isinstance(node, exp.Union) else "set-operation")
        else:
            need.forms.add("several-scalars")
        return need


def over_subquery(reader: Reader, select: Any) -> Need | None:
    """Return what a SELECT over a subquery needs, None for one over tables alone."""
    source, joins = select.args.get("from_"), select.args.get("joins") or []
    items = [source.this, *(join.this for join in joins)] if source is not None else []
    derived = [(item, inner) for item in items if (inner := _inner(reader, item)) is not None]
    if not derived:
        return None
    for item, inner in derived:
        if _is_plain(inner):
            need = reader.query(_inlined(select, item, inner))
            need.forms.add("common-table-expression")
            return need
    item, inner = derived[0]
    need = _alone(reader, select, inner) if len(items) == 1 else _joined(reader, select, item, inner)
    need.forms.add("common-table-expression")
    return need


def _inner(reader: Reader, item: Any) -> Any:
    if isinstance(item, exp.Subquery):
        return item.this
    return reader.named.get(item.name.lower()) if isinstance(item, exp.Table) else None


def _is_plain(inner: Any) -> bool:
    """Return whether a subquery only chooses rows and columns."""
    if not isinstance(inner, exp.Select) or any(inner.args.get(name) for name in ("group", "having", "limit")):
        return False
    return not any(has_aggregate(item) or item.find(exp.Window) for item in inner.expressions)


def _inlined(select: Any, item: Any, inner: Any) -> Any:
    """Return the SELECT with the tables and conditions of the subquery in place of it."""
    name, inner, outer = item.alias_or_name, inner.copy(), select.copy()
    own = {table.alias_or_name.lower() for table in inner.find_all(exp.Table)}
    for table in inner.find_all(exp.Table):
        table.set("alias", exp.TableAlias(this=exp.to_identifier(f"{name}_{table.alias_or_name}".lower())))
    single = next(iter(own)) if len(own) == 1 else ""
    for column in inner.find_all(exp.Column):
        table = column.table.lower() or single
        if table in own:
            column.set("table", exp.to_identifier(f"{name}_{table}".lower()))
    values = {
        part.alias_or_name.lower(): part.this if isinstance(part, exp.Alias) else part for part in inner.expressions
    }
    only = not outer.args.get("joins")
    for column in list(outer.find_all(exp.Column)):
        if (column.table.lower() == name.lower() or (only and not column.table)) and column.name.lower() in values:
            column.replace(
                exp.paren(values[column.name.lower()].copy())
                if not isinstance(values[column.name.lower()], exp.Column)
                else values[column.name.lower()].copy()
            )
    source, joins = inner.args["from_"], inner.args.get("joins") or []
    if outer.args["from_"].this.alias_or_name == name:
        outer.set("from_", source)
        outer.set("joins", [*joins, *(outer.args.get("joins") or [])])
    else:
        found = []
        for join in outer.args["joins"]:
            if join.this.alias_or_name == name:
                join.set("this", source.this)
                found += [join, *joins]
            else:
                found.append(join)
        outer.set("joins", found)
    if inner.args.get("where"):
        outer = outer.where(inner.args["where"].this)
    outer.set("with_", None)
    return outer


def _alone(reader: Reader, select: Any, inner: Any) -> Need:
    """Return what a SELECT over one subquery that groups, ranks or cuts needs."""
    need = reader.query(inner)
    where = conjuncts(select.args["where"].this) if select.args.get("where") else []
    found = [one for item in select.expressions for one in aggregates(item)]
    if not isinstance(inner, exp.Select):
        need.obstacles.add("other questions about a UNION")
    elif inner.args.get("limit") is not None:
        if found or where or select.args.get("order") or select.args.get("group"):
            need.forms.add("aggregate-of-first-rows")
            need.calls += 1
    elif inner.find(exp.Window) is not None:
        _ranked(need, inner, found, where)
    elif select.find(exp.Window) is not None:
        need.forms.add(
            "change" if all(isinstance(one.this, exp.Lag) for one in select.find_all(exp.Window)) else "running-total"
        )
    elif found or select.args.get("group"):
        _over_groups(need, select, inner, found)
    elif where:
        need.forms.add("having")
    return need


def _ranked(need: Need, inner: Any, found: Sequence[Any], where: Sequence[Any]) -> None:
    windows = list(inner.find_all(exp.Window))
    ranks = all(isinstance(window.this, RANKS) for window in windows)
    if not ranks or found or len(where) != 1 or len(windows) != 1:
        need.obstacles.add("other questions about windows")
        return
    need.forms -= {"rank"}
    need.forms.add("top-per-group" if windows[0].args.get("partition_by") else "equals-largest")


def _over_groups(need: Need, select: Any, inner: Any, found: Sequence[Any]) -> None:
    """Note what an aggregate over groups is."""
    group = inner.args.get("group")
    if len(found) != 1 or select.args.get("group") or group is None:
        need.obstacles.add("other aggregates of aggregates")
        return
    core, _ = without_factors(found[0].this)
    shown = {item.alias_or_name.lower(): bare(item) for item in inner.expressions}
    measure = shown.get(core.name.lower()) if isinstance(core, exp.Column) else None
    if isinstance(found[0], exp.Count):
        need.forms.add("number-of-groups")
    elif isinstance(found[0], exp.Max | exp.Min) and isinstance(measure, exp.AggFunc):
        need.forms.add("largest-aggregate")
    elif isinstance(found[0], exp.Avg) and isinstance(measure, exp.Count | exp.Sum) and len(group.expressions) == 1:
        need.forms.add("aggregate-of-aggregates")
        if inner.args.get("having"):
            need.obstacles.add("other aggregates of aggregates")
    else:
        need.obstacles.add("other aggregates of aggregates")


def _joined(reader: Reader, select: Any, item: Any, inner: Any) -> Need:
    """Return what a SELECT over tables and a subquery that groups or cuts needs."""
    found, name = reader.query(inner), item.alias_or_name.lower()
    outer = select.copy()
    joins = [join for join in outer.args.get("joins") or [] if join.this.alias_or_name.lower() != name]
    if outer.args["from_"].this.alias_or_name.lower() == name:
        if not joins:
            return Need(obstacles={"other subqueries in FROM"})
        outer.set("from_", exp.From(this=joins.pop(0).this))
    outer.set("joins", joins)
    rest = [
        part for part in _wheres(outer) if name not in {column.table.lower() for column in part.find_all(exp.Column)}
    ]
    moved = [part for part in _wheres(outer) if part not in rest]
    outer.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
    for join in joins:
        keep = [part for part in conjuncts(join.args["on"]) if name not in _tables(part)] if join.args.get("on") else []
        join.set("on", exp.and_(*keep) if keep else None)
    shown = any(name in _tables(part) for part in (*outer.expressions, *_lists(outer)))
    need = SelectReader(reader, outer).read()
    having = inner.args.get("having") if isinstance(inner, exp.Select) else None
    counted = having is not None and not moved and inner.args.get("limit") is None
    if counted and not shown and all(isinstance(one, exp.Count) for one in aggregates(having)) and _is_by_key(inner):
        need.forms.add("count-in-condition")
        need.add(found, found.calls - 1)
    elif shown:
        need.obstacles.add("columns of tables and of a subquery that groups")
        need.add(found, found.calls)
    else:
        need.forms.add("subquery-with-limit" if inner.args.get("limit") else "compared-with-an-aggregate-of-others")
        need.add(found, found.calls)
    return need


def _is_by_key(inner: Any) -> bool:
    group = inner.args.get("group")
    return group is not None and len(group.expressions) == 1 and kind(group.expressions[0]) == "column"


def _wheres(select: Any) -> list[Any]:
    return conjuncts(select.args["where"].this) if select.args.get("where") else []


def _tables(node: Any) -> set[str]:
    return {column.table.lower() for column in node.find_all(exp.Column)}


def _lists(select: Any) -> list[Any]:
    return [part for name in ("group", "order") if select.args.get(name) for part in select.args[name].expressions]

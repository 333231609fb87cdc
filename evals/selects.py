"""What a SELECT statement needs of the generic tools: its forms (``forms.toml``), and how many calls.

The statement is read as one of a Django project that has its tables: each key of another table is a foreign key, each
text that holds a date is a date column, and each table is a model that the caller sees. Rows are compared as a set, as
is usual for questions in SQL: how often a row comes counts for aggregates alone. How many rows there are is not known,
and not counted. What is not understood is not in reach.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sqlglot import exp

from .forms import FORMS
from .scopes import Scope, conjuncts, tables_in
from .values import (
    ARITHMETIC,
    COMPARISONS,
    aggregates,
    bare,
    branches,
    has_aggregate,
    is_empty,
    is_word,
    kind,
    without_factors,
)

RANKS: Final = (exp.RowNumber, exp.Rank, exp.DenseRank)
# What makes one value of a list, and what a subquery must not have to be of the whole list.
OF_LISTS: Final = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
CHANGES_LIST: Final = ("joins", "group", "having", "offset", "distinct")
# What stands for a kind of value in a condition on it, and for one that rows are ordered by.
IN_CONDITIONS: Final = {
    **{"column": "condition", "date": "condition", "folded": "condition", "boolean": "condition", "age": "age"},
    **{"arithmetic": "arithmetic-in-condition", "days": "column-against-column", "part": "date-part"},
    **{"years": "years-between", "prefix": "text-function-in-condition", "text": "text-function-in-condition"},
    **{"parsed": "number-in-text", "case": "case-in-condition"},
}
IN_ORDER: Final = {
    **{"column": "order-and-limit", "date": "order-and-limit", "part": "order-and-limit", "age": "order-and-limit"},
    **{"arithmetic": "order-by-arithmetic", "days": "order-by-arithmetic", "constant": "order-and-limit"},
    **{"years": "years-between", "prefix": "text-function-in-condition", "text": "text-function-in-condition"},
    **{"folded": "order-and-limit", "parsed": "number-in-text", "case": "case-in-condition"},
}
IN_COLUMNS: Final = {
    **{"column": "", "constant": "", "date": "", "arithmetic": "arithmetic", "part": "date-part"},
    **{"days": "date-difference", "boolean": "case", "case": "case"},
    **dict.fromkeys(("age", "years", "text", "prefix", "folded", "parsed", "now"), "text-function"),
}
IN_MEASURES: Final = {
    **{"column": "aggregate", "constant": "aggregate", "date": "aggregate", "folded": "text-function-in-condition"},
    **{"arithmetic": "aggregate-of-arithmetic", "days": "date-difference", "age": "years-between"},
    **{"years": "years-between", "parsed": "number-in-text", "prefix": "text-function-in-condition"},
    **{"text": "text-function-in-condition", "part": "years-between"},
}


@dataclass
class Need:
    """What a statement needs: names of forms, how many calls, and what no call does (forms, or words)."""

    forms: set[str] = field(default_factory=set)
    calls: int = 1
    obstacles: set[str] = field(default_factory=set)

    def add(self, other: "Need", calls: int = 0) -> None:
        """Take what a part needs, and so many calls for it."""
        self.forms |= other.forms
        self.obstacles |= other.obstacles
        self.calls += calls


class Queries(Protocol):
    """Reads the subqueries of a SELECT: ``unique`` are the columns that are, by their tables."""

    unique: Mapping[str, Set[str]]

    def query(self, node: Any) -> Need:
        """Return what a subquery needs."""


class SelectReader:
    """Reads one SELECT over tables."""

    def __init__(self, reader: Queries, select: Any) -> None:
        self.reader, self.select, self.need = reader, select, Need()
        self.scope = Scope(select, reader.unique)
        self.aliases = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
        self.group = [self._meant(item) for item in self._list("group")]
        self.order = [self._meant(item.this) for item in self._list("order")]
        having = select.args.get("having")
        self.having = conjuncts(having.this) if having is not None else []
        self.limit = select.args.get("limit")
        self.has_aggregates = any(map(has_aggregate, (*select.expressions, *self.order, *self.having)))

    def _list(self, name: str) -> Sequence[Any]:
        found = self.select.args.get(name)
        return found.expressions if found is not None else ()

    def _meant(self, node: Any) -> Any:
        """Return the column of the result that a name or a number stands for."""
        if isinstance(node, exp.Literal) and not node.is_string:
            place = int(node.name) - 1
            return bare(self.select.expressions[place]) if place < len(self.select.expressions) else node
        if isinstance(node, exp.Column) and not node.table:
            return self.aliases.get(node.name.lower(), node)
        return node

    def read(self) -> Need:
        """Return what it needs."""
        if self.select.args.get("from_") is None:
            self._scalars()
            return self.need
        self._conditions()
        self._columns()
        self._groups()
        self._ordered()
        self._joins()
        return self.need

    # Joins

    def _joins(self) -> None:
        shown = [*self.select.expressions, *self.group, *self.order, *self.having]
        values = {alias for item in shown for alias in self.scope.aliases_of(item)}
        numbers = [found for item in shown for found in aggregates(item)]
        multiplied = any(
            not isinstance(one, exp.Min | exp.Max) and not isinstance(one.this, exp.Distinct) for one in numbers
        )
        several = self.limit is not None and not self.has_aggregates and self.limit.expression.name != "1"
        self.need.forms |= self.scope.forms
        self.need.obstacles |= self.scope.obstacles
        root = self.scope.root(set(self.scope.tables))
        if root is not None:
            self.need.forms |= {"join-to-list"} if values and root not in values else set()
            return
        if self.scope.optional:
            self.need.forms.add("aggregate-of-list")
            if not numbers or len(self.scope.tables) > 2:
                self.need.obstacles.add("columns of an outer join to several rows")
            return
        if multiplied or several or self.scope.root(values) is None:
            self.need.forms.add("pairs")
        else:
            self.need.forms.add("join-of-lists" if len(self.scope.tables) > 2 else "join-to-list")

    # Conditions

    def _conditions(self) -> None:
        parts = self.scope.conditions
        for part in parts:
            self.condition(part, [other for other in parts if other is not part])
        for part in self.having:
            self._having(part)

    def condition(self, node: Any, others: Sequence[Any] = (), negated: bool = False) -> None:
        """Read a condition; ``others`` hold beside it."""
        if isinstance(node, exp.Paren):
            self.condition(node.this, others, negated)
        elif isinstance(node, exp.And | exp.Or):
            for part in (node.left, node.right):
                self.condition(part, [*others, exp.Null()], negated)
        elif isinstance(node, exp.Not):
            self.condition(node.this, others, not negated)
        elif isinstance(node, exp.Exists):
            self._exists(node, negated)
        elif isinstance(node, exp.In):
            if node.args.get("query") is not None:
                self._in_subquery(node.this, node.args["query"], negated)
            else:
                self._value(node.this)
        elif isinstance(node, exp.Between):
            self._value(node.this)
            bounds = [node.args["low"], node.args["high"]]
            if {*map(kind, bounds)} - {"constant", "now"}:
                self.need.obstacles.add("BETWEEN columns or subqueries")
            elif any(is_word(bound) for bound in bounds) and kind(node.this) == "column":
                self.need.obstacles.add("the order of texts")
        elif isinstance(node, exp.Like | exp.ILike | exp.Glob):
            self._like(node)
        elif isinstance(node, exp.Is):
            self._value(node.this)
            self.need.forms.add("null")
        elif isinstance(node, COMPARISONS):
            self._compared(node, others)
        elif kind(node) in ("column", "constant"):
            self.need.forms.add("condition")
        else:
            self.need.obstacles.add("other conditions")

    def _value(self, node: Any) -> None:
        self._note(IN_CONDITIONS.get(kind(node), "other conditions"))

    def _note(self, form: str) -> None:
        if form in FORMS:
            self.need.forms.add(form)
        elif form:
            self.need.obstacles.add(form)

    def _like(self, node: Any) -> None:
        pattern = node.expression.name if isinstance(node.expression, exp.Literal) else None
        if pattern is None or kind(node.this) not in ("column", "folded", "date"):
            self.need.obstacles.add("LIKE of what is no column or no text")
        elif isinstance(node, exp.Glob) or "_" in pattern.strip("%") or pattern.count("%") > 3:
            self.need.obstacles.add("patterns with single characters")
        else:
            self.need.forms.add("like-inside" if "%" in pattern.strip("%") else "like")

    def _compared(self, node: Any, others: Sequence[Any]) -> None:
        left, right = node.left, node.right
        if node.find(exp.Subquery) is not None:
            self._with_subquery(node, others)
            return
        kinds = [kind(left), kind(right)]
        if kinds[0] in ("constant", "now", "nowpart"):
            kinds.reverse()
            left, right = right, left
        if (isinstance(bare(left), exp.StrPosition) and kinds[1] == "constant") or (
            kinds == ["prefix", "constant"] and isinstance(node, exp.EQ | exp.NEQ)
        ):
            self.need.forms.add("like")
        elif kinds[1] in ("constant", "now"):
            self._value(left)
            if kinds[0] == "column" and not isinstance(node, exp.EQ | exp.NEQ) and is_word(right):
                self.need.obstacles.add("the order of texts")
        elif kinds == ["part", "nowpart"]:
            self.need.forms.add("age")
        elif set(kinds) <= {"column", "date"}:
            self.need.forms.add("column-against-column")
        elif set(kinds) <= {"column", "arithmetic"}:
            self.need.forms.add("arithmetic-in-condition")
        elif set(kinds) <= {"part", "years"}:
            self.need.forms.add("years-between")
        else:
            self.need.obstacles.add("other comparisons")

    # Subqueries in conditions

    def _exists(self, node: Any, negated: bool) -> None:
        inner = node.this if isinstance(node.this, exp.Select) else node.this.this
        linked = conjuncts(inner.args["where"].this) if inner.args.get("where") else []
        keys = [part for part in linked if isinstance(part, exp.EQ) and self._leads_out(part, inner)]
        if not keys or inner.args.get("group"):
            self.need.obstacles.add("EXISTS without a key")
        self.need.forms.add("anti-join" if negated else "semi-join")
        reader = SelectReader(self.reader, inner)
        for part in reader.scope.conditions:
            if part not in keys:
                reader.condition(part)
        self.need.add(reader.need)

    def _leads_out(self, part: Any, inner: Any) -> bool:
        own = {table.alias_or_name.lower() for table in inner.find_all(exp.Table)}
        sides = {column.table.lower() in own for column in (part.left, part.right) if isinstance(column, exp.Column)}
        return sides == {True, False}

    def _in_subquery(self, value: Any, query: Any, negated: bool) -> None:
        inner = query.this if isinstance(query, exp.Subquery) else query
        if not isinstance(inner, exp.Select) or inner.args.get("from_") is None:
            self.need.obstacles.add("other subqueries")
            return
        found = self.reader.query(inner)
        if inner.args.get("limit") is not None:
            self.need.forms.add("subquery-with-limit")
            self.need.add(found, found.calls)
            return
        shown = bare(inner.expressions[0])
        related = isinstance(bare(value), exp.Column) and isinstance(shown, exp.Column)
        scope = Scope(inner, self.reader.unique)
        if not related or not self.scope.is_related(bare(value), scope, shown):
            self.need.forms.add("values-from-subquery")
            self.need.add(found, found.calls)
        elif inner.args.get("group") is not None and inner.args.get("having") is not None:
            self.need.forms.add("count-in-condition")
            counts = all(isinstance(one, exp.Count) for one in aggregates(inner.args["having"]))
            self.need.add(found, found.calls - 1 if counts else found.calls)
        else:
            self.need.forms.add("anti-join" if negated else "semi-join")
            # How often a row comes is of no matter here.
            found.forms -= {"pairs"}
            self.need.add(found, found.calls - 1)

    def _with_subquery(self, node: Any, others: Sequence[Any]) -> None:
        """Read a comparison with a subquery that gives one value."""
        subquery = node.find(exp.Subquery)
        value = node.left if subquery.find_ancestor(*COMPARISONS) is node and node.right is subquery else None
        column = bare(value) if isinstance(bare(value), exp.Column) and isinstance(node, exp.EQ) else None
        inner = subquery.this
        other = node.right if bare(node.left) is subquery else node.left
        if self._of_list(inner) and kind(other) == "constant":
            self.need.forms.add("condition-on-value-of-list")
            return
        if not isinstance(inner, exp.Select) or len(list(node.find_all(exp.Subquery))) > 1 + len(
            list(inner.find_all(exp.Subquery))
        ):
            self.need.obstacles.add("other subqueries")
            return
        found = self.reader.query(inner)
        if column is not None and self._is_largest(column, inner, others):
            self.need.forms.add("equals-largest")
        elif inner.args.get("limit") is not None:
            self.need.forms.add("subquery-with-limit")
            self.need.add(found, found.calls)
        elif has_aggregate(inner.expressions[0]):
            same = self._is_of_same_rows(bare(value), inner)
            self.need.forms.add("compared-with-aggregate" if same else "compared-with-an-aggregate-of-others")
            self.need.add(found, found.calls - 1 if same else found.calls)
        elif column is not None and self.scope.is_related(
            column, Scope(inner, self.reader.unique), bare(inner.expressions[0])
        ):
            self.need.forms.add("key-from-subquery")
            self.need.add(found, found.calls - 1)
        else:
            self.need.forms.add("values-from-subquery")
            self.need.add(found, found.calls)

    def _is_largest(self, column: Any, inner: Any, others: Sequence[Any]) -> bool:
        """Return whether the rows are those with the largest or smallest value of the same rows."""
        shown, limit = bare(inner.expressions[0]), inner.args.get("limit")
        if limit is not None:
            order = inner.args.get("order")
            keys = [bare(item.this) for item in order.expressions] if order is not None else []
            same = len(keys) == 1 and keys[0] == shown and inner.args.get("offset") is None
            if not same or limit.expression.name != "1":
                return False
        elif not isinstance(shown, exp.Max | exp.Min):
            return False
        else:
            shown = shown.this
        scope = Scope(inner, self.reader.unique)
        if not isinstance(shown, exp.Column) or inner.args.get("group") is not None or self.group:
            return False
        one, other = self.scope.table_of(column), scope.table_of(shown)
        conditions = [{self.scope.plain(part) for part in others}, {scope.plain(part) for part in scope.conditions}]
        return (one, column.name.lower()) == (other, shown.name.lower()) and conditions[0] == conditions[1]

    def _is_of_same_rows(self, column: Any, inner: Any) -> bool:
        """Return whether a column is compared with an average or an extreme of the only table of both."""
        shown, scope = bare(inner.expressions[0]), Scope(inner, self.reader.unique)
        joined = any(select.args.get("joins") for select in (self.select, inner)) or inner.args.get("group") is not None
        if joined or not isinstance(column, exp.Column) or not isinstance(shown, exp.Avg | exp.Max | exp.Min):
            return False
        tables = {scope.table_of(one) for one in shown.find_all(exp.Column)}
        return tables == {self.scope.table_of(column)}

    def _of_list(self, inner: Any) -> str:
        """Return the form of a subquery that gives one value of all rows that point to a row here, "" for others."""
        where = inner.args.get("where") if isinstance(inner, exp.Select) else None
        if where is None or len(inner.expressions) != 1 or any(map(inner.args.get, CHANGES_LIST)):
            return ""
        linked = conjuncts(where.this)
        if len(linked) > 1 or not isinstance(linked[0], exp.EQ) or not self._leads_out(linked[0], inner):
            return ""
        scope = Scope(inner, self.reader.unique)
        sides: list[Any] = [linked[0].left, linked[0].right]
        here, there = sorted(sides, key=lambda column: column.table.lower() in scope.tables)
        if not self.scope.is_related(here, scope, there):
            return ""
        shown, order, limit = bare(inner.expressions[0]), inner.args.get("order"), inner.args.get("limit")
        if limit is None:
            is_value = isinstance(shown, OF_LISTS) and kind(shown.this) in ("column", "constant")
            return "value-of-list" if is_value else ""
        is_first = limit.expression.name == "1" and order is not None and kind(shown) == "column"
        return "last-of-list" if is_first and kind(order.expressions[0].this) == "column" else ""

    # Columns of the result

    def _columns(self) -> None:
        if self.select.args.get("distinct") is not None and not self.has_aggregates:
            self.need.forms.add("distinct")
        for item in self.select.expressions:
            node = item.this if isinstance(item, exp.Alias) else item
            if isinstance(node, exp.Round | exp.Coalesce):
                self.need.forms.add("cast")
            if has_aggregate(node):
                self.result(node)
            elif kind(node) == "window":
                self._window(node)
            elif node.find(exp.Subquery) is not None:
                self._scalar(node)
            else:
                self._note(IN_COLUMNS.get(kind(node), "other columns"))

    def result(self, node: Any, ordered: bool = False) -> None:
        """Read a value that is made of aggregates; rows can be ``ordered`` by those that the database computes."""
        for one in aggregates(node):
            self._measure(one)
        for inner in node.find_all(exp.Subquery):
            self._scalar_of(inner)
        core, factored = without_factors(node)
        sides = [without_factors(side) for side in (core.left, core.right)] if isinstance(core, ARITHMETIC) else []
        are_measures = bool(sides) and all(
            isinstance(side, exp.AggFunc) or (isinstance(side, exp.Subquery) and not ordered) for side, _ in sides
        )
        factored = factored or any(scaled for _, scaled in sides)
        if isinstance(core, exp.AggFunc):
            fits = not factored or not isinstance(core.this, exp.Distinct)
        elif are_measures and isinstance(core, exp.Div | exp.Sub):
            self.need.forms.add("ratio" if isinstance(core, exp.Div) else "difference")
            fits = not factored or not isinstance(sides[0][0].this, exp.Distinct)
        else:
            fits = False
        if not fits:
            self.need.forms.add("case" if isinstance(core, exp.Case | exp.If) else "arithmetic-of-aggregates")
        if not fits and ordered:
            self.need.obstacles.add("order or HAVING by other arithmetic of aggregates")

    def _measure(self, node: Any) -> None:
        value = node.this
        if isinstance(value, exp.Distinct):
            self.need.forms.add("count-distinct")
            if len(value.expressions) > 1 or not isinstance(node, exp.Count):
                self.need.obstacles.add("aggregates of distinct pairs")
                return
            value = value.expressions[0]
        if isinstance(bare(value), exp.Case | exp.If):
            self._conditional(node, bare(value))
        elif kind(value) == "boolean":
            self.need.forms.add("conditional-aggregate")
            self.condition(bare(value))
        elif isinstance(node, exp.Min | exp.Max) and kind(value) == "part":
            self.need.forms.add("date-part")
        elif isinstance(node, exp.GroupConcat):
            self.need.obstacles.add("GROUP_CONCAT")
        else:
            self._note(IN_MEASURES.get(kind(value), "other aggregates"))

    def _conditional(self, node: Any, value: Any) -> None:
        conditions, values, other = branches(value)
        self.need.forms.add("conditional-aggregate")
        for part in conditions:
            self.condition(part)
        for part in values:
            self._note(IN_MEASURES.get(kind(part), "CASE in CASE"))
        if len(conditions) > 1 or not is_empty(other):
            self.need.forms.add("arithmetic-of-aggregates")
        if isinstance(node, exp.Avg) and other is not None and not isinstance(other, exp.Null):
            self.need.forms.add("ratio")

    def _window(self, node: Any) -> None:
        window = node.find(exp.Window)
        whole = not window.args.get("order") and not window.args.get("partition_by")
        if isinstance(window.this, RANKS):
            self.need.forms.add("rank")
        elif whole and isinstance(bare(node), exp.Div | exp.Mul):
            self.need.forms.add("percent-of-total")
        elif isinstance(window.this, exp.Lag) and self.group:
            self.need.forms.add("change")
        else:
            self.need.forms.add("running-total")

    # Subqueries in columns

    def _scalars(self) -> None:
        """Read a SELECT without FROM."""
        found = [one.this for item in self.select.expressions for one in item.find_all(exp.Subquery)]
        found = [one for one in found if one.find_ancestor(exp.Subquery).find_ancestor(exp.Subquery) is None]
        needs = [self.reader.query(one) for one in found]
        for part in needs:
            self.need.add(part)
        tables = {tuple(sorted(tables_in(one))) for one in found}
        numbers = all(isinstance(one, exp.Select) and has_aggregate(one.expressions[0]) for one in found)
        if numbers and len(tables) == 1 and all(part.calls == 1 for part in needs):
            self.need.forms.add("same-scalars")
        elif len(tables) == 1 and not any(one.args.get("limit") or one.args.get("group") for one in found):
            # One call shows the rows that both are about.
            self.need.forms |= {"union", "arithmetic-of-aggregates"}
        else:
            self.need.forms.add("several-scalars")
            self.need.calls = sum(part.calls for part in needs)

    def _scalar(self, node: Any) -> None:
        for subquery in node.find_all(exp.Subquery):
            self._scalar_of(subquery)

    def _scalar_of(self, subquery: Any) -> None:
        inner = subquery.this
        form = "" if self.has_aggregates else self._of_list(inner)
        if form:
            # A total of a list is also one of groups, each with one row.
            self.need.forms |= {form, "aggregate-of-list"} if form == "value-of-list" else {form}
            return
        found = self.reader.query(inner)
        outer = {*self.scope.tables} - {table.alias_or_name.lower() for table in inner.find_all(exp.Table)}
        if any(column.table.lower() in outer for column in inner.find_all(exp.Column) if column.table):
            self.need.forms.add("aggregate-of-list")
            self.need.add(found)
        elif self.has_aggregates and {*tables_in(inner)} <= {*self.scope.tables.values()} and found.calls == 1:
            self.need.forms.add("percent-of-total" if self.group else "same-scalars")
            self.need.add(found)
        else:
            self.need.forms.add("several-scalars")
            self.need.add(found, found.calls)

    # Groups and order

    def _groups(self) -> None:
        for item in self.group:
            found = kind(item)
            if found == "part":
                self.need.forms.add("group-by-date")
            elif found == "case":
                self.need.forms.add("group-by-case")
            elif found not in ("column", "date", "constant"):
                self._note(IN_CONDITIONS.get(found, "other groups"))
        if self.group:
            self.need.forms.add("group-by")
        if self.having:
            self.need.forms.add("having")

    def _having(self, node: Any) -> None:
        node = bare(node)
        inner = node.this if isinstance(node, exp.Between) else node
        if not isinstance(node, (*COMPARISONS, exp.Between, exp.Is)):
            self.need.obstacles.add("HAVING with OR")
            return
        sides = [self._meant(inner)] if isinstance(node, exp.Between) else [self._meant(node.this), node.expression]
        if any(isinstance(bare(side), exp.Subquery) or side.find(exp.Subquery) for side in sides):
            self.need.forms.add("compared-with-an-aggregate-of-others")
            for subquery in node.find_all(exp.Subquery):
                if subquery.find_ancestor(exp.Subquery) is None:
                    found = self.reader.query(subquery.this)
                    self.need.add(found, found.calls)
            return
        measured = [side for side in sides if has_aggregate(side)]
        if len(measured) == 2:
            self.need.forms.add("difference")
        for side in measured:
            self.result(side, ordered=True)
        if not measured:
            self.condition(node)

    def _ordered(self) -> None:
        for item in self.order:
            if has_aggregate(item):
                self.need.forms.add("order-by-aggregate")
                self.result(item, ordered=True)
            elif isinstance(bare(item), exp.Subquery) and self._of_list(bare(item).this):
                self.need.forms.add("order-by-value-of-list")
            elif not self.has_aggregates or self.group:
                form = IN_ORDER.get(kind(item), "other orders")
                cut = self.limit is not None
                # What has no order here is sorted by the caller, who has all rows.
                self._note(form if cut or form.startswith("order") else "text-function")
        if self.limit is not None:
            self.need.forms.add("order-and-limit")
        if self.select.args.get("offset") is not None:
            self.need.forms.add("offset")

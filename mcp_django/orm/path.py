"""Paths through relations to columns, as far as the caller could follow them by reading row after row.

A path such as ``customer__city__name`` goes through relations to one row each. The caller must be able to read each
relation, to view the model at its end, and to read the column at the end of the path. All values of a related row that
is hidden from them are NULL.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from django.db.models import Case, F, Q, When

from ..exceptions import ToolError
from ..runtime.failing_hooks import call_hook
from .access import MAX_NAME, Access, ModelAccess
from .columns import Column, ComputedColumn
from .computed_columns import computed_value, order_source
from .fields import is_joinable, kind_of, relations_on, resolve_path
from .nearest_names import alternatives

# Maximum number of relations on a path: each is a join.
MAX_HOPS: Final = 4
# Prefix of the names of values that are NULL behind hidden rows.
GUARDED: Final = "mcp_way_"
# What stands in place of a guard where the project's ``get_queryset`` fails. Nobody passes it.
UNREADABLE: Final = Q(pk__in=())


class NoField(ToolError):
    """A path leads to no field that can be used here; ``accepts`` says whether another path does."""

    def __init__(
        self, message: str, model: ModelAccess, text: str, known: Sequence[str], accepts: Callable[[str], bool]
    ) -> None:
        super().__init__(f"{message} {alternatives(text.replace('.', '__'), known)}")
        self.lead = message
        self.model = model
        self.text = text
        self.known = known
        self.accepts = accepts


@dataclass(frozen=True, slots=True)
class Target:
    """What a path such as ``customer__country`` ends at, or what arithmetic gives: its ``name``, its ``expression``,
    and a column of its type.

    ``narrowed`` are the labels of the models on the path of which the caller may not see every row. The value is NULL
    if the path leads through a hidden row.
    """

    name: str
    column: Column
    expression: Any
    narrowed: tuple[str, ...] = ()


class Path:
    """A path such as ``customer__city`` through relations to one row each, as far as the caller can follow it.

    ``hops`` are the names of the relations that they can follow, and ``end`` is the model that these lead to.
    ``guards`` are the conditions that make the rows on the path visible, ``narrowed`` the labels of their models.
    """

    def __init__(self, start: ModelAccess, names: Sequence[str]) -> None:
        *hops, self.last = names
        self.start = start
        self.end = start
        self.hops: tuple[str, ...] = ()
        self.guards: tuple[Q, ...] = ()
        self.narrowed: tuple[str, ...] = ()
        for hop in hops[:MAX_HOPS]:
            relation = self.end.to_one(hop)
            related = start.access.model_of(relation.related_model) if relation is not None else None
            if related is None:
                break
            guard = _guard(related, relation, (*self.hops, relation.name))
            if guard is UNREADABLE:
                break
            self.end = related
            self.hops = (*self.hops, relation.name)
            if guard is not None:
                self.guards = (*self.guards, guard)
                self.narrowed = (*self.narrowed, related.exposure.label)
        self.is_whole = len(self.hops) == len(hops)
        self.is_too_long = len(hops) > MAX_HOPS == len(self.hops)

    @classmethod
    def read(cls, start: ModelAccess, text: str) -> "Path":
        """Return the path that a client wrote, with dots or with two underscores between its names."""
        return cls(start, text.replace(".", "__").split("__") if len(text) <= MAX_NAME else [text])

    def named(self, name: str) -> str:
        """Return the path to another name of the model at the end of this path."""
        return "__".join([*self.hops, name])

    @property
    def column(self) -> Column | None:
        """The column at the end of the path; None if the caller may not read it, or cannot follow the path."""
        if self.is_whole:
            return self.end.column_named(self.last)
        return None

    @property
    def shown_column(self) -> Column | None:
        """The column that this path leads to through relations, as a page shows it; None for no such column.

        If the path may lead through hidden rows, the column's ``path`` is a name in :func:`guarded_paths`.
        """
        column = self.column if self.hops else None
        if column is None or not column.is_countable() or column.is_file():
            return None
        return _through(self.hops, column, bool(self.narrowed))

    @property
    def siblings(self) -> list[str]:
        """The paths to columns of related rows that go through the same relations as this path."""
        paths = map(self.named, self.end.fields)
        return [path for path in paths if Path.read(self.start, path).shown_column is not None]

    @property
    def length_hint(self) -> str:
        """The message for a path through too many relations; "" for any other path."""
        if self.is_too_long:
            return f" A path goes through at most {MAX_HOPS} relations."
        return ""

    def guarded(self, value: Any) -> Any:
        """Return the value at the path's end, NULL where the path leads through a row that the caller may not see."""
        if self.guards:
            return Case(When(Q(*self.guards), then=value))
        return value

    def value(self, column: Column) -> Target:
        """Return the value of a column at the end of the path, NULL behind hidden rows."""
        return Target(self.named(column.name), column, self.guarded(F(self.named(column.path))), self.narrowed)

    def find(self, name: str, usable: Callable[[Column], bool]) -> Target | None:
        """Follow this path to the column of this name and return its value if it is ``usable``, otherwise None.

        The value of a column that the admin computes is the one that it is sorted by: a path or an expression.
        """
        column = self.end.column_named(name)
        if not isinstance(column, ComputedColumn):
            if column is not None and usable(column):
                return self.value(column)
            return None
        source = order_source(column)
        if column.order_field is not None and isinstance(source, str) and resolve_path(self.end.exposure.model, source):
            path = Path(self.start, [*self.hops, *source.split("__")])
            plain = path.column
            if plain is None or not usable(plain) or (column.shows_truth and kind_of(plain.field).word != "boolean"):
                return None
            return replace(path.value(plain), name=self.named(column.name))
        made = computed_value(self.end, column, self.named("pk"))
        if made is None or not usable(made[0]):
            return None
        return Target(self.named(column.name), made[0], self.guarded(made[1]), self.narrowed)


def target_of(model: ModelAccess, text: str, usable: Callable[[Column], bool], *more: str) -> Target:
    """Return the value at the end of a path such as ``customer__country``, of a column that is ``usable``.

    The caller must be able to follow the path by reading: each field on it is visible, and so is the model that it
    leads to. ``more`` are further valid names for the message.
    """
    given = text
    text = text.replace(".", "__")
    path = Path.read(model, text)
    # The exposure may list a path as a field of its own.
    for end in (Path(model, [text]), path):
        found = end.find(end.last, usable) if end.is_whole else None
        if found is not None:
            return found
    known = [path.named(name) for name in path.end.fields if path.find(name, usable) is not None]

    def accepts(text: str) -> bool:
        try:
            return target_of(model, text, usable) is not None
        except NoField:
            return False

    message = f"{model.exposure.label} has no field {text[:60]!r} for this.{path.length_hint}"
    raise NoField(message, model, given, [*known, *more], accepts)


@lru_cache(maxsize=4096)
def _through(names: tuple[str, ...], column: Column, guarded: bool) -> Column:
    name = "__".join([*names, column.name])
    path = "__".join([*names, column.path])
    if guarded:
        # A column of the result cannot be named like a path.
        path = guarded_name(path)
    return replace(column, name=name, path=path, through=names, is_guarded=guarded)


def guarded_name(path: str) -> str:
    """Return the name under which a query keeps a path's values, which are NULL behind hidden rows."""
    return f"{GUARDED}{blake2b(path.encode(), digest_size=8).hexdigest()}"


def guarded_paths(model: ModelAccess, columns: Sequence[Column]) -> Mapping[str, Any]:
    """Return the expressions of paths to columns that are NULL behind rows which the caller may not see."""
    paths = {
        item.path: Path(model, [*item.through, item.name.rpartition("__")[2]]) for item in columns if item.is_guarded
    }
    return {name: path.value(column).expression for name, path in paths.items() if (column := path.column) is not None}


def computed_target(model: ModelAccess, text: str, usable: Callable[[Column], bool]) -> Target | None:
    """Return what a path ends at, if that is a computed column; None if the path ends at another column."""
    path = Path.read(model, text)
    column = path.column
    if column is not None and column.is_computed:
        return path.find(path.last, usable)
    return None


def _guard(related: ModelAccess, relation: Any, names: Sequence[str]) -> Q | None:
    """Return the ``Q`` by which the row at the end of ``names`` is visible to the caller; None if all rows are.

    Returns ``UNREADABLE`` if the project's ``get_queryset`` fails: then nobody can tell which rows are visible.
    """
    if related.sees_every_row:
        return None
    exposure = related.exposure
    rows = call_hook(exposure.label, "get_queryset", exposure.get_queryset, related.request, default=None)
    if rows is None:
        return UNREADABLE
    key = relation.target_field.attname if relation.concrete else exposure.opts.pk.attname
    return Q(("__".join(names if relation.concrete else [*names, "pk"]) + "__in", rows.order_by().values(key)))


def guards_on(access: Access, model: Any, path: str) -> tuple[Q, ...] | None:
    """Return the guards along a path through relations: each is a ``Q`` that keeps out hidden rows on the path.

    The project declares the path. Returns None if it leads through a model that the caller may not view, or into
    another database. A model that is exposed to nobody hides nothing: the project's declaration stands.
    """
    found: list[Q] = []
    for names, relation in relations_on(model, path):
        if not is_joinable(relation):
            return None
        if relation.related_model in access.request.mcp.site.exposures:
            related = access.model_of(relation.related_model)
            if related is None:
                return None
            guard = _guard(related, relation, names)
            if guard is UNREADABLE:
                return None
            found += [guard] if guard is not None else []
    return tuple(found)


def leads_to_hidden_rows(access: Access, model: Any, path: str) -> bool:
    """Follow a path and return whether it leads through a model of which some callers may not see all rows.

    For a model that is not exposed at all, the project's declaration stands.
    """
    models = [relation.related_model for _, relation in relations_on(model, path)]
    related = [access.model_of(model) for model in models if model in access.request.mcp.site.exposures]
    return any(there is None or not there.exposure.options.has_every_row for there in related)

"""Row reading: one page of rows as JSON, by a compiled query or as model instances, and one row by its primary key.

A page of plain columns is read as tuples: by a cached compiled query if the exposure's rows have a shape and the SQL of
the filters is the same for all values, otherwise by SQL compiled for this call. A page with a computed column, or of an
exposure with its own serializer, is read as instances.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final

from django.db.models import Model, QuerySet

from ..context.databases import LostDatesAsText
from ..exceptions import NotFound, ToolError, Unreadable
from ..runtime.failing_hooks import call_hook
from ..schema.secrets import is_sensitive
from .access import ModelAccess, has_key
from .cells import SERIALIZER, Columns, Page, Rows, layout_of, path_reader
from .columns import Column, SerializedColumn
from .compiled_queries import (
    CompiledQuery,
    by_key,
    key_params,
    shape_of,
    shape_of_instances,
)
from .fields import is_joinable
from .labels import (
    joined_label,
    ways_to,
    with_labels,
    with_related,
)
from .pagination import REPEATED, CompiledPage, PageQuery
from .prefetch import learned
from .undecodable_values import is_undecodable, salvaged_rows

# Maximum number of joins for labels, because databases limit the tables of one query. Further labels cost queries.
MAX_JOINS: Final = 20


@lru_cache(maxsize=2048)
def needs_instances(columns: tuple[Column, ...]) -> bool:
    """Return whether reading rows with these columns takes model instances rather than tuples."""
    return any(column.needs_instance for column in columns)


def read_page(query: PageQuery) -> Page:
    """Read a page; raise ``ToolError`` for one that does not begin after the last row of the page before it."""
    page = read_instances(query) if needs_instances(query.columns) else read_tuples(query)
    if query.after is not None and query.after in page.keys:
        raise ToolError(REPEATED)
    return page


# Tuples


def read_tuples(query: PageQuery) -> Page:
    """Read a page of plain columns."""
    plan = TuplePlan(query)
    try:
        columns = plan.read()
    except Exception as error:
        if not is_undecodable(error):
            raise
        return read_instances(query)
    return Rows(query.model, plan.layout, columns, (), query.limit).page()


class TuplePlan:
    """Reads the rows of a page as tuples: by compiled queries if these are on, otherwise by the ORM.

    ``layout`` says what the tuples hold, and ``joins`` are the paths of the labels that a join reads with the rows,
    None for a column without one.
    """

    def __init__(self, query: PageQuery) -> None:
        request = query.model.request
        exposure = query.model.exposure
        self.query = query
        self.exposure = exposure
        joins = [joined_label(request, column) if column.is_foreign_key else None for column in query.columns]
        self.joins = tuple(joins)
        self.layout = layout_of(exposure, query.columns, query.ordering, self.joins, query.text_limit)
        # A queryset of the same shape for every caller is asked for only when its SQL is compiled.
        self.queryset = None if exposure.options.has_stable_queryset else exposure.get_queryset(request)

    def rows(self) -> QuerySet[Any]:
        """Return the exposure's rows."""
        if self.queryset is None:
            return self.exposure.get_queryset(self.query.model.request)
        return self.queryset

    def select(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the query for the tuples of some rows."""
        # Rows that are sorted by a column of a related row have that row, so their joins need not be outer joins.
        sorted_by = {name for key in self.query.ordering for name in ways_to(key.path)}
        columns = self.query.columns
        keys = [column.path for column in columns if column.path.startswith(f"{column.name}__")]
        keys += [column.path for column in columns if column.through]
        followed = {name for path in (*self.joins, *keys) if path is not None for name in ways_to(path)}
        return with_labels(plain_rows(rows), self.layout.paths, followed - sorted_by)

    def compiled(self) -> CompiledPage:
        """Return the compiled queries of the page."""
        queryset = self.queryset
        using = queryset.db if queryset is not None else str(self.exposure.model._default_manager.db)
        page_key, params = self.query.compiled_key(using)
        shape = shape_of(queryset, using) if queryset is not None and page_key is not None else None
        key = None
        if page_key is not None and (queryset is None or shape is not None):
            key = (self.exposure, using, self.layout.paths, page_key)

        def compile(rows: QuerySet[Any]) -> CompiledQuery:
            return CompiledQuery.for_values(self.select(rows), using)

        return CompiledPage(self.query, using, params=params, shape=shape, key=key, rows=self.rows, compile=compile)

    def read(self) -> Columns:
        """Read the page by column, with one row more than it shows if there is one."""
        found: Columns = []
        for columns in self._segments():
            if not found:
                found = columns
            elif columns:
                found = [[*column, *more] for column, more in zip(found, columns, strict=True)]
            if found and len(found[0]) > self.query.limit:
                break
        return found

    def _segments(self) -> Iterator[Columns]:
        """Yield the columns of each segment of the page."""
        if CompiledQuery.is_on():
            compiled = self.compiled()
            for query in compiled:
                yield query.columns(compiled.using, compiled.values)
        else:
            for rows in self.query.rows(self.rows()):
                with LostDatesAsText():
                    columns: Columns = list(zip(*self.select(rows), strict=True))
                yield columns


# Instances


def plain_rows(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return rows to read as a plain Django queryset, which reads only the columns that are asked for."""
    return rows if type(rows) is QuerySet else QuerySet(rows.model, rows.query, rows._db)  # type: ignore[attr-defined]


def read_instances(query: PageQuery) -> Page:
    """Read a page as instances, whatever its columns."""
    plan = InstancePlan(query)
    instances = plan.read()
    read: Columns = [list(map(path_reader(path), instances)) for path in plan.layout.paths]
    return Rows(query.model, plan.layout, read, instances, query.limit).page()


def show_rows(
    model: ModelAccess,
    rows: Sequence[Model],
    columns: tuple[Column, ...],
    text_limit: int | None = None,
    labels: Mapping[str, str | None] | None = None,
) -> Page:
    """Turn model instances that were read into a page of JSON rows. Text is cut only if there is a ``text_limit``.

    ``labels`` are labels that are known already, by the path of their column; they require that there is only one row.
    """
    known = labels or {}
    joins: list[str | None] = [None] * len(columns)
    if known:
        paths = [joined_label(model.request, column) if column.is_foreign_key else None for column in columns]
        joins = [path if path in known else None for path in paths]
    layout = layout_of(model.exposure, columns, (), tuple(joins), text_limit)
    read: Columns = [[known[path]] if path in known else list(map(path_reader(path), rows)) for path in layout.paths]
    return Rows(model, layout, read, rows, len(rows)).page()


class InstancePlan:
    """Reads the rows of a page as instances, with all that their columns need, in a few queries.

    ``paths`` lead to the related rows that are read in the same query, of which ``relations`` are those that this app
    follows by itself, not because the project says so. ``follows_all`` says that Django chooses them.
    """

    def __init__(self, query: PageQuery) -> None:
        request = query.model.request
        exposure = query.model.exposure
        columns = query.columns
        self.query = query
        self.exposure = exposure
        self.layout = layout_of(exposure, columns, query.ordering, (None,) * len(columns), query.text_limit)
        self.queryset = exposure.get_queryset(request)

        # First, the relations that the project or the columns follow.
        ask = exposure.get_list_select_related
        followed: Any = call_hook(exposure.label, "get_list_select_related", ask, request, default=False)
        self.follows_all = followed is True
        self.paths = {path.rpartition("__")[0] for path in self.layout.paths if "__" in path}
        self.relations: set[str] = set()
        if followed and not self.follows_all:
            self.paths.update(followed)
        elif not followed:
            for column in columns:
                if column.through:
                    self.relations.update(ways_to(column.path))
                elif column.is_foreign_key and is_joinable(column.field):
                    self.paths.add(column.name)
                    if "__" not in column.name:
                        self.relations.add(column.name)

        # Then those that the code behind the columns has followed before.
        if not self.follows_all:
            names = {SERIALIZER if isinstance(column, SerializedColumn) else column.name for column in columns}
            learnt = learned(exposure, names)
            self.relations.update(learnt - self.paths)
            self.paths.update(learnt)

        # Last, what is not read, and what takes a query of its own.
        shown = query.model.fields
        hidden = [field for field in exposure.opts.concrete_fields if field.name not in shown]
        self.left_out = [field.attname for field in hidden if is_sensitive(field.name, field.model)]
        self.many = [column.name for column in columns if column.is_computed and column.field is not None]

    @property
    def key(self) -> Hashable:
        """What the SQL of :meth:`load` depends on, None if it takes more than one query."""
        if self.many:
            return None
        paths = self.layout.paths
        return self.follows_all, paths, frozenset(self.paths), frozenset(self.relations), tuple(self.left_out)

    def load(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return some rows with all that their columns need."""
        if self.follows_all:
            rows = rows.select_related()
        if self.many:
            rows = rows.prefetch_related(*self.many)
        # The sort values as stored are no fields.
        rows = _with_loaded(rows, {*self.layout.paths, *self.paths}.difference(self.query.key_names))
        if self.paths:
            rows = with_related(rows, self.paths, self.relations)
        if self.left_out:
            rows = rows.defer(*self.left_out)
        return rows

    def read(self) -> list[Model]:
        """Read the rows of the page, and one more if there is one, with as much of each as can be decoded."""
        query = self.query
        try:
            instances = self.read_compiled()
            if instances is None:
                with LostDatesAsText():
                    instances = list(islice(chain.from_iterable(self._segments()), query.limit + 1))
            return instances
        except Exception as error:
            if not is_undecodable(error):
                raise
        computed = (*query.computed, *query.key_names)
        return salvaged_rows(self._segments(), query.with_values(self.queryset), query.limit + 1, computed)

    def read_compiled(self) -> list[Model] | None:
        """Read the rows by compiled queries; return None if there are none for them, or if a value is broken."""
        needed = self.key
        if needed is None:
            return None
        queryset = self.queryset
        using = queryset.db
        page_key, params = self.query.compiled_key(using)
        shape = shape_of_instances(queryset, using) if page_key is not None else None
        if shape is None:
            return None
        key = ("instances", self.exposure, using, needed, page_key)

        def compile(rows: QuerySet[Any]) -> CompiledQuery:
            return CompiledQuery.for_query(self.load(rows).query, using)

        compiled = CompiledPage(
            self.query, using, params=params, shape=shape, key=key, rows=lambda: queryset, compile=compile
        )
        found: list[Model] = []
        for segment in compiled:
            read = segment.instances(using, compiled.values, queryset)
            if read is None:
                return None
            found += read
            if len(found) > self.query.limit:
                break
        return found[: self.query.limit + 1]

    def _segments(self) -> Iterator[QuerySet[Any]]:
        """Yield the ORM's query for each segment of the page."""
        for rows in self.query.rows(self.queryset):
            if self.exposure.options.reads_keys_first:
                # Find the rows by keys first, so that the database computes the columns of these rows only.
                order: Any = rows.query.order_by
                keys = list(rows.values_list("pk", flat=True))
                rows = self.query.with_values(self.queryset).filter(pk__in=keys).order_by(*order)
            yield self.load(rows)


# One row


@dataclass(frozen=True, slots=True)
class FoundRow:
    """One row read by its primary key, and the labels that a join read with it, by the path of their column."""

    row: Model
    labels: Mapping[str, str | None]

    @classmethod
    def find(cls, model: ModelAccess, pk: Any) -> "FoundRow":
        """Read one row by its primary key, with the labels of the rows to which its foreign keys point.

        It comes from a compiled query, if these are on and the exposure's rows are all rows of the table. Otherwise the
        exposure's own queryset gives it, which may have annotations and classes that a compiled query does not know.

        Raises ``NotFound`` if the caller has no access to such a row.
        """
        request = model.request
        exposure = model.exposure
        manager: Any = exposure.model._default_manager
        if not CompiledQuery.is_on() or not exposure.options.has_every_row or manager._queryset_class is not QuerySet:
            return cls.whole(model, pk)
        using = str(manager.db)
        try:
            key = model.parse_pk(pk)
            params = key_params(exposure.opts, key, using)
        except ToolError:
            raise NotFound from None
        columns = Column.all(exposure, model.fields)
        names = [field.attname for field in exposure.opts.concrete_fields]
        labels = [joined_label(request, column) for column in columns if column.is_foreign_key]
        joins = tuple([label for label in labels if label is not None][:MAX_JOINS])

        def build() -> CompiledQuery:
            rows = exposure.get_queryset(request).filter(by_key(exposure.opts)).order_by()
            ways = [name for join in joins for name in ways_to(join)]
            return CompiledQuery.for_values(with_labels(rows, [*names, *joins], ways), using)

        try:
            found = CompiledQuery.for_key((exposure, using, "row", joins), build).run(using, params)
        except Exception as error:
            if not is_undecodable(error):
                raise
            found = []
        if not found:
            return cls.whole(model, pk)
        row = exposure.model.from_db(using, names, found[0][: len(names)])
        # The database may ignore case, and spaces at the end.
        if not has_key(row, key) or not model.may_row("view", row):
            raise NotFound
        return cls(row, dict(zip(joins, found[0][len(names) :], strict=True)))

    @classmethod
    def whole(cls, model: ModelAccess, pk: Any) -> "FoundRow":
        """Read one row by its primary key from the exposure's own queryset, or as much of the row as can be decoded.

        Raises ``NotFound`` if the caller has no access to such a row.
        """
        try:
            return cls(model.get_row(pk), {})
        except Unreadable:
            exposure = model.exposure
            key = model.parse_pk(pk)
            rows = exposure.get_queryset(model.request).filter(pk=key)
            row = next(iter(salvaged_rows([rows.order_by()], rows, 1)), None)
            if row is None or not has_key(row, key) or not model.may_row("view", row):
                raise NotFound from None
            return cls(row, {})


def _with_loaded(queryset: QuerySet[Any], paths: set[str]) -> QuerySet[Any]:
    """Return the queryset with these columns loaded, despite its ``only()`` or ``defer()``. Otherwise each row would
    fetch them with a query of its own, and a relation could not be followed at all."""
    query: Any = queryset.query
    names, is_defer = query.deferred_loading
    paths = {path for path in paths if path not in query.annotations}
    if not is_defer:
        return queryset.defer(None).only(*sorted({*names, *paths}))
    needed = {_root(queryset.model, path) for path in paths}
    left = sorted(name for name in names if "__" in name or _root(queryset.model, name) not in needed)
    if len(left) < len(names):
        return queryset.defer(None).defer(*left)
    return queryset


def _root(model: type[Model], path: str) -> str:
    return str(model._meta.get_field(path.partition("__")[0]).name)

"""Row reading: one page of rows as JSON, by a compiled query or as model instances, and one row by its primary key.

A page of plain columns is read as tuples: by a cached compiled query if the exposure's rows have a shape and the SQL of
the filters is the same for all values, otherwise by SQL compiled for this call. A page with a computed column, or of an
exposure with its own serializer, is read as instances.
"""

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain, islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model, QuerySet

from ..exceptions import NotFound, ToolError, Unreadable
from ..exposures.model_exposure import ModelExposure
from ..exposures.querysets import with_loaded
from ..runtime.failing_hooks import call_hook
from ..schema.secrets import clean_text, is_sensitive
from .access import ModelAccess, columns_of, has_every_row, parse_pk
from .column_values import field_renderer, pk_text, render, render_columns, texts, trimmed
from .columns import Column, as_written
from .compiled_queries import (
    CompiledQuery,
    by_key,
    cached_query,
    compile_values,
    compiled_query,
    is_on,
    key_params,
    shape_of,
    shape_of_instances,
)
from .fields import is_joinable
from .labels import (
    MAX_LABEL,
    MAX_RELATED,
    generic_paths,
    generic_values,
    joined_label,
    labels_for,
    labels_of,
    linked_values,
    ways_to,
    with_labels,
    with_related,
)
from .pagination import REPEATED, PageQuery, key_names
from .prefetch import each_row, learn, learned
from .serializer_columns import represented
from .undecodable_values import UNDECODABLE, is_undecodable, salvaged_rows
from .uris import Address

logger = logging.getLogger("mcp_django")
Renderer = Callable[[Any], Any]
# Relations that the exposure's serializer follows are learned under this name, for all of its columns.
SERIALIZER: Final = ""
# Maximum number of joins for labels, because databases limit the tables of one query. Further labels cost queries.
MAX_JOINS: Final = 20
# The values that were read, one sequence for each column.
Columns = list[Sequence[Any]]
NO_LABELS: Final[Mapping[str, str | None]] = MappingProxyType({})


@dataclass(slots=True)
class Page:
    """A page of rows as read: JSON rows, ``names`` of columns, sort values ``keys``, whether there are ``more``."""

    names: list[str]
    rows: list[list[Any]]
    keys: list[tuple[Any, ...]]
    more: bool
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of the rows to read: the position of its values in the tuples, and what renders them as JSON."""

    column: Column
    position: int
    label: int | None
    renderer: Renderer | None
    is_file: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of the rows to read: paths of the columns, and positions of the primary key, sort values and cells."""

    names: tuple[str, ...]
    paths: tuple[str, ...]
    pk: tuple[int, ...]
    keys: tuple[int, ...]
    cells: tuple[Cell, ...]
    has_computed: bool


@lru_cache(maxsize=2048)
def layout_of(
    exposure: ModelExposure,
    columns: tuple[Column, ...],
    ordering: tuple[Any, ...],
    joins: tuple[str | None, ...],
    text_limit: int | None,
) -> Layout:
    """Return the layout of the rows to read for a page; ``joins`` are the paths of the labels that a join reads."""
    paths: dict[str, int] = {}

    def place(path: str) -> int:
        return paths.setdefault(path, len(paths))

    pk = tuple(place(part.attname) for part in exposure.opts.pk_fields)
    cells = []
    for column, join in zip(columns, joins, strict=True):
        position = 0
        label = place(join) if join is not None else None
        if column.kind in ("field", "relation", "reverse") and column.name != exposure.opts.pk.name:
            position = place(column.path)
        elif column.kind == "generic":
            position, label = (place(path) for path in generic_paths(column.field))
        is_file = column.is_file() and column.name != exposure.opts.pk.name
        cells.append(Cell(column, position, label, _renderer(exposure, column, text_limit), is_file))
    keys = tuple(map(place, key_names(len(ordering))))
    names = tuple(column.name for column in columns)
    has_computed = any(column.kind == "computed" for column in columns)
    return Layout(names, tuple(paths), pk, keys, tuple(cells), has_computed)


def _renderer(exposure: ModelExposure, column: Column, limit: int | None) -> Renderer | None:
    if column.kind in ("many", "reverse", "generic"):
        # Their values are JSON already.
        return None
    if column.name == exposure.opts.pk.name and len(exposure.opts.pk_fields) > 1:
        return pk_text
    hint = f'use get_record fields=["{column.name}"]'
    places = getattr(column.field, "decimal_places", None) if column.is_guarded else None
    if places is not None:
        # SQLite knows the decimal places of columns, but not of expressions.
        return lambda value: render(trimmed(value, places))
    if column.kind in ("field", "relation"):
        return field_renderer(column.field, limit, hint)
    return partial(render, limit=limit, hint=hint)


@lru_cache(maxsize=2048)
def needs_instances(columns: tuple[Column, ...]) -> bool:
    """Return whether reading rows with these columns takes model instances rather than tuples."""
    return any(column.by_instance or column.kind in ("computed", "serialized") for column in columns)


def read_page(query: PageQuery) -> Page:
    """Read a page; raise ``ToolError`` for one that does not begin after the last row of the page before it."""
    page = read_instances(query) if needs_instances(query.columns) else read_tuples(query)
    if query.after is not None and query.after in page.keys:
        raise ToolError(REPEATED)
    return page


# Tuples


def read_tuples(query: PageQuery) -> Page:
    """Read a page of plain columns."""
    request = query.model.request
    exposure = query.model.exposure
    joins = [joined_label(request, column) if column.kind == "relation" else None for column in query.columns]
    layout = layout_of(exposure, query.columns, query.ordering, tuple(joins), query.text_limit)
    queryset = None if exposure.options.has_stable_queryset else exposure.get_queryset(request)
    using = queryset.db if queryset is not None else str(exposure.model._default_manager.db)
    page_key, params = query.compiled_key(using)
    shape = shape_of(queryset, using) if queryset is not None and page_key is not None else None
    is_kept = page_key is not None and (queryset is None or shape is not None)
    key = (exposure, using, layout.paths, page_key) if is_kept else None
    values = [*params, *shape.values] if shape is not None else params

    def base() -> QuerySet[Any]:
        if queryset is None:
            return exposure.get_queryset(request)
        return queryset

    def tuples(rows: QuerySet[Any]) -> QuerySet[Any]:
        # Rows that are sorted by a column of a related row have that row, so their joins need not be outer joins.
        sorted_by = {name for key in query.ordering for name in ways_to(key.path)}
        keys = [column.path for column in query.columns if column.path.startswith(f"{column.name}__")]
        keys += [column.path for column in query.columns if column.through]
        followed = {name for path in (*joins, *keys) if path is not None for name in ways_to(path)}
        return with_labels(plain_rows(rows), layout.paths, followed - sorted_by)

    def select(rows: QuerySet[Any]) -> CompiledQuery:
        return compile_values(tuples(rows), using)

    def segments() -> Iterator[Columns]:
        """Yield the columns of each segment of the page."""
        if is_on():
            for compiled in query.compiled(base, shape, key, params, select, using):
                yield compiled().columns(using, values)
        else:
            for rows in query.rows(base()):
                yield list(zip(*tuples(rows), strict=True))

    found: Columns = []
    try:
        for read in segments():
            if not found:
                found = read
            elif read:
                found = [[*column, *more] for column, more in zip(found, read, strict=True)]
            if found and len(found[0]) > query.limit:
                break
    except Exception as error:
        if not is_undecodable(error):
            raise
        return read_instances(query)
    return _PageBuilder(query.model, layout, found, (), query.limit).page()


# Instances


def plain_rows(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return rows to read as a plain Django queryset, which reads only the columns that are asked for."""
    return rows if type(rows) is QuerySet else QuerySet(rows.model, rows.query, rows._db)  # type: ignore[attr-defined]


def read_instances(query: PageQuery) -> Page:
    """Read a page as instances, whatever its columns."""
    request = query.model.request
    exposure = query.model.exposure
    layout = layout_of(exposure, query.columns, query.ordering, (None,) * len(query.columns), query.text_limit)
    queryset = exposure.get_queryset(request)
    (needed, loaded) = _instance_loader(query, layout)

    def rows() -> Iterator[QuerySet[Any]]:
        for rows in query.rows(queryset):
            if exposure.options.reads_keys_first:
                # Find the rows by keys first, so that the database computes the columns of these rows only.
                order: Any = rows.query.order_by
                keys = list(rows.values_list("pk", flat=True))
                rows = query.with_values(queryset).filter(pk__in=keys).order_by(*order)
            yield loaded(rows)

    try:
        instances = None if needed is None else _compiled_page(query, queryset, needed, loaded)
        if instances is None:
            instances = list(islice(chain.from_iterable(rows()), query.limit + 1))
    except Exception as error:
        if not is_undecodable(error):
            raise
        computed = (*query.computed, *query.key_names)
        instances = salvaged_rows(rows(), query.with_values(queryset), query.limit + 1, computed)
    read: Columns = [list(map(_getter(path), instances)) for path in layout.paths]
    return _PageBuilder(query.model, layout, read, instances, query.limit).page()


def show_rows(
    model: ModelAccess,
    rows: Sequence[Model],
    columns: tuple[Column, ...],
    text_limit: int | None = None,
    labels: Mapping[str, str | None] = NO_LABELS,
) -> Page:
    """Turn model instances that were read into a page of JSON rows. Text is cut only if there is a ``text_limit``.

    ``labels`` are labels that are known already, by the path of their column; they require that there is only one row.
    """
    joins: list[str | None] = [None] * len(columns)
    if labels:
        paths = [joined_label(model.request, column) if column.kind == "relation" else None for column in columns]
        joins = [path if path in labels else None for path in paths]
    layout = layout_of(model.exposure, columns, (), tuple(joins), text_limit)
    read: Columns = [[labels[path]] if path in labels else list(map(_getter(path), rows)) for path in layout.paths]
    return _PageBuilder(model, layout, read, rows, len(rows)).page()


def _instance_loader(query: PageQuery, layout: Layout) -> tuple[Hashable, Callable[[QuerySet[Any]], QuerySet[Any]]]:
    """Return a key, and a function that reads rows as instances with all that their columns need, in a few queries.

    The key is what the SQL depends on, None if the function takes more than one query.
    """
    request = query.model.request
    exposure = query.model.exposure
    columns = query.columns
    ask = exposure.get_list_select_related
    followed: Any = call_hook(exposure.label, "get_list_select_related", ask, request, default=False)
    paths = {path.rpartition("__")[0] for path in layout.paths if "__" in path}
    # The paths that this app follows by itself, not because the project says so.
    relations: set[str] = set()
    if followed and followed is not True:
        paths.update(followed)
    elif not followed:
        for column in columns:
            if column.through:
                relations.update(ways_to(column.path))
            elif column.kind == "relation" and is_joinable(column.field):
                paths.add(column.name)
                if "__" not in column.name:
                    relations.add(column.name)
    if followed is not True:
        learnt = learned(exposure, {SERIALIZER if column.kind == "serialized" else column.name for column in columns})
        relations.update(learnt - paths)
        paths.update(learnt)
    shown = query.model.fields
    hidden = [field for field in exposure.opts.concrete_fields if field.name not in shown]
    left = [field.attname for field in hidden if is_sensitive(field.name, field.model)]
    many = [column.name for column in columns if column.kind == "computed" and column.field is not None]

    def loaded(rows: QuerySet[Any]) -> QuerySet[Any]:
        if followed is True:
            rows = rows.select_related()
        if many:
            rows = rows.prefetch_related(*many)
        # The sort values as stored are no fields.
        rows = with_loaded(rows, {*layout.paths, *paths}.difference(query.key_names))
        if paths:
            rows = with_related(rows, paths, relations)
        return rows.defer(*left) if left else rows

    key = followed is True, layout.paths, frozenset(paths), frozenset(relations), tuple(left)
    return None if many else key, loaded


def _compiled_page(query: PageQuery, queryset: QuerySet[Any], needed: Hashable, loaded: Any) -> list[Model] | None:
    """Read a page of rows as instances by compiled queries; None without such a query, or if a value is broken."""
    using = queryset.db
    key, params = query.compiled_key(using)
    shape = shape_of_instances(queryset, using) if key is not None else None
    if shape is None:
        return None
    key = ("instances", query.model.exposure, using, needed, key)
    values = [*params, *shape.values]

    def select(rows: QuerySet[Any]) -> CompiledQuery:
        return compiled_query(loaded(rows).query, using)

    found: list[Model] = []
    for compiled in query.compiled(lambda: queryset, shape, key, params, select, using):
        read = compiled().instances(using, values, queryset)
        if read is None:
            return None
        found += read
        if len(found) > query.limit:
            break
    return found[: query.limit + 1]


@lru_cache(maxsize=4096)
def _getter(path: str) -> Callable[[Any], Any]:
    if "__" not in path:
        return attrgetter(path)
    names = path.split("__")

    def follow(row: Any) -> Any:
        for name in names:
            try:
                row = getattr(row, name) if row is not None else None
            except ObjectDoesNotExist:
                return None
            except Exception as error:
                if not is_undecodable(error):
                    raise
                return UNDECODABLE
        return row

    return follow


# Pages as JSON


class _PageBuilder:
    """Makes JSON of the rows that were read for a page; there may be one more than it shows."""

    def __init__(
        self,
        model: ModelAccess,
        layout: Layout,
        read: Columns,
        instances: Sequence[Any],
        limit: int,
    ) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.layout = layout
        self.more = bool(read) and len(read[0]) > limit
        self.read = [values[:limit] for values in read] if self.more else read
        self.instances = instances[:limit]
        # Notes to the caller, each with the name of its column.
        self.notes: dict[str, str] = {}
        # Relations that the code behind a column followed, by column name.
        self.followed: dict[str, set[str]] = {}
        self.functions: Mapping[str, Callable[[Any], Any]] = {}
        self.shown: list[Any] | None = None

    def page(self) -> Page:
        """Return the page."""
        layout = self.layout
        read = self.read
        names = list(self.layout.names)
        if not read or not read[0]:
            return Page(names, [], [], self.more)
        self.request.mcp.record.rows_read += len(read[0])
        pks = [read[position] for position in layout.pk]
        self.pks = pks[0] if len(pks) == 1 else list(zip(*pks, strict=True))
        if self.instances and layout.has_computed:
            listing = self.exposure.get_listing(self.request)
            self.instances = listing.prepared(self.instances)
            self.functions = listing.functions()
        stored = [(cell.column.name, cell.renderer, self.values(cell)) for cell in layout.cells]
        cells = []
        for cell, (values, failed) in zip(layout.cells, render_columns(stored), strict=True):
            if failed:
                self.note_failure(cell.column)
            cells.append(self.finished(cell, values) if cell.column.kind == "relation" or cell.is_file else values)
        keys = list(zip(*[read[position] for position in layout.keys], strict=True))
        if self.followed:
            learn(self.exposure, self.followed)
        notes = sorted(self.notes, key=lambda text: names.index(self.notes[text]))
        return Page(names, list(map(list, zip(*cells, strict=True))), keys, self.more, notes)

    def values(self, cell: Cell) -> Sequence[Any]:
        """Return one column of the rows that were read, with its values ready to be rendered as JSON."""
        column = cell.column
        kind = cell.column.kind
        if kind != "relation" and column.name == self.exposure.opts.pk.name:
            return self.pks
        if kind in ("many", "reverse"):
            keys = self.pks if kind == "many" else self.read[cell.position]
            listed, cut = linked_values(self.request, column.field, keys)
            if cut:
                self.notes[f"{column.name} lists at most {MAX_RELATED}"] = column.name
            return listed
        if kind == "generic":
            assert cell.label is not None
            return generic_values(self.request, column.field, self.read[cell.position], self.read[cell.label])
        if kind == "computed":
            followed = self.followed.setdefault(column.name, set())
            computed, one_by_one = each_row(self.instances, partial(self.compute, column), followed)
            if one_by_one:
                note = f"{column.name} needs a query for each row: leave it out of fields for a faster page"
                self.notes[note] = column.name
            is_empty = bool(computed) and computed.count(None) == len(computed)
            if is_empty and self.exposure.get_listing(self.request).fills_column(column.name):
                note = f"{column.name} is null in each row: the admin's list may fill it in its changelist_view"
                self.notes.setdefault(note, column.name)
            return computed
        if kind == "serialized":
            if self.shown is None:
                followed = self.followed.setdefault(SERIALIZER, set())
                self.shown = represented(self.request, self.exposure, self.instances, followed)
            return [shown.get(column.name) for shown in self.shown]
        if kind == "field" and column.by_instance and not column.through:
            return [as_written(column.field, row) for row in self.instances]
        return self.read[cell.position]

    def note_failure(self, column: Column) -> None:
        self.notes[f"{column.name}: a value could not be computed and is null"] = column.name

    def compute(self, column: Column, row: Any) -> Any:
        """Read a computed column from a row; return None where the project's code has no value or fails."""
        assert column.compute is not None
        compute = self.functions.get(column.name, column.compute)
        try:
            value = compute(row)
            if value is not None and getattr(compute, "boolean", False):
                return bool(value)
            return value
        except ObjectDoesNotExist:
            # A related row does not exist.
            return None
        except Exception as error:
            # The admin's page shows nothing for a read-only field that finds no attribute or cannot make its value.
            if self.exposure.get_listing(self.request).shows_nothing(column.name, row, error):
                return None
            logger.warning("The column %s of %s failed", column.name, self.exposure.label, exc_info=True)
            self.note_failure(column)
            return None

    def finished(self, cell: Cell, values: Sequence[Any]) -> list[Any]:
        """Finish a column of the rows that were read: files become URIs, foreign keys ``[key, label]`` pairs."""
        if cell.is_file:
            address = Address(self.model)
            places = [address.file(pk, cell.column.name) for pk in self.pks]
            return [place if name else None for place, name in zip(places, values, strict=True)]
        stored = self.read[cell.position]
        if cell.label is not None:
            read = self.read[cell.label]
            labels: Sequence[Any] | None = texts(read, MAX_LABEL)
            if labels is None:
                labels = [None if text is None or text is UNDECODABLE else clean_text(text, MAX_LABEL) for text in read]
        else:
            found = self.loaded_labels(cell.column, stored)
            if found is None:
                found = labels_for(self.request, cell.column.field, stored)
            labels = [found.get(key) for key in stored]
        return [None if key is None else [key, label] for key, label in zip(values, labels, strict=True)]

    def loaded_labels(self, column: Column, keys: Sequence[Any]) -> dict[Any, Any] | None:
        """Return labels for related rows that row reading loaded with the page, if the caller may see all of these."""
        related = (
            self.model.access.exposure_of(column.field.related_model) if self.instances and not column.through else None
        )
        if related is None or not has_every_row(related):
            return None
        relation = column.field
        loaded: dict[Any, Any] = {}
        for row, key in zip(self.instances, keys, strict=True):
            if key is not None:
                if not relation.is_cached(row):
                    return None
                loaded.setdefault(key, relation.get_cached_value(row))
        there = {key: target for key, target in loaded.items() if target is not None}
        return dict(zip(there, labels_of(related, list(there.values())), strict=True))


# One row


@dataclass(frozen=True, slots=True)
class FoundRow:
    """One row read by its primary key, and the labels that a join read with it, by the path of their column."""

    row: Model
    labels: Mapping[str, str | None]


def find_row(model: ModelAccess, pk: Any) -> FoundRow:
    """Read one row by its primary key, with the labels of the rows to which its foreign keys point.

    It comes from a compiled query, if these are on and the exposure's rows are all rows of the table. Otherwise the
    exposure's own queryset gives it, which may have annotations and classes that a compiled query does not know.
    """
    request = model.request
    exposure = model.exposure
    manager: Any = exposure.model._default_manager
    if not is_on() or not has_every_row(exposure) or manager._queryset_class is not QuerySet:
        return FoundRow(whole_row(model, pk), {})
    using = str(manager.db)
    try:
        params = key_params(exposure.opts, parse_pk(exposure, pk), using)
    except ToolError:
        raise NotFound from None
    columns = columns_of(exposure, model.fields)
    names = [field.attname for field in exposure.opts.concrete_fields]
    labels = [joined_label(request, column) for column in columns if column.kind == "relation"]
    joins = tuple([label for label in labels if label is not None][:MAX_JOINS])

    def build() -> CompiledQuery:
        rows = exposure.get_queryset(request).filter(by_key(exposure.opts)).order_by()
        ways = [name for join in joins for name in ways_to(join)]
        return compile_values(with_labels(rows, [*names, *joins], ways), using)

    try:
        found = cached_query((exposure, using, "row", joins), build).run(using, params)
    except Exception as error:
        if not is_undecodable(error):
            raise
        found = []
    if not found:
        return FoundRow(whole_row(model, pk), {})
    row = exposure.model.from_db(using, names, found[0][: len(names)])
    if not model.may_row("view", row):
        raise NotFound
    return FoundRow(row, dict(zip(joins, found[0][len(names) :], strict=True)))


def whole_row(model: ModelAccess, pk: Any) -> Model:
    """Read one row by its primary key from the exposure's own queryset, or as much of the row as can be decoded."""
    try:
        return model.get_row(pk)
    except Unreadable:
        exposure = model.exposure
        rows = exposure.get_queryset(model.request).filter(pk=parse_pk(exposure, pk))
        row = next(iter(salvaged_rows([rows.order_by()], rows, 1)), None)
        if row is None or not model.may_row("view", row):
            raise NotFound from None
        return row

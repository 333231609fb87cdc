"""One page of rows, by the shortest of three roads that give the same rows.

A page of plain columns is read as tuples: from a plan that was compiled before, where the exposure's rows have a shape
(:mod:`mcp_django.orm.shapes`, where they are not the same for all callers) and the filters have one SQL for all values;
otherwise from SQL compiled for this call. A page
with a computed column, or of an exposure with its own serializer, is read as instances.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, Literal

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import F, Model, QuerySet

from ..context.request import Exposure, MCPRequest
from ..runtime.hooks import asked
from ..schema.jsonable import clean_text
from ..sensitive import is_sensitive
from .access import has_every_row, related_exposure, visible_fields
from .columns import Column, field_renderer, pk_text, render, render_column, represented, trimmed
from .conditions import condition_shape, is_plannable
from .instances import InstancePlan, compile_instances, instances_of, shape_of_instances
from .kinds import is_joinable, kind_of
from .managers import with_loaded
from .pagination import Segment, segment_values
from .plans import Plan, cached_plan, compile_plan
from .prefetch import each_row, learn, learned
from .queries import (
    PageQuery,
    matching_rows,
    params_of,
    rows_of,
    segment_rows,
    segments_of,
    slots_of,
    sorted_rows,
    using_of,
)
from .relations import (
    MAX_LABEL,
    MAX_RELATED,
    generic_paths,
    generic_values,
    joined_label,
    label_of,
    label_relations,
    labels_for,
    linked_values,
    ways_to,
    with_labels,
    with_related,
)
from .rendering import texts
from .replaced import as_written, is_replaced, plain_rows
from .shapes import shape_of, with_slots
from .unreadable import LOST, is_no_value, is_unreadable, salvaged_columns, salvaged_keys, salvaged_rows
from .uris import row_uri

logger = logging.getLogger("mcp_django")
Road = Literal["plan", "tuples", "instances"]
Renderer = Callable[[Any], Any]
# What follows relations in the name of all columns that the exposure's serializer makes.
SERIALIZER: Final = ""
# Values as they were read, by the column.
Columns = list[Sequence[Any]]


@dataclass(slots=True)
class Page:
    """Rows as JSON values, in the order of ``names``; ``keys`` are their sort values, ``more`` tells of a next page."""

    names: list[str]
    rows: list[list[Any]]
    keys: list[tuple[Any, ...]]
    more: bool
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a column's values stand in the tuples that were read, and what makes JSON of them."""

    column: Column
    position: int
    label: int | None
    renderer: Renderer


@dataclass(frozen=True, slots=True)
class Layout:
    """What is read for a page: the paths of its columns, and which of them are key, sort values and cells."""

    paths: tuple[str, ...]
    pk: tuple[int, ...]
    keys: tuple[int, ...]
    cells: tuple[Cell, ...]


@lru_cache(maxsize=2048)
def needs_instances(columns: tuple[Column, ...]) -> bool:
    """Return whether a column takes more than what the database gives."""
    return any(column.by_instance or column.kind in ("computed", "serialized") for column in columns)


def read_page(request: MCPRequest, query: PageQuery, road: Road | None = None) -> Page:
    """Read a page; ``road`` is for tests, which compare them.

    Raises:
        ToolError: the database has no such value as a filter names.
    """
    if road is None:
        own = needs_instances(query.columns) or any(
            is_replaced(getattr(key.field, "model", None), key.field) for key in query.ordering
        )
        road = "instances" if own else "plan" if _is_planned(request, query) else "tuples"
    if road == "instances":
        return read_instances(request, query)
    joins = tuple(joined_label(request, column) if column.kind == "relation" else None for column in query.columns)
    layout = _layout(query.exposure, query.columns, query.ordering, joins, query.text_limit)
    try:
        columns = _read_columns(request, query, layout, joins, road)
    except Exception as error:
        if not is_unreadable(error):
            raise
        rows = sorted_rows(query, query.exposure.get_queryset(request))
        keys = salvaged_keys(rows_of(request, query, rows), query.limit + 1)
        columns = salvaged_columns(rows, keys, layout.paths)
    return _assemble(request, query, layout, columns, [])


def _is_planned(request: MCPRequest, query: PageQuery) -> bool:
    """Return whether what the caller asks for has one SQL for all values."""
    planned = not query.search and not query.is_guarded and all(map(is_plannable, query.conditions))
    return planned and not query.exposure.narrows_without_search(request)


def _shape_of_page(query: PageQuery) -> tuple[Any, ...]:
    shapes = tuple(map(condition_shape, query.conditions))
    return shapes, tuple((key.path, key.descending, key.nulls_last) for key in query.ordering), query.limit


# Tuples


@lru_cache(maxsize=2048)
def _layout(
    exposure: Exposure,
    columns: tuple[Column, ...],
    ordering: tuple[Any, ...],
    joins: tuple[str | None, ...],
    text_limit: int | None,
) -> Layout:
    paths: dict[str, int] = {}

    def place(path: str) -> int:
        return paths.setdefault(path, len(paths))

    pk = tuple(place(part.attname) for part in exposure.opts.pk_fields)
    cells = []
    for column, join in zip(columns, joins, strict=True):
        position, label = 0, place(join) if join is not None else None
        if column.kind in ("field", "relation", "reverse") and column.name != exposure.opts.pk.name:
            position = place(column.path)
        elif column.kind == "generic":
            position, label = (place(path) for path in generic_paths(column.field))
        cells.append(Cell(column, position, label, _renderer(exposure, column, text_limit)))
    keys = tuple(place(key.path) for key in ordering)
    return Layout(tuple(paths), pk, keys, tuple(cells))


def _renderer(exposure: Exposure, column: Column, limit: int | None) -> Renderer:
    if column.name == exposure.opts.pk.name and len(exposure.opts.pk_fields) > 1:
        return pk_text
    hint = f'use get_record fields=["{column.name}"]'
    places = getattr(column.field, "decimal_places", None) if column.is_guarded else None
    if places is not None:
        # SQLite knows the places of columns alone.
        return lambda value: render(trimmed(value, places))
    if column.kind in ("field", "relation"):
        return field_renderer(column.field, limit, hint)
    return partial(render, limit=limit, hint=hint)


def _read_columns(
    request: MCPRequest, query: PageQuery, layout: Layout, joins: tuple[str | None, ...], road: Road
) -> Columns:
    exposure = query.exposure
    queryset = None if exposure.has_stable_queryset else exposure.get_queryset(request)
    using = using_of(exposure, queryset)
    params = params_of(query, using)
    own = shape_of(queryset, using) if queryset is not None and road == "plan" else None
    is_kept = road == "plan" and (queryset is None or own is not None)

    @cache
    def matching() -> QuerySet[Any]:
        base = queryset if queryset is not None else exposure.get_queryset(request)
        base = with_slots(base, len(params)) if own is not None else base
        return matching_rows(request, query, base, slots_of(params))

    def plan_of(segment: Segment) -> Plan:
        def build() -> Plan:
            rows = segment_rows(matching(), query, segment, slots_of(params), using)
            # Rows that are sorted by what a relation leads to have it.
            sorted_by = {name for key in query.ordering for name in ways_to(key.path)}
            keys = [column.path for column in query.columns if column.path.startswith(f"{column.name}__")]
            keys += [column.path for column in query.columns if column.through]
            followed = {name for path in (*joins, *keys) if path is not None for name in ways_to(path)}
            return compile_plan(with_labels(plain_rows(rows), layout.paths, followed - sorted_by), using)

        return cached_plan((*key, segment), build) if is_kept else build()

    key = (exposure, using, layout.paths, own and own.key, *_shape_of_page(query))
    values = [*params, *own.values] if own is not None else params
    return _read_segments(query, layout, using, lambda segment: plan_of(segment).columns(using, values))


def _read_segments(query: PageQuery, layout: Layout, using: str, read_one: Callable[[Segment], Columns]) -> Columns:
    """Return what the segments of the page hold, one after the other until there is enough."""
    found: Columns = []
    for segment in segments_of(query, using):
        read = read_one(segment)
        for position in (layout.keys[index] for index in segment_values(segment, query.ordering) if read):
            # SQLite's driver makes nothing of a date that is none.
            if None in read[position]:
                read[position] = [LOST if value is None else value for value in read[position]]
        both = found and read
        found = [[*first, *more] for first, more in zip(found, read, strict=True)] if both else found or read
        if found and len(found[0]) > query.limit:
            break
    return found


# Instances


def read_instances(request: MCPRequest, query: PageQuery) -> Page:
    """Read a page as instances, whatever its columns."""
    exposure = query.exposure
    layout = _layout(exposure, query.columns, query.ordering, (None,) * len(query.columns), query.text_limit)
    queryset, loading = exposure.get_queryset(request), _loading_of(request, exposure, layout, query.columns)

    # A cursor holds what the column holds, whatever an attribute in its place makes of it.
    hidden = {
        f"mcp_key_{number}": key.path
        for number, key in enumerate(query.ordering)
        if is_replaced(getattr(key.field, "model", None), key.field)
    }

    def found() -> Iterator[QuerySet[Any]]:
        for rows in rows_of(request, query, queryset):
            rows = _by_keys(rows, sorted_rows(query, queryset)) if exposure.reads_keys_first else rows
            stored = rows.annotate(**{name: F(path) for name, path in hidden.items()}) if hidden else rows
            yield _loaded(stored, loading)

    try:
        instances = None if hidden or query.guarded else _planned_instances(request, query, queryset, loading)
        if instances is None:
            instances = list(islice(chain.from_iterable(found()), query.limit + 1))
    except Exception as error:
        if not is_unreadable(error):
            raise
        instances = salvaged_rows(found(), queryset, query.limit + 1)
    read: Columns = [list(map(_getter(path), instances)) for path in layout.paths]
    if hidden:
        names = [f"mcp_key_{number}" for number in range(len(query.ordering))]
        positions = [
            len(read) + list(hidden).index(name) if name in hidden else position
            for name, position in zip(names, layout.keys, strict=True)
        ]
        read += [[getattr(row, name, LOST) for row in instances] for name in hidden]
        layout = replace(layout, keys=tuple(positions))
    return _assemble(request, query, layout, read, instances)


def _by_keys(rows: QuerySet[Any], queryset: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows of a page from a query that finds them by their keys, and computes their columns alone."""
    found: Any = rows.query
    return queryset.filter(pk__in=list(rows.values_list("pk", flat=True))).order_by(*found.order_by)


def show_row(
    request: MCPRequest,
    exposure: Exposure,
    row: Model,
    columns: tuple[Column, ...],
    labels: Mapping[str, str | None],
    text_limit: int | None = None,
) -> Page:
    """Return the one row that an instance is, as a page; ``labels`` are known by their path.

    No text is cut but where there is a ``text_limit``.
    """
    joins = (joined_label(request, column) if column.kind == "relation" else None for column in columns)
    known = tuple(path if path in labels else None for path in joins)
    layout = _layout(exposure, columns, (), known, text_limit)
    read: Columns = [[labels[path] if path in labels else _getter(path)(row)] for path in layout.paths]
    return _assemble(request, PageQuery(exposure, columns, (), 1), layout, read, [row])


def show_rows(
    request: MCPRequest,
    exposure: Exposure,
    rows: Sequence[Model],
    columns: tuple[Column, ...],
    text_limit: int | None,
) -> Page:
    """Return rows that were loaded as instances as a page."""
    layout = _layout(exposure, columns, (), (None,) * len(columns), text_limit)
    read: Columns = [list(map(_getter(path), rows)) for path in layout.paths]
    return _assemble(request, PageQuery(exposure, columns, (), len(rows)), layout, read, rows)


@dataclass(frozen=True, slots=True)
class _Loading:
    """What is loaded with instances: rows that columns follow, ``everything`` or ``paths``, and what is left out.

    ``relations`` are those of the paths that this app follows by itself; ``many`` are loaded by queries of their own.
    """

    everything: bool
    paths: frozenset[str]
    relations: frozenset[str]
    many: tuple[str, ...]
    needed: frozenset[str]
    left: tuple[str, ...]


def _loading_of(request: MCPRequest, exposure: Exposure, layout: Layout, columns: Sequence[Column]) -> _Loading:
    """Return what to load so that no column costs a query for each row."""
    ask = exposure.get_list_select_related
    followed: Any = asked(exposure.label, "get_list_select_related", ask, request, default=False)
    paths = {path.rpartition("__")[0] for path in layout.paths if "__" in path}
    relations: set[str] = set()
    if followed and followed is not True:
        paths.update(followed)
    elif not followed:
        own = [column for column in columns if not column.through]
        names = {column.name for column in own if column.kind == "relation" and is_joinable(column.field)}
        relations = {name for name in names if "__" not in name}
        relations.update(name for column in columns if column.through for name in ways_to(column.path))
        paths.update(names)
    if followed is not True:
        names = {SERIALIZER if column.kind == "serialized" else column.name for column in columns}
        learnt = learned(exposure, names)
        relations.update(learnt - paths)
        paths.update(learnt)
    shown = visible_fields(request, exposure)
    return _Loading(
        everything=followed is True,
        paths=frozenset(paths),
        relations=frozenset(relations),
        many=tuple(column.name for column in columns if column.kind == "computed" and column.field is not None),
        needed=frozenset({*layout.paths, *paths}),
        left=tuple(attname for name, attname in _sensitive_fields(exposure) if name not in shown),
    )


@lru_cache(maxsize=1024)
def _sensitive_fields(exposure: Exposure) -> tuple[tuple[str, str], ...]:
    return tuple(
        (field.name, field.attname) for field in exposure.opts.concrete_fields if is_sensitive(field.name, field.model)
    )


def _loaded(rows: QuerySet[Any], loading: _Loading) -> QuerySet[Any]:
    """Return the rows with what is to be loaded."""
    if loading.everything:
        rows = rows.select_related()
    if loading.many:
        rows = rows.prefetch_related(*loading.many)
    rows = with_loaded(rows, set(loading.needed))
    if loading.paths:
        rows = with_related(rows, loading.paths, loading.relations)
    return rows.defer(*loading.left) if loading.left else rows


def _planned_instances(
    request: MCPRequest, query: PageQuery, queryset: QuerySet[Any], loading: _Loading
) -> list[Model] | None:
    """Return the instances of the page from a plan; None where there can be none, or a value cannot be read."""
    using = queryset.db
    own = shape_of_instances(queryset, using) if not loading.many and _is_planned(request, query) else None
    if own is None:
        return None
    params = params_of(query, using)

    def build(segment: Segment) -> InstancePlan:
        base = with_slots(queryset, len(params))
        rows = matching_rows(request, query, base, slots_of(params))
        return compile_instances(_loaded(segment_rows(rows, query, segment, slots_of(params), using), loading), using)

    key = (InstancePlan, query.exposure, using, own.key, loading, *_shape_of_page(query))
    found: list[Model] = []
    for segment in segments_of(query, using):
        plan = cached_plan((*key, segment), partial(build, segment))
        read = instances_of(plan, using, [*params, *own.values], queryset)
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
        return row

    return follow


# Assembly


@dataclass(slots=True)
class _Work:
    """What the columns of one page are made of."""

    request: MCPRequest
    exposure: Exposure
    columns: Columns
    pks: Sequence[Any]
    instances: Sequence[Any]
    notes: list[str] = field(default_factory=list)
    shown: list[Any] | None = None
    followed: dict[str, set[str]] = field(default_factory=dict)
    functions: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


def _assemble(
    request: MCPRequest, query: PageQuery, layout: Layout, columns: Columns, instances: Sequence[Any]
) -> Page:
    """Return the page of what was read by the column, one row more than shown if there is one."""
    more = bool(columns) and len(columns[0]) > query.limit
    if more:
        columns, instances = [values[: query.limit] for values in columns], instances[: query.limit]
    names = [column.name for column in query.columns]
    if not columns or not columns[0]:
        return Page(names, [], [], more)
    request.mcp.record.rows_read += len(columns[0])
    pks = [columns[position] for position in layout.pk]
    work = _Work(request, query.exposure, columns, pks[0] if len(pks) == 1 else list(zip(*pks, strict=True)), instances)
    if instances and any(column.kind == "computed" for column in query.columns):
        work.instances = query.exposure.get_listed_rows(request, instances)
        work.functions = query.exposure.get_list_functions(request)
    cells = [_values(work, cell) for cell in layout.cells]
    keys = list(zip(*(columns[position] for position in layout.keys), strict=True))
    if work.followed:
        learn(query.exposure, work.followed)
    return Page(names, list(map(list, zip(*cells, strict=True))), keys, more, work.notes)


def _values(work: _Work, cell: Cell) -> list[Any]:
    column = cell.column
    if column.kind == "relation":
        return _relation(work, cell)
    if column.name == work.exposure.opts.pk.name:
        return _rendered(work, cell, work.pks)
    if column.kind in ("many", "reverse"):
        keys = work.pks if column.kind == "many" else work.columns[cell.position]
        listed, cut = linked_values(work.request, column.field, keys)
        if cut:
            work.notes.append(f"{column.name} lists {MAX_RELATED} at most")
        return listed
    if column.kind == "generic":
        assert cell.label is not None
        return generic_values(work.request, column.field, work.columns[cell.position], work.columns[cell.label])
    if column.kind == "computed":
        followed = work.followed.setdefault(column.name, set())
        computed, one_by_one = each_row(work.instances, partial(_compute, work, column), followed)
        if one_by_one:
            work.notes.append(f"{column.name} makes a query for each row: leave it out of fields for a quicker page")
        return _rendered(work, cell, computed)
    if column.kind == "serialized":
        if work.shown is None:
            followed = work.followed.setdefault(SERIALIZER, set())
            work.shown = represented(work.request, work.exposure, work.instances, followed)
        return _rendered(work, cell, [shown.get(column.name) for shown in work.shown])
    own = column.by_instance and not column.through
    read = [as_written(column.field, row) for row in work.instances] if own else work.columns[cell.position]
    values = _rendered(work, cell, read)
    if kind_of(column.field).word in ("file", "image"):
        return [
            f"{row_uri(work.exposure, pk)}/{column.name}" if name else None
            for pk, name in zip(work.pks, values, strict=True)
        ]
    return values


def _rendered(work: _Work, cell: Cell, values: Sequence[Any]) -> list[Any]:
    found, failed = render_column(cell.column.name, cell.renderer, values)
    if failed:
        _note_failure(work, cell.column)
    return found


def _note_failure(work: _Work, column: Column) -> None:
    note = f"{column.name}: a value could not be made and is null"
    if note not in work.notes:
        work.notes.append(note)


def _compute(work: _Work, column: Column, row: Any) -> Any:
    assert column.compute is not None
    compute = work.functions.get(column.name, column.compute)
    try:
        value = compute(row)
        return bool(value) if value is not None and getattr(compute, "boolean", False) else value
    except Exception as error:
        if is_no_value(work.request, work.exposure, column.name, row, error):
            return None
        logger.warning("The column %s of %s failed", column.name, work.exposure.label, exc_info=True)
        _note_failure(work, column)
        return None


def _relation(work: _Work, cell: Cell) -> list[Any]:
    keys = _rendered(work, cell, work.columns[cell.position])
    if cell.label is not None:
        read = work.columns[cell.label]
        labels: Sequence[Any] | None = texts(read, MAX_LABEL)
        if labels is None:
            labels = [None if text is None or text is LOST else clean_text(text, MAX_LABEL) for text in read]
    else:
        found = _loaded_labels(work, cell.column, work.columns[cell.position])
        if found is None:
            found = labels_for(work.request, cell.column.field, work.columns[cell.position])
        labels = [found.get(key) for key in work.columns[cell.position]]
    return [None if key is None else [key, label] for key, label in zip(keys, labels, strict=True)]


def _loaded_labels(work: _Work, column: Column, keys: Sequence[Any]) -> dict[Any, Any] | None:
    """Return the labels of related rows that came with the instances, where every row is the caller's to see."""
    related = related_exposure(work.request, column.field) if not column.through else None
    if not work.instances or related is None or not has_every_row(related) or label_relations(related.model):
        return None
    relation = column.field
    loaded: dict[Any, Any] = {}
    for row, key in zip(work.instances, keys, strict=True):
        if key is not None:
            if not relation.is_cached(row):
                return None
            loaded.setdefault(key, relation.get_cached_value(row))
    return {key: label_of(related, target) for key, target in loaded.items() if target is not None}

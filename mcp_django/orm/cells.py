"""The cells of a page: how the columns of each class are read with the rows, and how they become JSON."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final, cast

import orjson
from django.core.exceptions import ObjectDoesNotExist

from ..exposures.model_exposure import ModelExposure
from ..schema.secrets import clean_text
from .access import ModelAccess
from .aggregates.measures import rounded
from .column_values import as_written, field_renderer, pk_text, render, render_columns, texts, trimmed
from .columns import (
    Column,
    ComputedColumn,
    FieldColumn,
    GenericColumn,
    ManyColumn,
    RelationColumn,
    ReverseColumn,
    SerializedColumn,
)
from .labels import MAX_LABEL, MAX_RELATED, generic_paths, generic_values, labels_for, labels_of, linked_values
from .pagination import key_names
from .prefetch import each_row, learn
from .related_values import AverageColumn
from .serializer_columns import represented
from .undecodable_values import UNDECODABLE, is_undecodable
from .uris import Address

logger = logging.getLogger("mcp_django")
Renderer = Callable[[Any], Any]
# Relations that the exposure's serializer follows are learned under this name, for all of its columns.
SERIALIZER: Final = ""
# Maximum characters of a value in a row that is too large for a result by itself.
LAST_RESORT: Final = 60
# The values that were read, one sequence for each column.
Columns = list[Sequence[Any]]


@dataclass(slots=True)
class Page:
    """A page of rows as read: JSON rows, ``names`` of columns, sort values ``keys``, whether there are ``more``."""

    names: list[str]
    rows: list[list[Any]]
    keys: list[tuple[Any, ...]]
    more: bool
    notes: list[str] = field(default_factory=list)

    def fit(self, limit: int) -> int:
        """Return how many rows have at most ``limit`` characters as JSON: at least one, whose texts are cut for it."""
        if len(orjson.dumps(self.rows)) <= limit:
            return len(self.rows)
        used = 0
        for position, row in enumerate(self.rows):
            used += len(orjson.dumps(row).decode()) + 1
            if used > limit:
                if position == 0:
                    self._cut_first()
                return max(position, 1)
        return len(self.rows)

    def _cut_first(self) -> None:
        """Cut the texts of the first row, which is too long by itself."""
        texts = [orjson.dumps(value).decode() if isinstance(value, (list, dict)) else value for value in self.rows[0]]
        self.rows[0] = [clean_text(text, LAST_RESORT) if isinstance(text, str) else text for text in texts]
        self.notes.append("the row is too long for a result and was cut")


# Cells


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of the rows to read, whose values the database has.

    ``position`` and ``label`` are the places of its values and labels in the tuples, and ``renderer`` renders a value
    as JSON; without one the values are JSON already.
    """

    column: Column
    position: int
    label: int | None
    renderer: Renderer | None
    is_file: bool

    @staticmethod
    def paths(column: Column) -> tuple[str, ...]:
        """Return what the column needs of its row, besides the primary key."""
        return (column.path,)

    @staticmethod
    def renderer_of(column: Column, limit: int | None) -> Renderer | None:
        """Return what renders the column's values as JSON, with texts of at most ``limit`` characters."""
        places = getattr(column.field, "decimal_places", None) if column.is_guarded else None
        if places is not None:
            # SQLite knows the decimal places of columns, but not of expressions.
            return lambda value: render(trimmed(value, places))
        return field_renderer(column.field, limit, _hint(column))

    def values(self, rows: "Rows") -> Sequence[Any]:
        """Return the column's values, ready to be rendered as JSON."""
        return rows.read[self.position]

    def finished(self, rows: "Rows", values: Sequence[Any]) -> Sequence[Any]:
        """Finish the JSON values of a column: files become URIs, foreign keys ``[key, label]`` pairs."""
        if not self.is_file:
            return values
        address = Address(rows.model)
        places = [address.file(pk, self.column.name) for pk in rows.pks]
        return [place if name else None for place, name in zip(places, values, strict=True)]


@lru_cache(maxsize=4096)
def path_reader(path: str) -> Callable[[Any], Any]:
    """Return a function that reads an attribute of a row, or of a related row, such as ``author__name``.

    It gives None where there is no such row, and :data:`UNDECODABLE` where that row cannot be read.
    """
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


class AverageCell(Cell):
    """The average of a column of related rows, as an aggregate shows it."""

    __slots__ = ()

    @staticmethod
    def renderer_of(column: Column, limit: int | None) -> Renderer | None:
        return lambda value: render(rounded(value))


class ReplacedCell(Cell):
    """A column whose attribute the project replaced."""

    __slots__ = ()

    def values(self, rows: "Rows") -> Sequence[Any]:
        field = self.column.field
        relations, _, _ = self.column.path.rpartition("__")
        if not relations:
            return [as_written(field, row) for row in rows.instances]
        related = map(path_reader(relations), rows.instances)
        return [row if row is None or row is UNDECODABLE else as_written(field, row) for row in related]


class CompositeKeyCell(Cell):
    """The primary key of several columns."""

    __slots__ = ()

    @staticmethod
    def paths(column: Column) -> tuple[str, ...]:
        return ()

    @staticmethod
    def renderer_of(column: Column, limit: int | None) -> Renderer | None:
        return pk_text

    def values(self, rows: "Rows") -> Sequence[Any]:
        return rows.pks


class RelationCell(Cell):
    """A foreign key."""

    __slots__ = ()

    def finished(self, rows: "Rows", values: Sequence[Any]) -> Sequence[Any]:
        labels = self._joined(rows) if self.label is not None else self._looked_up(rows)
        return [None if key is None else [key, label] for key, label in zip(values, labels, strict=True)]

    def _joined(self, rows: "Rows") -> Sequence[Any]:
        """Return the labels that a join read with the rows."""
        assert self.label is not None
        read = rows.read[self.label]
        labels: Sequence[Any] | None = texts(read, MAX_LABEL)
        if labels is None:
            return [None if text is None or text is UNDECODABLE else clean_text(text, MAX_LABEL) for text in read]
        return labels

    def _looked_up(self, rows: "Rows") -> Sequence[Any]:
        stored = rows.read[self.position]
        found = self._loaded(rows, stored)
        if found is None:
            found = labels_for(rows.request, self.column.field, stored)
        return [found.get(key) for key in stored]

    def _loaded(self, rows: "Rows", keys: Sequence[Any]) -> dict[Any, Any] | None:
        """Return labels for related rows that row reading loaded with the page, if the caller may see all of these."""
        relation = self.column.field
        if not rows.instances or self.column.through:
            return None
        related = rows.model.access.model_of(relation.related_model)
        if related is None or not related.exposure.options.has_every_row:
            return None
        loaded: dict[Any, Any] = {}
        for row, key in zip(rows.instances, keys, strict=True):
            if key is not None:
                if not relation.is_cached(row):
                    return None
                loaded.setdefault(key, relation.get_cached_value(row))
        there = {key: target for key, target in loaded.items() if target is not None}
        return dict(zip(there, labels_of(related.exposure, list(there.values())), strict=True))


class ManyCell(Cell):
    """The rows that are linked to each row."""

    __slots__ = ()

    @staticmethod
    def paths(column: Column) -> tuple[str, ...]:
        return ()

    @staticmethod
    def renderer_of(column: Column, limit: int | None) -> Renderer | None:
        return None

    def keys(self, rows: "Rows") -> Sequence[Any]:
        """Return the values that the links hold for these rows."""
        return rows.pks

    def values(self, rows: "Rows") -> Sequence[Any]:
        name = self.column.name
        listed, cut = linked_values(rows.request, self.column.field, self.keys(rows))
        if cut:
            rows.notes[f"{name} lists at most {MAX_RELATED}"] = name
        return listed


class ReverseCell(ManyCell):
    """The rows of another model that point to each row, not always by its primary key."""

    __slots__ = ()

    @staticmethod
    def paths(column: Column) -> tuple[str, ...]:
        return (column.path,)

    def keys(self, rows: "Rows") -> Sequence[Any]:
        return rows.read[self.position]


class GenericCell(Cell):
    """A generic foreign key: the content type, and the key as its label."""

    __slots__ = ()

    @staticmethod
    def paths(column: Column) -> tuple[str, ...]:
        return generic_paths(column.field)

    @staticmethod
    def renderer_of(column: Column, limit: int | None) -> Renderer | None:
        return None

    def values(self, rows: "Rows") -> Sequence[Any]:
        assert self.label is not None
        return generic_values(rows.request, self.column.field, rows.read[self.position], rows.read[self.label])


class MadeCell(Cell):
    """What code of the project makes of an instance."""

    __slots__ = ()

    @staticmethod
    def paths(column: Column) -> tuple[str, ...]:
        return ()

    @staticmethod
    def renderer_of(column: Column, limit: int | None) -> Renderer | None:
        return partial(render, limit=limit, hint=_hint(column))


class ComputedCell(MadeCell):
    """What a function makes."""

    __slots__ = ()

    def values(self, rows: "Rows") -> Sequence[Any]:
        name = self.column.name
        followed = rows.followed.setdefault(name, set())
        computed, one_by_one = each_row(rows.instances, partial(self._compute, rows), followed)
        if one_by_one:
            rows.notes[f"{name} needs a query for each row: leave it out of fields for a faster page"] = name
        is_empty = bool(computed) and computed.count(None) == len(computed)
        if is_empty and rows.exposure.get_listing(rows.request).fills_column(name):
            note = f"{name} is null in each row: the admin's list may fill it in its changelist_view"
            rows.notes.setdefault(note, name)
        return computed

    def _compute(self, rows: "Rows", row: Any) -> Any:
        """Read the column from a row; return None where the project's code has no value or fails."""
        column = cast("ComputedColumn", self.column)
        compute = rows.functions.get(column.name, column.compute)
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
            if rows.exposure.get_listing(rows.request).shows_nothing(column.name, row, error):
                return None
            logger.warning("The column %s of %s failed", column.name, rows.exposure.label, exc_info=True)
            rows.note_failure(column)
            return None


class SerializedCell(MadeCell):
    """What the exposure's serializer makes."""

    __slots__ = ()

    def values(self, rows: "Rows") -> Sequence[Any]:
        return [shown.get(self.column.name) for shown in rows.serialized()]


# The class of cells for each class of columns.
CELLS: Final[Mapping[type[Column], type[Cell]]] = {
    FieldColumn: Cell,
    AverageColumn: AverageCell,
    RelationColumn: RelationCell,
    ManyColumn: ManyCell,
    ReverseColumn: ReverseCell,
    GenericColumn: GenericCell,
    ComputedColumn: ComputedCell,
    SerializedColumn: SerializedCell,
}


def _hint(column: Column) -> str:
    return f'use get_record fields=["{column.name}"]'


def _cell_class(exposure: ModelExposure, column: Column) -> type[Cell]:
    if column.name == exposure.opts.pk.name and exposure.opts.is_composite_pk:
        return CompositeKeyCell
    if column.is_replaced:
        return ReplacedCell
    return CELLS[type(column)]


# Layouts


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
        kind = _cell_class(exposure, column)
        label = place(join) if join is not None else None
        places = [place(path) for path in kind.paths(column)]
        position = places[0] if places else 0
        if len(places) > 1:
            label = places[1]
        is_file = column.is_file() and column.name != exposure.opts.pk.name
        cells.append(kind(column, position, label, kind.renderer_of(column, text_limit), is_file))
    keys = tuple(map(place, key_names(len(ordering))))
    names = tuple(column.name for column in columns)
    has_computed = any(column.is_computed for column in columns)
    return Layout(names, tuple(paths), pk, keys, tuple(cells), has_computed)


# Pages


class Rows:
    """The rows that were read for a page, of which it makes JSON; there may be one more than it shows."""

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
        stored = [(cell.column.name, cell.renderer, cell.values(self)) for cell in layout.cells]
        cells = []
        for cell, (values, failed) in zip(layout.cells, render_columns(stored), strict=True):
            if failed:
                self.note_failure(cell.column)
            cells.append(cell.finished(self, values) if cell.is_file or cell.column.is_foreign_key else values)
        keys = list(zip(*[read[position] for position in layout.keys], strict=True))
        if self.followed:
            learn(self.exposure, self.followed)
        notes = sorted(self.notes, key=lambda text: names.index(self.notes[text]))
        return Page(names, list(map(list, zip(*cells, strict=True))), keys, self.more, notes)

    def serialized(self) -> list[Any]:
        """Return what the exposure's serializer makes of each row, made once for all of its columns."""
        if self.shown is None:
            followed = self.followed.setdefault(SERIALIZER, set())
            self.shown = represented(self.request, self.exposure, self.instances, followed)
        return self.shown

    def note_failure(self, column: Column) -> None:
        """Tell the caller that a value of the column is missing."""
        self.notes[f"{column.name}: a value could not be computed and is null"] = column.name

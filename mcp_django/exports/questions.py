"""The questions that become files: rows of a model, page after page, or the groups of an aggregation.

Each page is read as one of ``query_records`` is, so that its rows, columns and values are those that the caller may
see. There is no transaction around them: each row is as it was when its page was read.
"""

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Any, ClassVar, Final

import orjson
from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import AutoField, CharField, DecimalField, IntegerField, QuerySet, TextField, UUIDField

from ..context.databases import Collation, LostDatesAsText
from ..context.request import MCPRequest
from ..exceptions import NotPermitted, ToolError
from ..orm.access import ModelAccess, access_of
from ..orm.aggregates.aggregation import Aggregation
from ..orm.aggregates.asked_measures import AskedMeasure
from ..orm.aggregates.measure_reader import PATH
from ..orm.cells import Page
from ..orm.columns import Column, GenericColumn, ManyColumn, ReverseColumn
from ..orm.conditions import Applied, Condition, Filter
from ..orm.fields import resolve_path
from ..orm.named_filters import Narrowed
from ..orm.ordering import Orderings
from ..orm.pagination import PageQuery
from ..orm.path import Path
from ..orm.query_limits import read_limits
from ..orm.related_values import RelatedValue
from ..orm.row_arguments import RowArguments
from ..orm.row_reading import read_page
from ..orm.tool_arguments import Arguments
from ..orm.uris import Address

# Numbers of rows that are read at a time: the first pages show how long the rows are, and a page of long rows is
# followed by a shorter one.
SIZES: Final = (20, 200, 2_000)
START: Final = 1
# Characters of a page, as JSON: below the first number the next page is longer, above the second it is shorter.
LIGHT: Final = 2_000_000
HEAVY: Final = 8_000_000
# One row of so many is weighed.
WEIGHED: Final = 8
# Number of keys that are read at a time, and the bytes of keys that are kept in memory rather than in a file.
KEYS_AT_ONCE: Final = 10_000
KEYS_IN_MEMORY: Final = 4_000_000
# Share of the parameters of a query that are keys.
KEY_SHARE: Final = 0.5
MOST_PARAMETERS: Final = 4_000
# Maximum number of groups: all are in memory together.
MAX_GROUPS: Final = 50_000
# The arguments of which one makes a question one of aggregate_records.
OF_GROUPS: Final = ("aggregates", "group_by")
# Arguments that mean nothing without these.
ONLY_OF_GROUPS: Final = ("having", "top", "per", "fill")
# What is kept with the arguments, and the beginning of a date or time in the parameters of a query.
SCOPE: Final = "scope"
MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d\b")
OTHER_ROWS: Final = "The rows of {} that the user may see are others now. Make the export again."
NOT_EXPORTED: Final = "Records of {} may not be exported. query_records and aggregate_records show them."


@dataclass(frozen=True, slots=True)
class FileColumn:
    """One column of an answer, and what stands in a file for it: a cell for each of its ``parts``.

    A relation is a list on a page, of a key and a label: ``parts`` are the endings of the titles of their cells.
    ``is_number`` says that its texts are decimals.
    """

    name: str
    parts: tuple[str, ...] = ("",)
    is_number: bool = False

    RELATION: ClassVar = ("", ".label")
    GENERIC: ClassVar = ("", ".label", ".model")

    @classmethod
    def of(cls, name: str, column: Column | None, field: Any = None) -> "FileColumn":
        """Return what stands in a file for a column of this name; ``field`` says of what type a computed value is."""
        parts: tuple[str, ...] = ("",)
        if column is not None:
            field = column.field
            is_pair = isinstance(column, ReverseColumn) and bool(field.one_to_one)
            if column.is_foreign_key or is_pair:
                parts = cls.RELATION
            elif isinstance(column, GenericColumn):
                parts = cls.GENERIC
        return cls(name, parts, isinstance(field, DecimalField))

    @property
    def titles(self) -> list[str]:
        """The titles of its cells."""
        return [f"{self.name}{part}" for part in self.parts]


class UnexportedLabels:
    """The labels of records that the caller may not export, in columns of other records.

    The key in such a column belongs to the record that is exported, and stays. ``models`` are those whose labels are
    left out.
    """

    def __init__(self, model: ModelAccess, columns: Sequence[Column | None]) -> None:
        self.generic: list[int] = []
        self.single: list[int] = []
        self.many: list[int] = []
        found: list[ModelAccess] = []
        for place, column in enumerate(columns):
            if isinstance(column, GenericColumn):
                self.generic.append(place)
                found += model.access.models
            elif column is not None and (column.is_foreign_key or isinstance(column, ManyColumn)):
                related = model.access.model_of(column.field.related_model)
                if related is None or related.may("export"):
                    continue
                found.append(related)
                if column.is_foreign_key:
                    self.single.append(place)
                else:
                    self.many.append(place)
        self.models = sorted({end.exposure.label for end in found if not end.may("export")})

    def left_out(self, rows: list[list[Any]]) -> list[list[Any]]:
        """Return rows without these labels."""
        if not self.models:
            return rows
        return [self._left_out(row) for row in rows]

    def _left_out(self, row: Sequence[Any]) -> list[Any]:
        found = list(row)
        for place in self.single:
            found[place] = _without_label(row[place])
        for place in self.many:
            found[place] = [_without_label(item) for item in row[place] or ()]
        for place in self.generic:
            # The last of its parts is the model.
            if row[place] is not None and row[place][-1] in self.models:
                found[place] = _without_label(row[place])
        return found


class Question:
    """A question whose answer becomes a file: its ``model``, its ``columns``, and its arguments ``given``.

    ``shown`` are the columns of the exposure for the first of ``columns``, None for each that has none. ``notes`` are
    what the caller should know of the answer, once it was read.
    """

    def __init__(
        self, model: ModelAccess, given: Arguments, columns: Sequence[FileColumn], shown: Sequence[Column | None]
    ) -> None:
        self.model = model
        self.given = given
        self.columns = columns
        self.labels = UnexportedLabels(model, shown)
        self.notes: dict[str, None] = {}

    @staticmethod
    def read(model: ModelAccess, given: Arguments) -> "Question":
        """Return the question that arguments ask; raise ``ToolError`` for those that ask none, and ``NotPermitted``
        if the caller may not export what it is about."""
        if not model.may("export"):
            raise NotPermitted(NOT_EXPORTED.format(model.exposure.label))
        if any(name in given for name in OF_GROUPS):
            return GroupsQuestion.of(model, given)
        lost = [name for name in ONLY_OF_GROUPS if name in given]
        if lost:
            raise ToolError(f'"{lost[0]}" needs "aggregates" or "group_by".')
        return RowsQuestion.of(model, given)

    @staticmethod
    def again(request: MCPRequest, kept: Mapping[str, Any]) -> "Question":
        """Return the question of :attr:`kept` arguments, as their caller could ask it now.

        Raises as :meth:`read` does, or ``NotFound`` or ``CallRefused`` if they have no access to the model, and
        ``NotPermitted`` if they would see other rows of it.
        """
        given = Arguments({name: value for name, value in kept.items() if name != SCOPE})
        question = Question.read(access_of(request).get_model(given.get("model")), given)
        if question.scope != kept.get(SCOPE):
            raise NotPermitted(OTHER_ROWS.format(question.model.exposure.label))
        return question

    @property
    def kept(self) -> dict[str, Any]:
        """The arguments as they are kept: the columns are named, so that one that is hidden later is missed."""
        return {**self.given, "model": self.model.exposure.label, SCOPE: self.scope}

    @property
    def scope(self) -> str:
        """A digest of what narrows the rows of the model for the caller, whatever its rows are.

        Times do not count: a project may show what was published until now.
        """
        try:
            sql, params = self.model.exposure.get_queryset(self.model.request).query.sql_with_params()
        except EmptyResultSet:
            return ""
        told = [text for text in map(str, params) if MOMENT.match(text) is None]
        # A file that was made before has the labels.
        told += self.labels.models
        return blake2b(repr([sql, told]).encode(errors="replace"), digest_size=16).hexdigest()

    def total(self) -> int | None:
        """Return the number of rows of the answer, None if it is not known to be small."""
        raise NotImplementedError

    def exceeds(self, most: int) -> bool:
        """Return whether the answer is known to have more rows than this."""
        raise NotImplementedError

    def pages(self) -> Iterator[list[list[Any]]]:
        """Yield the rows of the answer, some at a time, as they stand on a page, but without the labels of records that
        may not be exported."""
        return map(self.labels.left_out, self._pages())

    def _pages(self) -> Iterator[list[list[Any]]]:
        raise NotImplementedError


class RowsQuestion(Question):
    """A question of ``query_records``."""

    def __init__(self, model: ModelAccess, given: Arguments, query: PageQuery, *, with_urls: bool) -> None:
        columns = [FileColumn.of(column.name, column) for column in query.columns]
        if with_urls:
            columns.append(FileColumn(Address.ADMIN_URL))
        super().__init__(model, given, columns, query.columns)
        self.query = query
        self.with_urls = with_urls

    @classmethod
    def of(cls, model: ModelAccess, given: Arguments) -> "RowsQuestion":
        wanted = given.names("fields") if "fields" in given else []
        with_urls = Address.ADMIN_URL in wanted and model.field_named(Address.ADMIN_URL) is None
        rows = RowArguments(model, given)
        if with_urls:
            others = [name for name in wanted if name != Address.ADMIN_URL]
            rows = RowArguments(model, {**given, "fields": others or ["pk"]})
        query = replace(rows.query(), text_limit=None)
        for column in query.columns:
            for end in _holders(model, column):
                _check_exported(column.name, end)
        return cls(model, given, query, with_urls=with_urls)

    @property
    def kept(self) -> dict[str, Any]:
        return {**super().kept, "fields": [column.name for column in self.columns]}

    def total(self) -> int | None:
        try:
            with read_limits():
                found = self.query.total()
        except ToolError:
            return None
        return found if isinstance(found, int) else None

    def exceeds(self, most: int) -> bool:
        try:
            with read_limits():
                rows = self._ordered().values_list("pk")
                return bool(rows.order_by()[most : most + 1])
        except ToolError:
            # It shows on the way.
            return False

    def _pages(self) -> Iterator[list[list[Any]]]:
        is_served = Orderings(self.model).is_served(self.query.ordering)
        pages = self._one_after_another() if is_served and not self._is_cut() else self._by_keys()
        for rows in pages:
            if not self.with_urls:
                yield rows
                continue
            urls = Address(self.model).urls_of(rows)
            yield [[*row, url] for row, url in zip(rows, urls, strict=True)]

    def _is_cut(self) -> bool:
        """Return whether the database could sort by a part of long texts, after which no page can go on."""
        if Collation.of(self.model.exposure.model).sorted_chars is None:
            return False
        return any(isinstance(key.field, (CharField, TextField)) for key in self.query.ordering)

    def _one_after_another(self) -> Iterator[list[list[Any]]]:
        query = self.query
        size = START
        while True:
            page = self._page(replace(query, limit=SIZES[size]))
            if page.rows:
                yield page.rows
            if not page.more:
                return
            query = replace(query, after=page.keys[-1])
            size = _next_size(size, page.rows)

    def _by_keys(self) -> Iterator[list[list[Any]]]:
        """Read the keys of all rows in their order first, and then the rows by these keys: otherwise the database would
        sort all rows for each page."""
        with SpooledTemporaryFile(max_size=KEYS_IN_MEMORY) as file:
            using = self._read_keys(file)
            file.seek(0)
            most = int((connections[using].features.max_query_params or MOST_PARAMETERS) * KEY_SHARE)
            size = START
            waiting: list[Any] = []
            while True:
                wanted = min(most, SIZES[size])
                while len(waiting) < wanted and (more := _read(file)):
                    waiting += more
                keys = waiting[:wanted]
                if not keys:
                    return
                waiting = waiting[wanted:]
                conditions = (*self.query.conditions, self._with_keys(keys))
                page = self._page(replace(self.query, conditions=conditions, limit=len(keys)))
                if page.rows:
                    yield page.rows
                size = _next_size(size, page.rows)

    def _page(self, query: PageQuery) -> Page:
        with read_limits():
            page = read_page(query)
        self.notes.update(dict.fromkeys(page.notes))
        return page

    def _ordered(self) -> QuerySet[Any]:
        """Return all rows that match, with what they are sorted by."""
        rows = self.model.exposure.get_queryset(self.model.request)
        return self.query.matching(rows, self.query.compiled_key(rows.db)[1])

    def _read_keys(self, file: Any) -> str:
        """Write the keys of all rows to a file, in their order; return the alias of their database."""
        rows = self._ordered()
        query = self.query
        largest = connections[rows.db].features.nulls_order_largest
        params = query.compiled_key(rows.db)[1]
        for segment in query.segments(rows.db):
            found = query.of_segment(rows, segment, params).all()
            found.query.clear_limits()
            found = found.order_by(*segment.order(query.ordering, nulls_largest=largest))
            keys = found.values_list("pk", flat=True).iterator(KEYS_AT_ONCE)
            while True:
                self.model.request.mcp.progress(0)
                with read_limits(), LostDatesAsText():
                    some = list(islice(keys, KEYS_AT_ONCE))
                if not some:
                    break
                pickle.dump(some, file, pickle.HIGHEST_PROTOCOL)
        return str(rows.db)

    def _with_keys(self, keys: Sequence[Any]) -> Filter:
        """Return the condition that a row has one of these keys: one whose SQL is compiled once, if there is one."""
        opts = self.model.exposure.opts
        path = resolve_path(self.model.exposure.model, opts.pk.name)
        if path is not None and isinstance(opts.pk, (AutoField, IntegerField, UUIDField)):
            return Condition(path, "in", tuple(keys))
        return Applied(Narrowed(partial(_of_keys, keys)), {})


class GroupsQuestion(Question):
    """A question of ``aggregate_records``."""

    def __init__(self, aggregation: Aggregation, given: Arguments) -> None:
        columns = [FileColumn.of(term.title, term.shown_column, term.shown_field) for term in aggregation.terms]
        super().__init__(aggregation.model, given, columns, [term.shown_column for term in aggregation.terms])
        self.aggregation = aggregation

    @classmethod
    def of(cls, model: ModelAccess, given: Arguments) -> "GroupsQuestion":
        if "fields" in given:
            raise ToolError('"fields" goes with rows: groups have the columns of group_by and aggregates.')
        aggregation = Aggregation.read(model, given, most=MAX_GROUPS)
        for group in aggregation.groups:
            _check_exported(group.title, Path.read(model, group.target.name).end)
        for asked in map(AskedMeasure.read, given.get("aggregates") or ()):
            for text in (asked.field, asked.order):
                for end in _ends(model, text):
                    _check_exported(text, end)
        return cls(aggregation, given)

    def total(self) -> int | None:
        # The database has counted them all before it gives the first group.
        return 0

    def exceeds(self, most: int) -> bool:
        return False

    def _pages(self) -> Iterator[list[list[Any]]]:
        with read_limits():
            result = self.aggregation.rows()
        if result.is_cut and len(result.rows) >= MAX_GROUPS:
            raise ToolError(f"There are more than {MAX_GROUPS} groups: narrow the filters or group more coarsely.")
        self.model.request.mcp.record.rows_read += len(result.rows)
        self.notes.update(dict.fromkeys(result.unconverted))
        if result.rows:
            yield result.cells()


def _check_exported(name: str, model: ModelAccess) -> None:
    """Raise ``NotPermitted`` if the records may not be exported that a column of this name is of."""
    if not model.may("export"):
        raise NotPermitted(f"{name}: {NOT_EXPORTED.format(model.exposure.label)}")


def _holders(model: ModelAccess, column: Column) -> Iterator[ModelAccess]:
    """Yield the models whose records a column of rows is made of, besides ``model`` itself."""
    if column.through:
        yield from _holders_behind(model, column.name)
        return
    found: Any = None
    if column.is_stored:
        # The project itself can declare a column of a related row.
        opts = model.exposure.opts
        for name in column.name.split("__")[:-1]:
            found = opts.get_field(name).related_model
            opts = found._meta
    elif _lists_others(column):
        found = column.field.related_model
    related = model.access.model_of(found)
    if related is not None:
        yield related


def _holders_behind(model: ModelAccess, name: str) -> Iterator[ModelAccess]:
    """Yield the models whose records a column behind a relation is made of."""
    # A column of a related row is a part of that row, and a value of a list one of its rows.
    listed = RelatedValue.read(model, name)
    if listed is None:
        yield Path.read(model, name).end
        return
    yield listed.link.related
    # Its column, and the one that says which row is the last, can be of a row behind.
    for target in (listed.target, listed.order):
        if target is not None:
            yield Path.read(listed.link.related, target.name).end


def _lists_others(column: Column) -> bool:
    """Return whether a column of rows lists records that point to them, or that the project's code reads."""
    field: Any = column.field
    if isinstance(column, ManyColumn):
        return bool(field.auto_created)
    return isinstance(column, ReverseColumn) or (column.is_computed and field is not None and field.many_to_many)


def _ends(model: ModelAccess, text: Any) -> Iterator[ModelAccess]:
    """Yield the models whose columns, or number of rows, a measure of this field is of, besides ``model`` itself."""
    if not isinstance(text, str):
        return
    for path in PATH.findall(text):
        names = path.replace(".", "__").split("__")
        end = model
        for place, name in enumerate(names, 1):
            link = end.link(name)
            # A foreign key at the end is a column of its own model.
            if link is None or (place == len(names) and not link.to_many):
                break
            end = link.related
        if end is not model:
            yield end


def _without_label(value: Any) -> Any:
    """Return a key and label, and what comes after them, without the label; anything else as it is."""
    if not isinstance(value, list):
        return value
    key, _, *more = value
    return [key, None, *more]


def _next_size(size: int, rows: Sequence[Any]) -> int:
    """Return the place in :data:`SIZES` of the size of the next page, after one with these rows."""
    weight = len(orjson.dumps(rows[::WEIGHED])) * WEIGHED
    if weight > HEAVY:
        return max(0, size - 1)
    if weight < LIGHT:
        return min(len(SIZES) - 1, size + 1)
    return size


def _read(file: Any) -> list[Any]:
    """Return the next keys of the file, [] at its end."""
    try:
        found: list[Any] = pickle.load(file)
    except EOFError:
        return []
    return found


def _of_keys(keys: Sequence[Any], rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.filter(pk__in=keys)

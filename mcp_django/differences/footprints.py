"""Footprints: which rows a write of our own may touch, and how they differ once it is done.

Rows are read from the database, before the write by the query that locks them, and after all hooks: never from
instances or signals. So it does not matter how a hook has written a row.
"""

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final

from django.apps import apps
from django.db import connections, router
from django.db.models import Model, ProtectedError, QuerySet, RestrictedError
from django.forms import ModelForm

from ..conf import settings
from ..context.databases import reads_snapshots
from ..emulation.inline_rows import Inline, is_generic, link_of
from ..emulation.saving import RowPage
from ..emulation.standing_inlines import can_stay
from ..exposures.model_exposure import is_djangos
from ..orm.alternative_spellings import json_or_text
from ..orm.column_values import pk_text, plain_key
from ..orm.pagination import chunks
from .cascades import ROWS_EACH, DeletionCollector, TooManyRows, concrete, keys_of, with_parents
from .new_rows import NewRows
from .stored_rows import Key, Row, StoredTable, differing, stored_table

Snapshot = dict[type[Model], dict[Key, Row]]
# A row before and after a write; None where it was not there.
Change = tuple[Row | None, Row | None]

KINDS: Final = ("changed", "added", "deleted")
# The ways in which callers mark an inline row that is to be deleted.
DELETIONS: Final = ("delete", "DELETE")


class UnreadableDifference(Exception):
    """A stored difference names a model or a column that is no longer there. Its text says which."""


class StoredDifference:
    """The rows that a write has changed, added and deleted on one database, as they are stored.

    A row has the cells of ``StoredTable.names`` in this order. Of a changed row only the cells that differ are kept,
    and its key: the others are None, before and after. ``named`` are the fields that the caller gave values for, by the
    label of their model.
    """

    def __init__(self, using: str, changes: Mapping[type[Model], Mapping[Key, Change]]) -> None:
        self.using = using
        self.named: Mapping[str, Sequence[str]] = {}
        self.changes = {model: rows for model, rows in changes.items() if rows}

    @classmethod
    def between(cls, using: str, before: Snapshot, after: Snapshot) -> "StoredDifference":
        """Return how the same rows differ before and after a write."""
        changes: dict[type[Model], dict[Key, Change]] = {}
        for model in dict.fromkeys((*before, *after)):
            table = stored_table(model, using)
            old_rows = before.get(model, {})
            new_rows = after.get(model, {})
            found: dict[Key, Change] = {}
            for key, row in old_rows.items():
                now = new_rows.get(key)
                if now is None:
                    found[key] = row, None
                elif places := differing(row, now):
                    kept = {*places, *_key_places(table)}
                    found[key] = _only(row, kept), _only(now, kept)
            found.update((key, (None, row)) for key, row in new_rows.items() if key not in old_rows)
            changes[model] = found
        return cls(using, changes)

    def __bool__(self) -> bool:
        """Return whether the write has done anything."""
        return bool(self.changes)

    def counts(self) -> dict[type[Model], dict[str, int]]:
        """Return the numbers of rows by model: ``changed``, ``added`` and ``deleted``."""
        found = {}
        for model, rows in self.changes.items():
            numbers = dict.fromkeys(KINDS, 0)
            for change in rows.values():
                numbers[kind_of_change(change)] += 1
            found[model] = numbers
        return found

    def keys(self, model: type[Model]) -> Collection[Key]:
        """Return the keys of the rows of a model's own table that differ."""
        return self.changes.get(concrete(model), {}).keys()

    def reversed(self) -> "StoredDifference":
        """Return the difference that takes this one back."""
        changes = {
            model: {key: (after, before) for key, (before, after) in rows.items()}
            for model, rows in self.changes.items()
        }
        return StoredDifference(self.using, changes)

    # JSON

    def to_json(self) -> bytes:
        """Return the difference as JSON, with models by label and columns by attname."""
        tables = {}
        for model, rows in self.changes.items():
            table = stored_table(model, self.using)
            kinds: dict[str, list[Any]] = {kind: [] for kind in KINDS}
            for key, change in rows.items():
                before, after = change
                if before is not None and after is not None:
                    cells = {
                        table.names[place]: [_written(before[place]), _written(after[place])]
                        for place in differing(before, after)
                    }
                    kinds["changed"].append([[_written(cell) for cell in key], cells])
                else:
                    kinds[kind_of_change(change)].append([_written(cell) for cell in before or after or ()])
            tables[model._meta.label_lower] = {"key": table.key_names, "columns": table.names, **kinds}
        data = {"using": self.using, "models": tables, "named": self.named}
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        # Texts that are not UTF-8 have surrogates in their place.
        return text.encode(errors="surrogatepass")

    @classmethod
    def from_json(cls, stored: bytes) -> "StoredDifference":
        """Return the difference that was stored as JSON.

        Raises ``UnreadableDifference`` if a model or a column is no longer there, if the database is not, or if a table
        has a new column since a row of it was added or deleted: the row would not be whole.
        """
        data = json.loads(stored)
        using = data["using"]
        if using not in connections.settings:
            raise UnreadableDifference(f"The database {using!r} is no longer configured.")
        changes: dict[type[Model], dict[Key, Change]] = {}
        for label, kinds in data["models"].items():
            try:
                model: Any = apps.get_model(label)
            except LookupError:
                raise UnreadableDifference(f"The model {label} is no longer there.") from None
            changes[model] = dict(_read_changes(stored_table(model, using), label, kinds))
        found = cls(using, changes)
        found.named = data.get("named", {})
        return found


def kind_of_change(change: Change) -> str:
    """Return which of :data:`KINDS` a change is."""
    before, after = change
    if before is None:
        return "added"
    return "changed" if after is not None else "deleted"


def _read_changes(table: StoredTable, label: str, kinds: Mapping[str, Any]) -> Iterator[tuple[Key, Change]]:
    """Yield the changes of one table from their JSON."""
    if tuple(kinds["key"]) != table.key_names:
        raise UnreadableDifference(f"The primary key of {label} is no longer {', '.join(kinds['key'])}.")
    names: Sequence[str] = kinds["columns"]
    whole = kinds["added"] or kinds["deleted"]
    if whole and (new := [name for name in table.names if name not in names]):
        raise UnreadableDifference(f"The table of {label} has a new column {new[0]}.")
    used = set(names) if whole else {name for _, cells in kinds["changed"] for name in cells}
    if lost := sorted(used.difference(table.names)):
        raise UnreadableDifference(f"The column {lost[0]} of {label} is no longer there.")

    for stored, cells in kinds["changed"]:
        key = tuple(map(_read, stored))
        own = dict(zip(table.key_names, key, strict=True))
        both = [own | {name: _read(pair[side]) for name, pair in cells.items()} for side in (0, 1)]
        before, after = (tuple(cells.get(name) for name in table.names) for cells in both)
        yield key, (before, after)
    for kind in ("added", "deleted"):
        for stored in kinds[kind]:
            cells = dict(zip(names, map(_read, stored), strict=True))
            row = tuple(cells[name] for name in table.names)
            yield table.key_of(row), (None, row) if kind == "added" else (row, None)


def _written(cell: Any) -> Any:
    """Return a cell as JSON without loss: numbers with a fraction by their ``repr``, bytes in base64."""
    if isinstance(cell, float):
        return {"float": repr(cell)}
    if isinstance(cell, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(cell).decode()}
    return cell


def _read(written: Any) -> Any:
    if not isinstance(written, dict):
        return written
    if "float" in written:
        return float(written["float"])
    return base64.b64decode(written["bytes"])


def _key_places(table: StoredTable) -> list[int]:
    return [table.names.index(name) for name in table.key_names]


def _only(row: Row, places: Collection[int]) -> Row:
    """Return a row with None for all cells but some."""
    kept: list[Any] = [None] * len(row)
    for place in places:
        kept[place] = row[place]
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Link:
    """Rows that hang on a row of a form: those of ``model`` whose column ``by`` holds the row's ``attname``."""

    model: type[Model]
    by: str
    attname: str


@dataclass(frozen=True, slots=True)
class Branch:
    """Rows that hang on other rows of the footprint: those of ``model`` whose column ``by`` holds what the column
    ``attname`` of rows of ``source`` does."""

    source: type[Model]
    attname: str
    model: type[Model]
    by: str


class Footprint:
    """The rows that a write may touch, on one of the ``DATABASES``; tables of other databases are left out.

    Name what the write is going to do (:meth:`add_row`, :meth:`add_form`, :meth:`add_deletion`, :meth:`add`), then call
    :meth:`before` in the transaction of the write, do it in :meth:`watching`, call :meth:`created` for each new row,
    and :meth:`after`, which returns the difference. Both reads cost one statement a table, however many rows. Rows that
    the write does not touch cost nothing but their lock: a footprint may name too many, never too few. More rows than
    ``MAX_BULK_ROWS`` times ten raise ``TooManyRows`` before anything is written: such a write cannot be taken back.

    What a hook writes outside of the footprint is not in the difference: ``tables`` are all tables in which it looks,
    so that writes to others can be told. ``left`` names foreign keys with ``DO_NOTHING`` to rows that are deleted.
    ``unsure`` are, after the write, the models in which rows that seem new may be older ones that a hook has moved
    there: who takes such a difference back would delete them.
    """

    def __init__(self, using: str) -> None:
        self.using = using
        self.left: set[str] = set()
        self.unsure: list[type[Model]] = []
        self._new_rows = NewRows(using)
        # What is read, by model: combinations of cells by the attnames that hold them, and what hangs on other rows.
        self._roots: dict[type[Model], dict[tuple[str, ...], set[Key]]] = {}
        self._branches: dict[type[Model], dict[Branch, None]] = {}
        # What has been read already, or has to be new.
        self._asked: dict[type[Model], dict[tuple[str, ...], set[Key]]] = {}
        self._before: Snapshot = {}
        # What hangs on new rows, by their model, and models in which nothing was found.
        self._of_new: dict[type[Model], dict[Link, None]] = {}
        self._looked_at: set[type[Model]] = set()

    @property
    def tables(self) -> frozenset[str]:
        """The names of all tables in which the write is expected to write."""
        return frozenset(model._meta.db_table for model in self.rows)

    @property
    def rows(self) -> dict[type[Model], Collection[Key]]:
        """The keys of the rows that were there before the write, by the models in whose tables it is expected to
        write."""
        models = {*self._roots, *self._looked_at}
        for model, links in self._of_new.items():
            models.update(with_parents(model), (link.model for link in links))
        return {model: self._before.get(model, {}).keys() for model in models}

    # What the write is going to do

    def add(self, model: type[Model], by: str, values: Collection[Any]) -> None:
        """Read the rows whose own column with attname ``by`` holds one of these Python values; "pk" is the key, tuples
        if it is composite."""
        table = stored_table(concrete(model), self.using)
        names = table.key_names if by == "pk" else (by,)
        cells = self._roots.setdefault(table.model, {}).setdefault(names, set())
        connection = connections[self.using]
        fields = [table.fields[name] for name in names]
        for value in values:
            parts = value if len(names) > 1 else (value,)
            if None not in parts:
                pairs = zip(fields, parts, strict=True)
                cells.add(tuple([field.get_db_prep_value(part, connection) for field, part in pairs]))

    def add_keys(self, keys: Mapping[type[Model], Collection[Key]]) -> None:
        """Read the rows with these stored keys, by the models in whose tables they are."""
        for model, found in keys.items():
            names = stored_table(model, self.using).key_names
            self._roots.setdefault(model, {}).setdefault(names, set()).update(found)

    def add_row(self, obj: Model) -> None:
        """Read a row that is saved: in its own table, and in those of its parents."""
        if self._is_here(type(obj), obj):
            self._add_tables_of(obj)

    def _add_tables_of(self, obj: Model) -> None:
        for model, key in keys_of(obj).items():
            self.add(model, "pk", [key])

    def add_form(self, page: RowPage, values: Mapping[str, Any]) -> None:
        """Read what saving these values on a page writes: the row, links of its many-to-many fields, rows of inlines.

        Links are read of all fields that a form can have, through tables with columns of their own only if the values
        name the field or the form is the project's. Inlines are read unless they are left out, with the links of their
        rows, and with all that goes with an inline row that is to be deleted. For a new row, all that is found once
        :meth:`created` tells which one it is. Raises ``TooManyRows`` if too many rows go with inline rows.
        """
        obj = page.obj
        model = page.exposure.model
        if not self._is_here(model, obj):
            return
        links = list(self._links(page, values))
        others = _names_of_others(page, values)
        for admin in _posted_inlines(page, others):
            links += self._inline_links(page, admin)
        if obj is None:
            self._of_new.setdefault(concrete(model), {}).update(dict.fromkeys(links))
            return
        self._add_tables_of(obj)
        self._add_links(obj, links)
        for inline in _with_deletions(page, others) if others else ():
            # If rows are protected, the form says so.
            with suppress(ProtectedError, RestrictedError):
                self.add_deletion(self._deleted_rows(page, inline.admin, values[inline.name]))

    def add_deletion(self, rows: Sequence[Model]) -> None:
        """Read rows of one class that are deleted, and all that goes or changes with them.

        Raises ``ProtectedError`` or ``RestrictedError`` like the deletion, or ``TooManyRows``.
        """
        collector = DeletionCollector(self.using, rows)
        for model, keys in (*collector.deleted.items(), *collector.changed.items()):
            self.add(model, "pk", keys)
        self.left |= collector.left
        self._looked_at |= collector.looked_at

    def add_links(self, rows: Sequence[Model]) -> None:
        """Read the links of saved rows of one class in all many-to-many relations, from and to them. Relations in which
        they have more links than one call may write are left out."""
        if not rows:
            return
        room = settings.MAX_BULK_ROWS
        for end in _all_ends(type(rows[0])):
            if not self._is_here(end.model, rows[0]):
                continue
            keys = [getattr(row, end.target_field.attname) for row in rows]
            every: QuerySet[Any] = QuerySet(end.model, using=self.using)
            number = sum(every.filter(**{f"{end.name}__in": part})[: room + 1].count() for part in chunks(keys))
            if number <= room:
                room -= number
                self.add(end.model, end.attname, keys)
                self._add_tables(concrete(end.model), concrete(end.model))

    # Reading

    def before(self) -> None:
        """Read and lock the rows as they are, in the transaction of the write. Call it again after naming more: rows
        that were read before stay as they were then. Raises ``TooManyRows``."""
        self._read(self._before, self._asked, {}, lock=True)
        if sum(map(len, self._before.values())) > settings.MAX_BULK_ROWS * ROWS_EACH:
            raise TooManyRows

    def again(self) -> "Footprint":
        """Return the footprint of the rows that were read before, as they are now: those that are there."""
        footprint = Footprint(self.using)
        footprint.add_keys(self.rows)
        footprint._read(footprint._before, footprint._asked, {}, lock=reads_snapshots(self.using))
        return footprint

    def watching(self) -> AbstractContextManager[None]:
        """Return the block in which the write is done: its statements tell which rows are new."""
        return self._new_rows.watching()

    def digest(self) -> str:
        """Return a digest of the rows as :meth:`before` has read them, in hexadecimal: others have another."""
        rows = [[model._meta.label, sorted(map(repr, found.items()))] for model, found in self._before.items()]
        return hashlib.sha256(repr(sorted(rows)).encode(errors="surrogatepass")).hexdigest()

    def created(self, obj: Model) -> None:
        """Take a row that was saved for a new one: :meth:`after` reads it with all that hangs on it by its form."""
        if not self._is_here(type(obj), obj):
            return
        self._add_tables_of(obj)
        self._add_links(obj, self._of_new.get(concrete(type(obj)), ()))
        # Nothing of it was there: a later call of before() does not read it.
        for model, wanted in self._roots.items():
            for names, cells in wanted.items():
                self._asked.setdefault(model, {}).setdefault(names, set()).update(cells)

    def after(self) -> StoredDifference:
        """Read the rows again, also those that no longer hang where they did, and return how they differ."""
        found: Snapshot = {}
        # MySQL's plain reads may show an older state than that which before() has locked.
        self._read(found, {}, self._before, lock=reads_snapshots(self.using))
        difference = StoredDifference.between(self.using, self._before, found)

        # A row is new if a statement of the write has made it.
        counts = difference.counts()
        self.unsure = [
            model
            for model, kinds in counts.items()
            if kinds["added"] and self._new_rows.may_be_old(model, kinds["added"], self._columns_of(model))
        ]
        return difference

    def _columns_of(self, model: type[Model]) -> list[str]:
        """Return the columns by which rows of a table are found."""
        names = {name for combination in self._roots[model] for name in combination}
        names |= {branch.by for branch in self._branches.get(model, ())}
        fields = stored_table(model, self.using).fields
        return [fields[name].column for name in names]

    def _read(
        self,
        found: Snapshot,
        asked: dict[type[Model], dict[tuple[str, ...], set[Key]]],
        known: Snapshot,
        *,
        lock: bool,
    ) -> None:
        """Read what is wanted and was not asked for, until no row leads to others. Rows in ``known`` are wanted too."""
        is_done = False
        while not is_done:
            is_done = True
            for model in self._roots:
                table = stored_table(model, self.using)
                done = asked.setdefault(model, {})
                new: dict[tuple[str, ...], set[Key]] = {}
                for names, cells in self._wanted(table, found, known).items():
                    if rest := cells - done.setdefault(names, set()):
                        new[names] = rest
                        done[names] |= rest
                rows = found.setdefault(model, {})
                if new:
                    is_done = not self._branches
                    read = table.read_any([(names, list(cells)) for names, cells in new.items()], lock=lock)
                    # A row that was read before stays as it was then.
                    rows.update(read | rows)

    def _wanted(self, table: StoredTable, found: Snapshot, known: Snapshot) -> dict[tuple[str, ...], set[Key]]:
        """Return the cells by which rows of a table are found, by the attnames that hold them."""
        wanted = self._roots[table.model]
        if branches := self._branches.get(table.model):
            wanted = {names: set(cells) for names, cells in wanted.items()}
            for branch in branches:
                place = stored_table(branch.source, self.using).names.index(branch.attname)
                cells = {(row[place],) for row in found.get(branch.source, {}).values() if row[place] is not None}
                wanted.setdefault((branch.by,), set()).update(cells)
        if known.get(table.model) and wanted.keys() != {table.key_names}:
            # These may hang on other rows by now.
            wanted = {**wanted, table.key_names: wanted.get(table.key_names, set()) | known[table.model].keys()}
        return wanted

    # What hangs on a row

    def _is_here(self, model: type[Model], obj: Model | None) -> bool:
        hints = {} if obj is None else {"instance": obj}
        return bool(router.db_for_write(model, **hints) == self.using)

    def _links(self, page: RowPage, values: Mapping[str, Any]) -> Iterator[Link]:
        """Yield the links of many-to-many fields that saving a page can write."""
        exposure = page.exposure
        fields = exposure.opts.many_to_many
        if not fields:
            return
        own = (exposure.serializer_class, exposure.form)
        has_own_form = any(own) or exposure.model_admin.form is not ModelForm
        for field in fields:
            through: Any = getattr(field.remote_field, "through", None)
            if through is None or not self._is_here(through, page.obj):
                continue
            if through._meta.auto_created or field.name in values or has_own_form:
                for end in _ends(field):
                    yield Link(concrete(end.model), end.attname, end.target_field.attname)
                    self._add_tables(concrete(end.model), concrete(through))

    def _inline_links(self, page: RowPage, admin: Any) -> Iterator[Link]:
        """Yield what leads to the rows of an inline, and read the other tables that have a part of them."""
        model = concrete(admin.model)
        link = _link_to_parent(page, admin)
        if link is None or not self._is_here(model, page.obj):
            return
        yield link
        self._add_tables(link.model, model)
        for field in model._meta.many_to_many:
            for end in _ends(field):
                target = end.target_field
                if self._is_here(end.model, page.obj):
                    self._add_branch(Branch(concrete(target.model), target.attname, concrete(end.model), end.attname))

    def _deleted_rows(self, page: RowPage, admin: Any, given: Any) -> list[Model]:
        """Return the rows of an inline that a caller's list of rows deletes."""
        link = _link_to_parent(page, admin)
        items = json_or_text(given)
        if link is None or not isinstance(items, list) or not self._is_here(admin.model, page.obj):
            return []
        rows = [item for item in map(json_or_text, items) if isinstance(item, dict) and any(map(item.get, DELETIONS))]
        keys = [item.get("pk") for item in rows]
        if not admin.opts.is_composite_pk:
            keys = [plain_key(key) for key in keys]
        named = set(map(str, keys))
        # Not found by what the caller has written, but among the rows of this parent.
        every: QuerySet[Any] = QuerySet(admin.model, using=self.using)
        under = every.filter(**{link.by: getattr(page.obj, link.attname)})
        found = [key for key in under.values_list("pk", flat=True) if pk_text(key) in named]
        return [row for chunk in chunks(found) for row in every.filter(pk__in=chunk)]

    def _add_links(self, obj: Model, links: Iterable[Link]) -> None:
        for link in links:
            self.add(link.model, link.by, [getattr(obj, link.attname)])

    def _add_tables(self, owner: type[Model], model: type[Model]) -> None:
        """Read the other tables of rows in multi-table inheritance, of which ``owner`` has the link to the row."""
        pointers: list[tuple[type[Model], type[Model], Any]] = []
        for table in with_parents(model):
            own: list[Any] = [pointer for pointer in table._meta.parents.values() if pointer is not None]
            pointers += [(table, concrete(pointer.remote_field.model), pointer) for pointer in own]
        reached = [owner]
        for table in reached:
            for child, parent, pointer in pointers:
                target = pointer.target_field.attname
                if child is table and parent not in reached:
                    self._add_branch(Branch(child, pointer.attname, parent, target))
                    reached.append(parent)
                elif parent is table and child not in reached:
                    self._add_branch(Branch(parent, target, child, pointer.attname))
                    reached.append(child)

    def _add_branch(self, branch: Branch) -> None:
        known = self._branches.setdefault(branch.model, {})
        if branch in known:
            return
        known[branch] = None
        self._roots.setdefault(branch.source, {})
        # Last, so that a table is read after those that lead to it.
        self._roots[branch.model] = self._roots.pop(branch.model, {})


def _ends(field: Any) -> list[Any]:
    """Return the foreign keys of the links that saving a many-to-many field of a row writes: those to the row."""
    if not hasattr(field, "m2m_field_name"):
        return []
    names = [field.m2m_field_name()]
    if field.remote_field.symmetrical:
        # The link in the other direction is written too.
        names.append(field.m2m_reverse_field_name())
    return [field.remote_field.through._meta.get_field(name) for name in names]


def _all_ends(model: type[Model]) -> Iterator[Any]:
    """Yield the foreign keys that the links of all many-to-many relations from and to a model have to its rows."""
    fields: Iterable[Any] = model._meta.get_fields(include_hidden=True)
    for field in fields:
        if not field.many_to_many:
            continue
        if not field.auto_created:
            yield from _ends(field)
        elif hasattr(field.field, "m2m_reverse_field_name"):
            yield field.through._meta.get_field(field.field.m2m_reverse_field_name())


def _posted_inlines(page: RowPage, others: Collection[str]) -> list[Any]:
    """Return the inlines whose rows saving a page may write: those that ``others`` name, and those that the page posts
    because code of the project would see their rows."""
    exposure = page.exposure
    if exposure.serializer_class is not None:
        return []
    obj = page.obj
    if not others and page.inlines_can_stay:
        return []
    admin = exposure.model_admin
    if is_djangos(type(admin).get_formsets_with_inlines):
        inlines = admin.get_inline_instances(page.request, obj)
    else:
        arguments = () if obj is None else (obj,)
        inlines = [inline for _, inline in admin.get_formsets_with_inlines(page.request, *arguments)]
    named: set[type[Any]] = set()
    if others:
        named = {type(inline.admin) for inline in page.inlines.all if inline.name in others}
    return [inline for inline in inlines if type(inline) in named or not can_stay(exposure, type(inline))]


def _with_deletions(page: RowPage, others: Collection[str]) -> list[Inline]:
    """Return the inlines with these names, of which saving a page may delete rows."""
    if page.exposure.serializer_class is not None:
        return []
    return [inline for inline in page.inlines.all if inline.name in others]


def _names_of_others(page: RowPage, values: Mapping[str, Any]) -> set[str]:
    """Return the names of values that are no fields of the model, such as those of inlines."""
    opts = page.exposure.opts
    fields = (*opts.concrete_fields, *opts.many_to_many)
    return values.keys() - {name for field in fields for name in (field.name, field.attname)}


def _link_to_parent(page: RowPage, admin: Any) -> Link | None:
    """Return how the rows of an inline hang on the row of the page, None where the project's own code finds them."""
    field: Any
    if is_generic(admin):
        # Rows of other models with the same key are read too; they stay as they are.
        field = admin.opts.get_field(admin.ct_fk_field)
        return Link(concrete(field.model), field.attname, "pk")
    field = link_of(page.exposure, admin)
    if field is None:
        return None
    return Link(concrete(field.model), field.attname, field.target_field.attname)

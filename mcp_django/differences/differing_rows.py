"""The rows that differ after a write, found among the stored rows and read as the caller sees them.

Both sides are read from the database as ``get_record`` shows rows: after the write, before it is rolled back, and then
again. So hooks, triggers and other rows that the write changes are part of it, and columns and rows that the caller
does not see are not.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.apps import apps
from django.db.models import Model, Value
from django.db.models.fields import AutoFieldMixin
from django.utils import timezone

from ..context.request import MCPRequest
from ..emulation.saving import RowPage
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import pk_text, render
from ..orm.columns import Column
from ..orm.labels import label_of
from ..orm.row_finder import RowFinder
from ..orm.row_reading import show_rows
from .cascades import concrete, with_parents
from .difference import SET_WHEN_WRITTEN, Difference, Kind, RowDifference, ShownRow
from .footprints import Change, StoredDifference, kind_of_change
from .stored_rows import Key, Row, differing, stored_table

# Number of rows of a model that are shown if the write only takes them along.
MAX_TAKEN_ALONG: Final = 3


class ShownSide:
    """One side of a difference: reads rows as the caller sees them then. ``since`` is when the write began."""

    def __init__(self, request: MCPRequest, since: datetime) -> None:
        self.request = request
        self.since = since
        self.rows: dict[tuple[ModelAccess, str], ShownRow] = {}
        # Other rows that the caller may view, of which only that is known.
        self.others: set[tuple[ModelAccess, str]] = set()
        self._random: dict[Any, bool] = {}

    def read(self, model: ModelAccess, keys: Sequence[Any]) -> None:
        """Read the rows with these keys that the caller may view."""
        for place, row in self._seen(model, keys):
            self.rows[place] = self._shown(model, row)

    def look_for(self, model: ModelAccess, keys: Sequence[Any]) -> None:
        """Find out which of these rows the caller may view."""
        self.others.update(place for place, _ in self._seen(model, keys))

    def has(self, place: tuple[ModelAccess, str]) -> bool:
        """Return whether the caller may view a row that was read or looked for."""
        return place in self.rows or place in self.others

    def _seen(self, model: ModelAccess, keys: Sequence[Any]) -> Iterator[tuple[tuple[ModelAccess, str], Model]]:
        for key, row in RowFinder(model).by_key(keys).items():
            if model.may_row("view", row):
                yield (model, pk_text(key)), row

    def _shown(self, model: ModelAccess, row: Model) -> ShownRow:
        # First, the columns of the row.
        exposure = model.exposure
        self.request.go_to(exposure, "change", row.pk)
        names = model.fields_of(row)
        # Whole texts: they may differ only at their ends.
        page = show_rows(model, [row], Column.all(exposure, names))
        columns = dict(zip(page.names, page.rows[0], strict=True))
        columns.pop(exposure.opts.pk.name, None)
        shown = ShownRow(render(row.pk), label_of(exposure, row) or str(row.pk), columns)
        shown.volatile = frozenset(self._volatile(row, columns))

        # Then the rows of its inlines, by their keys.
        inlines = RowPage(model, row).inlines
        read = inlines.shown_rows()
        found, _ = inlines.show(read)
        for item in read:
            name = item.inline.name
            shown.inlines[name] = {str(child["pk"]): child for child in found[name]}
            for child, instance in zip(found[name], item.rows, strict=False):
                shown.volatile_of_inlines[name, str(child["pk"])] = frozenset(self._volatile(instance, child))
        return shown

    def _volatile(self, row: Model, columns: Collection[str]) -> Iterator[str]:
        """Yield the columns that hold the time of the write or what is drawn at random: the real write will have
        another."""
        now = timezone.now()
        for stored in row._meta.concrete_fields:
            if stored.name not in columns:
                continue
            value = row.__dict__.get(stored.attname)
            is_now = getattr(stored, "auto_now", False) or getattr(stored, "auto_now_add", False)
            if isinstance(value, datetime):
                moment = value if timezone.is_aware(value) else timezone.make_aware(value)
                # Some databases store no fractions of seconds.
                is_now = is_now or self.since - timedelta(seconds=1) <= moment <= now
            if is_now or self._is_random(stored):
                yield stored.name

    def _is_random(self, field: Any) -> bool:
        """Return whether each row gets another default."""
        if field not in self._random:
            is_drawn = field.has_default() and field.get_default() != field.get_default()
            self._random[field] = is_drawn or _is_computed(field)
        return self._random[field]


@dataclass(frozen=True, slots=True)
class Target:
    """A row that a write is about: its key, and the columns that the caller gave values for."""

    model: ModelAccess
    key: Any
    named: Collection[str] = ()


class DifferingRows:
    """Finds the rows of a stored difference that the caller can see: ``kinds`` says by model and key what happened.

    A row of a child model is one row, though several tables hold it; a link of a many-to-many field is part of the row
    that has the field. ``others`` is the number of rows of models that the caller does not see.
    """

    def __init__(self, request: MCPRequest, stored: StoredDifference, targets: Sequence[Target]) -> None:
        self.access = access_of(request)
        self.stored = stored
        self.kinds: dict[ModelAccess, dict[str, Kind]] = {target.model: {} for target in targets}
        self.keys: dict[tuple[ModelAccess, str], Any] = {
            (target.model, pk_text(target.key)): target.key for target in targets
        }
        # The rows that the write is about.
        self.targets = frozenset(self.keys)
        self.others = 0
        for model, changes in stored.changes.items():
            for key, change in changes.items():
                self._take(model, key, change)

    def _take(self, model: type[Model], key: Key, change: Change) -> None:
        owner = model._meta.auto_created
        if owner:
            self._take_link(model, owner, change)
            return
        text = key_text(model, key)
        kind = kind_of_change(change)
        if self._is_part(model, text, kind, change) or self._has_child(model, key):
            return
        access = self._seen(model)
        if access is None:
            self.others += 1
        elif kind != "changed" or self._shows(access, model, change):
            self.keys.setdefault((access, text), key_value(model, key))
            self.kinds.setdefault(access, {})[text] = kind

    def _take_link(self, model: type[Model], owner: Any, change: Change) -> None:
        """Take a link of a many-to-many field for a change of the row that has the field. One that comes or goes with
        the row at its other end is part of that."""
        [field] = [one for one in owner._meta.local_many_to_many if one.remote_field.through is model]
        key = self._end(model, field.m2m_field_name(), change)
        text = key_text(owner, key)
        for access in [access for access in self.kinds if issubclass(access.exposure.model, owner)]:
            if (access, text) in self.targets:
                if field.name in access.fields:
                    self.kinds[access].setdefault(text, "changed")
                return
        # The write is about the row at the other end.
        other = concrete(field.related_model)
        other_key = self._end(model, field.m2m_reverse_field_name(), change)
        stays = None not in self.stored.changes.get(other, {}).get(other_key, ())
        if not stays or not self._is_target(other, other_key):
            return
        seen = self._seen(owner)
        if seen is None or field.name not in seen.fields:
            self.others += 1
            return
        self.keys.setdefault((seen, text), key_value(owner, key))
        self.kinds.setdefault(seen, {}).setdefault(text, "changed")

    def _is_target(self, model: type[Model], key: Key) -> bool:
        text = key_text(model, key)
        return any(issubclass(one.exposure.model, model) and its_text == text for one, its_text in self.targets)

    def _end(self, model: type[Model], name: str, change: Change) -> Key:
        """Return the key of the row at one end of a link."""
        link: Row = change[0] or change[1] or ()
        pointer: Any = model._meta.get_field(name)
        return (stored_table(model, self.stored.using).cell_of(link, pointer.attname),)

    def _is_part(self, model: type[Model], text: str, kind: Kind, change: Change) -> bool:
        """Return whether a stored row is one of a target's, and take it for that."""
        for access, kinds in self.kinds.items():
            if concrete(access.exposure.model) not in (model, *_children(model)) or (access, text) not in self.targets:
                continue
            if kind != "changed" or self._shows(access, model, change):
                kinds[text] = kind
            return True
        return False

    def _has_child(self, model: type[Model], key: Key) -> bool:
        """Return whether the row is part of a row of a child model that differs too."""
        return any(key in changes for child, changes in self.stored.changes.items() if child in _children(model))

    def _seen(self, model: type[Model]) -> ModelAccess | None:
        exposure = self.access.request.mcp.site.exposures.get(model)
        access = self.access[exposure] if exposure is not None else None
        return access if access is not None and access.is_there else None

    def _shows(self, access: ModelAccess, model: type[Model], change: Change) -> bool:
        """Return whether the caller sees one of the columns that differ."""
        names = stored_table(model, self.stored.using).names
        differ = {names[place] for place in differing(change[0] or (), change[1] or ())}
        return any(
            field.attname in differ for field in model._meta.local_concrete_fields if field.name in access.fields
        )

    def take_for_new(
        self, rows: Mapping[type[Model], Collection[Key]], there: Mapping[type[Model], Collection[Key]]
    ) -> None:
        """Take those of the rows that are not there without the write for rows that it has made."""
        for model, keys in rows.items():
            texts = {key_text(model, key) for key in set(keys) - set(there.get(model, ()))}
            for access, kinds in self.kinds.items():
                if model in with_parents(access.exposure.model):
                    kinds.update({text: "added" for text in texts if kinds.get(text) == "changed"})

    def read(self, side: ShownSide) -> None:
        """Read the first rows on one side of the difference: those that the write is about, and some of each model that
        it takes along; look for the others that it takes along."""
        chosen: dict[ModelAccess, list[Any]] = {}
        rest: dict[ModelAccess, list[Any]] = {}
        room = Difference.MAX_ROWS
        for (model, text), key in self.keys.items():
            keys = chosen.setdefault(model, [])
            is_about = (model, text) in self.targets
            if room and (is_about or len(keys) < MAX_TAKEN_ALONG):
                keys.append(key)
                room -= 1
            elif not is_about:
                rest.setdefault(model, []).append(key)
        for model, keys in chosen.items():
            side.read(model, keys)
        for model, keys in rest.items():
            side.look_for(model, keys)

    def difference(self, before: ShownSide, after: ShownSide, targets: Sequence[Target]) -> "Difference":
        """Return the difference between both sides."""
        named = {(target.model, pk_text(target.key)): target.named for target in targets}
        rows = []
        for place in dict.fromkeys([*before.rows, *after.rows]):
            model, text = place
            row = RowDifference(model, before.rows.get(place), after.rows.get(place), named.get(place, ()))
            is_one_sided = row.before is None or row.after is None
            row.moves = is_one_sided and self.kinds.get(model, {}).get(text) == "changed"
            row.is_new_key = row.kind == "added" and _is_made(model, row.named)
            if row:
                rows.append(row)
                self.kinds.setdefault(model, {})[text] = row.kind
        _hide_new_keys(rows)
        self._leave_out_hidden(before, after)
        counts = {model: Counter(kinds.values()) for model, kinds in self.kinds.items() if kinds}
        return Difference(rows, counts, self.others)

    def _leave_out_hidden(self, before: ShownSide, after: ShownSide) -> None:
        """Count the rows that the caller sees on neither side like those of models that the caller does not see."""
        for model, kinds in self.kinds.items():
            places = [(model, text) for text in kinds]
            hidden = [one for one in places if one not in self.targets and not (before.has(one) or after.has(one))]
            for _, text in hidden:
                del kinds[text]
            self.others += len(hidden)

    def planned(self, side: ShownSide, permission: str, targets: Sequence[Target]) -> "Difference":
        """Return the difference that a write is meant to make, which has not run: of changed rows the values that the
        caller gave, as they were written."""
        named = {(target.model, pk_text(target.key)): target.named for target in targets}
        rows = []
        for (model, text), before in side.rows.items():
            after = None
            if permission != "delete":
                given = named.get((model, text), ())
                values = dict(given) if isinstance(given, Mapping) else {}
                after = replace(before, columns={**before.columns, **values}, inlines={})
                before.inlines = {}
            row = RowDifference(model, before, after, named.get((model, text), ()))
            rows.append(row)
            self.kinds.setdefault(model, {})[text] = row.kind
        counts = {model: Counter(kinds.values()) for model, kinds in self.kinds.items() if kinds}
        return Difference(rows, counts, self.others)


def _children(model: type[Model]) -> set[type[Model]]:
    """Return the child models of a table, at every level."""
    return {child for child in apps.get_models() if model in child._meta.all_parents}


def key_value(model: type[Model], key: Key) -> Any:
    """Return a stored key as Python has it."""
    fields: Any = model._meta.pk_fields
    values = tuple(field.to_python(cell) for field, cell in zip(fields, key, strict=True))
    return values if len(values) > 1 else values[0]


def key_text(model: type[Model], key: Key) -> str:
    """Return a stored key as a text that tells rows of the model apart."""
    return pk_text(key_value(model, key))


def _is_computed(field: Any) -> bool:
    """Return whether the database computes the default of a column."""
    expression = field.db_default
    return hasattr(expression, "resolve_expression") and not isinstance(expression, Value)


def _is_made(model: ModelAccess, named: Collection[str]) -> bool:
    """Return whether the key of a new row is made when it is written, and will be another one then."""
    field: Any = model.exposure.opts.pk
    is_made = isinstance(field, AutoFieldMixin) or field.has_default() or field.has_db_default()
    return is_made and field.name not in named


def _hide_new_keys(rows: Sequence[RowDifference]) -> None:
    """Hide the keys of new rows, and what points to them: they will be others when the rows are written."""
    new = {(row.model.exposure.model, row.row.pk) for row in rows if row.is_new_key}
    if not new:
        return
    for row in rows:
        if row.after is None:
            continue
        for name, value in row.after.columns.items():
            field: Any = row.model.exposure.options.model_fields.get(name)
            related = getattr(field, "related_model", None)
            if related is None or not isinstance(value, list):
                continue
            if field.many_to_many:
                row.after.columns[name] = [_without_new_key(related, pair, new) for pair in value]
            else:
                row.after.columns[name] = _without_new_key(related, value, new)


def _without_new_key(related: type[Model], pair: Any, new: Collection[Any]) -> Any:
    """Return a related row, ``[key, label]``, without the key of a new one."""
    if isinstance(pair, list) and len(pair) == 2 and (related, pair[0]) in new:
        return [SET_WHEN_WRITTEN, pair[1]]
    return pair

"""Several rows in one write, each with values of its own: ``rows`` of ``update_record``."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from django.db import router
from django.db.models import Model

from ..conf import settings
from ..emulation.picked_rows import listed
from ..emulation.record import Record
from ..emulation.saving import MAX_LABELS, RowPage
from ..exceptions import NotPermitted, ToolError
from ..orm.access import ModelAccess
from ..orm.alternative_spellings import json_or_text
from ..orm.column_values import pk_text
from ..orm.labels import label_of
from ..orm.row_finder import RowFinder
from ..orm.tool_arguments import Arguments
from ..orm.unique_keys import PK, Key, UniqueKey
from .differing_rows import Target
from .footprints import Footprint
from .fresh_rows import FreshRows
from .kept_rows import FirstRows
from .row_expressions import RowExpressions
from .writes import RefusedRows, Write


class NamedRow:
    """One of the rows: its ``key``, also as it is told, the values to save, and the row, None where it is not there."""

    def __init__(self, model: ModelAccess, told: str, key: Key, given: Mapping[str, Any]) -> None:
        self.model = model
        self.told = told
        self.key = key
        self.given = given
        self.row: Model | None = None

    @cached_property
    def expressions(self) -> RowExpressions:
        """The values to save, with the expressions among them."""
        return RowExpressions.read(self.model, self.given)

    def values_now(self) -> Mapping[str, Any]:
        """Return the values to save in the row as it is now."""
        return self.expressions.values_for(self.row)


class NamedRows(Write):
    """Saves several rows with values of their own. ``by`` names the fields of a unique key, which each row holds; with
    ``create_missing``, a row without such a key is created."""

    permission = "change"
    done = "updated"
    # Number of rows that are written without a question.
    MAX_UNASKED: ClassVar = 20

    def __init__(self, model: ModelAccess, tool: str, arguments: Arguments) -> None:
        super().__init__(model, tool)
        self.arguments = arguments
        # The keys of the rows in ``kept_rows``, as texts.
        self.shown_keys: list[str] = []
        self.by = arguments.names("by", UniqueKey.MAX_FIELDS) if "by" in arguments else [PK]
        self.create_missing = arguments.flag("create_missing")
        self.key = UniqueKey(model, self.by)
        self.given = _rows(arguments, self.key)

    @property
    def bound(self) -> Mapping[str, Any]:
        return {"model": self.exposure.label, "rows": self.given, "by": self.by, "create": self.create_missing}

    @property
    def many(self) -> int:
        return len(self.rows)

    def prepare(self) -> None:
        self.request.go_to(self.exposure, "changelist")
        self.rows = [self._named(given) for given in self.given]
        locked = self.lock(self._find)
        self._check_missing()
        self._check_twice()
        self._check_each(locked)
        for named in self.rows:
            # A row that is created gets its key as a value too.
            if named.row is not None or self.key.is_pk:
                named.given = {name: value for name, value in named.given.items() if name not in self.by}
        expressions = [named.expressions for named in self.rows]
        self.asks = len(self.rows) > self.MAX_UNASKED or self.asks_for(*expressions)
        self._describe()

    def _named(self, given: Mapping[str, Any]) -> NamedRow:
        values = [given[name] for name in self.by]
        return NamedRow(self.model, ", ".join(map(str, values)), self.key.read(values), given)

    def _find(self) -> Sequence[Model]:
        """Find the rows that are there, by one query, and return them."""
        found = self.key.find([named.key for named in self.rows])
        for named, row in zip(self.rows, found, strict=True):
            named.row = row
        return [row for row in found if row is not None]

    def _check_missing(self) -> None:
        missing = [named.told for named in self.rows if named.row is None]
        may_add = self.model.may_row("add")
        if not missing or (self.create_missing and may_add):
            return
        by = " and ".join(self.by)
        text = f"No row of {self.exposure.label} has {by} {listed(missing[:MAX_LABELS], len(missing))}. "
        if self.create_missing:
            raise NotPermitted(f"{text}You may not add rows. Nothing was changed.")
        way = " Set create_missing to add them." if may_add else ""
        raise ToolError(f"{text}Nothing was changed.{way}")

    def _check_twice(self) -> None:
        seen = set()
        for named in self.rows:
            one = named.row.pk if named.row is not None else named.key
            if one in seen:
                raise ToolError(f"{named.told} is named twice in rows. Nothing was changed.")
            seen.add(one)

    def _check_each(self, rows: Sequence[Model]) -> None:
        """Raise ``ToolError`` unless the caller may change each of the rows."""
        for row in rows:
            self.request.go_to(self.exposure, "change", row.pk)
            if not self.allows(row):
                label = label_of(self.exposure, row) or pk_text(row.pk)
                raise NotPermitted(f"You may not change {label} of {self.exposure.label}. Nothing was changed.")

    def _describe(self) -> None:
        told = [named.told for named in self.rows]
        self.affected = [named.row if named.row is not None else named.told for named in self.rows]
        self.message = f"This changes {len(told)} row{'s' if len(told) != 1 else ''} of {self.exposure.label}."
        self.shown = {"model": self.exposure.label, "rows": len(told), "objects": told[:MAX_LABELS]}
        self.listing = f"{self.exposure.label} ({len(told)}): {listed(told[:MAX_LABELS], len(told))}"

    def track(self, footprint: Footprint) -> None:
        for named in self.rows:
            footprint.add_form(RowPage(self.model, named.row), named.given)
        footprint.before()

    @property
    def targets(self) -> Sequence[Target]:
        rows = [(named.row, named.given) for named in self.rows]
        return [Target(self.model, row.pk, given) for row, given in rows if row is not None and row.pk is not None]

    def check(self) -> None:
        for named in self.rows:
            RowPage(self.model, named.row).saving(named.values_now(), self.tool).check()

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        refused = RefusedRows(self.model)
        fresh = FreshRows(self.exposure.model)
        self.first = FirstRows(self.model)
        saved: list[tuple[Model, dict[str, Any] | None, set[str]]] = []
        for number, named in enumerate(self.rows, 1):
            row = named.row
            before: dict[str, Any] | None = None
            if row is None:
                self.request.go_to(self.exposure, "add")
            else:
                self.request.go_to(self.exposure, "change", row.pk)
                before = dict(vars(row))
            using = router.db_for_write(self.exposure.model, instance=row)
            with refused.row(named.told, using), fresh.saving(row):
                if row is not None:
                    self.first.note(row)
                values = named.values_now()
                saving = RowPage(self.model, row).saving(values, self.tool)
                stored, names = saving.save()
                if row is None and stored.pk is not None:
                    footprint.created(stored)
                named.row = stored
                self.messages += saving.messages
                saved.append((stored, before, {*values, *names}))
                self.request.mcp.progress(number, len(self.rows))
            if refused.are_enough:
                break
        refused.check()
        written = dict.fromkeys(name for _, _, names in saved for name in sorted(names))
        plural = "s" if len(saved) != 1 else ""
        self.summary = f"{len(saved)} row{plural} of {self.exposure.label}: {', '.join(written)}"
        counted = self._counted(saved)
        self.kept_rows = counted["rows"]
        return {"updated": True, "model": self.exposure.label, **counted, **self.said()}

    def rows_to_keep(self) -> Sequence[Mapping[str, Any]]:
        changed = self.first.changed()
        return [changed.get(key, row) for key, row in zip(self.shown_keys, self.kept_rows, strict=True)]

    def _counted(self, saved: Sequence[tuple[Model, dict[str, Any] | None, set[str]]]) -> dict[str, Any]:
        """Return how many rows were written, and the first of them with what has changed."""
        rows = []
        self.shown_keys = []
        created = sum(before is None for _, before, _ in saved)
        seen = RowFinder(self.model).by_key([row.pk for row, _, _ in saved[: self.MAX_UNASKED]])
        for row, before, names in saved:
            if row.pk in seen and self.model.may_row("view", seen[row.pk]):
                record = Record(self.model, seen[row.pk], text_limit=settings.TEXT_CHARS)
                shown = record.changed(before or {}, names)
                shown.pop("model")
                rows.append(shown)
                self.shown_keys.append(pk_text(row.pk))
        counts = {"changed_rows": len(saved) - created}
        if created:
            counts["created_rows"] = created
        return {**counts, "rows": rows}


def _rows(arguments: Arguments, unique: UniqueKey) -> list[dict[str, Any]]:
    """Return the argument ``rows``, each an object with the fields of the key and at least one value."""
    by = unique.names
    rows = json_or_text(arguments.get("rows"))
    most = settings.MAX_BULK_ROWS
    key = ", ".join(by)
    if not isinstance(rows, list) or not 1 <= len(rows) <= most:
        raise ToolError(f"rows must be a list of 1 to {most} objects, each with {key} and the values to save.")
    read = []
    for number, item in enumerate(rows, 1):
        row = json_or_text(item)
        if not isinstance(row, dict):
            raise ToolError(f"Row {number} of rows must be an object, such as {{'{by[0]}': ..., 'field': value}}.")
        missing = [name for name in by if name not in row]
        if missing:
            raise ToolError(
                f"Row {number} of rows has no {', '.join(missing)}: each is named by {key}. Nothing was changed. "
                f"Other keys can be named in by: {unique.possible}."
            )
        if len(row) == len(by) and not arguments.flag("create_missing"):
            raise ToolError(f"Row {number} of rows has no values to save. Nothing was changed.")
        read.append(row)
    return read

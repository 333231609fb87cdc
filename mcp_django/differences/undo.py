"""Undo: a change is taken back, as a write of its own, so that it can be tried, confirmed, kept and taken back too.

Rows go back in the database, without forms and hooks (:mod:`mcp_django.differences.restoring`). The caller must see
them and have the rights to write them, before and after. What stands in the way refuses all of it.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils import timezone
from django.utils.text import capfirst

from ..conf import settings
from ..context.confirmation import Confirmation, one_line
from ..context.person_consent import needs_person
from ..context.request import MCPRequest
from ..emulation.history import Journal
from ..exceptions import NotFound, NotPermitted, ToolError
from ..models import Change
from ..orm.access import ModelAccess
from ..orm.column_values import pk_text
from ..orm.database_writes import refusals
from ..orm.labels import label_of
from ..orm.row_finder import RowFinder
from ..signals import change_undone, rows_changed
from .cascades import with_parents
from .differing_rows import Target, key_value
from .footprints import Footprint, StoredDifference, UnreadableDifference
from .kept_changes import SEALED, Changes, KeptChange, fitting
from .restoring import Conflict, Restoration
from .row_rights import RowRights, deed_of
from .stored_rows import Key, Row, stored_table
from .writes import Write

# Number of rows from which taking back asks, and of conflicts and rows that an error names.
ASKS_ABOVE: Final = 20
MAX_NAMED: Final = 5
LOOK: Final = "query_records on mcp.change lists your changes, with can_undo."
NOT_FOUND: Final = f"There is no such change of yours. {LOOK}"
INSTEAD: Final = "Take later changes back first, or write the values that you want."
NOT_NOW: Final = "Change {} cannot be taken back: {} Nothing was changed."
UNREADABLE: Final = "The server's secret key has changed since, and what was kept cannot be read."
OUTGROWN: Final = "The tables of its rows have changed since."
ANOTHER_ROW: Final = "another row"


class Undo(Write):
    """Takes the caller's change with this number back, through ``model``, the model that it wrote first."""

    permission = "change"
    done = "undone"

    def __init__(self, model: ModelAccess, tool: str, number: Any, changes: Changes) -> None:
        super().__init__(model, tool)
        self.number = number
        self.changes = changes

    @staticmethod
    def find(changes: Changes, number: Any, *, lock: bool = False) -> KeptChange:
        """Return the change with this number; raise ``ToolError`` if it is not among the caller's."""
        try:
            return changes.own(number, lock=lock)
        except NotFound:
            raise ToolError(NOT_FOUND) from None

    def refusals(self) -> AbstractContextManager[None]:
        return refusals(model=self.exposure.model)

    @property
    def bound(self) -> Mapping[str, Any]:
        return {"change": str(self.number)}

    @property
    def can_be_tried(self) -> bool:
        # No hook of the project runs.
        return True

    @property
    def many(self) -> int:
        return self.restored

    def prepare(self) -> None:
        if settings.READ_ONLY:
            raise NotPermitted("This server only reads at present. Nothing was changed.")
        self.kept = self.find(self.changes, self.number, lock=True)
        change = self.undoes = self.kept.change
        if why_not := self.kept.why_not_undone:
            raise ToolError(NOT_NOW.format(change.pk, why_not))
        undone = self._stored()
        self.restoration = Restoration(undone)
        conflicts = self.restoration.conflicts()
        if stopping := [conflict for conflict in conflicts if conflict.stops]:
            raise ToolError(f"{NOT_NOW.format(change.pk, ConflictTexts(self).told(stopping))} {INSTEAD}")
        planned = self.restoration.planned
        self.rights = RowRights(self.request, change.using, planned, change.labels.split(), undone.named)
        self.rights.check_before()
        self._describe(conflicts)

    def _stored(self) -> StoredDifference:
        """Return what the change has done."""
        change = self.kept.change
        data = self.kept.footprint
        if data is None:
            raise ToolError(NOT_NOW.format(change.pk, UNREADABLE))
        try:
            return StoredDifference.from_json(data)
        except UnreadableDifference:
            raise ToolError(NOT_NOW.format(change.pk, OUTGROWN)) from None

    def _describe(self, conflicts: Sequence[Conflict]) -> None:
        """Say what taking back does, and whether it asks."""
        change = self.kept.change
        tables = self.restoration.planned
        deeds = {table: [deed_of(one) for one in rows.values()] for table, rows in tables.items()}
        self.restored = sum(map(len, deeds.values()))
        # A link of a many-to-many field is a part of its row.
        deleted = sum(found.count("delete") for table, found in deeds.items() if not table._meta.auto_created)
        self.deletes = deleted > 0
        self.asks = self.deletes or self.restored > ASKS_ABOVE
        self.message = f"This takes back change {change.pk}: {one_line(change.summary)}."
        if deleted:
            self.message += f" It deletes {deleted} row{'s' if deleted != 1 else ''}."
        if conflicts:
            self.message += f" {len(conflicts)} other row{'s' if len(conflicts) != 1 else ''} will refer to nothing."
        self.listing = f"Change {change.pk} of {change.time:%Y-%m-%d %H:%M %Z}, {change.tool}"
        self.shown = {"change": change.pk}
        self.summary = f"Taken back: {change.summary}"

    def track(self, footprint: Footprint) -> None:
        """Do nothing: the rows were read and locked to look for conflicts."""

    def confirmation(self, footprint: Footprint) -> Confirmation:
        rows = [[model._meta.label, sorted(map(repr, found.items()))] for model, found in self._current()]
        digest = hashlib.sha256(repr(sorted(rows)).encode(errors="surrogatepass")).hexdigest()
        return self.confirmed(["rows", digest])

    @property
    def needs_person(self) -> bool:
        """Whether only a person can confirm that the change is taken back, or one has done so."""
        if self.request.mcp.consent is not None:
            return True
        return self.asks and needs_person(self.exposure.confirm, deletes=self.deletes, rows=self.restored)

    def _current(self) -> Iterator[tuple[type[Model], Mapping[Key, Row]]]:
        yield from self.restoration.current.rows.items()

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        change = self.kept.change
        user: Any = self.request.user
        values = {"decided": timezone.now(), "by": getattr(user, "get_username", str)()}
        if not self.kept.claim(Change.State.DONE, Change.State.UNDONE, **values):
            raise ToolError(NOT_NOW.format(change.pk, "Somebody has taken it back just now."))
        # What goes has no text of its own afterwards.
        entries = list(self._entries("delete"))
        self.stored = self.restoration.run()
        self.stored.named = self.rights.fields
        self.rights.check_after()
        entries += self._entries("add", "change")
        Journal(self.request, self.tool).took_back(change.pk, entries)
        self.request.mcp.record.rows_changed += self.restored
        self._tell()
        self.kept_rows = [{"change": change.pk, "summary": change.summary, "undone": True}]
        return {"undone": True, "took_back": change.pk, "summary": change.summary, "rows": len(self.targets)}

    @property
    def targets(self) -> Sequence[Target]:
        # Each column is written as it was, also keys and times that a new row would get anew.
        return [Target(one.model, one.key, one.model.fields) for one in self.rights.targets]

    @property
    def labels(self) -> Sequence[str]:
        return [self.exposure.label, *self.kept.change.labels.split()]

    def outcome(self, footprint: Footprint) -> StoredDifference:
        return self.stored

    def tables(self, footprint: Footprint) -> Collection[str]:
        return [model._meta.db_table for model in self.restoration.planned]

    def _entries(self, *deeds: str) -> Iterator[tuple[str, Model, str]]:
        """Yield the rows for the admin's history of which this is done, with their texts as they are now."""
        rights = self.rights
        for (model, value), deed in rights.deeds.items():
            if deed in deeds:
                row = rights.shown[model][value]
                yield deed, row, str(row)
        if "change" in deeds:
            for model, rows in rights.pages.items():
                yield from (("change", row, str(row)) for key, row in rows.items() if (model, key) not in rights.deeds)

    def _tell(self) -> None:
        """Tell subscribers which rows have changed, and receivers of the project once it is committed."""
        for model, rows in self.restoration.planned.items():
            instances = [
                _instance(model, self.restoration.using, before or after or ()) for before, after in rows.values()
            ]
            rows_changed.send(sender=model, rows=instances)
        send = partial(change_undone.send_robust, sender=Change, change=self.kept.change, request=self.request)
        transaction.on_commit(partial(_send, send), using=self.restoration.using)


def _send(send: Any) -> None:
    """Send a signal; exceptions of receivers are logged by Django."""
    send()


def _instance(model: type[Model], using: str, row: Row) -> Model:
    """Return an instance with the keys and relations of a stored row, to say which row it is."""
    table = stored_table(model, using)
    values: dict[str, Any] = {}
    for name, field in table.fields.items():
        cell = table.cell_of(row, name)
        values[name] = field.to_python(cell) if name in table.key_names or field.is_relation else cell
    # The parents in multi-table inheritance have the same key.
    for parent in with_parents(model)[1:]:
        values.setdefault(parent._meta.pk.attname, values[table.key_names[0]])
    names = [field.attname for field in model._meta.concrete_fields if field.attname in values]
    return model.from_db(using, names, [values[name] for name in names])


class OthersChanges(Changes):
    """The changes that anybody made through the site of a request, for somebody who may take back those of others.

    What they write is kept as their own.
    """

    @property
    def rows(self) -> QuerySet[Change]:
        """All changes of the site, without their contents."""
        where = fitting({"site": self.request.mcp.site.name}, self.using)
        return Change.objects.using(self.using).filter(**where).defer(*SEALED)


class ConflictTexts:
    """What stands in the way of an undo, in words that name only what its caller sees."""

    def __init__(self, undo: Undo) -> None:
        self.undo = undo
        self.rights = RowRights(undo.request, undo.kept.change.using, {}, undo.kept.change.labels.split())

    def told(self, conflicts: Sequence[Conflict]) -> str:
        """Return the first conflicts as sentences, and how many more there are."""
        sentences = dict.fromkeys(map(self._sentence, conflicts))
        first = [f"{capfirst(sentence)}." for sentence in list(sentences)[:MAX_NAMED]]
        more = len(sentences) - len(first)
        if more:
            first.append(f"And {more} more.")
        return " ".join(first)

    def _sentence(self, conflict: Conflict) -> str:
        access, name = self._named(conflict.model, conflict.key)
        columns = self._columns(access, conflict)
        other = self._named(*conflict.other)[1] if conflict.other is not None else ANOTHER_ROW
        match conflict.what:
            case "changed":
                return f"{columns} of {name} was changed since" if columns else f"{name} was changed since"
            case "gone":
                return f"{name} was deleted since"
            case "taken":
                what = f"the {columns}" if columns else "a unique value"
                return f"{other} has {what} of {name} now"
            case "missing":
                return f"{name} would refer to {other}, which was deleted since"
            case "swapped":
                return f"{name} and {other} have swapped unique values"
            case _:
                return f"{other} refers to {name}, which would go"

    def _named(self, model: type[Model], key: Key | None) -> tuple[ModelAccess | None, str]:
        """Return a row as the caller knows it, with the model through which they see it."""
        if key is None:
            return None, ANOTHER_ROW
        value = key_value(model, key)
        for access in self.rights.accesses(model):
            found = RowFinder(access).by_key([value])
            row = found.get(value)
            if row is not None and access.may_row("view", row):
                text = one_line(label_of(access.exposure, row) or pk_text(value))
                return access, f"{access.exposure.opts.verbose_name} {text}"
        return None, ANOTHER_ROW

    def _columns(self, access: ModelAccess | None, conflict: Conflict) -> str:
        """Return the columns that the caller sees of those in a conflict."""
        if access is None:
            return ""
        fields = [field for field in conflict.model._meta.local_concrete_fields if field.attname in conflict.columns]
        return ", ".join(field.name for field in fields if field.name in access.fields)


class Withdrawal:
    """Withdraws a change that waits for somebody's yes: nothing was written yet, so nobody is asked."""

    def __init__(self, kept: KeptChange) -> None:
        self.kept = kept

    @property
    def is_possible(self) -> bool:
        """Whether the change waits."""
        return self.kept.change.state == Change.State.WAITING

    def run(self, request: MCPRequest, *, dry_run: bool = False) -> dict[str, Any]:
        """Withdraw the change, and return the members of the result.

        Raises ``ToolError`` if it was decided just now.
        """
        change = self.kept.change
        told = {"change": change.pk, "summary": change.summary}
        if dry_run:
            return {"dry_run": True, "withdraws": True, **told}
        user: Any = request.user
        values = {"decided": timezone.now(), "by": getattr(user, "get_username", str)()}
        if not self.kept.claim(Change.State.WAITING, Change.State.WITHDRAWN, **values):
            raise ToolError(NOT_NOW.format(change.pk, "It was decided just now."))
        return {"withdrawn": True, **told}

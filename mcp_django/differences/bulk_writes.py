"""Many rows in one write: all of them are written, or none.

Each row is saved as in the admin, through its own form and with its own history entry. Deleting calls
``delete_queryset``, as the admin's ``delete_selected`` does: a project's override of it runs, the model's ``delete()``
does not.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from django.db import router
from django.db.models import Model

from ..emulation.deleting import Deleting
from ..emulation.picked_rows import Selection
from ..emulation.saving import MAX_LABELS, RowPage
from ..exceptions import ToolError
from ..orm.access import ModelAccess
from ..orm.database_writes import refusals
from ..orm.labels import label_of
from ..orm.tool_arguments import Arguments
from .differing_rows import Target
from .footprints import Footprint
from .fresh_rows import FreshRows
from .kept_rows import FirstRows
from .row_expressions import RowExpressions
from .writes import RefusedRows, Write, assigned, identified, in_words


class BulkWrite(Write):
    """A write of the rows that a caller picks by ``pks``, ``filters`` or ``search``."""

    asks = True
    selection: Selection

    def __init__(self, model: ModelAccess, tool: str, arguments: Arguments) -> None:
        super().__init__(model, tool)
        self.arguments = arguments

    @property
    def rows(self) -> Sequence[Model]:
        """The rows of the prepared write."""
        return self.selection.rows

    @property
    def many(self) -> int:
        return len(self.rows)

    def prepare(self) -> None:
        self.request.go_to(self.exposure, "changelist")
        self.lock(self._select)
        self._check_each()

    def _select(self) -> Sequence[Model]:
        self.selection = Selection(self.model, self.arguments)
        return self.selection.rows

    def _check_each(self) -> None:
        """Raise ``ToolError`` unless the caller may write each of the rows."""
        refused = []
        for row in self.rows:
            if self.permission == "change":
                self.request.go_to(self.exposure, "change", row.pk)
            refused += [] if self.allows(row) else [row]
        if refused:
            raise self.selection.refusal(self.permission, refused)

    def said(self) -> dict[str, Any]:
        said = super().said()
        return {name: messages[:MAX_LABELS] for name, messages in said.items()}


class BulkUpdate(BulkWrite):
    """Gives many rows the same values."""

    permission = "change"
    done = "updated"

    def __init__(self, model: ModelAccess, tool: str, arguments: Arguments, values: Mapping[str, Any]) -> None:
        super().__init__(model, tool, arguments)
        self.values = values

    @property
    def bound(self) -> Mapping[str, Any]:
        return {"model": self.exposure.label, "values": self.values}

    def prepare(self) -> None:
        values = self.values
        if not values:
            raise ToolError("values is empty. Nothing was changed.")
        super().prepare()
        self.affected = self.rows
        self.expressions = RowExpressions.read(self.model, values)
        plain = self.expressions.plain
        first = self.rows[0]
        given = self.expressions.values_for(first, label_of(self.exposure, first) or str(first.pk))
        labels = RowPage(self.model, first).saving(given, self.tool).check()
        meant = {name: label for name, label in labels.items() if name in plain}
        told = in_words(self.expressions.told)
        self.assigned = assigned(told, meant)
        self.message = f"This changes {counted(self.rows)} of {self.exposure.label}: {self.assigned}."
        self.listing = self.selection.listing
        self.picked = {"model": self.exposure.label, "rows": len(self.rows), "objects": self.selection.labels}
        self.shown = {**self.picked, "values": told}

    def track(self, footprint: Footprint) -> None:
        for row in self.rows:
            footprint.add_form(RowPage(self.model, row), self.values)
        footprint.before()

    @property
    def targets(self) -> Sequence[Target]:
        return [Target(self.model, row.pk, self.values) for row in self.rows]

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        changed: dict[str, None] = {}
        changed_rows = 0
        refused = RefusedRows(self.model)
        fresh = FreshRows(self.exposure.model)
        self.first = FirstRows(self.model)
        for number, row in enumerate(self.rows, 1):
            label = label_of(self.exposure, row) or str(row.pk)
            self.request.go_to(self.exposure, "change", row.pk)
            using = router.db_for_write(self.exposure.model, instance=row)
            with refused.row(label, using), fresh.saving(row):
                self.first.note(row)
                saving = RowPage(self.model, row).saving(self.expressions.values_for(row), self.tool)
                names = saving.save()[1]
                self.messages += saving.messages
                changed |= dict.fromkeys(names)
                changed_rows += bool(names)
                self.request.mcp.progress(number, len(self.rows))
            if refused.are_enough:
                break
        refused.check()
        self.summary = f"{counted(self.rows)} of {self.exposure.label}: {self.assigned}"
        self.kept_rows = [{**self.shown}]
        return {"updated": True, "changed": list(changed), "changed_rows": changed_rows, **self.said(), **self.picked}

    def rows_to_keep(self) -> Sequence[Mapping[str, Any]]:
        return [*self.kept_rows, *self.first.changed().values()]


class BulkDeletion(BulkWrite):
    """Deletes many rows, and all that Django deletes with them."""

    permission = "delete"
    done = "deleted"

    def refusals(self) -> AbstractContextManager[None]:
        return refusals(model=self.exposure.model)

    def prepare(self) -> None:
        super().prepare()
        label = self.exposure.label
        self.deleting = deleting = Deleting(self.model, self.rows, self.tool)
        self.affected = identified(deleting.affected)
        self.shown = {
            "model": label,
            "rows": len(self.rows),
            "objects": self.selection.labels,
            "deletes": deleting.counts,
        }
        self.message = f"{deleting.warning(f'{counted(self.rows)} of {label}')} In all: {deleting.goes}."
        self.listing = self.selection.listing

    def track(self, footprint: Footprint) -> None:
        self.keys = [row.pk for row in self.rows]
        footprint.add_deletion(self.rows)
        footprint.before()

    @property
    def targets(self) -> Sequence[Target]:
        return [Target(self.model, key) for key in self.keys]

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        self.messages += self.deleting.delete_all()
        self.summary = f"{counted(self.rows)} of {self.exposure.label} deleted"
        self.kept_rows = [{**self.shown, "deleted": True}]
        return {"deleted": True, **self.shown, **self.said()}


def counted(rows: Sequence[Model]) -> str:
    """Return the number of rows in words."""
    return f"{len(rows)} row{'s' if len(rows) != 1 else ''}"

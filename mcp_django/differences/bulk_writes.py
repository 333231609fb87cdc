"""Many rows in one write: all of them are written, or none.

Each row is saved as in the admin, through its own form and with its own history entry. Deleting calls
``delete_queryset``, as the admin's ``delete_selected`` does: a project's override of it runs, the model's ``delete()``
does not.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from django.db import connections, router
from django.db.models import Model

from ..context.confirmation import quoted
from ..context.databases import reads_snapshots
from ..emulation.deleting import Deleting
from ..emulation.picked_rows import Selection
from ..emulation.saving import MAX_LABELS, RowPage
from ..exceptions import ToolError
from ..orm.access import ModelAccess
from ..orm.database_writes import refusals
from ..orm.labels import label_of
from ..orm.pagination import chunks
from ..orm.tool_arguments import Arguments
from ..orm.undecodable_values import all_readable
from .row_expressions import RowExpressions
from .writes import RefusedRows, Write

# Maximum characters of a value in a preview.
MAX_VALUE: Final = 200


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

    def prepare(self) -> None:
        self.request.go_to(self.exposure, "changelist")
        self.selection = self._locked()

    def _locked(self) -> Selection:
        """Lock and return the rows of the bulk write, if the caller may write each of them."""
        request = self.request
        exposure = self.exposure
        selection = Selection(self.model, self.arguments)
        using = router.db_for_write(exposure.model)
        if connections[using].features.has_select_for_update:
            keys = [row.pk for row in selection.rows]
            locking = exposure.model._base_manager.using(using).select_for_update().order_by("pk")
            with all_readable():
                locked = {row.pk: row for chunk in chunks(keys) for row in locking.filter(pk__in=chunk)}
            selection = Selection(self.model, self.arguments)
            is_changed = [row.pk for row in selection.rows] != keys
            if not is_changed and reads_snapshots(using):
                names = [field.attname for field in exposure.opts.concrete_fields]
                pairs = ((row, locked.get(row.pk)) for row in selection.rows)
                is_changed = any(getattr(row, name) != getattr(now, name, None) for row, now in pairs for name in names)
            if is_changed:
                raise ToolError("Someone else was changing these rows. Nothing was changed. Repeat the call.")
        refused = []
        for row in selection.rows:
            if self.permission == "change":
                request.go_to(exposure, "change", row.pk)
            refused += [] if self.model.may_row(self.permission, row) else [row]
        if refused:
            raise selection.refusal(self.permission, refused)
        return selection

    def said(self) -> dict[str, Any]:
        said = super().said()
        return {name: messages[:MAX_LABELS] for name, messages in said.items()}


class BulkUpdate(BulkWrite):
    """Gives many rows the same values."""

    permission = "change"
    done = "updated"

    def __init__(self, model: ModelAccess, tool: str, arguments: Arguments) -> None:
        super().__init__(model, tool, arguments)
        self.values = arguments.object("values")

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
        told = {name: str(value)[:MAX_VALUE] for name, value in values.items()}
        meant = {name: f" ({quoted(label)})" for name, label in labels.items() if name in plain}
        assigned = ", ".join(f"{name} = {quoted(value)}{meant.get(name, '')}" for name, value in told.items())
        self.message = f"This changes {counted(self.rows)} of {self.exposure.label}: {assigned}."
        self.question = f"{self.message}\n\n{self.selection.listing}"
        self.picked = {"model": self.exposure.label, "rows": len(self.rows), "objects": self.selection.labels}
        self.shown = {**self.picked, "values": told}

    def perform(self) -> dict[str, Any]:
        changed: dict[str, None] = {}
        changed_rows = 0
        refused = RefusedRows(self.model)
        for number, row in enumerate(self.rows, 1):
            label = label_of(self.exposure, row) or str(row.pk)
            self.request.go_to(self.exposure, "change", row.pk)
            with refused.row(label, router.db_for_write(self.exposure.model, instance=row)):
                saving = RowPage(self.model, row).saving(self.expressions.values_for(row), self.tool)
                names = saving.save()[1]
                self.messages += saving.messages
                changed |= dict.fromkeys(names)
                changed_rows += bool(names)
                self.request.mcp.progress(number, len(self.rows))
            if refused.are_enough:
                break
        refused.check()
        return {"updated": True, "changed": list(changed), "changed_rows": changed_rows, **self.said(), **self.picked}


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
        self.affected = deleting.affected
        self.shown = {
            "model": label,
            "rows": len(self.rows),
            "objects": self.selection.labels,
            "deletes": deleting.counts,
        }
        self.message = f"{deleting.warning(f'{counted(self.rows)} of {label}')} In all: {deleting.goes}."
        self.question = f"{self.message}\n\n{self.selection.listing}"

    def perform(self) -> dict[str, Any]:
        self.messages += self.deleting.delete_all()
        return {"deleted": True, **self.shown, **self.said()}


def counted(rows: Sequence[Model]) -> str:
    """Return the number of rows in words."""
    return f"{len(rows)} row{'s' if len(rows) != 1 else ''}"

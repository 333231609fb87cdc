"""Many rows in one call: shown first, confirmed once, all written or none.

Each row is saved as in the admin, through its own form and with its own history entry. Deleting calls
``delete_queryset``, as the admin's ``delete_selected`` does: a project's override of it runs, the model's ``delete()``
does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from django.db import connections, router, transaction
from django.db.models import Model

from ..context.confirmation import Confirmation, quoted
from ..context.databases import reads_snapshots
from ..context.tool_results import ToolResult
from ..exceptions import ToolError
from ..orm.access import ModelAccess
from ..orm.database_writes import one_transaction, refusals
from ..orm.labels import label_of
from ..orm.pagination import chunks
from ..orm.tool_arguments import Arguments
from .deleting import Deleting
from .picked_rows import Selection
from .saving import MAX_LABELS, NOT_SAVED, RowPage
from .validation_errors import write_refusals

# Number of refused rows after which no others are tried, and maximum characters of the reason for each.
MAX_REFUSED: Final = 5
MAX_REASON: Final = 200
# Maximum characters of a value in a preview.
MAX_VALUE: Final = 200


class BulkWrite:
    """Writes in bulk: changes or deletes many rows in one call, after showing them and asking for confirmation."""

    def __init__(self, model: ModelAccess, arguments: Arguments, tool: str, permission: str) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.arguments = arguments
        self.tool = tool
        self.permission = permission
        self.messages: list[dict[str, str]] = []

    def update(self) -> ToolResult:
        """Change the picked rows, or ask first."""
        request = self.request
        exposure = self.exposure
        label = self.exposure.label
        values = self.arguments.object("values")
        if not values:
            raise ToolError("values is empty. Nothing was changed.")
        request.go_to(exposure, "changelist")
        with RowPage.transaction(self.model):
            selection = self._locked()
            rows = selection.rows
            labels = RowPage(self.model, rows[0]).saving(values, self.tool).check()
            shown = {"model": label, "rows": len(rows), "objects": selection.labels}
            told = {name: str(value)[:MAX_VALUE] for name, value in values.items()}
            meant = {name: f" ({quoted(label)})" for name, label in labels.items()}
            assigned = ", ".join(f"{name} = {quoted(value)}{meant.get(name, '')}" for name, value in told.items())
            message = f"This changes {_counted(rows)} of {label}: {assigned}."
            bound = {"model": label, "values": values}
            asked = self._asked(selection, message, {**shown, "values": told}, bound, rows)
            if asked is not None:
                return asked
            done = self._save_all(rows, values)
            return ToolResult(structured={"updated": True, **done, **self._said(), **shown})

    def delete(self) -> ToolResult:
        """Delete rows in bulk: the picked ones and all that Django deletes with them, or ask first."""
        request = self.request
        exposure = self.exposure
        label = self.exposure.label
        request.go_to(exposure, "changelist")
        with refusals(model=exposure.model), one_transaction(exposure.model, request):
            selection = self._locked()
            rows = selection.rows
            deleting = Deleting(self.model, rows, self.tool)

            # First show the rows, and all that goes with them.
            shown = {"model": label, "rows": len(rows), "objects": selection.labels, "deletes": deleting.counts}
            message = f"{deleting.warning(f'{_counted(rows)} of {label}')} In all: {deleting.goes}."
            asked = self._asked(selection, message, shown, {"model": label}, deleting.affected)
            if asked is not None:
                return asked

            # Then delete them.
            self.messages += deleting.delete_all()
            return ToolResult(structured={"deleted": True, **shown, **self._said()})

    def _locked(self) -> Selection:
        """Lock and return the rows of the bulk write, if the caller may write each of them."""
        request = self.request
        exposure = self.exposure
        selection = Selection(self.model, self.arguments)
        using = router.db_for_write(exposure.model)
        if connections[using].features.has_select_for_update:
            keys = [row.pk for row in selection.rows]
            locking = exposure.model._base_manager.using(using).select_for_update().order_by("pk")
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

    def _asked(
        self, selection: Selection, message: str, shown: Mapping[str, Any], arguments: Any, objects: Iterable[Any]
    ) -> ToolResult | None:
        token = self.arguments.get("confirm_token")
        told = f"{message}\n\n{selection.listing}"
        confirmation = Confirmation(self.request, self.tool, arguments, objects)
        return confirmation.confirm(token, message, told, shown, again=True)

    def _save_all(self, rows: Sequence[Model], values: Mapping[str, Any]) -> dict[str, Any]:
        """Save all rows of the bulk write; return which fields changed, and in how many rows."""
        request = self.request
        exposure = self.exposure
        changed: dict[str, None] = {}
        changed_rows = 0
        refused: dict[str, list[str]] = {}
        for number, row in enumerate(rows, 1):
            label = label_of(exposure, row) or str(row.pk)
            using = router.db_for_write(exposure.model, instance=row)
            request.go_to(exposure, "change", row.pk)
            saving = RowPage(self.model, row).saving(values, self.tool)
            try:
                # A savepoint for each row: if the database refuses one, the others can still be tried.
                with write_refusals(self.model), transaction.atomic(using=using):
                    names = saving.save()[1]
            except ToolError as error:
                reason = " ".join(error.message.removeprefix(NOT_SAVED).split())[:MAX_REASON]
                refused.setdefault(reason, []).append(label)
                if sum(map(len, refused.values())) >= MAX_REFUSED:
                    break
                continue
            self.messages += saving.messages
            changed |= dict.fromkeys(names)
            changed_rows += bool(names)
            request.mcp.progress(number, len(rows))
        if refused:
            lines = [f"{', '.join(labels)}: {reason}" for reason, labels in refused.items()]
            raise ToolError("\n".join([f"Nothing was saved, because rows of {exposure.label} are refused.", *lines]))
        return {"changed": list(changed), "changed_rows": changed_rows}

    def _said(self) -> dict[str, Any]:
        messages = list({tuple(message.items()): message for message in self.messages}.values())
        return {"messages": messages[:MAX_LABELS]} if messages else {}


def _counted(rows: Sequence[Model]) -> str:
    return f"{len(rows)} row{'s' if len(rows) != 1 else ''}"

"""Deleting rows, with all that Django deletes with them, as the admin's confirmation pages do."""

from collections.abc import Sequence
from typing import Any, Final

from django.db import router
from django.db.models import Model

from ..context.confirmation import quoted
from ..exceptions import ToolError
from ..orm.access import ModelAccess
from ..orm.database_writes import plan_deletion
from ..orm.pagination import chunks
from .history import Journal
from .page_requests import as_page, changelist_entries, has_failed, recording, said

# Name of the admin's action that deletes rows.
DELETE: Final = "delete_selected"


class Deleting:
    """Deletes some rows of a model for a tool: ``counts`` says by kind what goes, ``affected`` are all that go.

    Making one raises ``ToolError`` if rows are protected, or the caller may not delete all that would go.
    """

    def __init__(self, model: ModelAccess, rows: Sequence[Model], tool: str) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.rows = rows
        self.tool = tool
        deletion = plan_deletion(model, *rows)
        self.affected = deletion.objects
        self.counts = dict(deletion.counts)

    @property
    def goes(self) -> str:
        """What goes, by kind, in words."""
        return ", ".join(f"{kind} ({count})" for kind, count in self.counts.items())

    def warning(self, what: str) -> str:
        """Return the first sentence of the question whether to delete ``what``."""
        if self.exposure.options.has_own_deletion:
            return f"This deletes {what} in the project's own way, which may only mark them as deleted."
        return f"This deletes {what}, which cannot be undone."

    def delete_one(self) -> list[dict[str, str]]:
        """Delete the one row, by ``delete_model``; return what the project's hooks tell the user."""
        (row,) = self.rows
        messages: list[dict[str, str]] = []
        with as_page(self.request, "POST", [("post", "yes")], messages):
            key = row.pk
            Journal(self.request, self.tool).deletes(self.exposure, self.rows)
            self.exposure.delete_model(self.request, row)
            self._check([key])
        return messages

    def delete_all(self) -> list[dict[str, str]]:
        """Delete the rows, by ``delete_queryset``; return what the project's hooks tell the user."""
        request = self.request
        exposure = self.exposure
        messages: list[dict[str, str]] = []
        posted = [*changelist_entries(DELETE, self.rows), ("post", "yes")]
        with as_page(request, "POST", posted, messages), recording(request, exposure.model_admin):
            Journal(request, self.tool).deletes(exposure, self.rows)
            keys = [row.pk for row in self.rows]
            exposure.delete_queryset(request, exposure.get_queryset(request).filter(pk__in=keys))
            self._check(keys)
        return messages

    def _check(self, keys: Sequence[Any]) -> None:
        """Raise ``ToolError`` if a hook of the project reports an error and has left rows where they are."""
        if not has_failed(self.request):
            return
        table = self.exposure.model
        rows = table._base_manager.using(router.db_for_write(table))
        left = sum(rows.filter(pk__in=chunk).count() for chunk in chunks(keys))
        if left:
            which = f"{left} of {len(keys)} rows are still there" if len(keys) > 1 else "the row is still there"
            told = quoted(" ".join(message["text"] for message in said(self.request)))
            raise ToolError(f"Nothing was deleted, because {which}: {told}")

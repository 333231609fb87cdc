"""Deleting rows, with all that Django deletes with them, as the admin's confirmation pages do."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from django.contrib.admin.utils import NestedObjects, model_ngettext
from django.db import router
from django.db.models import Model

from ..context.confirmation import quoted
from ..context.request import MCPRequest
from ..exceptions import NotFound, NotPermitted, ToolError
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import pk_text
from ..orm.labels import label_of
from ..orm.pagination import chunks
from .history import Journal
from .page_requests import as_page, changelist_entries, has_failed, recording, said

# Name of the admin's action that deletes rows.
DELETE: Final = "delete_selected"
# Maximum number of protected rows that an error names.
MAX_NAMED: Final = 5


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
        self.counts, self.affected = self._plan()

    def _plan(self) -> tuple[dict[str, int], tuple[Model, ...]]:
        """Return how many rows of each model would go, also of other models, and each of them."""
        exposure = self.exposure
        rows = self.rows
        _, counts, perms_needed, protected = exposure.get_deleted_objects(rows, self.request)
        collector = NestedObjects(using=router.db_for_write(type(rows[0]), instance=rows[0]), origin=rows)
        collector.collect(rows)

        which = "This row" if len(rows) == 1 else "Some of these rows"
        if protected or collector.protected:
            blocking = blockers(self.request, collector.protected or protected)
            raise ToolError(
                f"{which} of {exposure.label} cannot be deleted, because rows that refer to it are protected: "
                f"{blocking}. Nothing was deleted. Change or delete those first."
            )
        if perms_needed:
            kinds = ", ".join(sorted(str(kind) for kind in perms_needed))
            raise NotPermitted(
                f"Deleting {which.lower()} of {exposure.label} would also delete rows that you may not delete: "
                f"{kinds}. Nothing was deleted."
            )
        objects = tuple(obj for objs in collector.model_objs.values() for obj in objs)
        return {str(kind): count for kind, count in dict(counts).items()}, objects

    @property
    def goes(self) -> str:
        """What goes, by kind, in words."""
        return ", ".join(f"{kind} ({count})" for kind, count in self.counts.items())

    def warning(self, what: str) -> str:
        """Return the first sentence of the question whether to delete ``what``."""
        if self.exposure.options.has_own_deletion:
            return f"This deletes {what} in the project's own way, which may only mark them as deleted."
        return f"This deletes {what}."

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


# Protected rows


def blockers(request: MCPRequest, protected: Iterable[Any]) -> str:
    """Return what blocks a database deletion: how many protected rows of each model, and names the caller may see."""
    rows = [obj for obj in protected if isinstance(obj, Model)]
    models = Counter(obj._meta for obj in rows)
    counted = ", ".join(sorted(f"{n} {model_ngettext(model, n)}" for model, n in models.items())) or "other rows"
    names = list(_visible_names(request, rows))
    if names:
        return f"{counted} (such as {'; '.join(names)})"
    return counted


def _visible_names(request: MCPRequest, rows: Iterable[Model]) -> list[str]:
    names: list[str] = []
    for row in sorted(rows, key=lambda row: (row._meta.label, str(row.pk)))[:MAX_NAMED]:
        exposure = request.mcp.site.exposures.get(type(row))
        model = access_of(request)[exposure] if exposure is not None else None
        if model is None or not model.is_there:
            continue
        try:
            model.get_row(pk_text(row.pk))
        except NotFound:
            continue
        names.append(f"{exposure.label} {pk_text(row.pk)}: {label_of(exposure, row) or row.pk}")
    return names

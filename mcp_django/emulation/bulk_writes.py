"""Many rows in one call: picked by their primary keys or by a query, shown first, confirmed once, all written or none.

The primary keys that a query finds are read once: a tool writes exactly the rows that it has shown. Each row is saved
as in the admin, through its own form and with its own history entry. Deleting calls ``delete_queryset``, as the admin's
``delete_selected`` does: a project's override of it runs, the model's ``delete()`` does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from django.db import connections, router, transaction
from django.db.models import Model, QuerySet

from ..conf import settings
from ..context.admin_page_and_language import go_to
from ..context.confirmation import Confirmation, quoted
from ..context.tool_results import ToolResult
from ..exceptions import NotFound, NotPermitted, ToolError
from ..exposures.model_exposure import ModelExposure
from ..orm.access import ModelAccess, bare_pk
from ..orm.column_values import pk_text
from ..orm.database_writes import one_transaction, plan_deletion, refusals
from ..orm.labels import label_of
from ..orm.pagination import COUNT_CAP, chunks, narrowed
from ..orm.row_finder import RowFinder
from ..orm.tool_arguments import Arguments, RowArguments
from ..schema.value_types import FREE_OBJECT, KEY
from .history import Journal
from .page_requests import as_page, changelist_entries, has_failed, recording, said
from .saving import MAX_LABELS, NOT_SAVED, Saving
from .validation_errors import write_refusals

SEARCH: Final[Mapping[str, Any]] = {"type": "string", "description": "Free text"}
# Arguments that pick rows: those that tools declare, those that they accept, and those of actions on every row.
PICKING: Final[Mapping[str, Any]] = {"pks": {"type": "array", "items": KEY}, "filters": FREE_OBJECT}
QUERY: Final[Mapping[str, Any]] = {**PICKING, "search": SEARCH}
EVERYTHING: Final[Mapping[str, Any]] = {**QUERY, "all": {"type": "boolean"}}
# Name of the admin's action that deletes rows.
DELETE: Final = "delete_selected"
# Number of refused rows after which no others are tried, and maximum characters of the reason for each.
MAX_REFUSED: Final = 5
MAX_REASON: Final = 200
# Maximum characters of a value in a preview.
MAX_VALUE: Final = 200


class Selection:
    """The rows of a bulk write or an action, picked by ``pks``, ``filters``, ``search`` or ``all``. ``by_query`` says
    that the caller did not name the rows by ``pks``."""

    def __init__(self, model: ModelAccess, arguments: Mapping[str, Any]) -> None:
        self.model = model
        self.by_query = arguments.get("pks") is None
        self.rows = self._picked(Arguments(arguments))

    def _picked(self, arguments: Arguments) -> Sequence[Model]:
        model = self.model
        exposure = model.exposure
        pks = arguments.get("pks")
        every = arguments.flag("all")
        narrowing = [name for name in ("filters", "search") if arguments.get(name) not in (None, "", "{}", {}, [])]
        if pks is not None and (every or narrowing):
            raise ToolError("Give either pks or a query, not both. Nothing was changed.")
        if pks is not None:
            keys = [bare_pk(exposure, pk) for pk in arguments.pks()]
            try:
                return RowFinder(model).pick(keys)[1]
            except NotFound:
                return RowFinder(model).rows(keys, RowFinder.NOT_FOUND)
        if not every and not narrowing:
            raise ToolError(
                "Say which rows: give pks, or filters or search for all rows that match. Nothing was changed."
            )
        asked = RowArguments(model, arguments)
        queryset = narrowed(model, asked.filters(), asked.search())
        most = settings.MAX_BULK_ROWS
        keys = list(dict.fromkeys(queryset.order_by("pk").values_list("pk", flat=True)[: most + 1]))
        if len(keys) > most:
            count = queryset.values("pk")[: COUNT_CAP + 1].count()
            found = f"More than {COUNT_CAP}" if count > COUNT_CAP else count
            raise ToolError(
                f"{found} rows of {exposure.label} match, and {most} is the most for one call. Nothing was changed. "
                "Narrow filters, such as to a range of dates or keys, and go through the rows in parts."
            )
        seen = RowFinder(model).by_key(keys).values()
        rows = [row for row in seen if model.may_row("view", row)]
        if not rows:
            raise ToolError(
                f"No rows of {exposure.label} match. Nothing was changed. query_records shows what there is."
            )
        return rows

    def queryset(self, rows: Iterable[Model]) -> QuerySet[Any]:
        """Return some of the rows picked for a bulk write as a queryset, as an admin action gets them."""
        return self.model.exposure.get_queryset(self.model.request).filter(pk__in=[row.pk for row in rows])


def listed(labels: Sequence[str], total: int) -> str:
    """List the labels of rows of a bulk write in its question, each quoted, and how many more there are."""
    more = f" and {total - len(labels)} more" if total > len(labels) else ""
    return f"{'; '.join(map(quoted, labels))}{more}"


def labels_of(exposure: ModelExposure, rows: Iterable[Model]) -> list[str]:
    """Return the labels of the first rows of a bulk write, as many as its question names."""
    return [label_of(exposure, row) or str(row.pk) for row in islice(rows, MAX_LABELS)]


def refusal(exposure: ModelExposure, what: str, rows: Sequence[Model]) -> NotPermitted:
    """Return the error that the caller may not do this to these rows, with the keys by which to leave them out."""
    labels = labels_of(exposure, rows[:MAX_REFUSED])
    named = listed([f"{pk_text(row.pk)}: {label}" for row, label in zip(rows, labels, strict=False)], len(rows))
    return NotPermitted(
        f"You may not {what} {len(rows)} of these rows of {exposure.label}: {named}. Nothing was changed. "
        "Leave them out."
    )


def deletion_warning(exposure: ModelExposure, what: str) -> str:
    """Return the first sentence of the question whether to delete ``what``, for one row and in bulk."""
    if exposure.options.has_own_deletion:
        return f"This deletes {what} in the project's own way, which may only mark them as deleted."
    return f"This deletes {what}, which cannot be undone."


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
        go_to(request, exposure, "changelist")
        with write_refusals(self.model), one_transaction(exposure.model, request):
            rows = self._locked()
            labels = Saving.of(self.model, rows[0], values, self.tool).check()
            shown = {"model": label, "rows": len(rows), "objects": labels_of(exposure, rows)}
            told = {name: str(value)[:MAX_VALUE] for name, value in values.items()}
            meant = {name: f" ({quoted(label)})" for name, label in labels.items()}
            assigned = ", ".join(f"{name} = {quoted(value)}{meant.get(name, '')}" for name, value in told.items())
            message = f"This changes {_counted(rows)} of {label}: {assigned}."
            bound = {"model": label, "values": values}
            asked = self._asked(message, {**shown, "values": told}, bound, rows)
            if asked is not None:
                return asked
            done = self._save_all(rows, values)
            return ToolResult(structured={"updated": True, **done, **self._said(), **shown})

    def delete(self) -> ToolResult:
        """Delete rows in bulk: the picked ones and all that Django deletes with them, or ask first."""
        request = self.request
        exposure = self.exposure
        label = self.exposure.label
        go_to(request, exposure, "changelist")
        with refusals(), one_transaction(exposure.model, request):
            rows = self._locked()
            deletion = plan_deletion(self.model, *rows)
            counts = dict(deletion.counts)
            shown = {"model": label, "rows": len(rows), "objects": labels_of(exposure, rows), "deletes": counts}
            goes = ", ".join(f"{kind} ({count})" for kind, count in counts.items())
            message = f"{deletion_warning(exposure, f'{_counted(rows)} of {label}')} In all: {goes}."
            asked = self._asked(message, shown, {"model": label}, deletion.objects)
            if asked is not None:
                return asked
            posted = [*changelist_entries(DELETE, rows), ("post", "yes")]
            with as_page(request, "POST", posted, self.messages), recording(request, exposure.model_admin):
                Journal(request, self.tool).deletes(exposure, rows)
                keys = [row.pk for row in rows]
                exposure.delete_queryset(request, self.selection.queryset(rows))
                check_deleted(self.model, keys)
            return ToolResult(structured={"deleted": True, **shown, **self._said()})

    def _locked(self) -> Sequence[Model]:
        """Lock and return the rows of the bulk write, if the caller may write each of them."""
        request = self.request
        exposure = self.exposure
        self.selection = Selection(self.model, self.arguments)
        rows = self.selection.rows
        using = router.db_for_write(exposure.model)
        if connections[using].features.has_select_for_update:
            keys = [row.pk for row in rows]
            locking = exposure.model._base_manager.using(using).select_for_update().order_by("pk")
            for chunk in chunks(keys):
                list(locking.filter(pk__in=chunk))
            rows = Selection(self.model, self.arguments).rows
            if [row.pk for row in rows] != keys:
                raise ToolError("Someone else was changing these rows. Nothing was changed. Repeat the call.")
        refused = []
        for row in rows:
            if self.permission == "change":
                go_to(request, exposure, "change", row.pk)
            refused += [] if self.model.may_row(self.permission, row) else [row]
        if refused:
            raise refusal(exposure, self.permission, refused)
        return rows

    def _asked(
        self, message: str, shown: Mapping[str, Any], arguments: Any, objects: Iterable[Any]
    ) -> ToolResult | None:
        token = self.arguments.get("confirm_token")
        rows = f"{shown['model']} ({shown['rows']})"
        told = f"{message}\n\n{rows}: {listed(shown['objects'], shown['rows'])}"
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
            go_to(request, exposure, "change", row.pk)
            saving = Saving.of(self.model, row, values, self.tool)
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


def check_deleted(model: ModelAccess, keys: Sequence[Any]) -> None:
    """Raise ``ToolError`` if a hook of the project reports an error and has left rows where they are."""
    if not has_failed(model.request):
        return
    table = model.exposure.model
    rows = table._base_manager.using(router.db_for_write(table))
    left = sum(rows.filter(pk__in=chunk).count() for chunk in chunks(keys))
    if left:
        which = f"{left} of {len(keys)} rows are still there" if len(keys) > 1 else "the row is still there"
        told = quoted(" ".join(message["text"] for message in said(model.request)))
        raise ToolError(f"Nothing was deleted, because {which}: {told}")


def _counted(rows: Sequence[Model]) -> str:
    return f"{len(rows)} row{'s' if len(rows) != 1 else ''}"

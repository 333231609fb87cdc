"""Writes of one row: created, updated or deleted as the admin does it, in steps that a call runs one after the other.

A write is first prepared: its row is locked and the caller's permission is checked. Then it is performed, in the same
transaction. In between, the call can ask whether to go on.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

from django.db import connections, router, transaction
from django.db.models import Model

from ..conf import settings
from ..context.confirmation import Confirmation, quoted
from ..context.databases import reads_snapshots
from ..context.person_consent import confirmation_class, needs_person
from ..emulation.deleting import Deleting
from ..emulation.record import Record
from ..emulation.saving import NO_LABELS, NOT_SAVED, RowPage, Saving
from ..emulation.validation_errors import write_refusals
from ..exceptions import NotFound, NotPermitted, ToolError, Unreadable
from ..models import Change
from ..orm.access import ModelAccess
from ..orm.column_values import pk_text, render
from ..orm.columns import Column
from ..orm.database_writes import refusals
from ..orm.labels import label_of
from ..orm.pagination import chunks
from ..orm.row_finder import RowFinder
from ..orm.row_reading import FoundRow, show_rows
from ..orm.undecodable_values import all_readable
from .differing_rows import Target
from .footprints import Footprint, StoredDifference
from .row_expressions import RowExpressions

Permission = Literal["add", "change", "delete"]

# Maximum characters of a value in a preview.
MAX_VALUE: Final = 200
UNSTORED: Final = "The project has stored no row of this model. It may have stored something else instead."
GONE: Final = "It was saved, but is not among the rows that you can see."


def in_words(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a write as a question tells them."""
    return {name: str(value)[:MAX_VALUE] for name, value in values.items()}


def assigned(values: Mapping[str, str], labels: Mapping[str, str] = NO_LABELS) -> str:
    """Return the values of a write in one text, with the labels of those that have one."""
    meant = {name: f" ({quoted(label)})" for name, label in labels.items()}
    return ", ".join(f"{name} = {quoted(value)}{meant.get(name, '')}" for name, value in values.items())


def identified(rows: Iterable[Model]) -> list[list[str]]:
    """Return what identifies rows, for a confirmation: a deletion takes the keys from its instances."""
    return [[row._meta.label, str(row.pk)] for row in rows]


class Write:
    """One write of rows of a model for a tool.

    ``asks`` says that the write has to be confirmed. Once it is prepared, ``message`` is what is asked in one sentence,
    ``listing`` names the rows that it is about, ``shown`` has members of its preview, and ``affected`` the rows that
    are bound to the confirmation. With ``asks_again`` a wrong token gives a new preview, no error. ``tries`` says that
    the write is only tried. ``messages`` are those of the project's hooks. ``done`` names the member of a result that
    says that the write was done. ``kept_rows`` are the rows of a performed write as the caller sees them, to be kept
    with it, and ``summary`` is the same in one line. ``undoes`` is the change that the write takes back. With
    ``names_late``, rows are named when others were written already: some of them may have been made by the write.
    ``many`` is the number of rows of a prepared write of many rows, by which it may go on as a task.
    """

    permission: ClassVar[Permission]
    done: ClassVar[str]
    asks = False
    asks_again = True
    tries = False
    message = ""
    listing = ""
    shown: Mapping[str, Any] = {}
    affected: Iterable[Any] = ()
    kept_rows: Sequence[Mapping[str, Any]] = ()
    summary = ""
    undoes: Change | None = None
    names_late: ClassVar = False

    @property
    def many(self) -> int:
        return 0

    def __init__(self, model: ModelAccess, tool: str) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.tool = tool
        self.messages: list[dict[str, str]] = []

    def refusals(self) -> AbstractContextManager[None]:
        """Return the context in which what the database refuses becomes an error for the caller."""
        return write_refusals(self.model)

    @property
    def bound(self) -> Mapping[str, Any]:
        """The arguments that a confirmed call must repeat."""
        return {"model": self.exposure.label}

    def prepare(self) -> None:
        """Lock the rows, and check that the caller may write them; call it in the transaction of the write."""

    def track(self, footprint: Footprint) -> None:
        """Name the rows that the prepared write may touch, and read them as they are."""
        raise NotImplementedError

    def confirmation(self, footprint: Footprint) -> Confirmation:
        """Return the confirmation of the prepared write, on the rows as they are."""
        return self.confirmed(*self.affected, ["rows", footprint.digest()])

    def confirmed(self, *objects: Any) -> Confirmation:
        """Return the confirmation of the write of these objects, by whoever has to confirm it."""
        kind = confirmation_class(self.request, by_person=self.needs_person)
        return kind(self.request, self.tool, self.bound, objects)

    @property
    def needs_person(self) -> bool:
        """Whether only a person can confirm the prepared write, or one has done so."""
        if self.request.mcp.consent is not None:
            return True
        deletes = self.permission == "delete"
        return self.asks and needs_person(self.exposure.confirm, deletes=deletes, rows=len(list(self.affected)))

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        """Write the rows, tell the footprint of new ones, and return the members of the result."""
        raise NotImplementedError

    @property
    def targets(self) -> Sequence[Target]:
        """The rows that the write is about, once it is performed."""
        raise NotImplementedError

    def outcome(self, footprint: Footprint) -> StoredDifference:
        """Return what the performed write has done, row by row."""
        stored = footprint.after()
        named: dict[str, dict[str, None]] = {}
        for target in self.targets:
            named.setdefault(target.model.exposure.label, {}).update(dict.fromkeys(target.named))
        stored.named = {label: list(names) for label, names in named.items() if names}
        return stored

    def tables(self, footprint: Footprint) -> Collection[str]:
        """Return the names of the tables in which the write is expected to write."""
        return footprint.tables

    @property
    def keeps_undo(self) -> bool:
        """Whether what the write does may be kept to take it back."""
        return self.exposure.undo

    @property
    def can_be_tried(self) -> bool:
        """Whether the write may run to be tried, with the hooks of the project."""
        return self.exposure.dry_run

    @property
    def labels(self) -> Sequence[str]:
        """The labels of the models in ``kept_rows``."""
        return [self.exposure.label]

    def rows_to_keep(self) -> Sequence[Mapping[str, Any]]:
        """Return what is kept of the performed write for its caller to read, in its transaction; ``kept_rows`` by
        default."""
        return self.kept_rows

    def check(self) -> None:
        """Check the values of the prepared write by its forms alone, where its hooks must not run to try it."""

    def lock(self, read: Callable[[], Sequence[Model]]) -> Sequence[Model]:
        """Lock the rows that ``read`` finds until the transaction ends, and return them as they are then.

        Raises ``ToolError`` if others have changed meanwhile which rows these are.
        """
        rows = read()
        model = self.exposure.model
        using = router.db_for_write(model)
        if not connections[using].features.has_select_for_update:
            return rows
        keys = [row.pk for row in rows]
        locking = model._base_manager.using(using).select_for_update().order_by("pk")
        with all_readable():
            locked = {row.pk: row for chunk in chunks(keys) for row in locking.filter(pk__in=chunk)}
        rows = read()
        is_changed = [row.pk for row in rows] != keys
        if not is_changed and reads_snapshots(using):
            names = [field.attname for field in self.exposure.opts.concrete_fields]
            pairs = ((row, locked.get(row.pk)) for row in rows)
            is_changed = any(getattr(row, name) != getattr(now, name, None) for row, now in pairs for name in names)
        if is_changed:
            raise ToolError("Someone else was changing these rows. Nothing was changed. Repeat the call.")
        return rows

    def allows(self, *obj: Model) -> bool:
        """Return whether the caller has the permission for the model, or for this row."""
        return self.model.may_row(self.permission, *obj)

    def check_allowed(self, *obj: Model) -> None:
        """Raise ``ToolError`` unless the caller has the permission."""
        if not self.allows(*obj):
            what = f"{'this row' if obj else 'rows'} of {self.exposure.label}"
            raise NotPermitted(f"You may view but not {self.permission} {what}. Nothing was changed.")

    def asks_for(self, *expressions: RowExpressions) -> bool:
        """Return whether a write has to be confirmed because it would write other values if it were made twice, which
        an idempotency key prevents too."""
        return not self.request.mcp.record.is_keyed and any(one.rereads for one in expressions)

    def said(self) -> dict[str, Any]:
        """Return what the project's hooks tell the user, as a member of the result."""
        messages = list({tuple(message.items()): message for message in self.messages}.values())
        return {"messages": messages} if messages else {}


class RefusedRows:
    """Collects why rows of one write are refused, so that an error can tell several rows at once."""

    # Number of refused rows after which no others are tried, and maximum characters of the reason for each.
    MAX_REFUSED: ClassVar = 5
    MAX_REASON: ClassVar = 200

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.reasons: dict[str, list[str]] = {}

    @contextmanager
    def row(self, label: str, using: str) -> Iterator[None]:
        """Write one row in a savepoint: if it is refused, the others can still be tried."""
        try:
            with write_refusals(self.model), transaction.atomic(using=using):
                yield
        except ToolError as error:
            reason = " ".join(error.message.removeprefix(NOT_SAVED).split())[: self.MAX_REASON]
            self.reasons.setdefault(reason, []).append(label)

    @property
    def are_enough(self) -> bool:
        """Whether so many rows are refused that others need not be tried."""
        return sum(map(len, self.reasons.values())) >= self.MAX_REFUSED

    def check(self) -> None:
        """Raise ``ToolError`` if a row is refused."""
        if self.reasons:
            lines = [f"{', '.join(labels)}: {reason}" for reason, labels in self.reasons.items()]
            label = self.model.exposure.label
            raise ToolError("\n".join([f"Nothing was saved, because rows of {label} are refused.", *lines]))


class RowSaving(Write):
    """Saves one row with the values of a caller, and returns what the caller sees of it.

    ``row`` is None before a row is created.
    """

    row: Any = None

    def __init__(self, model: ModelAccess, tool: str, values: Mapping[str, Any]) -> None:
        super().__init__(model, tool)
        self.values = values

    @property
    def bound(self) -> Mapping[str, Any]:
        return {"model": self.exposure.label, "values": self.values}

    @cached_property
    def saving(self) -> Saving:
        """What saves the values in the prepared row, as it is before."""
        return RowPage(self.model, self.row).saving(self.values_now(), self.tool)

    def track(self, footprint: Footprint) -> None:
        footprint.add_form(self.saving, self.values)
        footprint.before()

    @property
    def targets(self) -> Sequence[Target]:
        if self.row is None or self.row.pk is None:
            return ()
        return [Target(self.model, self.row.pk, self.values)]

    def check(self) -> None:
        self.saving.check()

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        saving = self.saving
        old = copy(self.row)
        saved, changed = saving.save()
        if old is None and saved.pk is not None:
            footprint.created(saved)
            if not self.tries:
                self.request.mcp.record.touch(self.exposure.label, pk_text(saved.pk))
        self.row = saved
        self.messages += saving.messages
        result = self._result(saving, None if old is None else vars(old), changed)
        self._sum_up(result, old)
        return result

    def _sum_up(self, result: Mapping[str, Any], old: Model | None) -> None:
        """Keep what the write has done to the row, as far as the caller sees it."""
        after: Mapping[str, Any] = result.get("fields", {})
        kind = "added" if old is None else "changed"
        told = after if old is None else self._pairs(old, after)
        row = {"model": self.exposure.label, "pk": result.get("pk"), "label": result.get("label"), kind: told}
        self.kept_rows = [row]
        name = self.exposure.opts.verbose_name
        self.summary = f"{name} {result.get('label') or result.get('pk')} {kind}"
        if told:
            self.summary += f": {', '.join(told)}"

    def _pairs(self, old: Model, after: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored columns that differ, as the caller saw them before, and sees them now."""
        attributes = {field.name: field.attname for field in self.exposure.opts.concrete_fields}
        before = vars(old)
        now = vars(self.row)
        differ = {name for name, attribute in attributes.items() if before.get(attribute) != now.get(attribute)}
        names = [name for name in self.model.fields_of(old) if name in after and name in differ]
        if not names:
            return {}
        page = show_rows(self.model, [old], Column.all(self.exposure, names), settings.TEXT_CHARS)
        return {name: [value, after[name]] for name, value in zip(page.names, page.rows[0], strict=True)}

    def values_now(self) -> Mapping[str, Any]:
        """Return the values to save in the row as it is now."""
        return self.values

    def _result(self, saving: Saving, before: Mapping[str, Any] | None, changed: list[str]) -> dict[str, Any]:
        """Return what the caller sees now: of a new row what was given and set, and of an updated row what the caller
        named and what hooks have changed."""
        exposure = self.exposure
        row = self.row
        head: dict[str, Any] = {self.done: True, "changed": changed, **self.said()}
        if row.pk is None:
            return {**head, self.done: False, "model": exposure.label, "note": UNSTORED}
        self.request.go_to(exposure, "change", row.pk)
        try:
            # Read the row again as the caller sees it, with the annotations of the queryset.
            found = FoundRow.find(self.model, pk_text(row.pk))
        except NotFound:
            return {**head, "model": exposure.label, "pk": render(row.pk), "note": GONE}
        # Cut long texts: the caller knows those that it wrote, and can read others with get_record.
        record = Record(self.model, found.row, found.labels, text_limit=settings.TEXT_CHARS)
        if before is None:
            return {**head, **record.created(saving.values)}
        return {**head, **record.changed(before, {*saving.values, *changed})}


class RowCreation(RowSaving):
    """Creates a row as on the admin's add page."""

    permission = "add"
    done = "created"

    def prepare(self) -> None:
        self.request.go_to(self.exposure, "add")
        self.check_allowed()


class OneRow(Write):
    """A write of one row that is there: locks it, and checks the permission and its version."""

    row: Any = None

    def __init__(self, model: ModelAccess, tool: str, pk: Any, version: Any = None, *more: Any) -> None:
        super().__init__(model, tool, *more)
        self.pk = pk
        self.version = version

    def prepare(self) -> None:
        pk = self.model.bare_pk(self.pk)
        self.request.go_to(self.exposure, self.permission, pk)
        try:
            self.row = self._locked(pk)
        except NotFound:
            pk = RowFinder(self.model).key(pk, RowFinder.NOT_FOUND)
            self.request.go_to(self.exposure, self.permission, pk)
            self.row = self._locked(pk)
        self.request.mcp.record.touch(self.exposure.label, pk_text(self.row.pk))
        self.check_allowed(self.row)
        if not Confirmation.is_pin(self.version):
            RowPage(self.model, self.row).check_version(self.version)

    def _locked(self, pk: Any) -> Model:
        """Return the row to write, locked if the database can lock rows: by one query where all rows of the table may
        be written, or else by a query that locks between two that read."""
        model = self.model
        exposure = self.exposure
        using = router.db_for_write(exposure.model)
        is_plain = exposure.options.has_every_row and not exposure.opts.parents and not router.routers
        if is_plain and connections[using].features.has_select_for_update:
            with suppress(Unreadable):
                return model.get_row(pk, lock=True)
        row = FoundRow.whole(model, pk).row
        using = router.db_for_write(exposure.model, instance=row)
        if connections[using].features.has_select_for_update:
            rows = exposure.model._base_manager.using(using).filter(pk=row.pk)
            list(rows.select_for_update().values_list("pk"))
            try:
                if reads_snapshots(using):
                    with suppress(Unreadable):
                        return model.get_row(pk, lock=True)
                row = FoundRow.whole(model, pk).row
            except NotFound:
                raise ToolError(RowFinder.NOT_FOUND) from None
        return row


class RowUpdate(OneRow, RowSaving):
    """Updates a row as on the admin's change page; fields that are not named stay as they are."""

    permission = "change"
    done = "updated"

    def prepare(self) -> None:
        super().prepare()
        self.expressions = RowExpressions.read(self.model, self.values)
        self.asks = self.asks_for(self.expressions)
        if self.asks:
            label = label_of(self.exposure, self.row)
            values = in_words(self.expressions.told)
            self.affected = [self.row]
            self.shown = {"model": self.exposure.label, "pk": render(self.row.pk), "label": label, "values": values}
            named = f"{self.exposure.label} {quoted(self.shown['pk'])}: {quoted(label)}"
            self.message = f"This changes one row, each time it is called: {assigned(values)}."
            self.listing = named

    def values_now(self) -> Mapping[str, Any]:
        if self.expressions.is_empty:
            return self.values
        return self.expressions.values_for(self.row, label_of(self.exposure, self.row) or str(self.row.pk))


class RowDeletion(OneRow):
    """Deletes a row, and what depends on it, as the admin does."""

    permission = "delete"
    done = "deleted"
    asks = True
    asks_again = False

    def refusals(self) -> AbstractContextManager[None]:
        return refusals(model=self.exposure.model)

    @property
    def bound(self) -> Mapping[str, Any]:
        return {"model": self.exposure.label, "pk": pk_text(self.key)}

    def prepare(self) -> None:
        super().prepare()
        exposure = self.exposure
        # The deletion takes it from the row.
        self.key = self.row.pk
        self.deleting = deleting = Deleting(self.model, [self.row], self.tool)
        self.affected = identified(deleting.affected)
        label = label_of(exposure, self.row)
        total = len(deleting.affected)
        self.shown = {
            "model": exposure.label,
            "pk": render(self.row.pk),
            "label": label,
            "deletes": deleting.counts,
        }
        self.message = deleting.warning(f"{total} object{'s' if total != 1 else ''}")
        named = f"{exposure.label} {quoted(self.shown['pk'])}: {quoted(label)}"
        self.listing = f"With all that goes with it: {deleting.goes}.\n{named}"

    def track(self, footprint: Footprint) -> None:
        footprint.add_deletion([self.row])
        footprint.before()

    @property
    def targets(self) -> Sequence[Target]:
        return [Target(self.model, self.key)]

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        self.messages += self.deleting.delete_one()
        self.kept_rows = [{**self.shown, "deleted": True}]
        self.summary = f"{self.exposure.opts.verbose_name} {self.shown['label'] or self.shown['pk']} deleted"
        return {"deleted": True, **self.shown, **self.said()}

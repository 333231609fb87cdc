"""Several writes in one call and one transaction, in order: ``write_records``.

A row that one of them creates can be named by its ``ref`` in the relation fields of those after it. Rights are checked
at each step, as the rows are then.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, ClassVar, Final

from django.db import router, transaction
from django.db.models import Model

from ..conf import settings
from ..context.confirmation import Confirmation
from ..context.person_consent import needs_person
from ..emulation.saving import NOT_SAVED
from ..exceptions import ToolError
from ..orm.access import ModelAccess
from ..orm.column_values import pk_text
from .cascades import TooManyRows
from .differing_rows import Target
from .footprints import Footprint
from .trials import UNTRIABLE, Trial
from .writes import Write

REF: Final = "ref"
VALUES: Final = "values"
WRITES: Final = "writes"


class SeveralWrites(Write):
    """Makes several writes of a caller, all or none. They are confirmed together if one of them asks, or if they write
    more rows than go unasked."""

    permission = "change"
    done = "written"
    names_late = True
    # Number of writes in one call, and of rows that are written without a question.
    MAX_STEPS: ClassVar = 20
    MAX_UNASKED: ClassVar = 20

    class Step:
        """One of the writes: the arguments of its tool as the caller gave them, the model, and the name of the row that
        it creates, "" for none. ``make`` returns the write for arguments in which no row is named by ``ref``."""

        def __init__(
            self,
            model: ModelAccess,
            given: Mapping[str, Any],
            make: Callable[[Mapping[str, Any]], Write],
            ref: str = "",
        ) -> None:
            self.model = model
            self.given = given
            self.make = make
            self.ref = ref

    def __init__(self, steps: Sequence[Step], tool: str) -> None:
        super().__init__(steps[0].model, tool)
        self.steps = steps
        self.writes: list[Write] = []
        self.footprint: Footprint | None = None
        databases = {router.db_for_write(step.model.exposure.model) for step in steps}
        if len(databases) > 1:
            raise ToolError("All writes of one call must be in one database. Nothing was changed.")
        untried = [step.model.exposure.label for step in steps if not step.model.exposure.dry_run]
        if untried:
            # What a step does can only be shown by making those before it.
            raise ToolError(
                f"{untried[0]} cannot be written together with others, because its hooks must not run to try it. "
                "Nothing was changed. Use create_record, update_record or delete_record."
            )

    @cached_property
    def trial(self) -> Trial:
        """All of the writes, tried one after the other."""
        return Trial(lambda: SeveralWrites(self.steps, self.tool))

    def refusals(self) -> AbstractContextManager[None]:
        # Each step has its own.
        return nullcontext()

    @property
    def keeps_undo(self) -> bool:
        return all(step.model.exposure.undo for step in self.steps)

    @property
    def bound(self) -> Mapping[str, Any]:
        return {"writes": [step.given for step in self.steps]}

    @property
    def labels(self) -> Sequence[str]:
        return [step.model.exposure.label for step in self.steps]

    @property
    def targets(self) -> Sequence[Target]:
        return [target for write in self.writes for target in write.targets]

    @property
    def many(self) -> int:
        return len(self.trial.write.targets)

    def prepare(self) -> None:
        """Find out by trying whether the writes ask. Nothing of that is left, also where they go on at once."""
        if self.tries:
            return
        tried = self.trial.write
        assert isinstance(tried, SeveralWrites)
        self.asks = tried.asks
        count = len(self.steps)
        self.message = f"This makes {count} write{'s' if count != 1 else ''}: {self.trial.difference.sentence}."
        self.shown = {"writes": count}

    def confirmation(self, footprint: Footprint) -> Confirmation:
        digest = footprint.digest() if self.writes else self.trial.digest
        return self.confirmed(["rows", digest])

    @property
    def needs_person(self) -> bool:
        """Whether only a person can confirm the writes, because of one of them, or one has done so."""
        if self.request.mcp.consent is not None:
            return True
        tried = self if self.writes else self.trial.write
        assert isinstance(tried, SeveralWrites)
        count = len(tried.targets)
        needs = (
            needs_person(write.exposure.confirm, deletes=write.permission == "delete", rows=count)
            for write in tried.writes
        )
        return self.asks and any(needs)

    def track(self, footprint: Footprint) -> None:
        # Each step names its rows when it is made: they may be there only then. But those that are there already are
        # read now, as hooks of the steps before may change them.
        self.footprint = footprint
        if not self.tries:
            footprint.add_keys(self.trial.keys)
        footprint.before()

    def perform(self, footprint: Footprint) -> dict[str, Any]:
        refs: dict[str, Model] = {}
        results = []
        for number, step in enumerate(self.steps, 1):
            try:
                results.append(self._perform(step, refs, footprint))
            except ToolError as error:
                self.tell_place(error, number, len(self.steps))
                raise
            self.request.mcp.progress(number, len(self.steps))
        self.asks = self.asks or len(self.targets) > self.MAX_UNASKED
        self.summary = "; ".join(write.summary for write in self.writes)
        return {"written": len(results), "results": results}

    def rows_to_keep(self) -> Sequence[Mapping[str, Any]]:
        return [row for write in self.writes for row in write.rows_to_keep()]

    @staticmethod
    def tell_place(error: ToolError, number: int, count: int) -> None:
        """Say in an error which of the writes it is about, and let it repair only that one."""
        error.message = f"Write {number} of {count}: {error.message}"
        if error.repair is not None:
            error.repair = error.repair.within(WRITES, number - 1)

    def _perform(self, step: Step, refs: dict[str, Model], footprint: Footprint) -> dict[str, Any]:
        write = step.make(_resolved(step, refs))
        using = router.db_for_write(write.exposure.model)
        with write.refusals(), transaction.atomic(using=using):
            write.prepare()
            self._track(write)
            result = write.perform(footprint)
        self.writes.append(write)
        self.messages += write.messages
        self.asks = self.asks or write.asks
        if len(self.targets) > settings.MAX_BULK_ROWS:
            raise ToolError(f"One call writes at most {settings.MAX_BULK_ROWS} rows. Nothing was changed.")
        if step.ref:
            row = getattr(write, "row", None)
            if row is None or row.pk is None:
                raise ToolError(f"{NOT_SAVED} the project has stored no row that {step.ref!r} could name.")
            refs[step.ref] = row
        return result

    def _track(self, write: Write) -> None:
        """Name the rows of a step, where they are named."""
        if self.footprint is None:
            return
        try:
            write.track(self.footprint)
        except TooManyRows:
            raise ToolError(UNTRIABLE) from None


def _resolved(step: SeveralWrites.Step, refs: Mapping[str, Model]) -> Mapping[str, Any]:
    """Return the arguments of a step, with the keys of new rows in the relation fields that name them by ``ref``."""
    if _is_ref(step.given.get("pk")):
        raise ToolError("pk takes no ref, which names a row only in relation fields. Write all values in its create.")
    values = step.given.get(VALUES)
    if not isinstance(values, Mapping):
        return step.given
    fields = step.model.exposure.options.model_fields
    found = dict(values)
    for name, value in values.items():
        field = fields.get(name)
        if field is None or not field.is_relation:
            continue
        if isinstance(value, list):
            found[name] = [_key(field, name, item, refs) for item in value]
        else:
            found[name] = _key(field, name, value, refs)
    return {**step.given, VALUES: found}


def _is_ref(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {REF}


def _key(field: Any, name: str, value: Any, refs: Mapping[str, Model]) -> Any:
    if not _is_ref(value):
        return value
    row = refs.get(value[REF]) if isinstance(value[REF], str) else None
    if row is None:
        known = ", ".join(refs) or "none"
        raise ToolError(f"{name}: no write before this one has the ref {str(value[REF])[:60]!r}. refs so far: {known}.")
    if not isinstance(row, field.related_model):
        raise ToolError(f"{name}: the row {value[REF]!r} is no {field.related_model._meta.label_lower}.")
    return pk_text(row.pk)

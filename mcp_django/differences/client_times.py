"""A client's time: all that one client wrote between two moments, taken back together by somebody with the rights."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final

from django.db import transaction
from django.db.models import QuerySet, Sum

from ..context.request import MCPRequest
from ..exceptions import CallRefused, NotFound, ToolError
from ..models import Change
from ..orm.access import access_of
from ..orm.database_writes import one_transaction
from ..orm.tool_arguments import Arguments
from .footprints import Footprint
from .rehearsals import Rehearsal
from .undo import OthersChanges, Undo
from .write_calls import WriteCall

TOOL: Final = "undo_change"
INVISIBLE: Final = "You cannot see all models that it wrote."
OTHERWISE: Final = "What can be taken back is no longer what was shown. Nothing was changed. Look at it again."


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a client's time, and why it cannot be taken back: "" if it can."""

    change: Change
    why_not: str = ""


class TooManyWrites(Exception):
    """A client wrote more rows in a time than are taken back at once. ``rows`` is their number."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


class ClientTime:
    """What one client wrote through the site of a request from ``since`` until before ``until``.

    The user of the request takes it back, with their own rights and as their own changes. ``user`` is the name of the
    user for whom it was written, ``model`` the label of the first row's model; "" is any. Changes that were taken back
    meanwhile are left out, and so is what took back a change of this time.
    """

    MAX_ROWS: ClassVar = 5_000
    TooMany: ClassVar = TooManyWrites

    def __init__(
        self, request: MCPRequest, client_id: str, since: datetime, until: datetime, *, user: str = "", model: str = ""
    ) -> None:
        self.request = request
        self.client_id = client_id
        self.since = since
        self.until = until
        self.user = user
        self.model = model
        self.changes = OthersChanges(request)

    @property
    def rows(self) -> QuerySet[Change]:
        """All changes of this time, taken back or not, the newest first."""
        found = self.changes.rows.filter(client_id=self.client_id, time__gte=self.since, time__lt=self.until)
        if self.user:
            found = found.filter(username=self.user)
        if self.model:
            found = found.filter(model=self.model)
        # A call that waited for a person's yes has written later than its number says.
        return found.order_by("-time", "-pk")

    @property
    def clients(self) -> dict[str, str]:
        """The clients of which anything is kept, of whatever time: their names by their ids."""
        changes = self.changes.rows.exclude(client_id="").order_by()
        return dict(changes.values_list("client_id", "client_name").distinct())

    @property
    def users(self) -> set[str]:
        """The names of the users of whom anything is kept, of whatever time."""
        return set(self.changes.rows.order_by().values_list("username", flat=True).distinct())

    @cached_property
    def found(self) -> list[Change]:
        """The changes that are to be taken back, the newest first. Raises ``TooManyWrites``."""
        done = self.rows.filter(state=Change.State.DONE.value)
        rows = done.aggregate(rows=Sum("rows"))["rows"] or 0
        if rows > self.MAX_ROWS:
            raise TooManyWrites(rows)
        undone = dict(self.rows.values_list("pk", "undoes_id"))
        return [change for change in done if not _is_cancelled(change.pk, undone)]

    def plan(self) -> list[Step]:
        """Try to take it back, and return what can be and what cannot. Raises ``TooManyWrites``."""
        if not self.found:
            return []
        with Rehearsal(Change, request=self.request):
            return list(self._steps())

    def run(self, plan: list[Step]) -> list[Step]:
        """Take back what can be, in one transaction. Raises ``ToolError`` if that is not what ``plan`` says."""
        with one_transaction(Change, self.request):
            steps = list(self._steps())
            if _left_out(steps) != _left_out(plan):
                raise ToolError(OTHERWISE)
        return steps

    def _steps(self) -> Iterator[Step]:
        for change in self.found:
            try:
                with transaction.atomic(using=self.changes.using):
                    self._take_back(change)
            except (ToolError, CallRefused) as error:
                yield Step(change, error.message)
            except NotFound:
                yield Step(change, INVISIBLE)
            else:
                yield Step(change)

    def _take_back(self, change: Change) -> Any:
        model = access_of(self.request).get_model(change.model)
        call = WriteCall(lambda: Undo(model, TOOL, change.pk, self.changes), Arguments())
        with call.write.refusals():
            call.write.prepare()
            return call.perform(Footprint(call.using))


def _is_cancelled(number: int, undone: Mapping[int, int | None]) -> bool:
    """Return whether a change only undoes another one of the same time.

    ``undone`` has the changes of the time, with those that they took back. If an undo was undone, the first change is
    in force again: the last one is then to be taken back.
    """
    steps = 0
    before = undone[number]
    while before is not None and before in undone:
        steps += 1
        before = undone[before]
    return steps % 2 == 1


def _left_out(steps: list[Step]) -> dict[int, bool]:
    """Return which changes are left out, by number."""
    return {step.change.pk: bool(step.why_not) for step in steps}

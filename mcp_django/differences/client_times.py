"""A client's time: all that one client wrote between two moments, taken back together by somebody with the rights."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
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
from ..orm.database_writes import one_transaction, refusals
from ..orm.tool_arguments import Arguments
from .footprints import Footprint
from .rehearsals import Rehearsal
from .undo import OthersChanges, Undo
from .write_calls import WriteCall

INVISIBLE: Final = "You cannot see all models that it wrote."
OTHERWISE: Final = "What can be taken back is no longer what was shown. Nothing was changed. Look at it again."


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a client's time, and why it cannot be taken back: "" if it can."""

    change: Change
    why_not: str = ""


class TooManyWrites(ToolError):
    """A client wrote more rows in a time than are taken back at once. ``rows`` is their number."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"The client wrote {rows} rows in this time, which is too much at once.")
        self.rows = rows


class Writers:
    """Of whom anything is kept that was written through the site of a request, of whatever time."""

    def __init__(self, request: MCPRequest) -> None:
        self._rows = OthersChanges(request).rows.order_by()

    @cached_property
    def clients(self) -> dict[str, str]:
        """The names of clients by their ids."""
        return dict(self._rows.exclude(client_id="").values_list("client_id", "client_name").distinct())

    @cached_property
    def users(self) -> set[str]:
        """The names of the users for whom something was written."""
        return set(self._rows.exclude(username="").values_list("username", flat=True).distinct())

    @cached_property
    def models(self) -> set[str]:
        """The labels of the models."""
        return set(self._rows.exclude(model="").values_list("model", flat=True).distinct())


class ClientTime:
    """What one client wrote through the site of a request from ``since`` until before ``until``.

    The user of the request takes it back, with their own rights and as their own changes. ``user`` is the name of the
    user for whom it was written, ``model`` the label of the first row's model; "" is any. Changes that were taken back
    meanwhile are left out, and so is what took back a change of this time.
    """

    MAX_ROWS: ClassVar = 5_000
    # The tool by which each change is taken back.
    TOOL: ClassVar = "undo_change"
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
    def told(self) -> dict[str, str]:
        """What was asked for, as the log of calls keeps it."""
        times = {"since": self.since.isoformat(), "until": self.until.isoformat()}
        return {"client": self.client_id, **times, "user": self.user, "model": self.model}

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
        """Try to take it back, and return what can be and what cannot. Raises ``TooManyWrites``, and ``ToolError`` if
        the database is busy."""
        if not self.found:
            return []
        with refusals(), Rehearsal(Change, request=self.request):
            return list(self._steps())

    @staticmethod
    def pin(plan: Iterable[Step]) -> str:
        """Return a short text that says which changes a plan takes back, and which it leaves out."""
        told = [[step.change.pk, bool(step.why_not)] for step in plan]
        return hashlib.sha256(json.dumps(sorted(told)).encode()).hexdigest()

    def run(self, pin: str) -> list[Step]:
        """Take back what can be, in one transaction. Raises ``ToolError`` if that is not what the plan with this pin
        says, and ``TooManyWrites``."""
        with refusals(), one_transaction(Change, self.request):
            steps = list(self._steps())
            if self.pin(steps) != pin:
                raise ToolError(OTHERWISE)
        return steps

    def _steps(self) -> Iterator[Step]:
        record = self.request.mcp.record
        for change in self.found:
            written = record.rows_changed, len(record.history)
            why_not = ""
            try:
                with transaction.atomic(using=self.changes.using):
                    self._take_back(change)
            except (ToolError, CallRefused) as error:
                why_not = error.message
            except NotFound:
                why_not = INVISIBLE
            if why_not:
                record.undo(*written)
            yield Step(change, why_not)

    def _take_back(self, change: Change) -> Any:
        model = access_of(self.request).get_model(change.model)
        call = WriteCall(lambda: Undo(model, self.TOOL, change.pk, self.changes), Arguments())
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

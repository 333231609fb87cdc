"""What is kept of writes: each one of our own, done or waiting for a person's yes, as a row of :class:`Change`.

A row is inserted in the transaction of its write, if the app's own tables are in the same database. Its contents are
sealed with ``SECRET_KEY``. Over MCP, callers have their own changes only: those of the same user, with whatever client,
at the same endpoint; a program with a service account has those of its account. Users without a key have none. They
see a change as they were told of it then, while they can view all models that it names.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, TypeVar

import orjson
from django.contrib.auth import get_user_model
from django.db import router
from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.utils import timezone

from ..conf import settings
from ..context.request import MCPRequest
from ..context.signing import StoredSeal
from ..exceptions import NotFound
from ..models import ApprovalRequest, Change
from ..orm.access import access_of
from ..orm.own_tables import OwnTable, fitting_texts, text_lengths
from ..signin import FactName

M = TypeVar("M", bound=Model)
SEALED: Final = ("shown", "footprint", "kept", "result")
SEALS: Final = {name: StoredSeal("mcp_django.differences", name) for name in SEALED}
# Seconds for which a call that was done or refused is the answer to the same call.
REPEATED_FOR: Final = 24 * 3600
# Seconds after which nobody knows what became of a change that runs: no call takes as long.
RUNS_FOR: Final = 24 * 3600
# Maximum number of rows that one statement deletes; more only if they have the same time.
DELETED_AT_ONCE: Final = 1_000
# Maximum characters of the columns with texts.
LENGTHS: Final = text_lengths(Change)
DEFAULTS: Final = {field.attname: field.get_default() for field in Change._meta.local_concrete_fields}
# The states of a change that has not ended.
OPEN: Final = (Change.State.WAITING, Change.State.RUNNING)

# Why a change in this state cannot be taken back.
NOT_DONE: Final[Mapping[str, str]] = {
    Change.State.WAITING: "It waits for a person's yes.",
    Change.State.RUNNING: "It is being made.",
    Change.State.REFUSED: "The user said no, and it was never made.",
    Change.State.WITHDRAWN: "It was withdrawn, and never made.",
    Change.State.EXPIRED: "Nobody confirmed it in time, and it was never made.",
    Change.State.FAILED: "It was not made.",
    Change.State.UNKNOWN: "It stopped half-way, and nobody knows what it has done.",
    Change.State.UNDONE: "It was taken back already.",
}
NOTHING_KEPT: Final = "This server keeps nothing to take changes back."
ELSEWHERE: Final = "Its rows are in another database than the server's own tables."
TOO_LARGE: Final = "It changes more than the server keeps to take changes back."
ERASED: Final = "Values of it were erased."


class KeptChange:
    """One row of what was kept, and its sealed contents; :class:`Changes` finds it for a caller."""

    # Maximum key of a row, in all databases.
    MAX_KEY: ClassVar = 2**63 - 1
    # Why a change cannot be taken back whose footprint nobody knows.
    NOT_RECORDED: ClassVar = "What it did was not recorded row by row."

    def __init__(self, change: Change) -> None:
        self.change = change

    @staticmethod
    def owner_of(user: Any) -> str:
        """Return whose changes a user's are, as text: the primary key, as in the log of calls; "" for nobody.

        A user of another model than the project's, whom an authentication class of its own has found, has its label
        too.
        """
        if not isinstance(user, Model) or user.pk is None:
            return ""
        if isinstance(user, get_user_model()):
            return str(user.pk)[: LENGTHS["user"]]
        return f"{user._meta.label_lower}:{user.pk}"[: LENGTHS["user"]]

    @staticmethod
    def without_contents(rows: QuerySet[M], path: str = "") -> QuerySet[M]:
        """Return rows of changes, or of what has a change at ``path``, without reading the contents."""
        return rows.defer(*(f"{path}{name}" for name in SEALED))

    def was_decided_by(self, user: Any) -> bool:
        """Return whether a user's name stands in the change as that of whoever decided it."""
        using = router.db_for_write(Change)
        return bool(self.change.by == fitting({"by": user.get_username()}, using)["by"])

    @staticmethod
    def clear_expired() -> int:
        """Delete the changes that are too old, the oldest first, and return their number; end those that wait too long.

        Each batch is a transaction of its own.
        """
        now = timezone.now()
        rows = Change.objects.using(router.db_for_write(Change))
        rows.filter(state=Change.State.WAITING.value, expires__lt=now).update(
            state=Change.State.EXPIRED.value, kept=b""
        )
        running = Q(time__lt=now - timedelta(seconds=RUNS_FOR)) & (
            Q(decided=None) | Q(decided__lt=now - timedelta(days=1))
        )
        rows.filter(running, state=Change.State.RUNNING.value).update(state=Change.State.UNKNOWN.value, kept=b"")
        deleted = 0
        while True:
            old = expired_changes()
            last = list(old.order_by("time").values_list("time", flat=True)[DELETED_AT_ONCE - 1 : DELETED_AT_ONCE])
            batch = old.filter(time__lte=last[0]) if last else old
            # Without Django's collector: no rows depend on these, and there are no receivers.
            deleted += batch._raw_delete(rows.db)
            if not last:
                break
        # No constraint of the database deletes what stood beside them.
        changes = Change.objects.using(rows.db).filter(pk=OuterRef("pk"))
        ApprovalRequest.objects.using(rows.db).filter(~Exists(changes))._raw_delete(rows.db)
        return deleted

    @property
    def shown(self) -> Any:
        """The difference as the caller could see it, None if it was not kept or cannot be opened."""
        return self._json("shown")

    @property
    def footprint(self) -> bytes | None:
        """The stored difference as JSON, None if it was not kept or cannot be opened."""
        return opened("footprint", self.change.footprint)

    @property
    def kept(self) -> Any:
        """The call that waits, None if it was not kept or cannot be opened."""
        return self._json("kept")

    @property
    def result(self) -> Any:
        """The result of the call, None if it was not kept or cannot be opened."""
        return self._json("result")

    def _json(self, name: str) -> Any:
        data = opened(name, getattr(self.change, name))
        return None if data is None else orjson.loads(data)

    @property
    def why_not_undone(self) -> str:
        """Why the change cannot be taken back now, as far as its row says; "" if it can."""
        change = self.change
        if change.cannot_undo:
            return change.cannot_undo
        if change.state != Change.State.DONE:
            return NOT_DONE[change.state]
        if change.expires is None or change.expires <= timezone.now():
            return f"It could be taken back for {settings.UNDO_DAYS} days."
        return ""

    def claim(self, state: Change.State, to: Change.State, **values: Any) -> bool:
        """Move the change from one state to another, and set ``values``; return whether it was in that state.

        One UPDATE with a condition: of several callers at the same time, one gets True. Inside a transaction, that
        holds until its end. ``values`` are columns, with contents (:data:`SEALED`) as in :meth:`Changes.keep`. The kept
        call goes where the change has ended.
        """
        stored = {**self._stored(values), "state": to.value}
        if to not in OPEN:
            stored["kept"] = b""
        if "footprint" in values:
            stored |= _done(timezone.now(), self.change.using, values["footprint"], values.get("cannot_undo", ""))
        rows = Change.objects.using(router.db_for_write(Change)).filter(pk=self.change.pk, state=state.value)
        if not rows.update(**stored):
            return False
        for name, value in stored.items():
            setattr(self.change, name, value)
        return True

    @staticmethod
    def _stored(values: Mapping[str, Any]) -> dict[str, Any]:
        stored = {name: sealed(name, value) if name in SEALED else value for name, value in values.items()}
        return fitting(stored, router.db_for_write(Change))


class Changes:
    """The changes of one caller: keeps new ones, and finds those that are theirs."""

    def __init__(self, request: MCPRequest) -> None:
        self.request = request
        self.using = router.db_for_write(Change)

    def keep(
        self,
        *,
        using: str,
        tool: str,
        labels: Iterable[str],
        rows: int,
        summary: str,
        state: Change.State = Change.State.DONE,
        shown: Any = None,
        footprint: bytes = b"",
        cannot_undo: str = "",
        kept: Any = None,
        result: Any = None,
        digest: str = "",
        expires: datetime | None = None,
        undoes: Change | None = None,
        outcome: str = "",
    ) -> KeptChange:
        """Insert a change of this caller, by one statement, in the open transaction if there is one.

        ``using`` is the database with the rows, ``labels`` are those of the models in ``shown``, the first row's first.
        ``shown``, ``kept`` and ``result`` are values for JSON, or None. ``footprint`` is the stored difference of what
        was done, as JSON: it is kept unless there is a reason in ``cannot_undo`` or :func:`why_not_kept` has one.
        ``expires`` is until when a waiting change can be decided.
        """
        now = timezone.now()
        done = _done(now, using, footprint, cannot_undo) if state is Change.State.DONE else {}
        names = list(dict.fromkeys(labels))
        values: dict[str, Any] = {
            "state": state.value,
            "time": now,
            "expires": expires,
            "tool": tool,
            "model": names[0] if names else "",
            "labels": " ".join(sorted(names)),
            "rows": rows,
            "summary": summary,
            "using": using,
            "cannot_undo": cannot_undo,
            "undoes_id": undoes.pk if undoes is not None else None,
            "digest": digest,
            "outcome": outcome,
            "shown": sealed("shown", shown),
            "footprint": b"",
            "kept": b"" if kept is None else sealed("kept", kept),
            "result": b"" if result is None else sealed("result", result),
            **done,
        }
        known = {**DEFAULTS, **fitting({**self._caller(), **values}, self.using)}
        # Like a row that was read: the constructor would ask each field for a default.
        change = Change.from_db(self.using, list(known), list(known.values()))
        OwnTable(Change, self.using).append(change)
        return KeptChange(change)

    def keep_done(
        self, *, using: str, tool: str, labels: Iterable[str], undoes: Change | None = None, **done: Any
    ) -> int:
        """Keep what this call has done, with the columns in ``done``, and return the number of the change: of a new
        one, or of the request for a person's yes under which the call runs."""
        consent = self.request.mcp.consent
        if consent is not None:
            consent.done.update(done, undoes_id=undoes.pk if undoes is not None else None)
            number: int = consent.change
            return number
        return self.keep(using=using, tool=tool, labels=labels, undoes=undoes, **done).change.pk

    def _caller(self) -> dict[str, str]:
        """Return who makes the change, by column: as the log of calls says it."""
        request = self.request
        mcp = request.mcp
        user: Any = request.user
        return {
            "user": KeptChange.owner_of(user),
            "username": getattr(user, "get_username", str)(),
            "client_id": mcp.client_id,
            "client_name": mcp.client.name,
            "token": getattr(getattr(request, "auth", None), "checksum", ""),
            "session": getattr(mcp.session, "id", ""),
            "call": mcp.record.id.hex,
            "site": mcp.site.name,
            "resource": mcp.resource,
        }

    @property
    def rows(self) -> QuerySet[Change]:
        """The caller's own changes, without their contents."""
        mcp = self.request.mcp
        owner = KeptChange.owner_of(self.request.user)
        if not owner:
            return Change.objects.none()
        where = Q(user=owner, **fitting({"site": mcp.site.name, "resource": mcp.resource}, self.using))
        if FactName.SERVICE_ACCOUNT in mcp.facts:
            where &= Q(client_id=mcp.client_id)
        return Change.objects.using(self.using).filter(where).defer(*SEALED)

    def own(self, pk: Any, *, lock: bool = False) -> KeptChange:
        """Return the caller's change with this number, as the client gave it; with ``lock``, others wait for it.

        Raises ``NotFound`` if it is not there, is somebody else's, or is of a model that the caller cannot view now.
        """
        text = str(pk)
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
        if isinstance(pk, bool) or not 0 < number <= KeptChange.MAX_KEY:
            raise NotFound
        rows = self.rows.select_for_update() if lock else self.rows
        change = rows.filter(pk=number).first()
        if change is None or not self.may_see(change.labels):
            raise NotFound
        return KeptChange(change)

    def may_see(self, labels: str) -> bool:
        """Return whether the caller can view all models of a change now, by its column ``labels``."""
        access = access_of(self.request)
        by_label = self.request.mcp.site.exposures_by_label
        return all(label in by_label and access[by_label[label]].is_there for label in labels.split())

    def digest(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return what a call is: the digest of user, client, endpoint, tool and arguments."""
        mcp = self.request.mcp
        named = [
            KeptChange.owner_of(self.request.user),
            mcp.client_id,
            mcp.site.name,
            mcp.resource,
            tool,
            dict(arguments),
        ]
        text = json.dumps(named, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()

    def repeated(self, digest: str, *, besides: int = 0) -> KeptChange | None:
        """Return the newest change of the same call: one that waits, or one that was decided in the last 24 hours; none
        with the number ``besides``."""
        now = timezone.now()
        is_open = Q(state=Change.State.WAITING.value, expires__gt=now)
        is_recent = Q(decided__gt=now - timedelta(seconds=REPEATED_FOR))
        # SQLite uses an index of some rows only if the query says which.
        rows = self.rows.filter(is_open | is_recent, digest=digest, digest__gt="")
        found = rows.exclude(pk=besides).order_by("-pk").first()
        return KeptChange(found) if found is not None else None


def expired_changes() -> QuerySet[Change]:
    """Return the changes that are older than ``UNDO_DAYS``; where that is 0, results are kept for a day."""
    horizon = timezone.now() - timedelta(days=max(1, settings.UNDO_DAYS))
    return Change.objects.using(router.db_for_write(Change)).filter(time__lt=horizon)


def why_not_kept(using: str, size: int = 0) -> str:
    """Return why a footprint of so many bytes, of rows in this database, is not kept; "" if it is.

    A preview says it before the write.
    """
    if not settings.UNDO_DAYS:
        return NOTHING_KEPT
    if using != router.db_for_write(Change):
        return ELSEWHERE
    if size > settings.UNDO_BYTES:
        return TOO_LARGE
    return ""


def _done(now: datetime, using: str, footprint: bytes, cannot_undo: str) -> dict[str, Any]:
    """Return the columns that say whether a change that is done now can be taken back, with its footprint if it can."""
    why_not = cannot_undo or why_not_kept(using, len(footprint))
    if not footprint and not why_not:
        why_not = KeptChange.NOT_RECORDED
    if why_not:
        return {"cannot_undo": why_not[: LENGTHS["cannot_undo"]], "footprint": b"", "expires": None}
    expires = now + timedelta(days=settings.UNDO_DAYS)
    return {"cannot_undo": "", "footprint": sealed("footprint", footprint), "expires": expires}


def sealed(name: str, value: Any) -> bytes:
    """Return the contents of a column, sealed: of bytes, or of a value for JSON; b"" for None and for no bytes."""
    if value is None or value == b"":
        return b""
    data = value if isinstance(value, bytes) else orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    return SEALS[name].seal(data)


def opened(name: str, value: Any) -> bytes | None:
    """Return the contents of a column; None if there are none, or if the ``SECRET_KEY`` they need is gone."""
    data = bytes(value)
    return SEALS[name].open(data) if data else None


def fitting(values: Mapping[str, Any], using: str) -> dict[str, Any]:
    """Return values of columns with each text cut to its column, without characters that the database refuses."""
    return fitting_texts(values, LENGTHS, Change._meta.db_table, using)

"""The record of one call: what the log of calls, spans and metrics say about it. It grows while the call runs."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final

from django.utils import timezone

from ..conf import settings

# Maximum characters of ``CallRecord.detail``.
MAX_DETAIL: Final = 200
# Maximum characters of ``CallRecord.row_key``.
MAX_KEY: Final = 64
# Outcomes of calls that did, or tried, what they should; of those that go on, go on elsewhere, or were given up; and
# of all that neither failed nor were refused.
ANSWERED: Final = frozenset({"ok", "tried"})
OPEN: Final = frozenset({"", "asked", "task", "cancelled"})
FINE: Final = ANSWERED | OPEN
# Number of ids for which random bytes are read at once, because reading them releases the GIL.
IDS: Final = 256
_random: Final[list[bytes]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.clear)


def new_id() -> uuid.UUID:
    """Return a random UUID for a call's record, as :func:`uuid.uuid4` does."""
    try:
        found = _random.pop()
    except IndexError:
        read = os.urandom(16 * IDS)
        _random.extend(read[start : start + 16] for start in range(16, len(read), 16))
        found = read[:16]
    return uuid.UUID(bytes=found, version=4)


@dataclass(slots=True)
class CallRecord:
    """The record of one call or refusal, from which log, spans and metrics are written.

    Texts are as the client sent them, and what the client says about itself is not verified.

    ``id`` is the same in errors, in the log and in spans. ``started`` is the time of arrival, and ``duration`` is in
    ms. ``queries`` and ``query_time`` (ms) are the database queries of the call's threads. ``waiting`` (for threads),
    ``token_check``, ``own_code`` (functions of the project, without their queries) and ``rendering`` (the result as
    JSON) are other parts of ``duration``, None if not measured. ``kind`` is "person", "service", or "stdio" for a
    caller on this machine without a token. ``target`` is the called tool or prompt, "" until the site is known to have
    it. ``keys`` are those of the rows that it reads or writes one by one, each with the label of its model. ``token``
    identifies the token without revealing it. ``size`` is that of the answer in bytes, ``filed`` the bytes of
    files that the call has written for its user, and ``taken`` what was taken from budgets while it ran. ``writes``
    says that the tool may change something, ``is_keyed`` that the client can repeat the call by its idempotency key.
    ``outcome`` is "ok", "tool_error", "asked", "tried", "task", "cancelled", "error:<code>" or
    "refused:<why>", "" while the call runs; ``detail`` is the reason of a refusal or failure, ``cause`` the checksum
    that equal failures have in common, and ``release`` the version of the server then, "" for calls that did not fail.
    ``history`` has the keys of the LogEntry
    rows. If the project keeps them, ``arguments`` (JSON) and ``result`` (bytes) are request and response, and
    ``bodies`` is what is stored of them. During a transaction, ``kept`` has ``rows_changed`` and the length of
    ``history`` from before it, and ``is_ending`` says that it can no longer be stopped. ``spent`` has the cache keys
    that the call has used up. ``left`` removes what the call has left outside of the database, where its transaction is
    rolled back. ``code`` is that of the JSON-RPC error in the answer, 0 for none; ``error_id`` is the id
    if the server failed, "" otherwise. ``traceparent`` is that of the call's span, or else the client's, and ``trace``
    the id in it. ``span`` is the OpenTelemetry span. A call that ``is_silent`` is not logged: it found nothing new.
    """

    id: uuid.UUID = field(default_factory=new_id)
    started: datetime = field(default_factory=timezone.now)
    began: float = field(default_factory=time.perf_counter)
    site: str = ""
    user: str = ""
    username: str = ""
    kind: str = ""
    client_id: str = ""
    client_name: str = ""
    client_host: str = ""
    token: str = ""
    session: str = ""
    version: str = ""
    method: str = ""
    tool: str = ""
    target: str = ""
    model: str = ""
    action: str = ""
    keys: set[tuple[str, str]] = field(default_factory=set)
    writes: bool = False
    is_keyed: bool = False
    rows_read: int = 0
    rows_changed: int = 0
    size: int = 0
    filed: int = 0
    taken: dict[str, int] = field(default_factory=dict)
    queries: int = 0
    query_time: float = 0.0
    waiting: float | None = None
    token_check: float | None = None
    own_code: float | None = None
    rendering: float | None = None
    duration: float = 0.0
    outcome: str = ""
    detail: str = ""
    code: int = 0
    error_id: str = ""
    cause: str = ""
    release: str = ""
    trace: str = ""
    traceparent: str = ""
    history: list[str] = field(default_factory=list)
    arguments: Any = None
    result: bytes | None = None
    bodies: tuple[str, str] = ("", "")
    kept: tuple[int, int] | None = None
    is_ending: bool = False
    spent: list[str] = field(default_factory=list)
    left: list[Callable[[], object]] = field(default_factory=list, repr=False, compare=False)
    span: Any = field(default=None, repr=False, compare=False)
    is_silent: bool = False

    # The record of the call that this thread or task runs.
    current: ClassVar[ContextVar["CallRecord | None"]] = ContextVar("mcp_django_call", default=None)

    def settle(self, outcome: str, detail: str = "") -> None:
        """Set the outcome in the call's record, unless the record has one already."""
        if not self.outcome:
            self.outcome = outcome
            self.detail = detail[:MAX_DETAIL] or self.detail

    @contextmanager
    def in_own_code(self) -> Iterator[None]:
        """Add the time of a function of the project to the call's record, without that of its queries."""
        began = time.perf_counter() - self.query_time / 1000
        try:
            yield
        finally:
            spent = (time.perf_counter() - began) * 1000 - self.query_time
            self.own_code = (self.own_code or 0.0) + max(0.0, spent)

    def touch(self, label: str, key: str) -> None:
        """Note a row that the call reads or writes by itself: the label of its model, and its key as text."""
        if settings.CALL_LOG and settings.CALL_LOG["rows"]:
            self.model = self.model or label
            self.keys.add((label, key[:MAX_KEY]))

    @property
    def row_key(self) -> str:
        """The key of the row that the call is about, "" for a call about no row, or about several."""
        return next(iter(self.keys))[1] if len(self.keys) == 1 else ""

    def undo(self, rows_changed: int, history: int) -> None:
        """Take rows changed and history entries of a rolled back transaction off the call's record, and remove what it
        has left elsewhere."""
        self.rows_changed = rows_changed
        self.history = self.history[:history]
        while self.left:
            self.left.pop()()

    @property
    def tokens(self) -> int:
        """The record's estimate of how many tokens of an AI model the call's answer takes: four bytes each."""
        return -(-self.size // 4)

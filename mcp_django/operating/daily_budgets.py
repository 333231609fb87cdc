"""Daily budgets: how many calls, rows and bytes a user, a client or a service account has in a day.

They are counted in the shared cache, for all workers together, and days are those of UTC. A call can start while
something is left. What it reads, writes and sends is known only at its end, so the last call can exceed the budget.
While the cache fails, each worker counts by itself, and adds its counts to the cache afterwards.
"""

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.utils.translation import gettext as _

from ..conf import settings
from ..conf.value_kinds import QUANTITIES
from ..context.call_record import CallRecord
from ..context.request import MCPRequest
from ..context.untrusted_text import plain
from ..exceptions import CallRefused
from ..runtime.cache_and_rate_limits import cache
from .alerts import alerts

logger = logging.getLogger("mcp_django")

DAY: Final = 24 * 3600
# Maximum number of counters that a worker remembers.
MOST: Final = 10_000
# Methods that use a budget. Lists and the handshake are free, so that a client can connect and read the refusal.
COUNTED: Final = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
FREE_TOOL: Final = "connection_info"


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a user, client or service account: ``limits`` by quantity; ``key`` names it in the cache."""

    kind: str
    key: str
    limits: Mapping[str, int]
    name: str = ""

    def counter(self, quantity: str) -> str:
        """Return the cache key of the counter of a quantity."""
        return f"mcp_django:budget:{self.kind}:{self.key}:{quantity}:{int(time.time()) // DAY}"


def budgets_of(request: MCPRequest) -> list[Budget]:
    """Return the budgets that apply to the caller of a request.

    A service account has one; a person has that of the user and that of the client.
    """
    configured = settings.BUDGETS
    record = request.mcp.record
    if not configured:
        return []
    who: list[tuple[str, str, tuple[str, ...]]]
    if record.kind == "service":
        who = [("service", record.client_id, (str(request.mcp.facts.get("name", "")), record.client_id))]
    else:
        names_of_client = record.client_id, record.client_host
        who = [("user", record.user, (record.username,)), ("client", record.client_id, names_of_client)]
    budgets = []
    for kind, key, names in who:
        own = [configured[f"{kind}:{name}"] for name in names if name and f"{kind}:{name}" in configured]
        limits = {**configured.get(kind, {}), **(own[0] if own else {})}
        limits = {quantity: limit for quantity, limit in limits.items() if limit is not None}
        if key and limits:
            name = record.username if kind == "user" else record.client_name or key
            budgets.append(Budget(kind, hashlib.sha256(key.encode()).hexdigest()[:32], limits, plain(name)))
    return budgets


def is_counted(record: CallRecord) -> bool:
    """Return whether the call counts against budgets."""
    return record.method in COUNTED and record.tool != FREE_TOOL


class Budgets:
    """The budgets of the caller of a request."""

    # What messages call the kinds of budgets, and the quantities that they limit.
    WORDS: ClassVar[Mapping[str, str]] = {
        "user": "this account",
        "client": "this client",
        "service": "this service account",
        "calls": "calls",
        "rows_read": "rows to read",
        "rows_written": "rows to change",
        "bytes": "bytes",
    }

    def __init__(self, request: MCPRequest) -> None:
        self.request = request

    def check(self) -> None:
        """Take one call from the caller's budgets; raise ``CallRefused`` if calls, rows or bytes are used up."""
        if not is_counted(self.request.mcp.record):
            return
        budgets = budgets_of(self.request)
        _require(budgets, "rows_read", "bytes")
        if self.request.mcp.task is not None:
            # The call was taken when its client made it.
            return
        for budget in budgets:
            if "calls" in budget.limits and counts.add(budget.counter("calls"), 1) > budget.limits["calls"]:
                raise _refusal(budget, "calls", budgets)

    def check_running(self) -> None:
        """Take the rows that the running call has read so far, and the bytes that it has filed, from the caller's
        budgets; raise ``CallRefused`` once they are used up: for calls that read without an end in sight, of which
        several can run at the same time."""
        record = self.request.mcp.record
        self._take({"rows_read": record.rows_read, "bytes": record.filed})
        budgets = budgets_of(self.request) if is_counted(record) else []
        used = counts.used([budget.counter(name) for budget in budgets for name in budget.limits])
        for budget in budgets:
            for quantity in record.taken:
                if quantity in budget.limits and used[budget.counter(quantity)] > budget.limits[quantity]:
                    raise _refusal(budget, quantity, budgets)

    def check_writes(self) -> None:
        """Raise ``CallRefused`` if the caller's budget of written rows is used up."""
        _require(budgets_of(self.request), "rows_written")

    def spend(self) -> None:
        """Take the rows and bytes of a finished call from the caller's budgets."""
        record = self.request.mcp.record
        spent = {"rows_read": record.rows_read, "rows_written": record.rows_changed}
        self._take({**spent, "bytes": record.size + record.filed})

    def _take(self, spent: Mapping[str, int]) -> None:
        """Take what the call has spent from the caller's budgets, without what was taken of it before."""
        record = self.request.mcp.record
        if not is_counted(record):
            return
        budgets = budgets_of(self.request)
        for quantity, amount in spent.items():
            amount -= record.taken.get(quantity, 0)
            record.taken[quantity] = spent[quantity]
            for budget in budgets:
                if amount > 0 and quantity in budget.limits:
                    counts.add(budget.counter(quantity), amount)

    def left(self) -> dict[str, dict[str, int]]:
        """Return what is left of each budget of the caller, by kind and quantity."""
        return _left(budgets_of(self.request))

    @staticmethod
    def resets_in() -> int:
        """Return the seconds until budgets begin anew."""
        return DAY - int(time.time()) % DAY


def _require(budgets: list[Budget], *quantities: str) -> None:
    limited = [budget for budget in budgets if not budget.limits.keys().isdisjoint(quantities)]
    rest = _left(limited)
    for budget in limited:
        for quantity in quantities:
            if rest[budget.kind].get(quantity) == 0:
                raise _refusal(budget, quantity, budgets)


def _left(budgets: list[Budget]) -> dict[str, dict[str, int]]:
    if not budgets:
        return {}
    used = counts.used([budget.counter(quantity) for budget in budgets for quantity in budget.limits])
    return {
        budget.kind: {
            quantity: max(0, budget.limits[quantity] - used[budget.counter(quantity)])
            for quantity in QUANTITIES
            if quantity in budget.limits
        }
        for budget in budgets
    }


def _refusal(budget: Budget, quantity: str, budgets: list[Budget]) -> CallRefused:
    words = Budgets.WORDS
    rest = [
        f"{number:,} {words[name]}"
        for kind, numbers in _left(budgets).items()
        for name, number in numbers.items()
        if (kind, name) != (budget.kind, quantity)
    ]
    used_up = {"limit": budget.limits[quantity], "what": words[quantity], "owner": budget.kind, "name": budget.name}
    values = {**used_up, "budget": f"{budget.kind}.{quantity}"}
    text = _("%(name)s has used up today's budget: %(budget)s = %(limit)s") % values
    alerts.raise_alert("budget", budget.counter(quantity), text, used_up)
    others = f" Left: {', '.join(rest)}." if rest else ""
    return CallRefused(
        f"The {budget.limits[quantity]:,} {words[quantity]} that {words[budget.kind]} has in a day are used up. "
        f"They reset in {Budgets.resets_in()} s.{others}",
        "rate",
    )


class Counts:
    """What is used, by counter: the cache's last value, and amounts not yet written to the cache."""

    def __init__(self) -> None:
        self._said: OrderedDict[str, int] = OrderedDict()
        self._untold: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, key: str, amount: int) -> int:
        """Add an amount to a counter, and return how much is used with it."""
        with self._lock:
            amount += self._untold.pop(key, 0)
        try:
            # The first amount of a day creates the counter. If another worker was faster, add to its counter.
            is_first = cache.add(key, amount, timeout=2 * DAY)
            used = amount if is_first else int(cache.incr(key, amount))
        except Exception as error:
            _not_shared(error)
            with self._lock:
                self._untold[key] = self._untold.get(key, 0) + amount
                return self._said.get(key, 0) + self._untold[key]
        self._note({key: used})
        return used

    def used(self, keys: list[str]) -> dict[str, int]:
        """Return how much of each counter is used."""
        try:
            counts: dict[str, int] = cache.get_many(keys) if keys else {}
            self._note(counts)
        except Exception as error:
            _not_shared(error)
            counts = self._said
        with self._lock:
            return {key: counts.get(key, 0) + self._untold.get(key, 0) for key in keys}

    def _note(self, found: Mapping[str, int]) -> None:
        with self._lock:
            for key, used in found.items():
                self._said[key] = used
                self._said.move_to_end(key)
            while len(self._said) > MOST:
                self._untold.pop(self._said.popitem(last=False)[0], None)


counts: Final = Counts()


def _not_shared(error: Any) -> None:
    logger.warning("Each worker counts budgets by itself: the cache does not answer (%s)", type(error).__name__)

"""What is refused before it is a call: a row of the log too, but of one cause no more than fit.

Whoever has no token could fill the table otherwise. What is left out is counted, and said with the next one.
"""

import threading
import time
from collections import OrderedDict
from functools import partial
from typing import Final

from ..conf import settings
from ..context.record import CallRecord
from ..context.request import MCPRequest
from ..context.text import plain
from ..runtime.threads import in_thread
from ..signals import call_finished
from . import log
from .calls import MAX_NAME, describe_caller, finish, pass_over

# Seconds of a period; refusals of one cause that are kept of it, of all who have no good token together, and of one
# caller who has one; causes that are counted at a time.
PERIOD: Final = 60.0
OF_STRANGERS: Final = 60
OF_CALLER: Final = 600
MAX_COUNTED: Final = 1_000
# For the outcome, by HTTP status; any other is an error of its number.
RATE: Final = "refused:rate"
TOKEN: Final = "refused:token"
REASONS: Final = {401: TOKEN, 403: "refused:origin", 429: RATE}

# By cause: when its period began, how many were kept of it, and how many were not.
_counted: OrderedDict[tuple[str, str], tuple[float, int, int]] = OrderedDict()
_lock = threading.Lock()


def outcome_of(status: int) -> str:
    """Return the outcome of a request that was answered with this HTTP status."""
    return REASONS.get(status, f"error:{status}")


def refused(request: MCPRequest, outcome: str, detail: str = "", *, method: str = "", cause: str = "") -> None:
    """End the record of a request that is refused, unless it has ended: see :func:`~.calls.finish`.

    ``outcome`` is as in the log, ``detail`` says more of it, and ``method`` is what was asked for, as far as it is
    known. ``cause`` tells refusals of one outcome apart, and is one of the package's own texts: a stranger cannot make
    a new one. On an event loop receivers are told by a thread.
    """
    record = request.mcp.record
    is_told = settings.CALL_LOG or call_finished.has_listeners()
    if record.duration or not (is_told or settings.PROMETHEUS or record.span is not None):
        return
    record.method = record.method or plain(method, MAX_NAME)
    describe_caller(request, record)
    left_out = _count(record, outcome, cause) if is_told else None
    if left_out is None:
        pass_over(request, outcome)
        return
    more = f" ({left_out} more of these are not in the log)" if left_out else ""
    record.settle(outcome, f"{detail}{more}")
    if call_finished.has_listeners() and log.is_on_loop():
        in_thread("streams", partial(finish, request, outcome))
    else:
        finish(request, outcome)


def _count(record: CallRecord, outcome: str, cause: str) -> int | None:
    """Return how many were left out before, None where this one is."""
    key = (record.user, f"{outcome} {cause}")
    most, now = OF_CALLER if record.user else OF_STRANGERS, time.monotonic()
    with _lock:
        began, kept, left_out = _counted.pop(key, (now, 0, 0))
        if now - began >= PERIOD:
            began, kept = now, 0
        while len(_counted) >= MAX_COUNTED:
            _counted.popitem(last=False)
        if kept >= most:
            _counted[key] = began, kept, left_out + 1
            return None
        _counted[key] = began, kept + 1, 0
        return left_out


def forget() -> None:
    """Count anew."""
    with _lock:
        _counted.clear()

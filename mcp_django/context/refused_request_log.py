"""Log refused requests with cause and remedy, at most once a minute for each cause."""

import logging
import threading
import time
from typing import Final

from ..problems import NO_DOCUMENT, NO_TOKEN
from .untrusted_text import plain

logger = logging.getLogger("mcp_django")

# Seconds for which a cause is not logged again.
PERIOD: Final = 60
MAX_CHARS: Final = 500
# Remedies of what is part of a sign-in.
ORDINARY: Final = frozenset({NO_TOKEN.remedy, NO_DOCUMENT})

# By cause: the monotonic time until which it is not logged again, and the number of requests left out since.
_quiet: dict[tuple[int, str, str], tuple[float, int]] = {}
_lock = threading.Lock()


def report(status: int, seen: str, remedy: str, cause: str = "") -> None:
    """Log a refused request with its ``status``, unless its cause was logged in the last minute.

    ``seen`` can contain the client's own text, but no credentials. ``status``, ``remedy`` and ``cause`` identify a
    cause. They are the package's own texts, so a stranger cannot make up new causes. What is part of a sign-in is
    logged as information, everything else as a warning.
    """
    known = (status, remedy, cause)
    now = time.monotonic()
    with _lock:
        until, left_out = _quiet.get(known, (now, 0))
        if now < until:
            _quiet[known] = until, left_out + 1
            return
        _quiet[known] = now + PERIOD, 0
    more = f" ({left_out} more of these were not logged.)" if left_out else ""
    level = logging.INFO if remedy in ORDINARY else logging.WARNING
    text = plain(seen, MAX_CHARS)
    logger.log(
        level, "%s: %s %s%s", status, text if text.endswith(("?", "!")) else f"{text.rstrip('.')}.", remedy, more
    )

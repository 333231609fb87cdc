"""Log refused requests with cause and remedy, at most once a minute for each cause."""

import logging
import threading
import time
from typing import Final

from ..exceptions import Reason
from .text import plain

logger = logging.getLogger("mcp_django")

# Seconds for which a cause is not logged again.
PERIOD: Final = 60
MAX_CHARS: Final = 500

IS_IT_RIGHT: Final = "Is BASE_URL right?"
# Why nobody is signed in, where the token itself is not the reason.
NO_TOKEN: Final = Reason("the request has no token", "A client signs in next, or needs a token in its configuration.")
TWO_TOKENS: Final = Reason(
    "the request has two Authorization headers",
    "The client and a proxy may add one each.",
    "The Authorization header is given twice.",
)
OTHER_SCHEME: Final = Reason(
    "the Authorization header has a scheme that none of AUTHENTICATION_CLASSES takes",
    "By default it is Bearer, a space and one token.",
    "The Authorization header has a scheme that this endpoint does not take.",
)
NOT_ACTIVE: Final = Reason("the user is not active", "Activate the user, or leave it so.")
AMBIGUOUS: Final = Reason(
    "below the script prefix, the path of the endpoint is that of another endpoint too", "Mount one of them elsewhere."
)
NOT_SAID: Final = Reason("an authentication class refuses the credentials", "Its own rules say why.")

# Clients look for documents at several places, of which one is enough.
NO_DOCUMENT: Final = "If clients find no other document either, is the URL in the client right?"

ORDINARY: Final = frozenset({NO_TOKEN.remedy, NO_DOCUMENT})

# By cause: until when it is not logged again, and how many were not.
_quiet: dict[tuple[int, str, str], tuple[float, int]] = {}
_lock = threading.Lock()


def report(status: int, seen: str, remedy: str, cause: str = "") -> None:
    """Log that a request was refused with ``status``, unless the cause was logged in the last minute.

    ``seen`` can have text of the client's, and no credentials. A cause is known by its status, its ``remedy`` and what
    else tells it apart, which are the package's own texts: a stranger cannot make a new one. What is part of a sign-in
    is information, all else a warning.
    """
    known, now = (status, remedy, cause), time.monotonic()
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

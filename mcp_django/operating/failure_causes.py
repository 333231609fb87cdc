"""Why calls failed, in words that the log of calls keeps, and the checksum by which equal failures are one cause.

A reason is the beginning of what the model was told. The log keeps no arguments, so what the text quotes is left out
unless it is written like the name of a field or tool, and so is what looks like a secret.
"""

import re
from hashlib import blake2b
from types import TracebackType
from typing import Final

from ..context.call_record import FINE, MAX_DETAIL, CallRecord
from ..context.untrusted_text import plain
from .likely_secrets import without_likely_secrets

# What a text quotes, between quotes of one kind.
# An apostrophe within a word is no quote.
QUOTED: Final = re.compile(r"""(?<!\w)'[^\n]{0,200}?'(?!\w)|"[^"\n]{0,200}"|«[^»\n]{0,200}»|“[^”\n]{0,200}”""")
# Names of fields, tools and models: small letters, and what joins them.
NAME: Final = re.compile(r"[a-z_][a-z0-9_.-]{0,39}")
LEFT_OUT: Final = "…"
# What differs between failures that are the same: identifiers and numbers.
VARYING: Final = re.compile(r"\b[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b|\b[0-9a-f]{12}\b|[0-9]+")
# The first line is the cause; what follows are ways out.
MAX_READ: Final = 1_000


def reason_of(message: str) -> str:
    """Return the reason that the log keeps of an error message: at most ``MAX_DETAIL`` characters of one line."""
    line = message[:MAX_READ].strip().partition("\n")[0]
    text = QUOTED.sub(_name_or_nothing, line)
    return plain(without_likely_secrets(text), MAX_DETAIL)


def place_of(error: BaseException) -> str:
    """Return the class of an exception and the function that raised it: ``KeyError in shop.admin.OrderAdmin.ship``."""
    found: TracebackType | None = error.__traceback__
    while found is not None and found.tb_next is not None:
        found = found.tb_next
    if found is None:
        return type(error).__name__
    frame = found.tb_frame
    return f"{type(error).__name__} in {frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"[:MAX_DETAIL]


def cause_of(record: CallRecord) -> str:
    """Return the checksum (16 hexadecimal digits) of what failed and why, "" for a call that did not fail.

    Failures with the same tool, outcome and reason have the same one, whatever numbers are in the reason.
    """
    if record.outcome in FINE:
        return ""
    told = [record.tool or record.method, record.outcome, VARYING.sub("0", record.detail)]
    return blake2b("\0".join(told).encode(), digest_size=8).hexdigest()


def _name_or_nothing(found: re.Match[str]) -> str:
    quoted = found[0]
    if NAME.fullmatch(quoted[1:-1]):
        return quoted
    return f"{quoted[0]}{LEFT_OUT}{quoted[-1]}"

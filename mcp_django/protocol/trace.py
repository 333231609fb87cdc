"""Trace context in ``_meta`` (2026-07-28, basic, General fields; W3C Trace Context and Baggage)."""

import re
from collections.abc import Mapping
from typing import Any, Final

KEYS: Final = ("traceparent", "tracestate", "baggage")
# W3C Trace Context, 3.2: neither identifier is all zeros, and version ff is none.
_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# 512 and 8,192 characters are what every participant passes on (Trace Context, 3.3.1.5; W3C Baggage, 3.3.2).
_STATE: Final = re.compile(r"[\x20-\x7e]{1,512}")
_BAGGAGE: Final = re.compile(r"[\x20-\x7e]{1,8192}")
_NOTHING: Final[Mapping[str, str]] = {}


def trace_context(meta: Mapping[str, Any]) -> Mapping[str, str]:
    """Return those of ``traceparent``, ``tracestate`` and ``baggage`` in ``_meta`` that follow their formats.

    A malformed one is left out, as Trace Context says, and ``tracestate`` with the ``traceparent`` that it belongs to.
    """
    if "traceparent" not in meta and "baggage" not in meta:
        return _NOTHING
    parent, state, baggage = map(meta.get, KEYS)
    found: dict[str, str] = {}
    if isinstance(parent, str) and _PARENT.fullmatch(parent):
        found["traceparent"] = parent
        if isinstance(state, str) and _STATE.fullmatch(state):
            found["tracestate"] = state
    if isinstance(baggage, str) and _BAGGAGE.fullmatch(baggage):
        found["baggage"] = baggage
    return found

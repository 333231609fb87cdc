"""Progress from generator functions: the simplest way for a tool or an action to report it.

Each ``yield`` is a report, and the place where a call that nobody waits for any more ends: ``yield done, total``,
``yield done, total, "message"``, ``yield done``, ``yield "message"``, or a bare ``yield``. What the generator returns
is the result.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any, get_args, get_origin

if TYPE_CHECKING:
    from ..context.request import MCPRequest


def finished(request: MCPRequest, value: Any) -> Any:
    """Return what a function returned, or what its generator returns in the end, told of on the way.

    A generator expression is a value like any other.

    Raises:
        Cancelled: the client has gone, or the time of the call is over; the generator has been closed.
        TypeError: something was yielded that is no report.
    """
    if not inspect.isgenerator(value) or value.gi_code.co_name == "<genexpr>":
        return value
    last, is_counting = 0.0, False
    with closing(value) as steps:
        while True:
            try:
                done, total, message = _read(next(steps))
            except StopIteration as end:
                return end.value
            if done is not None:
                last, is_counting = float(done), True
            elif message:
                # A text says nothing of how far it is, and what is told has to grow (basic/utilities/progress).
                last = math.nextafter(last, math.inf) if is_counting else last + 1
            request.mcp.progress(last, total, message)


def result_annotation(hint: Any) -> Any:
    """Return what a function gives in the end, by its return annotation: of a generator what it returns."""
    if get_origin(hint) is Generator:
        return next(iter(get_args(hint)[2:]), type(None))
    return hint


def _read(report: Any) -> tuple[float | None, float | None, str]:
    match report:
        case None:
            return None, None, ""
        case str():
            return None, None, report
        case int() | float():
            return report, None, ""
        case (int() | float() as done, int() | float() | None as total):
            return done, total, ""
        case (int() | float() as done, int() | float() | None as total, message):
            return done, total, str(message)
    raise TypeError(f"a tool yields its progress, such as (done, total) or a text, and not {type(report).__name__}")

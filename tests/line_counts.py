"""How much work something is, counted and not timed: a busy machine gives the same number."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps_of(work: Callable[[], Any]) -> int:
    """Return how many lines of Python run; what it raises is let go."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Exception:
        count += 1
    finally:
        sys.settrace(before)
    return count


def is_linear(work: Callable[[int], Any]) -> bool:
    """Return whether ``work``, given 64 KiB, takes no more than about four times of what it takes with 16 KiB."""
    return steps_of(lambda: work(65_536)) <= 4 * steps_of(lambda: work(16_384)) + 100

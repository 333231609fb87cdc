"""How many of many similar cases are run: all, or where `SOME_CASES` is set some of each kind.

`make test` and `make test-quick` set it; `make test-all` and who runs a single file run all cases.
"""

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")
SOME = bool(os.environ.get("SOME_CASES"))


def drawn(number: int) -> int:
    """Return how many are run of so many cases that are drawn."""
    return max(number // 4, 1) if SOME else number


def some(cases: Iterable[Case], step: int) -> list[Case]:
    """Return one case of each `step`, which is no divisor of how many cases of a kind follow each other, or all."""
    return [*cases][:: step if SOME else 1]


def whole(cases: Iterable[Any]) -> list[Any]:
    """Mark cases whose kind others have, so that `make test` leaves them out."""
    return [pytest.param(case, marks=pytest.mark.whole) for case in cases]


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked as `whole` where some cases are enough."""
    left_out = [item for item in items if SOME and item.get_closest_marker("whole")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

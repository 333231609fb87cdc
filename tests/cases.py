"""How many of many similar cases are run: all, or where `SOME_CASES` is set some of each kind.

`make test` and `make test-quick` set it; `make test-all` and who runs a single file run all cases. `make test` sets
`DIVIDED_CASES` too: "data" for the data side, which runs on the databases of `DIVIDED_AMONG`, each case of a test on
one of them, and a test of few cases on SQLite and on one of the servers in turn; "every" for tests of which every case
runs on another Django, about half of them here too. What has the same answer on every server, marked `one_server`, runs
on SQLite and on the first of the servers.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from zlib import crc32

import pytest

Case = TypeVar("Case")
SOME = bool(os.environ.get("SOME_CASES"))
DIVIDED = os.environ.get("DIVIDED_CASES", "")
# The databases among which they are divided, by the scheme of the URL, and the one of this run.
AMONG = os.environ.get("DIVIDED_AMONG", "sqlite postgres").split()
HERE = urlsplit(os.environ.get("TEST_DATABASE_URL", "")).scheme or "sqlite"
# Of fewer cases each may well be a kind of its own; where every case runs elsewhere too, that does not matter.
FEWEST = 2 if DIVIDED == "every" else 4


def drawn(number: int) -> int:
    """Return how many are run of so many cases that are drawn."""
    return max(number // 4, 1) if SOME else number


def shared(numbers: Sequence[int]) -> Sequence[int]:
    """Return those of the numbers of drawn cases that are made on this database: its share of them, or all."""
    if DIVIDED != "data":
        return numbers
    return numbers[AMONG.index(HERE) :: len(AMONG)]


def some(cases: Iterable[Case], step: int) -> list[Case]:
    """Return one case of each `step`, which is no divisor of how many cases of a kind follow each other, or all."""
    return [*cases][:: step if SOME else 1]


def whole(cases: Iterable[Any]) -> list[Any]:
    """Mark cases whose kind others have, so that `make test` leaves them out."""
    return [pytest.param(case, marks=pytest.mark.whole) for case in cases]


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked as `whole` where some cases are enough, and what is run on the other database."""
    left_out = {item for item in items if SOME and item.get_closest_marker("whole")}
    if DIVIDED:
        left_out |= {*elsewhere(item for item in items if item not in left_out)}
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


def elsewhere(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Give the cases that are run on another one of the databases: about half of each test of many cases, or more.

    A list of cases may be a product, with each value of a parameter at equal distances. The sequence of Thue and Morse
    repeats nothing, and so no value is on one side alone if many others go with it.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if HERE not in databases_of(item):
            yield item
        elif _is_divisible(item):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in tests.items():
        among = databases_of(cases[0])
        if len(cases) < FEWEST:
            if HERE not in servers_in_turn(name, among) and not asks_for_database(cases[0].path):
                yield from cases
            continue
        for number, item in enumerate(cases):
            if sum_of_digits(number, len(among)) % len(among) != among.index(HERE):
                yield item


def servers_in_turn(name: str, among: Sequence[str]) -> Sequence[str]:
    """Return the databases on which a test of few cases is run: SQLite, and of several servers one, by its name."""
    if DIVIDED != "data" or len(among) < 3:
        return among
    return [among[0], among[1 + crc32(name.encode()) % (len(among) - 1)]]


@cache
def asks_for_database(path: Path) -> bool:
    """Return whether a file of tests asks on which database it is: then it may say something else of each."""
    return ".vendor" in path.read_text()


def databases_of(item: pytest.Item) -> list[str]:
    """Return the databases on which a test is run."""
    return AMONG[:2] if DIVIDED == "data" and item.get_closest_marker("one_server") else AMONG


def sum_of_digits(number: int, base: int) -> int:
    """Return the sum of a number's digits."""
    total = 0
    while number:
        number, digit = divmod(number, base)
        total += digit
    return total


def _is_divisible(item: pytest.Item) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    # What is skipped on one database is there for the other one.
    is_meant = DIVIDED == "every" or marks & {"postgresql", "divided"}
    return bool(is_meant) and not marks & {"undivided", "skipif"}

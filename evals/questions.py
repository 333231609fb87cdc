"""The business questions of ``questions.toml``: what each asks, the calls that answer it, and what the ORM says.

``orm`` is Python over the example's models, with the names that :func:`names` gives. ``calls`` has a call in each line:
a tool, and its arguments as JSON. ``"$1.number"`` stands for the column ``number`` of the first call's rows, and
``"$1.number.0"`` for its first value.
"""

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("questions.toml")
# Of two values that are to be the same.
TOLERANCE = 1e-6
_DAY = re.compile("@(day|week|month|quarter|year)([+-][0-9]+)?")

Call = tuple[str, dict[str, Any]]
Table = list[list[Any]]


@dataclass(frozen=True)
class Question:
    """A question, ``also`` in other words; ``answer`` names the columns that count, or a member of the last answer."""

    id: str
    ask: str
    also: tuple[str, ...]
    orm: str
    calls: tuple[Call, ...]
    answer: tuple[str, ...] | str = ()
    models: tuple[str, ...] = ()
    ordered: bool = False

    @property
    def kind(self) -> str:
        """The class of the question."""
        return self.id.partition("-")[0]

    def expected(self) -> Table:
        """Return what the ORM answers."""
        return table(eval(self.orm, names()))

    def found(self, answers: Sequence[Mapping[str, Any]]) -> Table:
        """Return what the last of the answers says."""
        last = answers[-1]
        if isinstance(self.answer, str):
            value: Any = last
            for step in self.answer.split("."):
                value = value[int(step)] if isinstance(value, list) else value[step]
            return table(value)
        columns = list(last["columns"])
        wanted = [columns.index(name) for name in self.answer or self._asked(columns)]
        return table([[row[position] for position in wanted] for row in last["rows"]])

    def _asked(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that the last call asked for; the key comes with all rows."""
        fields = self.calls[-1][1].get("fields")
        return [name.replace(".", "__") for name in fields] if fields else list(columns)

    def agrees(self, answers: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether the answers say what the ORM says, in the same order where the order was asked for."""
        return same(self.found(answers), self.expected(), ordered=self.ordered)


def questions(path: Path = PAGE) -> list[Question]:
    """Read the questions."""
    found = tomllib.loads(path.read_text())["question"]
    return [
        Question(
            **{
                **entry,
                "also": tuple(entry["also"]),
                "calls": tuple(_calls(entry["calls"])),
                "answer": entry["answer"] if isinstance(entry.get("answer"), str) else tuple(entry.get("answer", ())),
                "models": tuple(entry.get("models", ())),
            }
        )
        for entry in found
    ]


def _calls(text: str) -> list[Call]:
    calls = []
    for line in text.strip().splitlines():
        tool, _, arguments = line.partition(" ")
        calls.append((tool, json.loads(arguments)))
    return calls


def filled(value: Any, answers: Sequence[Mapping[str, Any]]) -> Any:
    """Return arguments in which what refers to earlier answers has its value."""
    if isinstance(value, Mapping):
        return {name: filled(member, answers) for name, member in value.items()}
    if isinstance(value, list):
        return [filled(member, answers) for member in value]
    if isinstance(value, str) and (day := _DAY.fullmatch(value)):
        return start(day[1], int(day[2] or 0)).date().isoformat()
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    number, column, *which = value[1:].split(".")
    answer = answers[int(number) - 1]
    position = answer["columns"].index(column)
    values = [row[position] for row in answer["rows"]]
    keys = [one[0] if isinstance(one, list) else one for one in values]
    return keys[int(which[0])] if which else keys


def table(value: Any) -> Table:
    """Return rows of plain values: of a query, a list, a mapping or one value."""
    if isinstance(value, Mapping):
        return [[plain(one) for one in value.values()]]
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return [[plain(value)]]
    return [[plain(one) for one in row] if isinstance(row, list | tuple) else [plain(row)] for row in value]


def plain(value: Any) -> Any:
    """Return a value as both sides write it: numbers as floats, times in UTC, a related row by its label."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return float(value)
    if isinstance(value, timedelta):
        return value / timedelta(days=1)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple) and len(value) == 2:
        return plain(value[1])
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def same(found: Table, expected: Table, *, ordered: bool = False) -> bool:
    """Return whether two tables have the same values; those of numbers but for how they were rounded."""
    if not ordered:
        found, expected = sorted(found, key=_rank), sorted(expected, key=_rank)
    return len(found) == len(expected) and all(
        len(one) == len(other) and all(map(_equal, one, other)) for one, other in zip(found, expected, strict=True)
    )


def _rank(row: Sequence[Any]) -> list[tuple[str, str]]:
    return [("number", f"{value:030.4f}") if isinstance(value, float) else ("", str(value)) for value in row]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)


# What the references know


def start(unit: str, shift: int = 0) -> datetime:
    """Return when this day, week, month, quarter or year begins in UTC, or the one so many later."""
    now = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if unit in ("day", "week"):
        days = 7 if unit == "week" else 1
        return now - timedelta(days=now.weekday() if unit == "week" else 0) + timedelta(days=days * shift)
    months = {"month": 1, "quarter": 3, "year": 12}[unit]
    month = (now.year * 12 + now.month - 1) // months * months + months * shift
    return now.replace(year=month // 12, month=month % 12 + 1, day=1)


def names() -> dict[str, Any]:
    """Return what references can use: models, the ORM's functions, statistics, what clients have changed or asked for,
    and these.

    ``start("month", -1)`` is when the last month began, ``within("created", "month", -1)`` the condition that a time
    lies in it, and ``ago(30)`` the midnight thirty days ago.
    """
    import statistics
    from collections import Counter

    from django.apps import apps
    from django.contrib.admin.models import LogEntry
    from django.db import models
    from django.db.models import functions

    from mcp_django.models import ApprovalRequest, Change

    def within(field: str, unit: str, shift: int = 0) -> models.Q:
        return models.Q(**{f"{field}__gte": start(unit, shift), f"{field}__lt": start(unit, shift + 1)})

    def ago(days: int) -> datetime:
        return start("day", -days)

    own = {model.__name__: model for label in ("shop", "places") for model in apps.get_app_config(label).get_models()}
    found = {name: getattr(models, name) for name in models.__all__ if name not in own}
    found |= {name: getattr(functions, name) for name in functions.__all__}
    return {
        **found,
        **own,
        **{"Change": Change, "ApprovalRequest": ApprovalRequest},
        **{
            "LogEntry": LogEntry,
            "statistics": statistics,
            "Counter": Counter,
            "json": json,
        },
        **{"Decimal": Decimal, "datetime": datetime, "timedelta": timedelta, "UTC": UTC, "date": date},
        **{"start": start, "within": within, "ago": ago},
    }

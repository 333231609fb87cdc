"""Which questions in SQL the generic tools answer in one call, by the forms that they are made of (``forms.toml``)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from sqlglot.errors import SqlglotError

from .forms import FORMS, REACHES
from .selects import Need
from .statements import read


@dataclass(frozen=True)
class Verdict:
    """What one statement needs: its ``id``, forms, number of calls, and why it has fewer or more than one."""

    id: str
    forms: frozenset[str]
    calls: int
    reasons: tuple[str, ...]
    reach: str


def verdict(identifier: str, sql: str, unique: Mapping[str, AbstractSet[str]] | None = None) -> Verdict:
    """Return whether a statement fits one call of the tools; ``unique`` names the columns that are, by their tables."""
    try:
        need = read(sql, unique)
    except SqlglotError:
        need = Need(obstacles={"what the parser does not read"})
    reaches = {name: FORMS[name].reach for name in need.forms}
    missing = [name for name, reach in reaches.items() if reach == REACHES[3]]
    if missing or need.obstacles:
        return Verdict(identifier, frozenset(need.forms), 0, (*sorted(missing), *sorted(need.obstacles)), REACHES[3])
    if need.calls > 1:
        reasons = sorted(name for name, reach in reaches.items() if reach == REACHES[2]) or ["several questions"]
        return Verdict(identifier, frozenset(need.forms), need.calls, tuple(reasons), f"{need.calls} calls")
    reasons = sorted(name for name, reach in reaches.items() if reach == REACHES[1])
    return Verdict(identifier, frozenset(need.forms), 1, tuple(reasons), REACHES[bool(reasons)])


def statements(path: Path) -> list[tuple[str, str, str]]:
    """Return ids, databases and texts: of a list of objects with "SQL" as JSON, or of the lines of another file."""
    text = path.read_text()
    if path.suffix != ".json":
        return [(str(number), "", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return [
        (str(item.get("question_id", item.get("id", number))), item.get("db_id", ""), item["SQL"])
        for number, item in enumerate(json.loads(text), 1)
    ]


def verdicts(path: Path, keys: Path | None = None) -> list[Verdict]:
    """Return what the statements of a file need.

    ``keys`` is JSON that has for each database and table the unique columns, with ``~`` before one that is a foreign
    key too; of tables that it does not have, only ``id`` is known to be unique.
    """
    known = json.loads(keys.read_text()) if keys is not None else {}
    unique = {base: {table.lower(): {*map(str.lower, names)} for table, names in known[base].items()} for base in known}
    return [verdict(identifier, sql, unique.get(base)) for identifier, base, sql in statements(path)]


def report(found: Sequence[Verdict]) -> str:
    """Return counts by verdicts, forms and reasons, with the ids of what does not fit one call."""
    lines = [f"{len(found)} statements", ""]
    lines += [f"{count:5} {name}" for name, count in Counter(item.reach for item in found).most_common()]
    lines += ["", "Forms"]
    used = Counter(name for item in found for name in item.forms)
    lines += [f"{count:5} {name} ({FORMS[name].reach})" for name, count in used.most_common()]
    reasons: dict[tuple[str, str], list[str]] = {}
    for item in found:
        for reason in item.reasons:
            reasons.setdefault((item.reach, reason), []).append(item.id)
    lines += ["", "Not one call by itself"]
    for (reach, reason), ids in sorted(reasons.items(), key=lambda pair: (pair[0][0], -len(pair[1]))):
        lines.append(f"{len(ids):5} {reach}: {reason}: {' '.join(ids)}")
    return "\n".join(lines)


def main(path: str, keys: str | None = None) -> None:
    """Print which statements of a file fit one call."""
    print(report(verdicts(Path(path), Path(keys) if keys is not None else None)))

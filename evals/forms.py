"""The forms of SQL of ``forms.toml``, and the calls of the generic tools that give the same values."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# From the best to the worst.
REACHES: Final = ("one call", "one call and arithmetic", "two calls", "none")
TABLE: Final = Path(__file__).with_name("forms.toml")


@dataclass(frozen=True)
class Form:
    """A form of SQL: an example, and the calls that give the same values, or the reason why there is none.

    ``then`` is arithmetic over the columns of the last answer, one line for each row; ``columns`` are those that count,
    ``keys`` says that a related row is known by its key there, ``distinct`` that rows count once, ``skip`` how many the
    caller passes over. ``sqlite`` is the reason why the example runs on SQLite alone.
    """

    name: str
    words: str
    sql: str
    reach: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    columns: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    ordered: bool = False
    distinct: bool = False
    skip: int = 0
    keys: bool = False
    sqlite: str = ""
    because: str = ""

    def __str__(self) -> str:
        return self.name


def forms(path: Path = TABLE) -> dict[str, Form]:
    """Read the table."""
    found = {}
    for name, entry in tomllib.loads(path.read_text()).items():
        lines = [line.partition(" ") for line in entry.pop("calls", "").strip().splitlines()]
        lists: dict[str, Any] = {key: tuple(entry.pop(key)) for key in ("columns", "then") if key in entry}
        calls = tuple((tool, json.loads(arguments)) for tool, _, arguments in lines)
        found[name] = Form(name=name, calls=calls, **lists, **entry)
    return found


FORMS: Final[Mapping[str, Form]] = forms()


def docs_table() -> str:
    """Return the forms that are not one call by themselves, as the documentation has them."""
    lines = ["| SQL | here |", "|---|---|"]
    lines += [
        f"| {form.words} | {form.reach if form.reach != 'none' else f'No. {form.because}'} |"
        for form in sorted(FORMS.values(), key=lambda form: REACHES.index(form.reach))
        if form.reach != REACHES[0]
    ]
    return "\n".join(lines)

"""The difference of a write for people, from its JSON as it was kept: one table a model, and what happens besides."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson
from django.core.exceptions import FieldDoesNotExist

KINDS: Final = ("changed", "added", "deleted")
# Maximum characters of a value.
MAX_VALUE: Final = 300
NOTHING: Final = "-"
# Members of what is shown of a call that was not tried, which are listed.
LISTED: Final = ("arguments", "filled_in", "shown")
# Members of a difference that tell what happens besides to the rows, and their names.
BESIDES: Final = {
    "also_written": "Also writes, which is not taken back",
    "mails": "Mails",
    "on_commit": "Runs afterwards",
    "messages": "Messages",
}


@dataclass(frozen=True, slots=True)
class TableCell:
    """A column before and after, as text; ``name`` is the column's in words."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row, or a row of an inline of the row above; ``kind`` is what happens to it."""

    kind: str
    label: str
    cells: Sequence[TableCell]
    inline: str = ""


@dataclass(frozen=True, slots=True)
class DifferenceTable:
    """The rows of one model; ``counts`` are pairs of kind and number of all rows that differ."""

    name: str
    counts: Sequence[tuple[str, int]]
    rows: Sequence[TableRow]

    @property
    def has_cells(self) -> bool:
        """Whether columns are shown of one of the rows."""
        return any(row.cells for row in self.rows)


class ShownCall:
    """A call that waits for a person, as they see it: what the template ``mcp_django/_difference.html`` shows.

    ``shown`` is what was kept of it (:attr:`KeptChange.shown`), and ``site`` knows the names of models and columns.
    """

    def __init__(self, shown: Any, site: Any) -> None:
        self._shown: Mapping[str, Any] = shown if isinstance(shown, Mapping) else {}
        self._difference: Mapping[str, Any] = self._shown.get("difference") or {}
        self._site = site

    @property
    def message(self) -> str:
        """What was asked for, in a sentence."""
        return str(self._shown.get("message", ""))

    @cached_property
    def tables(self) -> list[DifferenceTable]:
        """The rows that differ."""
        return tables_of(self._difference, self._site)

    @property
    def more_rows(self) -> int:
        """The number of rows that are not in the tables."""
        return int(self._difference.get("more_rows", 0))

    @property
    def others(self) -> int:
        """The number of rows that the caller does not see."""
        return int(self._difference.get("counts", {}).get("other", 0))

    @property
    def besides(self) -> list[tuple[str, list[str]]]:
        """What happens besides to the rows: pairs of a name and texts."""
        return [(name, _texts(self._difference[key])) for key, name in BESIDES.items() if self._difference.get(key)]

    @property
    def objects(self) -> Sequence[str]:
        """The labels of the rows of a call that was not tried."""
        return self._shown.get("objects") or ()

    @property
    def given(self) -> list[tuple[str, str]]:
        """The arguments of a call that was not tried: pairs of name and value."""
        return [(name, in_words(value)) for part in LISTED for name, value in (self._shown.get(part) or {}).items()]

    @property
    def not_tried(self) -> Sequence[str]:
        """What was not tried."""
        return self._difference.get("not_tried") or self._shown.get("not_tried") or ()


def _texts(items: Sequence[Any]) -> list[str]:
    """Return what happens besides as texts; a message of a hook is an object."""
    return [str(item.get("text", "")) if isinstance(item, Mapping) else str(item) for item in items]


def tables_of(difference: Mapping[str, Any], site: Any) -> list[DifferenceTable]:
    """Return the tables of a difference, which is ``Difference.to_wire()`` as it was kept; ``site`` knows the names of
    models and columns."""
    found = []
    for label, counts in difference.get("counts", {}).items():
        if isinstance(counts, int):
            # Rows of models that the caller does not see.
            continue
        exposure = site.exposures_by_label.get(label)
        opts = exposure.opts if exposure is not None else None
        rows = [row for kind in KINDS for row in _rows(kind, difference.get(kind, {}).get(label, ()), opts)]
        name = str(opts.verbose_name_plural) if opts is not None else label
        found.append(DifferenceTable(name, list(counts.items()), rows))
    return found


def _rows(kind: str, rows: Sequence[Any], opts: Any) -> Iterator[TableRow]:
    for row in rows:
        if kind == "deleted":
            yield TableRow(kind, str(row[1]), ())
            continue
        cells = list(_cells(row["columns"], kind, opts))
        if note := row.get("note"):
            cells.append(TableCell(note, NOTHING, NOTHING))
        yield TableRow(kind, str(row["label"]), cells)
        for inline, items in row.get("inlines", {}).items():
            for item in items:
                of_item = next(name for name in KINDS if name in item)
                cells = [] if of_item == "deleted" else list(_cells(item[of_item], of_item, None))
                yield TableRow(of_item, str(item.get("pk", "")), cells, inline)


def _cells(columns: Mapping[str, Any], kind: str, opts: Any) -> Iterator[TableCell]:
    for name, value in columns.items():
        before, after = value if kind == "changed" else (None, value)
        yield TableCell(_name(name, opts), in_words(before), in_words(after))


def _name(name: str, opts: Any) -> str:
    if opts is None:
        return name
    try:
        return str(getattr(opts.get_field(name), "verbose_name", name))
    except FieldDoesNotExist:
        return name


def in_words(value: Any) -> str:
    """Return a JSON value as text for people; of a related row its label."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):
        value = value[1]
    if value is None or value == "":
        return NOTHING
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"

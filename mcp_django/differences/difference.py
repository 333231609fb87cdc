"""What a write does, as its caller sees it: rows and columns before and after, and the same in one line."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, ClassVar, Final

from django.contrib.admin.utils import model_ngettext
from django.utils.translation import gettext_noop

from ..conf import settings
from ..context.confirmation import one_line, quoted
from ..orm.access import ModelAccess

# One of ``footprints.KINDS``.
Kind = str
# Returns a value as a sentence tells it.
Telling = Callable[[str], str]

# Value of a column that the database or the project sets only when the row is really written.
SET_WHEN_WRITTEN: Final = gettext_noop("(set when written)")
# What is said of a row that the write takes out of the caller's sight, or brings into it.
LEAVES: Final = gettext_noop("no longer visible to you")
APPEARS: Final = gettext_noop("visible to you")
# Maximum characters of a value, and number of columns of one row, in a sentence.
MAX_VALUE: Final = 40
MAX_COLUMNS: Final = 4
ELLIPSIS: Final = "…"
# Maximum characters that are shown of what two long texts have in common before they differ.
MAX_COMMON: Final = 40
# What separates the parts of a sentence.
SIGNS: Final = re.compile(r"[;:]|->|\n")


@dataclass(slots=True)
class ShownRow:
    """A row as the caller sees it: its columns, the rows of its inlines, and which columns the write sets by itself;
    those of inline rows are by the name of the inline and the key of the row."""

    pk: Any
    label: str
    columns: dict[str, Any]
    inlines: dict[str, dict[Any, dict[str, Any]]] = field(default_factory=dict)
    volatile: frozenset[str] = frozenset()
    volatile_of_inlines: dict[tuple[str, Any], frozenset[str]] = field(default_factory=dict)


@dataclass(slots=True)
class RowDifference:
    """One row before and after a write; None where it does not exist or is not visible. ``named`` are the columns that
    the caller gave values for. ``moves`` says that the row exists on both sides, and is visible on one of them."""

    model: ModelAccess
    before: ShownRow | None
    after: ShownRow | None
    named: Collection[str] = ()
    is_new_key: bool = False
    moves: bool = False

    @property
    def kind(self) -> Kind:
        if self.moves:
            return "changed"
        if self.before is None:
            return "added"
        return "changed" if self.after is not None else "deleted"

    @property
    def row(self) -> ShownRow:
        """The row as it is known: as it was before, or as it is made."""
        row = self.before or self.after
        assert row is not None
        return row

    @property
    def note(self) -> str:
        """What is said of a row that is visible on one side only, "" for any other."""
        if not self.moves:
            return ""
        return LEAVES if self.after is None else APPEARS

    def columns(self) -> dict[str, Any]:
        """Return the columns that differ: pairs of before and after, or for a new row its values without empty ones."""
        before = self.before
        after = self.after
        if self.moves:
            return {}
        if before is not None and after is not None:
            pairs = {name: [before.columns.get(name), value] for name, value in after.columns.items()}
            changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
            return {name: around(old, self._told(name, new)) for name, (old, new) in changed.items()}
        if after is not None:
            given = {name: value for name, value in after.columns.items() if value not in (None, "", [], {})}
            return {name: around("", self._told(name, value))[1] for name, value in given.items()}
        return {}

    def _told(self, name: str, value: Any) -> Any:
        if self.after is not None and name in self.after.volatile and name not in self.named:
            return SET_WHEN_WRITTEN
        return value

    def inlines(self) -> dict[str, list[dict[str, Any]]]:
        """Return the inline rows that differ, by the name of the inline."""
        if self.moves:
            return {}
        names = dict.fromkeys(
            [*(self.before.inlines if self.before else ()), *(self.after.inlines if self.after else ())]
        )
        found: dict[str, list[dict[str, Any]]] = {}
        for name in names:
            old = self.before.inlines.get(name, {}) if self.before is not None else {}
            new = self.after.inlines.get(name, {}) if self.after is not None else {}
            volatile = self.after.volatile_of_inlines if self.after is not None else {}
            rows = list(_inline_differences(old, new, {key: volatile.get((name, key), ()) for key in new}))
            if rows:
                found[name] = rows
        return found

    def to_wire(self) -> Any:
        """Return the difference of the row as JSON: ``{pk, label, columns, inlines?}``, of a deleted row
        ``[pk, label]``."""
        if self.kind == "deleted":
            return [self.row.pk, self.row.label]
        key = {} if self.is_new_key else {"pk": self.row.pk}
        wire: dict[str, Any] = {**key, "label": self.row.label, "columns": self.columns()}
        if inlines := self.inlines():
            wire["inlines"] = inlines
        if self.note:
            wire["note"] = self.note
        return wire

    def __bool__(self) -> bool:
        return self.kind != "changed" or self.moves or bool(self.columns() or self.inlines())


def around(before: Any, after: Any) -> list[Any]:
    """Return two values, the texts among them cut to ``TEXT_CHARS`` characters from where they begin to differ."""
    sides = [before, after]
    texts = [value for value in sides if isinstance(value, str)]
    if max(map(len, texts), default=0) <= settings.TEXT_CHARS:
        return sides
    start = 0
    if len(texts) == len(sides):
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
        start = max(0, sum(1 for _ in alike) - MAX_COMMON)
    return [_cut(value, start) if isinstance(value, str) else value for value in sides]


def _cut(text: str, start: int) -> str:
    end = start + settings.TEXT_CHARS
    return f"{ELLIPSIS if start else ''}{text[start:end]}{ELLIPSIS if end < len(text) else ''}"


def _inline_differences(
    old: Mapping[Any, dict[str, Any]],
    new: Mapping[Any, dict[str, Any]],
    volatile: Mapping[Any, Collection[str]],
) -> Iterator[dict[str, Any]]:
    for key, row in new.items():
        told = {**row, **dict.fromkeys(volatile[key], SET_WHEN_WRITTEN)}
        if key not in old:
            yield {"added": {name: value for name, value in told.items() if name != "pk"}}
            continue
        changed = {name: [old[key].get(name), told[name]] for name, value in row.items() if old[key].get(name) != value}
        if changed:
            yield {"pk": row["pk"], "changed": changed}
    for key, row in old.items():
        if key not in new:
            yield {"pk": row["pk"], "deleted": True}


class Difference:
    """What a write does to the rows that its caller sees: ``rows`` has the first of them, ``counts`` how many there are
    of each model and kind, and ``others`` is the number of rows of models that the caller does not see."""

    # Number of rows that are shown, and characters of the sentence.
    MAX_ROWS: ClassVar = 20
    MAX_SENTENCE: ClassVar = 160

    def __init__(self, rows: Sequence[RowDifference], counts: Mapping[ModelAccess, Counter[Kind]], others: int) -> None:
        self.rows = rows
        self.counts = counts
        self.others = others

    @property
    def sentence(self) -> str:
        """The whole difference in one line: "5 orders: customer Ada Ibarra -> Ada Evans; 2 customers deleted"."""
        return self._sentence(_plain)

    def _sentence(self, told: Telling) -> str:
        parts = self._parts(told)
        if self.others:
            parts.append(f"{self.others} other row{'s' if self.others != 1 else ''}")
        text = "; ".join(parts) or "no difference"
        if len(text) <= self.MAX_SENTENCE:
            return text
        return text[: self.MAX_SENTENCE - 1] + ELLIPSIS

    def _parts(self, told: Telling) -> list[str]:
        """Return what happens to the rows of each model, by kind."""
        parts = []
        for model, counts in self.counts.items():
            for kind, count in counts.items():
                rows = [row for row in self.rows if row.model is model and row.kind == kind]
                parts.append(_phrase(model, kind, count, rows, told))
        return parts

    @property
    def total(self) -> int:
        """The number of rows that differ."""
        return sum(sum(count.values()) for count in self.counts.values()) + self.others

    def text(self) -> str:
        """Return the difference for a person to read: the sentence, and a line for each of the first rows. Labels and
        values are quoted, so that nobody takes them for words of the question."""
        lines = [self._sentence(_quoted)]
        if len(self.rows) > len(self._parts(_quoted)) or len(lines[0]) == self.MAX_SENTENCE:
            lines += [f"- {_phrase(row.model, row.kind, 1, [row], _quoted)}" for row in self.rows]
        more = self.total - self.others - len(self.rows)
        if more > 0 and len(lines) > 1:
            lines.append(f"- and {more} more")
        return "\n".join(lines)

    def to_wire(self) -> dict[str, Any]:
        """Return the difference as JSON: ``{summary, counts, changed?, added?, deleted?, more_rows?}``, the counts by
        model and kind, and the first rows by kind and model."""
        counts: dict[str, Any] = {model.exposure.label: dict(count) for model, count in self.counts.items()}
        if self.others:
            counts["other"] = self.others
        wire: dict[str, Any] = {"summary": self.sentence, "counts": counts}
        for row in self.rows:
            wire.setdefault(row.kind, {}).setdefault(row.model.exposure.label, []).append(row.to_wire())
        more = self.total - self.others - len(self.rows)
        if more > 0:
            wire["more_rows"] = more
        return wire


def _phrase(model: ModelAccess, kind: Kind, count: int, rows: Sequence[RowDifference], told: Telling) -> str:
    """Return what happens to the rows of one model, in words."""
    opts = model.exposure.opts
    if count == 1 and len(rows) == 1:
        label = rows[0].row.label
        name = str(opts.verbose_name)
        who = told(label) if label.lower().startswith(name.lower()) else f"{name} {told(label)}"
    else:
        who = f"{count} {model_ngettext(opts, count)}"
    if kind != "changed":
        return f"{who} {kind}"
    what = ", ".join(_changes(rows, told))
    return f"{who}: {what}" if what else f"{who} changed"


def _changes(rows: Sequence[RowDifference], told: Telling) -> Iterator[str]:
    """Yield what changes in rows, column by column: "status paid -> shipped", or without values that differ."""
    columns: dict[str, list[list[Any]]] = {}
    for row in rows:
        for name, pair in row.columns().items():
            columns.setdefault(name, []).append(pair)
        for name in row.inlines():
            columns.setdefault(name, [])
        if row.note:
            columns.setdefault(row.note, [])
    for number, (name, pairs) in enumerate(columns.items()):
        if number == MAX_COLUMNS:
            yield f"{len(columns) - MAX_COLUMNS} more columns"
            return
        before = {_in_words(rows[0].model, name, old, told) for old, _ in pairs}
        after = {_in_words(rows[0].model, name, new, told) for _, new in pairs}
        is_all = len(pairs) == len(rows)
        if is_all and len(before) == len(after) == 1:
            yield f"{name} {before.pop()} -> {after.pop()}"
        elif is_all and len(after) == 1:
            yield f"{name} -> {after.pop()}"
        else:
            yield name


def _in_words(model: ModelAccess, name: str, value: Any, told: Telling) -> str:
    """Return a value of a column in words; of related rows their labels."""
    field = model.exposure.options.model_fields.get(name)
    if isinstance(value, list) and field is not None and field.is_relation:
        pairs = value if field.many_to_many else [value]
        value = ", ".join(str(label or key) for key, label in pairs)
    if value is None or value == "":
        return "nothing"
    return told(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _plain(value: str) -> str:
    """Return a label or a value in one line, in quotes if it could be taken for the sentence's own words."""
    if SIGNS.search(value):
        return _quoted(value)
    text = one_line(value)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}{ELLIPSIS}"


def _quoted(value: str) -> str:
    return quoted(value, MAX_VALUE)

"""The difference of a write for people, from its JSON as it was kept: a table for each model and kind of change.

What this package itself has written into it is translated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, ClassVar, Final

import orjson
from django.contrib.admin.utils import label_for_field
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model
from django.template.defaultfilters import yesno
from django.utils.translation import gettext, gettext_lazy

from ..emulation.action_calls import NOT_TRIED
from .difference import APPEARS, ELLIPSIS, LEAVES, SET_WHEN_WRITTEN
from .trials import FILES_UNTRIED, HOOKS_UNTRIED, KEYS_UNTRIED, MAILED
from .visible_tables import OTHER_TABLES

KINDS: Final = ("changed", "added", "deleted")
# Maximum characters of a value, of an argument, and of what two long values have in common before they differ.
MAX_VALUE: Final = 300
MAX_ARGUMENT: Final = 2_000
MAX_COMMON: Final = 60
NOTHING: Final = "-"
# Members of what is shown of a call that was not tried, which are listed.
LISTED: Final = ("arguments", "filled_in", "shown")
# Members of a difference that tell what happens besides to the rows, and their names.
BESIDES: Final = {
    "also_written": gettext_lazy("Also writes, which is not taken back"),
    "mails": gettext_lazy("Mails"),
    "on_commit": gettext_lazy("Runs afterwards"),
    "messages": gettext_lazy("Messages"),
}
# Texts of this package in a difference; "{}" stands for what differs.
OWN_TEXTS: Final = (
    SET_WHEN_WRITTEN,
    LEAVES,
    APPEARS,
    NOT_TRIED,
    HOOKS_UNTRIED,
    FILES_UNTRIED,
    KEYS_UNTRIED,
    MAILED,
    OTHER_TABLES,
)


@dataclass(frozen=True, slots=True)
class TableCell:
    """A column before and after, as text; ``name`` is the column's in words. A row that is added has only ``after``."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row, or a row of the inline with the name ``inline`` of the row above; ``kind`` is what happens to it, and
    ``note`` says that it comes into sight or leaves it."""

    kind: str
    label: str
    cells: Sequence[TableCell]
    inline: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class DifferenceTable:
    """The rows of one model to which the same happens; ``count`` is the number of all of them, and ``rows`` are the
    first, each with those of its inlines after it."""

    name: str
    kind: str
    count: int
    rows: Sequence[TableRow]

    @property
    def has_cells(self) -> bool:
        """Whether columns are shown of one of the rows."""
        return any(row.cells for row in self.rows)

    @property
    def more(self) -> int:
        """The number of rows that are not shown."""
        return self.count - sum(1 for row in self.rows if not row.inline)


class ShownCall:
    """A call that waits for a person, as they see it: what the template ``mcp_django/_difference.html`` shows.

    ``shown`` is what was kept of it (:attr:`KeptChange.shown`), and ``site`` knows the names of models and columns.
    """

    # In place of a value, or a key, that the write sets only when it is made.
    SET_WHEN_WRITTEN: ClassVar = SET_WHEN_WRITTEN

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
    def others(self) -> int:
        """The number of rows that the caller does not see."""
        return int(self._difference.get("counts", {}).get("other", 0))

    @property
    def besides(self) -> list[tuple[Any, list[str]]]:
        """What happens besides to the rows: pairs of a name and texts."""
        return [(name, _texts(self._difference[key])) for key, name in BESIDES.items() if self._difference.get(key)]

    @property
    def objects(self) -> Sequence[str]:
        """The labels of the rows of a call that was not tried."""
        return self._shown.get("objects") or ()

    @property
    def given(self) -> list[tuple[str, str]]:
        """The arguments of a call that was not tried: pairs of name and value."""
        given = [item for part in LISTED for item in (self._shown.get(part) or {}).items()]
        return [(name, _cut(in_words(value), most=MAX_ARGUMENT)) for name, value in given]

    @property
    def not_tried(self) -> list[str]:
        """What was not tried."""
        return list(map(translated, self._difference.get("not_tried") or self._shown.get("not_tried") or ()))


def _texts(items: Sequence[Any]) -> list[str]:
    """Return what happens besides as texts; a message of a hook is an object."""
    return [str(item.get("text", "")) if isinstance(item, Mapping) else translated(str(item)) for item in items]


def translated(text: str) -> str:
    """Return a text of this package in the active language, any other as it is."""
    for own in OWN_TEXTS:
        start, place, end = own.partition("{}")
        if text == own or (place and text.startswith(start) and text.endswith(end)):
            return gettext(own).format(text[len(start) : len(text) - len(end)])
    return text


def tables_of(difference: Mapping[str, Any], site: Any) -> list[DifferenceTable]:
    """Return the tables of a difference, which is ``Difference.to_wire()`` as it was kept; ``site`` knows the names of
    models and columns."""
    found = []
    for label, counts in difference.get("counts", {}).items():
        if isinstance(counts, int):
            # Rows of models that the caller does not see.
            continue
        exposure = site.exposures_by_label.get(label)
        names = Names(exposure.model, exposure.model_admin) if exposure is not None else Names()
        for kind in KINDS:
            if kind in counts:
                rows = difference.get(kind, {}).get(label, ())
                found.append(DifferenceTable(names.title(label), kind, counts[kind], list(_rows(kind, rows, names))))
    return found


class Names:
    """The names of a model and its columns in words, and of its values; without a model, those of the difference."""

    def __init__(self, model: type[Model] | None = None, admin: Any = None) -> None:
        self.model = model
        self.admin = admin

    def title(self, name: str) -> str:
        """Return what several rows of the model are called."""
        return name if self.model is None else str(self.model._meta.verbose_name_plural)

    def of_inline(self, relation: str) -> "Names":
        """Return the names of the rows of an inline, which is called like the relation to them."""
        if self.model is None:
            return Names()
        opts = self.model._meta
        models = {link.get_accessor_name(): link.related_model for link in opts.related_objects}
        models |= {field.name: field.related_model for field in opts.private_fields}
        return Names(models.get(relation))

    def column(self, name: str) -> str:
        """Return what a column is called."""
        if self.model is None:
            return name
        try:
            return str(label_for_field(name, self.model, self.admin))
        except AttributeError:
            # It is an attribute of the exposure.
            return name.replace("_", " ")

    def value(self, name: str, value: Any) -> str:
        """Return the value of a column as text: of related rows their labels, of a choice its name."""
        field = self._field(name)
        choices = dict(getattr(field, "flatchoices", ()))
        if isinstance(value, str | int) and value in choices:
            return str(choices[value])
        if field is not None and field.is_relation and isinstance(value, list):
            pairs = value if field.many_to_many else [value]
            return in_words(", ".join(str(label or key) for key, label in pairs))
        return in_words(value)

    def _field(self, name: str) -> Any:
        try:
            return self.model._meta.get_field(name) if self.model is not None else None
        except FieldDoesNotExist:
            return None


def _rows(kind: str, rows: Sequence[Any], names: Names) -> Iterator[TableRow]:
    for row in rows:
        if kind == "deleted":
            yield TableRow(kind, str(row[1]), ())
            continue
        cells = list(cells_of(row["columns"], kind, names))
        yield TableRow(kind, str(row["label"]), cells, note=translated(row.get("note", "")))
        for inline, items in row.get("inlines", {}).items():
            of_inline = names.of_inline(inline)
            for item in items:
                of_item = next(name for name in KINDS if name in item)
                cells = [] if of_item == "deleted" else list(cells_of(item[of_item], of_item, of_inline))
                yield TableRow(of_item, str(item.get("pk", "")), cells, of_inline.title(inline))


def cells_of(columns: Mapping[str, Any], kind: str, names: Names) -> Iterator[TableCell]:
    """Yield the cells of a row with these columns, of which a changed one is a pair of before and after."""
    for name, value in columns.items():
        if kind == "changed":
            before, after = (names.value(name, side) for side in value)
            alike = takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
            skipped = max(0, sum(1 for _ in alike) - MAX_COMMON)
            yield TableCell(names.column(name), _cut(before, skipped), _cut(after, skipped))
        else:
            yield TableCell(names.column(name), "", _cut(names.value(name, value)))


def in_words(value: Any) -> str:
    """Return a JSON value as text for people."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return str(yesno(value))
    return translated(value) if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _cut(text: str, skipped: int = 0, most: int = MAX_VALUE) -> str:
    """Return a text, if it is long without so many first characters, and without what is too long after them."""
    if len(text) <= most:
        return text
    start = ELLIPSIS if skipped else ""
    end = ELLIPSIS if len(text) - skipped > most else ""
    return f"{start}{text[skipped : skipped + most]}{end}"

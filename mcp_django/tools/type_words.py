"""The types of columns, in as few words as a language model needs."""

from collections.abc import Iterable, Sequence
from typing import Final

from ..context.request import MCPRequest
from ..orm.access import related_exposure
from ..orm.columns import Column
from ..orm.kinds import choices_of, holds_many, kind_of

MAX_CHOICES: Final = 12
# A stored value of as many characters says what it means.
SPEAKING: Final = 4


def type_words(request: MCPRequest, column: Column) -> Sequence[str]:
    """Return the words for the type of a column, none for a text."""
    if column.field is None or column.kind in ("computed", "serialized"):
        return ["computed"]
    if column.kind == "generic":
        return ["any record"]
    word = kind_of(column.field).word
    if column.kind != "field":
        related = related_exposure(request, column.field)
        single = column.kind == "relation" or column.field.one_to_one
        return [*([] if single else ["list"]), related.label if related is not None else "key"]
    if getattr(column.field, "choices", None):
        pairs = [(str(stored), str(label)) for stored, label in choices_of(column.field) if stored not in (None, "")]
        return [*(["list"] if holds_many(column.field) else []), choice_words(pairs)]
    return [] if word == "text" else [word]


def choice_words(pairs: Iterable[tuple[str, str]]) -> str:
    """Return values, with their labels where they do not speak for themselves."""
    shown = [value if _speaks(value, label) else f"{value}={label}" for value, label in pairs]
    return "|".join(shown[:MAX_CHOICES] + ["…"] * (len(shown) > MAX_CHOICES))


def _speaks(value: str, label: str) -> bool:
    return (len(value) >= SPEAKING and not value.isdecimal()) or value.lower() == label.lower()

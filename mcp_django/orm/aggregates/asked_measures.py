"""Measures as clients ask for them: the function, the field and other members, in any spelling."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from ...exceptions import ToolError
from ..alternative_spellings import json_or_text
from ..nearest_names import Misnamed
from ..suggestions import with_field
from .functions import EDGES, FUNCTIONS

_TITLE: Final = re.compile(r"(?!groups$)[A-Za-z][A-Za-z0-9_]{0,39}")
_CALL: Final = re.compile(r"(\w{1,20})\((.*)\)")
_SPELLING: Final = (
    'An aggregate is "count", "sum:field", "sum:quantity*price", or {"function", "field", "where", "as"}; '
    'of two of them {"ratio": ["refunded", "count"]}. Several are a list.'
)
# Members of an object that describes an aggregate of rows.
_MEMBERS: Final = frozenset({"function", "field", "as", "where", "share", "unit", "order"})
# The derived functions, and how many measures each takes.
DERIVED: Final[Mapping[str, int]] = {"ratio": 2, "difference": 2, "percent_of_total": 1, "change": 1}
# Synonyms of the members of an aggregate that is an object, and of its functions.
_MEMBER_SYNONYMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("func", "fn", "op", "operation", "operator", "agg", "aggregate", "type"), "function"),
    **dict.fromkeys(("column", "expression", "of", "on"), "field"),
    **dict.fromkeys(("alias", "name", "title", "label"), "as"),
    **dict.fromkeys(("filter", "filters", "condition"), "where"),
}
_FUNCTION_SYNONYMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("average", "mean"), "avg"),
    **dict.fromkeys(("total", "add", "sum_of"), "sum"),
    **dict.fromkeys(("maximum", "largest", "highest", "latest"), "max"),
    **dict.fromkeys(("minimum", "smallest", "lowest", "earliest"), "min"),
    **dict.fromkeys(
        ("countdistinct", "distinct", "distinct_count", "unique", "nunique", "count_unique"), "count_distinct"
    ),
    **dict.fromkeys(("num", "number", "rows", "size"), "count"),
    **dict.fromkeys(("std", "stdev", "standard_deviation"), "stddev"),
    **dict.fromkeys(("var",), "variance"),
}


class AskedMeasure(NamedTuple):
    """A measure as the client asks for it. A measure derived from others names its ``sources``."""

    function: str
    field: str = ""
    title: str = ""
    where: Any = None
    share: Any = None
    unit: Any = None
    sources: tuple[str, ...] = ()
    order: Any = None

    @classmethod
    def read(cls, given: Any) -> "AskedMeasure":
        """Parse an object, or a text such as ``sum:total``, ``sum(total)`` or ``ratio:a/b``."""
        given = json_or_text(given)
        if isinstance(given, str):
            return cls._of_text(given.strip())
        if isinstance(given, dict):
            return cls._of_object(_as_aggregate(given))
        raise ToolError(_SPELLING)

    @classmethod
    def _of_text(cls, given: str) -> "AskedMeasure":
        called = _CALL.fullmatch(given)
        if called is not None:
            name, text = called.groups()
        else:
            name, _, text = given.partition(":")
        name = name.strip().lower()
        text = text.strip()

        # What stands after the function depends on it.
        if name in DERIVED:
            separator = {"ratio": "/", "difference": "-"}.get(name)
            sources = text.split(separator) if separator else [text]
            return cls(name, sources=tuple(map(str.strip, sources)))
        if name == "percentile":
            share = ""
            if ":" in text:
                text, _, share = text.rpartition(":")
            return cls(name, text.strip(), share=share.strip())
        if name in EDGES:
            text, _, order = text.partition(":")
            return cls(name, text.strip(), order=order.strip())
        return cls(name, text)

    @classmethod
    def _of_object(cls, given: Mapping[str, Any]) -> "AskedMeasure":
        title = given.get("as") or ""
        if not isinstance(title, str) or (title and not _TITLE.fullmatch(title)):
            raise ToolError("as must be a short name of letters, digits and underscores.")

        # A measure that is derived from others: {"ratio": ["a", "b"]}.
        made = next((name for name in DERIVED if name in given), None)
        if made is not None and given.keys() <= {made, "as"}:
            sources = given[made] if isinstance(given[made], list) else [given[made]]
            if not all(isinstance(source, str) for source in sources):
                raise ToolError(_SPELLING)
            return cls(made, title=title, sources=tuple(sources))

        # A measure of rows.
        name = given.get("function")
        text = given.get("field") or ""
        if not given.keys() <= _MEMBERS or not isinstance(name, str) or not isinstance(text, str):
            raise ToolError(_SPELLING)
        return cls(
            name.lower(),
            text,
            title,
            where=given.get("where"),
            share=given.get("share"),
            unit=given.get("unit"),
            order=given.get("order"),
        )

    def unknown_function(self) -> Misnamed:
        """Return the error for a measure of a function that does not exist."""
        name = self.function
        message = f"Unknown aggregate {name[:40]!r}."
        meant = _FUNCTION_SYNONYMS.get(name, name)
        # An unknown function without a field may be a field without its function.
        near: list[str] | None = []
        if self.field:
            near = [meant] if meant in FUNCTIONS else None
        given = f"{name}:{self.field}" if self.field else name
        if meant not in FUNCTIONS and (turned := _turned(given)):
            name = given
            near = [turned]
        repair = partial(with_field, name, within=("aggregates",))
        more = "" if near else ' Write "count", or a function with its field, such as "sum:total".'
        return Misnamed(message, name, [*FUNCTIONS, *DERIVED], repair, near, more, of=None if near else "")


def _turned(given: str) -> str:
    """Return ``sum:total`` for a measure that says it as ``total:sum``, ``total__sum`` or ``sum of total``, else ""."""
    words = re.split(r"__|[\s.:=-]+", given)
    for word, field in ((words[0], given.removeprefix(words[0])), (words[-1], given.removesuffix(words[-1]))):
        name = _FUNCTION_SYNONYMS.get(word.lower(), word.lower())
        path = field.strip(" _.:=-").removeprefix("of ")
        if name in FUNCTIONS and path:
            return f"{name}:{path}"
    return ""


def _as_aggregate(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an aggregate such as ``{"function": "sum", "field": "total"}`` with the usual names of its members.

    ``{"sum": "total"}`` and ``{"op": "sum", "of": "total"}`` mean the same.
    """
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in FUNCTIONS and isinstance(value, str) and "function" not in {*given, *found}:
            found |= {"function": key, "field": value}
        else:
            name = _MEMBER_SYNONYMS.get(key, key)
            if name in given or name in found:
                name = key
            found[name] = value
    return found

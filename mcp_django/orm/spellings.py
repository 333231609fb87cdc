"""Other spellings of filters and orders, which models know from SQL, MongoDB, Prisma or the ORM's own objects.

They are looked up where a spelling of this app did not fit, so that a call which is right the first time pays nothing.
What comes out is a spelling of this app, and is looked up like any other: nothing here decides what a caller may ask.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from .wording import json_or_text

OPERATORS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("=", "==", "eq", "equal", "equals", "is"), "exact"),
    **dict.fromkeys((">", "after", "greater_than"), "gt"),
    **dict.fromkeys((">=", "ge", "since", "from", "min"), "gte"),
    **dict.fromkeys(("<", "before", "less_than"), "lt"),
    **dict.fromkeys(("<=", "le", "until", "to", "max"), "lte"),
    **dict.fromkeys(("any", "any_of", "one_of"), "in"),
    **dict.fromkeys(("like", "ilike"), "like"),
    **dict.fromkeys(("null", "is_null"), "isnull"),
    "between": "range",
    "includes": "contains",
    "starts_with": "startswith",
    "ends_with": "endswith",
}
_DENIED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("!=", "<>", "ne", "neq", "not", "is_not", "exclude"), "exact"),
    **dict.fromkeys(("nin", "notin", "none_of"), "in"),
    **dict.fromkeys(("notnull", "isnotnull", "is_not_null"), "isnull"),
}
# What is not understood, and how it is written here.
MISSPELT: Final = (
    'Q(a=1) | Q(b__gt=2) is {"or": [{"a": 1}, {"b__gt": 2}]}, ~Q(a=1) is {"not": {"a": 1}}, a != 1 is {"a__ne": 1}.'
)
MAX_NAME: Final = 200
WAYS: Final = frozenset({"asc", "ascending", "desc", "descending"})

_COMPARED: Final = re.compile(r"([\w.]+?)(?:__|\s)*(>=|<=|!=|<>|==|=|>|<)")
_ORDER: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<name>\S+?)(?:[\s:.]+(?P<way>asc|ascending|desc|descending))?"
    r"(?:[\s:]+nulls?[\s_]?(?P<place>first|last))?",
    re.IGNORECASE,
)


def lookup_meant(word: str, value: Any, lookups: Collection[str]) -> tuple[str, Any, bool] | None:
    """Return the lookup among ``lookups`` that a word means, its value, and whether it is denied; None for no such.

    A pattern of SQL becomes the lookup that its ``%`` at the ends mean.
    """
    word = word.lower().removeprefix("$").replace(" ", "_")
    lookup, denied = OPERATORS.get(word, word), False
    if word in _DENIED:
        lookup, denied = _DENIED[word], True
    elif word.startswith("not_"):
        lookup, denied = OPERATORS.get(word[4:], word[4:]), True
    if lookup == "like":
        lookup, value = _pattern(value)
    elif lookup == "exact" and isinstance(value, list):
        lookup = "in"
    elif lookup == "isnull" and word in _DENIED and value is False:
        # "Not null: false" is null.
        value, denied = True, False
    elif lookup == "isnull" and word in _DENIED:
        value = True
    allowed = lookup in lookups or (lookup == "exact" and value is None and "isnull" in lookups)
    return (lookup, value, denied) if allowed else None


def _pattern(value: Any) -> tuple[str, Any]:
    if not isinstance(value, str) or "%" in value.strip("%"):
        return "", value
    begins, ends, text = value.startswith("%"), value.endswith("%"), value.strip("%")
    if begins and ends:
        return "icontains", text
    return ("iendswith" if begins else "istartswith" if ends else "iexact"), text


def name_meant(text: str) -> str | None:
    """Return the filter that ``"total >"`` or ``"customer.name"`` means, None where it is spelt as here."""
    if len(text) > MAX_NAME:
        return None
    found = _COMPARED.fullmatch(text)
    name, operator = (found[1], f"__{found[2]}") if found is not None else (text, "")
    # A bare day compared with a datetime is the whole day.
    name = name.replace(".", "__").replace("__date__", "__") + operator
    return name if name != text else None


def as_conditions(value: Any) -> Any:
    """Return the object that a list of conditions means, all of which have to hold; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return {"and": value} if len(value) > 1 else value[0]
    return value


def order_texts(value: Any) -> Any:
    """Return the names that objects such as ``{"created": "desc"}`` mean, in a list; anything else as it is."""
    value = json_or_text(value)
    items = [value] if isinstance(value, dict) else value
    if not isinstance(items, list) or not any(isinstance(item, dict) for item in items):
        return value
    texts = [text for item in items for text in (_order_object(item) if isinstance(item, dict) else [item])]
    return value if None in texts else texts


def _order_object(item: Mapping[str, Any]) -> list[str | None]:
    name = item.get("field", item.get("column"))
    if isinstance(name, str):
        return [_directed(name, next((item[key] for key in ("direction", "order", "dir") if key in item), "asc"))]
    return [_directed(key, way) for key, way in item.items()]


def _directed(name: str, way: Any) -> str | None:
    return f"{name} {way}" if isinstance(way, str) and way.lower() in WAYS else None


def order_meant(text: str) -> str:
    """Return ``-created:nulls_last`` for ``"created DESC NULLS LAST"``; a text that says nothing so as it is."""
    found = _ORDER.fullmatch(text) if len(text) <= MAX_NAME else None
    if found is None:
        return text
    down = found["sign"] == "-" or (found["way"] or "").lower().startswith("desc")
    place = f":nulls_{found['place'].lower()}" if found["place"] else ""
    return f"{'-' if down else ''}{found['name'].replace('.', '__')}{place}"

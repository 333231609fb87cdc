"""Kinds of fields that Django's forms and the serializers of REST framework both have, as JSON Schema and in words.

A field validates what it is given itself; nothing here looks at values, and no row of a relation is read.
"""

from collections.abc import Iterable
from datetime import date, datetime, time
from types import ModuleType
from typing import Any, Final

from .jsonable import to_jsonable
from .types import PARSED, between, described, present

# A schema, and the constraints in words.
Shape = tuple[dict[str, Any], list[str]]

# Beyond that the values are left to the field's own error message.
MAX_VALUES: Final = 200
MAX_LABELS: Final = 50
_MOMENT: Final = (PARSED[datetime].words(), PARSED[datetime].format)
# By the names of the fields' classes, the most special ones first: how the texts of a field are written, and the format
# that says so in a client's form (client/elicitation, Requested Schema).
NOTATIONS: Final = {
    "DateTimeField": _MOMENT,
    "SplitDateTimeField": _MOMENT,
    "DateField": (PARSED[date].words(), PARSED[date].format),
    "TimeField": (PARSED[time].words(), ""),
    "DurationField": ("duration, such as 1 12:30:00", ""),
    "UUIDField": ("UUID", ""),
    "EmailField": ("email address", "email"),
    "URLField": ("URL", "uri"),
    "GenericIPAddressField": ("IP address", ""),
    "IPAddressField": ("IP address", ""),
}


def notation(field: Any, module: ModuleType) -> tuple[str, str]:
    """Return how the texts of a field are written and the format, "" for none; ``module`` has the fields' classes."""
    return next((found for name, found in NOTATIONS.items() if isinstance(field, getattr(module, name, ()))), ("", ""))


def text(field: Any, words: str = "") -> Shape:
    """Return the schema of a text; ``words`` say how it is written."""
    low, high = lengths(field)
    return {"type": "string", **present(minLength=low, maxLength=high)}, [words, between(low, high, "characters")]


def lengths(field: Any) -> tuple[Any, Any]:
    """Return the least and the greatest length, None for no bound."""
    return getattr(field, "min_length", None), getattr(field, "max_length", None)


def number(kind: str, low: Any, high: Any) -> Shape:
    """Return the schema of a number; ``kind`` is its JSON type."""
    return {"type": kind, **present(minimum=low, maximum=high)}, [between(low, high)]


def decimal(field: Any) -> Shape:
    """Return the schema of an exact decimal: bounds are in the words, as keywords for numbers say nothing of texts."""
    digits = f"at most {field.max_digits} digits" if field.max_digits is not None else ""
    places = f"at most {field.decimal_places} decimal places" if field.decimal_places is not None else ""
    words = ["decimal number as text, such as 12.50", digits, places, between(*bounds(field))]
    return {"type": "string"}, words


def bounds(field: Any) -> tuple[Any, Any]:
    """Return the least and the greatest value, None for no bound."""
    low, high = (bound() if callable(bound) else bound for bound in (field.min_value, field.max_value))
    return low, high


def plain_number(value: Any) -> int | float | None:
    """Return a bound as a number of a client's form, which has no decimals."""
    return value if value is None or isinstance(value, int) else float(value)


def choice(options: list[tuple[Any, str]], *more: str) -> Shape:
    """Return the schema of one of some values, which are given with their labels; ``more`` are texts without one."""
    if not options or len(options) > MAX_VALUES:
        return {"type": "string"}, [f"one of {len(options)} values"]
    # The field compares texts; a number stays one where all are numbers, as clients copy the values.
    whole = all(type(value) is int for value, _ in options)
    values = [value if whole else str(value) for value, _ in options]
    named = [
        f"{value} = {label}"
        for value, (_, label) in zip(values, options, strict=True)
        if str(value).replace("_", " ").lower() != label.lower()
    ]
    schema = {"type": "integer", "enum": values} if whole else {"type": "string", "enum": [*values, *more]}
    return schema, [", ".join(named) if len(named) <= MAX_LABELS else ""]


def with_default(shape: Shape, default: Any, texts: Iterable[str]) -> dict[str, Any]:
    """Return the schema of a field with its default, if that is a value, and its description: texts, then words."""
    schema, words = shape
    if default is not None and default != "" and not callable(default):
        schema["default"] = to_jsonable(default)
        words = [*words, f"default {schema['default']}"]
    return described(schema, texts, words)

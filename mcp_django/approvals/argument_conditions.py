"""Conditions on the arguments of a call, compared in Python: in the words of filters, without a model.

Arguments come as clients write them: numbers as texts, a form within the arguments, an object as JSON text. What cannot
be compared is neither true nor false, but unknown.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from operator import ge, gt, le, lt
from typing import Any, Final

from django.db.models import DateTimeField
from django.utils import timezone

from ..orm.alternative_spellings import json_or_text
from ..orm.fields import FieldPath, parse_boolean
from ..orm.lookups import parse_condition
from ..problems import nearest

# True, False, or None for unknown.
Verdict = bool | None

ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
TEXTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "contains": lambda text, part: part in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
}
LOOKUPS: Final = frozenset(
    {"exact", "iexact", "in", "range", "isnull", *ORDERS, *TEXTS, *(f"i{name}" for name in TEXTS)}
)
JUNCTIONS: Final = frozenset({"and", "or", "not"})
# Members of arguments whose own members are found as if they stood beside them.
INNER: Final = ("arguments", "form", "values", "rows")
NOT_THERE: Final = object()
# Dates are read as in filters on this column.
_MOMENT: Final = FieldPath("", DateTimeField(), False, True)


def check_arguments(data: Any, names: Collection[str]) -> None:
    """Raise ``ValueError``, whose text says why, for a condition that no arguments can be compared with.

    ``names`` are the arguments that there are; any are accepted if they are not known.
    """
    if not isinstance(data, Mapping) or not data:
        raise ValueError('"arguments" takes an object such as {"amount__gt": 100}.')
    for name, value in data.items():
        if name in JUNCTIONS:
            for item in _items(name, value):
                check_arguments(item, names)
            continue
        root = name.split("__")[0]
        if names and root not in names:
            raise ValueError(f"There is no argument {root!r}.{nearest(root, names)}")
        for path, lookup, expected in _conditions(name, value):
            _check_value("__".join(path), lookup, expected)


def meets(data: Mapping[str, Any], arguments: Mapping[str, Any], now: datetime) -> Verdict:
    """Return whether arguments meet all of the conditions; relative dates are counted from ``now``."""
    return _all(_verdict(name, value, arguments, now) for name, value in data.items())


def _verdict(name: str, value: Any, arguments: Mapping[str, Any], now: datetime) -> Verdict:
    if name in JUNCTIONS:
        found = (meets(item, arguments, now) for item in _items(name, value))
        if name == "or":
            return _any(found)
        verdict = _all(found)
        return verdict if name == "and" or verdict is None else not verdict
    return _all(
        _compared(path, lookup, expected, arguments, now) for path, lookup, expected in _conditions(name, value)
    )


def _items(name: str, value: Any) -> list[Mapping[str, Any]]:
    """Return the conditions that a junction joins."""
    items = value if isinstance(value, list) and name != "not" else [value]
    if not items or not all(isinstance(item, Mapping) and item for item in items):
        raise ValueError(f'"{name}" takes {"an object" if name == "not" else "a list of objects"}.')
    return items


def _conditions(name: str, value: Any) -> Iterator[tuple[list[str], str, Any]]:
    """Yield the single conditions on one argument: its path, the lookup and what it is compared with."""
    if isinstance(value, Mapping):
        if not value:
            raise ValueError(f"The condition on {name!r} is empty.")
        for key, item in value.items():
            yield from _conditions(f"{name}__{key}", item)
        return
    path = name.split("__")
    lookup = path.pop() if len(path) > 1 and path[-1] in LOOKUPS else "exact"
    if value is None and lookup == "exact":
        yield path, "isnull", True
    elif isinstance(value, list) and lookup == "exact":
        yield path, "in", value
    else:
        yield path, lookup, value


def _check_value(name: str, lookup: str, expected: Any) -> None:
    """Raise ``ValueError`` if nothing can be compared with a value."""
    if lookup in ("in", "range"):
        if not isinstance(expected, list) or not expected or (lookup == "range" and len(expected) != 2):
            raise ValueError(f"{name} with {lookup} needs a list{' of two values' if lookup == 'range' else ''}.")
        for item in expected:
            _check_value(name, "gte" if lookup == "range" else "exact", item)
        return
    if isinstance(expected, (list, Mapping)):
        raise ValueError(f"{name} with {lookup} needs one value.")
    now = timezone.now()
    if lookup in ORDERS and _number(expected) is None and _span(expected, now) is None:
        raise ValueError(f"{name} with {lookup} needs a number or a date.")
    if lookup == "isnull" and not isinstance(expected, bool):
        raise ValueError(f"{name} with isnull needs true or false.")
    if lookup.removeprefix("i") in TEXTS and not isinstance(expected, str):
        raise ValueError(f"{name} with {lookup} needs a text.")


# Comparing


def _all(verdicts: Iterator[Verdict]) -> Verdict:
    found = set(verdicts)
    if False in found:
        return False
    return None if None in found else True


def _any(verdicts: Iterator[Verdict]) -> Verdict:
    found = set(verdicts)
    if True in found:
        return True
    return None if None in found else False


def _compared(path: list[str], lookup: str, expected: Any, arguments: Mapping[str, Any], now: datetime) -> Verdict:
    """Return whether one of the values at a path meets a condition: there are several where a list is on the path."""
    values = list(_values(arguments, path))
    if lookup == "isnull":
        is_null = all(value in (None, "", NOT_THERE) for value in values)
        return is_null == expected
    return _any(_meets_one(value, lookup, expected, now) for value in values)


def _values(given: Any, path: list[str]) -> Iterator[Any]:
    """Yield the values at a path, ``NOT_THERE`` if there is none."""
    given = json_or_text(given) if path else given
    if isinstance(given, (list, tuple)):
        for item in given:
            yield from _values(item, path)
    elif not path:
        yield given
    elif not isinstance(given, Mapping):
        yield NOT_THERE
    elif path[0] in given:
        yield from _values(given[path[0]], path[1:])
        # The name may mean the argument, or what is filled in: either is enough.
        yield from (value for value in _inner_values(given, path) if value is not NOT_THERE)
    else:
        yield from list(_inner_values(given, path)) or [NOT_THERE]


def _inner_values(given: Mapping[str, Any], path: list[str]) -> Iterator[Any]:
    for name in INNER:
        if name in given and name != path[0]:
            yield from _values(given[name], path)


def _meets_one(actual: Any, lookup: str, expected: Any, now: datetime) -> Verdict:
    # A value that is not there, or null, is one that the function or form chooses.
    if actual is NOT_THERE or actual is None or isinstance(actual, Mapping):
        return None
    if lookup == "in":
        return _any(_equal(actual, item, now) for item in expected)
    if lookup == "range":
        first, last = expected
        return _all(iter([_ordered(actual, "gte", first, now), _ordered(actual, "lte", last, now)]))
    if lookup in ORDERS:
        return _ordered(actual, lookup, expected, now)
    if lookup in ("exact", "iexact"):
        return _equal(actual, expected, now)
    text = str(actual)
    part = str(expected)
    if lookup.startswith("i"):
        return TEXTS[lookup[1:]](text.casefold(), part.casefold())
    return TEXTS[lookup](text, part)


def _equal(actual: Any, expected: Any, now: datetime) -> Verdict:
    """Return whether two values are equal: texts without case and spaces around them, as forms may read them."""
    if isinstance(expected, bool):
        try:
            return bool(parse_boolean(None, actual)) == expected
        except ValueError:
            return None
    if isinstance(actual, str) and isinstance(expected, str) and _folded(actual) == _folded(expected):
        return True
    number, other = _number(expected), _number(actual)
    if number is not None and other is not None:
        return number == other
    if isinstance(expected, (int, float)):
        return None
    span = _span(expected, now) if number is None else None
    if span is not None:
        found = _span(actual, now)
        return None if found is None else span[0] <= found[0] and found[1] <= span[1]
    return _folded(str(actual)) == _folded(str(expected))


def _folded(text: str) -> str:
    return text.strip().casefold()


def _ordered(actual: Any, lookup: str, expected: Any, now: datetime) -> Verdict:
    number, other = _number(expected), _number(actual)
    if number is not None:
        return None if other is None else ORDERS[lookup](other, number)
    span, found = _span(expected, now), _span(actual, now)
    if span is None or found is None:
        return None
    if lookup in ("gt", "lte"):
        return ORDERS[lookup](found[1], span[1])
    return ORDERS[lookup](found[0], span[0])


def _number(value: Any) -> Decimal | None:
    """Return a number, also one that is written as text; None for anything else, and for one without an order."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        return None
    try:
        found = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _span(value: Any, now: datetime) -> tuple[Any, Any] | None:
    """Return the first and last moment of a date, a time or a relative date; None for anything else."""
    if isinstance(value, date):
        value = value.isoformat()
    if not isinstance(value, str):
        return None
    try:
        first, last = parse_condition(_MOMENT, "range", value, now).values
    except (ValueError, OverflowError):
        return None
    return first, last

"""Filters as an expression: conditions on columns, named filters of the project, and ``and``, ``or``, ``not``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .lookups import Condition
from .named_filters import NamedFilter

__all__ = ["Applied", "Filter", "Junction", "conditions_of", "in_fixed_order", "is_moving", "wording"]


@dataclass(frozen=True, slots=True)
class Junction:
    """All of the parts (``and``), any of them (``or``), or not all of them (``not``)."""

    connector: Literal["and", "or", "not"]
    parts: "tuple[Filter, ...]"


@dataclass(frozen=True, slots=True)
class Applied:
    """A filter of the project's own with the values that the client gave, by their names."""

    source: NamedFilter
    values: Mapping[str, tuple[str, ...]]


Filter = Condition | Applied | Junction


def conditions_of(filters: Sequence[Filter]) -> Iterator[Condition | Applied]:
    """Yield what stands at the ends of the expression."""
    for item in filters:
        if isinstance(item, Junction):
            yield from conditions_of(item.parts)
        else:
            yield item


def is_moving(filters: Sequence[Filter]) -> bool:
    """Return whether the filters mean something else at another time, as "last 30 days" does."""
    return any(isinstance(item, Condition) and item.given is not None for item in conditions_of(filters))


def wording(item: Filter) -> list[Any]:
    """Return the filter as JSON, equal for equal filters, with relative dates as the client wrote them."""
    if isinstance(item, Junction):
        return [item.connector, [wording(part) for part in item.parts]]
    if isinstance(item, Applied):
        return ["", sorted([name, *values] for name, values in item.values.items())]
    values = [str(value) for value in item.values] if item.given is None else [item.given]
    return [item.path.column, item.lookup, values]


def in_fixed_order(filters: Sequence[Filter]) -> "tuple[Filter, ...]":
    """Return the filters in an order that does not depend on how the client wrote them."""
    return tuple(sorted(filters, key=_sort_key)) if len(filters) > 1 else tuple(filters)


def _sort_key(item: Filter) -> tuple[str, ...]:
    if isinstance(item, Condition):
        return item.path.column, item.lookup, repr(item.values if item.given is None else item.given)
    return "", repr(wording(item))

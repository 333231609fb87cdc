"""Put the conditions on one list on one row of it, as conditions within one ``filter()`` of Django are.

Paths that begin with the same relation to several rows mean the same related row: ``lines.product`` and
``lines.quantity`` are those of one line. ``and`` and ``or`` do not change that, at any depth. ``not`` denies all that
is within it, and what is written with ``some`` has a row of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from ..exceptions import ToolError
from .access import Link, ModelAccess
from .conditions import Condition, Filter, Junction, Quantified, in_fixed_order
from .fields import resolve_path

# Maximum number of alternatives that conditions on one row, joined by several ``or``, can have together.
MAX_ALTERNATIVES: Final = 64

# A relation, by its model and its name in Django: a client can write it by several names.
Relation = tuple[Any, str]


def all_of(filters: Sequence[Filter]) -> Filter:
    """Return one condition that holds if all the given ones do."""
    if len(filters) == 1:
        return filters[0]
    return Junction("and", tuple(filters))


def on_one_row(model: ModelAccess, filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Put conditions on the same list of a model's row on one row of the list.

    Returns filters, all of which must hold, in a fixed order. Raises ``ToolError`` if they have too many alternatives.
    """
    items = list(_flat(filters))
    lists = [_lists(model, item) for item in items]
    if sum(map(bool, lists)) < 2:
        return in_fixed_order(filters)

    # "A and (B or C)" becomes "(A and B) or (A and C)" where these are on one list.
    for place, item in enumerate(items):
        if not isinstance(item, Junction) or item.connector != "or":
            continue
        others = [number for number, found in enumerate(lists) if number != place and found & lists[place]]
        if not others:
            continue
        beside = [items[number] for number in others]
        _check_alternatives([item, *beside])
        alternatives = [all_of(on_one_row(model, [part, *beside])) for part in item.parts]
        rest = [items[number] for number in range(len(items)) if number != place and number not in others]
        return on_one_row(model, [Junction("or", in_fixed_order(alternatives)), *rest])

    return in_fixed_order(list(_merged(model, items)))


def _flat(filters: Sequence[Filter]) -> Iterator[Filter]:
    """Yield the filters, and in place of each ``and`` its parts."""
    for item in filters:
        if isinstance(item, Junction) and item.connector == "and":
            yield from _flat(item.parts)
        else:
            yield item


def _check_alternatives(filters: Sequence[Filter]) -> None:
    sizes = [len(item.parts) for item in filters if isinstance(item, Junction) and item.connector == "or"]
    if prod(sizes) > MAX_ALTERNATIVES:
        raise ToolError('These have too many alternatives on one list: put them into one {"some": {..}}.')


def _lists(model: ModelAccess, item: Filter) -> frozenset[tuple[Relation, ...]]:
    """Return the lists that a filter has conditions on, each as the relations that lead to it."""
    if isinstance(item, Condition):
        link = _link(model, item)
        if link is None:
            return frozenset()
        return frozenset([(_relation(link.field),)])
    if isinstance(item, Junction) and item.connector != "not":
        return frozenset().union(*(_lists(model, part) for part in item.parts))
    if not isinstance(item, Quantified) or not item.is_path:
        return frozenset()

    relation = _relation(item.link.field)
    if item.link.to_many:
        return frozenset([(relation,)])
    # A row that a foreign key leads to has lists of its own.
    return frozenset((relation, *behind) for part in item.parts for behind in _lists(item.link.related, part))


def _link(model: ModelAccess, item: Condition) -> Link | None:
    """Return the list that a condition on a declared path begins with.

    Returns None if the path leads through no list, or the caller cannot see its rows.
    """
    if not item.path.many:
        return None
    root = item.path.column.partition("__")[0]
    field: Any = model.exposure.opts.get_field(root)
    related = model.access.model_of(field.related_model)
    if related is None:
        return None
    return Link(root, field, related)


def _relation(field: Any) -> Relation:
    return field.model, field.name


def _merged(model: ModelAccess, items: Sequence[Filter]) -> Iterator[Filter]:
    """Yield the filters, and in place of those that begin with the same relation one that holds for one row of it."""
    by_relation: dict[Relation, list[tuple[Filter, Quantified]]] = {}
    for item in items:
        quantified = _quantified(model, item)
        if quantified is None:
            yield item
        else:
            by_relation.setdefault(_relation(quantified.link.field), []).append((item, quantified))
    for same in by_relation.values():
        item, quantified = same[0]
        if len(same) == 1:
            yield item
        else:
            parts = [part for _, other in same for part in other.parts]
            yield replace(quantified, parts=on_one_row(quantified.link.related, parts))


def _quantified(model: ModelAccess, item: Filter) -> Quantified | None:
    """Return a condition on a path as one on the rows that the path begins with, None for any other filter."""
    if isinstance(item, Quantified) and item.is_path:
        return item
    link = _link(model, item) if isinstance(item, Condition) else None
    if not isinstance(item, Condition) or link is None:
        return None

    # The rest of the path, from the related row on, or that row's key.
    rest = item.path.column.partition("__")[2]
    path = item.path
    if rest:
        path = replace(path, column=rest, many=False)
    else:
        path = resolve_path(link.exposure.model, "pk") or path
    return Quantified(link, "some", (replace(item, path=path),), is_path=True)

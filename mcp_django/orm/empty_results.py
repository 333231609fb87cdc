"""Hints for filters that find nothing: what there is where the caller asked for a text that is not there.

People and models write names in another case, without accents, with the ``%`` of SQL or with a wrong letter. Nothing is
compared in this way unless nothing was found, and only values of columns by which the caller could group.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from django.db.models import BooleanField, ExpressionWrapper, Q

from ..exceptions import ToolError
from ..schema.secrets import clean_text
from .access import ModelAccess
from .conditions import Condition, Filter, Junction, Quantified
from .fields import kind_of
from .hidden_parts import with_no_part_hidden
from .pagination import narrowed
from .path import target_of
from .query_limits import read_limits
from .row_finder import RowFinder
from .undecodable_values import is_undecodable

# Maximum numbers of texts that are looked for, of values that each is compared with, and of values that a hint names.
MAX_TEXTS: Final = 4
MAX_COMPARED: Final = 500
MAX_NAMED: Final = 3
# Maximum characters of a value in a hint.
MAX_VALUE: Final = 60
# Least similarity of two texts of which one may be meant by the other.
LIKE: Final = 0.8
# Share of the call's time that looking for values can take.
TIME_SHARE: Final = 0.2


def empty_hints(model: ModelAccess, filters: Sequence[Filter]) -> Iterator[str]:
    """Yield hints about filters that find no row: keys that a caller may mean by labels, and values by texts."""
    for owner, condition in islice(_equalities(model, filters), MAX_TEXTS):
        field = condition.path.field
        if field.is_relation:
            yield from _key_hints(owner, condition)
        elif kind_of(field).word == "text" and not field.choices:
            yield from _text_hints(owner, condition)


def _equalities(model: ModelAccess, filters: Sequence[Filter]) -> Iterator[tuple[ModelAccess, Condition]]:
    """Yield the conditions of filters by which a row has to equal a value, with the models that they are on."""
    for item in filters:
        if isinstance(item, Condition) and item.lookup in ("exact", "in"):
            yield model, item
        elif isinstance(item, Junction) and item.connector != "not":
            yield from _equalities(model, item.parts)
        elif isinstance(item, Quantified) and item.quantifier == "some":
            yield from _equalities(item.link.related, item.parts)


def _key_hints(model: ModelAccess, condition: Condition) -> Iterator[str]:
    """Yield hints for a filter by the text key of a relation, where the caller may have given a label."""
    field = condition.path.field
    related = model.access.model_of(field.related_model)
    if related is not None and kind_of(related.exposure.opts.pk).word == "text":
        yield f"{field.name} is compared with primary keys of {related.exposure.label}, not with labels"
        yield from RowFinder(related).hints(condition.values)


def _text_hints(model: ModelAccess, condition: Condition) -> Iterator[str]:
    """Yield a hint for each text of a filter that no row has, while some rows have one that is nearly the same."""
    try:
        name = condition.path.column
        target = target_of(model, name, lambda column: column.is_groupable())
        for value in condition.values[:MAX_TEXTS]:
            found = _near(model, target.expression, value) if isinstance(value, str) else []
            if found:
                there = " or ".join(repr(clean_text(text, MAX_VALUE)) for text in found)
                yield f"no {target.name.replace('__', '.')} is {value[:MAX_VALUE]!r}: there is {there}"
    except ToolError:
        # The caller could not read the values, or there was no time to.
        return
    except Exception as error:
        if not is_undecodable(error):
            raise


def _near(model: ModelAccess, column: Any, value: str) -> list[str]:
    """Return stored texts that may be meant by a value of a filter; none if some row has the value itself."""
    text = value.strip(" %*")
    if len(text) < 2:
        return []
    # An accent may be in the first letters or in the others.
    likely = Q(mcp_near__istartswith=text[:2]) | Q(mcp_near__icontains=text[2:] if len(text) > 4 else text)
    with read_limits(TIME_SHARE):
        rows = narrowed(model, (), "").annotate(mcp_near=column)
        rows = rows.filter(with_no_part_hidden("mcp_near"))
        # The database may take texts of another case for the same.
        same = ExpressionWrapper(Q(mcp_near=value), output_field=BooleanField())
        found = rows.filter(likely).order_by("mcp_near").annotate(mcp_same=same).values_list("mcp_near", "mcp_same")
        read = [(other, is_same) for other, is_same in found.distinct()[:MAX_COMPARED] if isinstance(other, str)]
    if any(is_same for _, is_same in read):
        return []
    known = [other for other, _ in read]
    meant = _plain(text)
    plain = [other for other in known if _plain(other) == meant]
    if plain or text != value:
        return (plain or [other for other in known if meant in _plain(other)])[:MAX_NAMED]
    by_plain = {_plain(other): other for other in reversed(known)}
    return [by_plain[other] for other in get_close_matches(meant, by_plain, MAX_NAMED, LIKE)]


def _plain(text: str) -> str:
    """Return a text without case and accents, as texts of a filter are compared."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part)).strip()

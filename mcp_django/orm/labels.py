"""Labels of rows: what ``__str__`` says, from a column alone where that is proven to be the same."""

import dis
import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from django.db import models

from ..schema.jsonable import clean_text
from ..sensitive import HIDDEN, secret_columns
from .kinds import is_joinable
from .lookups import resolve_path
from .replaced import is_replaced

if TYPE_CHECKING:
    from ..context.request import Exposure

__all__ = ["MAX_LABEL", "label_of", "label_relations", "plain_label"]

logger = logging.getLogger("mcp_django")

MAX_LABEL: Final = 200
# Shorter ones would hide parts of words.
MIN_SECRET: Final = 4
# Relations one after the other, of which a label is made.
MAX_DEPTH: Final = 3


@lru_cache(maxsize=1024)
def plain_label(exposure: "Exposure") -> str | None:
    """Return the name of the text field that is the label of a row, or None where a label takes the instance."""
    name = exposure.label_field or _returned_attribute(exposure.model.__str__)
    if name in _secrets(exposure):
        return None
    path = resolve_path(exposure.model, name) if name and "__" not in name else None
    if path is None or path.nullable or not isinstance(path.field, (models.CharField, models.TextField)):
        return None
    plain = type(path.field).descriptor_class is models.Field.descriptor_class
    own = _has_own_text(path.field) or is_replaced(path.field.model, path.field)
    return name if plain and not own else None


def _has_own_text(field: Any) -> bool:
    """Return whether values are of a class of the project's own, which may have a text of their own."""
    return hasattr(field, "from_db_value")


def _returned_attribute(method: Any) -> str | None:
    """Return the attribute when the method is exactly ``return self.<attribute>``."""
    try:
        found = [
            step
            for step in dis.get_instructions(method)
            if step.opname not in ("RESUME", "CACHE", "NOP", "NOT_TAKEN", "PUSH_NULL")
        ]
        names = [step.opname for step in found]
    except TypeError:
        return None
    if len(found) != 3 or not names[0].startswith("LOAD_FAST") or names[1:] != ["LOAD_ATTR", "RETURN_VALUE"]:
        return None
    own = method.__code__.co_varnames[:1] == (found[0].argval,) and method.__code__.co_argcount == 1
    return str(found[1].argval) if own else None


@lru_cache(maxsize=1024)
def label_relations(model: type[models.Model], depth: int = MAX_DEPTH) -> tuple[str, ...]:
    """Return the relations that ``__str__`` follows, for ``select_related``: a label must not cost a query a row."""
    code = getattr(model.__str__, "__code__", None)
    found: list[str] = []
    for name in code.co_names if code is not None and depth else ():
        path = resolve_path(model, name) if "__" not in name else None
        followed = path is not None and path.field.is_relation and not path.many and path.field.name == name
        if followed and path is not None and is_joinable(path.field):
            inner = label_relations(path.field.related_model, depth - 1)
            found += [name, *(f"{name}__{rest}" for rest in inner)]
    return tuple(found)


def label_of(exposure: "Exposure", row: models.Model) -> str | None:
    """Return the label of a row, or None where the project's code fails to make one.

    Secrets of the row are hidden in it, but for those that the exposure names.
    """
    try:
        label = str(getattr(row, exposure.label_field)) if exposure.label_field else str(row)
    except Exception:
        logger.warning("The label of a %s could not be made", exposure.label, exc_info=True)
        return None
    for secret in _loaded_secrets(row, _secrets(exposure), MAX_DEPTH):
        label = label.replace(secret, HIDDEN)
    return clean_text(label, MAX_LABEL)


def _loaded_secrets(row: models.Model, names: Iterable[str], depth: int) -> Iterator[str]:
    """Yield the secrets that a label could be made of: what it is made of has been loaded, related rows too."""
    values = (row.__dict__.get(name) for name in names)
    yield from (value for value in values if isinstance(value, str) and len(value) >= MIN_SECRET)
    for related in list(row._state.fields_cache.values()) if depth else ():
        if isinstance(related, models.Model):
            yield from _loaded_secrets(related, secret_columns(type(related)), depth - 1)


@lru_cache(maxsize=1024)
def _secrets(exposure: "Exposure") -> frozenset[str]:
    return frozenset(secret_columns(exposure.model)) - {exposure.label_field, *exposure.default_fields}

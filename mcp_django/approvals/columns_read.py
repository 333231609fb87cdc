"""The columns that a condition reads, by the paths that lead to them from the model that it is on."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from django.core.exceptions import FieldDoesNotExist
from django.db.models import Field, Model

from ..orm.conditions import Comparison, Condition, Filter, Quantified

# The names in the text of a value that is computed, such as "price*1.05" or "avg total".
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


def columns_read(model: type[Model], filters: Iterable[Filter]) -> Iterator[str]:
    """Yield the paths of all columns that conditions on a model read: ``customer`` before ``customer__country``."""
    for item in filters:
        if isinstance(item, Condition):
            yield from _along(model, item.path.column)
        elif isinstance(item, Comparison):
            for text in (item.left.name, item.right.name):
                for name in _NAME.findall(text):
                    yield from _along(model, name)
            yield from columns_read(model, item.parts)
        elif isinstance(item, Quantified):
            field = item.link.field
            related: Any = item.link.exposure.model
            yield field.name if isinstance(field, Field) else f"{item.link.name}__{field.field.name}"
            yield from (f"{item.link.name}__{name}" for name in columns_read(related, item.parts))
        else:
            yield from columns_read(model, item.parts)


def _along(model: Any, path: str) -> Iterator[str]:
    """Yield each column on a path of field names; a relation that points here is read in the other model's column."""
    names: list[str] = []
    for name in path.split("__"):
        try:
            field: Any = model._meta.get_field(model._meta.pk.name if name == "pk" else name)
        except FieldDoesNotExist:
            return
        names.append(field.name)
        if isinstance(field, Field):
            yield "__".join(names)
        else:
            yield "__".join([*names, field.field.name])
        model = field.related_model
        if model is None:
            return

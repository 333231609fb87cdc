"""Detect which of its rows an action changed, and in which fields.

Rows are read from the database before and after, in the transaction of the action: it may have written them by its
queryset, by other instances or by SQL of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.db import router
from django.db.models import Model
from django.utils.text import capfirst
from django.utils.translation import override

from ..context.request import Exposure, MCPRequest
from ..orm.access import visible_fields
from ..orm.kinds import choices_of
from ..orm.queries import chunks
from ..orm.rendering import iso_text
from ..orm.unreadable import is_unreadable
from ..schema.jsonable import clean_text
from ..sensitive import is_sensitive

# Characters of a value in the history.
MAX_VALUE: Final = 60
NOTHING: Final = "-"

# By primary key, the values of a row by the names of its columns; of a relation to several rows, their keys.
Stored = Mapping[Any, Mapping[str, Any]]


def read_stored(rows: Sequence[Model]) -> Stored | None:
    """Return what the database holds of the rows, without those that are gone; None where it cannot be read."""
    if not rows:
        return {}
    model, using = type(rows[0]), router.db_for_write(type(rows[0]), instance=rows[0])
    names = [field.attname for field in model._meta.concrete_fields]
    found: dict[Any, dict[str, Any]] = {}
    try:
        for keys in chunks([row.pk for row in rows]):
            stored = model._base_manager.using(using).filter(pk__in=keys).order_by()
            found |= {pk: dict(zip(names, values, strict=True)) for pk, *values in stored.values_list("pk", *names)}
            for field in model._meta.many_to_many:
                _read_links(field, using, keys, found)
    except Exception as error:
        if not is_unreadable(error):
            raise
        return None
    return found


def _read_links(field: Any, using: str, keys: Sequence[Any], found: Mapping[Any, dict[str, Any]]) -> None:
    through = getattr(field.remote_field, "through", None)
    if through is None or not hasattr(field, "m2m_field_name"):
        return
    source, target = (
        through._meta.get_field(name) for name in (field.m2m_field_name(), field.m2m_reverse_field_name())
    )
    links = through._base_manager.using(using).filter(**{f"{source.name}__in": keys}).order_by()
    for values in found.values():
        values.setdefault(field.name, set())
    for pk, key in links.values_list(f"{source.name}__pk", target.attname):
        if pk in found:
            found[pk][field.name].add(key)


def changes_of(
    request: MCPRequest, exposure: Exposure, rows: Sequence[Model], before: Stored | None
) -> Iterator[tuple[Model, list[str]]]:
    """Yield each row that differs from ``before``, with what differs: ``Status: paid → shipped``.

    Of fields that the caller does not see, secrets and relations to several rows only the name is told. A row that is
    gone has nothing that differs, and so has every row where the rows could not be read.
    """
    after = read_stored(rows) if before is not None else None
    seen = {*visible_fields(request, exposure)}
    with override(None):
        for row in rows:
            if before is None or after is None or row.pk not in after:
                yield row, []
                continue
            old, new = before.get(row.pk, {}), after[row.pk]
            fields = [*exposure.opts.concrete_fields, *exposure.opts.many_to_many]
            words = [_words(field, old, new, told=field.name in seen) for field in fields]
            if differing := [text for text in words if text]:
                yield row, differing


def _words(field: Any, old: Mapping[str, Any], new: Mapping[str, Any], *, told: bool) -> str:
    name = field.name if field.many_to_many else field.attname
    one, other = old.get(name), new.get(name)
    if one == other:
        return ""
    label = str(capfirst(str(field.verbose_name)))
    if not told or field.many_to_many or is_sensitive(field.name, field.model):
        return label
    return f"{label}: {_shown(field, one)} → {_shown(field, other)}"


def _shown(field: Any, value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    if field.choices:
        value = dict(choices_of(field)).get(value, value)
    text = iso_text(value) if hasattr(value, "isoformat") else str(value)
    return clean_text(" ".join(text.split()), MAX_VALUE)

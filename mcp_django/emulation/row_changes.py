"""What an action has changed, found by comparing its rows before and after."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db import router
from django.db.models import Model
from django.utils.text import capfirst
from django.utils.translation import override

from ..orm.access import ModelAccess
from ..orm.column_values import render
from ..orm.fields import kind_of
from ..orm.pagination import chunks
from ..orm.undecodable_values import is_undecodable
from ..schema.secrets import clean_text, is_sensitive

# Maximum characters of a value in the history.
MAX_VALUE: Final = 60
NOTHING: Final = "-"


class RowChanges:
    """Finds out what an admin action has changed, by comparing its rows before and after.

    Rows are read from the database before and after, in the action's transaction, because the action can write them
    through its queryset, other instances or raw SQL.
    """

    def __init__(self, model: ModelAccess, rows: Sequence[Model]) -> None:
        self.model = model
        self.exposure = model.exposure
        self.rows = rows
        self.before = self._read()

    def _read(self) -> Mapping[Any, Mapping[str, Any]] | None:
        """Read the rows of the admin action, before or after it: values by key and ``attname``, None if unreadable.
        A many-to-many field has the set of related keys."""
        if not self.rows:
            return {}
        model = type(self.rows[0])
        using = router.db_for_write(type(self.rows[0]), instance=self.rows[0])
        names = [field.attname for field in model._meta.concrete_fields]
        found: dict[Any, dict[str, Any]] = {}
        try:
            for keys in chunks([row.pk for row in self.rows]):
                stored = model._base_manager.using(using).filter(pk__in=keys).order_by()
                found |= {pk: dict(zip(names, values, strict=True)) for pk, *values in stored.values_list("pk", *names)}
                for field in model._meta.many_to_many:
                    through = getattr(field.remote_field, "through", None)
                    if through is None or not hasattr(field, "m2m_field_name"):
                        continue
                    ends = field.m2m_field_name(), field.m2m_reverse_field_name()
                    source, target = map(through._meta.get_field, ends)
                    links = through._base_manager.using(using).filter(**{f"{source.name}__in": keys}).order_by()
                    for values in found.values():
                        values.setdefault(field.name, set())
                    for pk, key in links.values_list(f"{source.name}__pk", target.attname):
                        if pk in found:
                            found[pk][field.name].add(key)
        except Exception as error:
            if not is_undecodable(error):
                raise
            return None
        return found

    def changed_rows(self) -> dict[Model, list[str]]:
        """Return each row that the admin action changed, with lines such as ``Status: paid → shipped``.

        Hidden fields, secrets and many-to-many fields are named without values. Deleted rows are listed without
        changes, and so are all rows if their values could not be read.
        """
        after = self._read() if self.before is not None else None
        seen = {*self.model.fields}
        changes: dict[Model, list[str]] = {}
        with override(None):
            for row in self.rows:
                if self.before is None or after is None or row.pk not in after:
                    changes[row] = []
                    continue
                old = self.before.get(row.pk, {})
                new = after[row.pk]
                words = []
                for field in (*self.exposure.opts.concrete_fields, *self.exposure.opts.many_to_many):
                    name = field.name if field.many_to_many else field.attname
                    one = old.get(name)
                    other = new.get(name)
                    if one == other:
                        continue
                    label = str(capfirst(str(field.verbose_name)))
                    is_many = field.many_to_many
                    is_told = field.name in seen and not is_many and not is_sensitive(field.name, field.model)
                    words.append(f"{label}: {_told(field, one)} → {_told(field, other)}" if is_told else label)
                if words:
                    changes[row] = words
        return changes


def _told(field: Any, value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    if field.choices:
        value = dict(kind_of(field).choices).get(value, value)
    text = render(value) if hasattr(value, "isoformat") else str(value)
    return clean_text(" ".join(text.split()), MAX_VALUE)

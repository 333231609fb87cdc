"""Erases what was kept of one record from all changes, for somebody who asks for it.

A change that touches the record, or a row that refers to it, loses all its contents and its sentence: they may name
the record in any place. It can then not be taken back. Contents that no known ``SECRET_KEY`` opens are left, and
counted. Calls in the log lose the record's key.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.db import connections, router
from django.db.models import Model, QuerySet
from django.utils import timezone

from ..context.call_record import MAX_KEY
from ..models import ApprovalRequest, CallEntry, Change
from ..orm.column_values import pk_text
from .cascades import concrete, keys_of, with_parents
from .kept_changes import ERASED, SEALED, opened

# Number of changes that are read at a time, with all their contents.
READ_AT_ONCE: Final = 50
# A key as texts: of each of its parts, all forms in which it may be stored.
KeyForms = tuple[frozenset[str], ...]


class Record:
    """One record in the ways in which changes may hold it; ``pk`` is the key as its field takes it.

    The record may be gone: its parts in other tables of multi-table inheritance are then those with the same key.
    """

    def __init__(self, model: type[Model], pk: Any, texts: Collection[str] = ()) -> None:
        self.model = concrete(model)
        self.pk = pk
        self.texts = tuple(text.casefold() for text in texts)
        # Not by a manager, which may hide the row.
        rows: QuerySet[Any] = QuerySet(self.model, using=router.db_for_read(self.model))
        self.row = rows.filter(pk=pk).first()

    @cached_property
    def keys(self) -> dict[str, KeyForms]:
        """The keys of the record's rows by label: in its own table, in those of its parents and of its children."""
        known: dict[type[Model], Any] = keys_of(self.row) if self.row is not None else {}
        children = [model for model in apps.get_models() if self.model in with_parents(model)]
        tables = dict.fromkeys([*with_parents(self.model), *map(concrete, children)])
        return {table._meta.label_lower: _key_forms(table, known.get(table, self.pk)) for table in tables}

    @cached_property
    def types(self) -> frozenset[str]:
        """The keys of the content types of these tables as texts."""
        if not apps.is_installed("django.contrib.contenttypes"):
            return frozenset()
        tables = map(apps.get_model, self.keys)
        return frozenset(str(found.pk) for found in ContentType.objects.get_for_models(*tables).values())

    @cached_property
    def labels(self) -> frozenset[str]:
        """The labels of the record's tables, and of the models that can refer to it."""
        return frozenset(model._meta.label_lower for model in apps.get_models() if self._can_name(model))

    def _can_name(self, model: type[Model]) -> bool:
        return model._meta.label_lower in self.keys or any(True for _ in self.references(model))

    def references(self, model: Any) -> Iterator[tuple[str, frozenset[str], str]]:
        """Yield the columns of a model's table that can refer to the record, with the forms of what they hold, and the
        column with the content type for a generic relation, "" for a foreign key."""
        for field in model._meta.local_concrete_fields:
            target = concrete(field.related_model) if field.is_relation and field.related_model else None
            forms = self.keys.get(target._meta.label_lower) if target is not None else None
            if forms is None or len(forms) != 1:
                continue
            name = field.target_field.attname
            if field.target_field.primary_key or self.row is None or not hasattr(self.row, name):
                yield field.attname, forms[0], ""
            else:
                yield field.attname, _forms(field.target_field, getattr(self.row, name)), ""
        own = self.keys[self.model._meta.label_lower]
        for field in model._meta.private_fields:
            if hasattr(field, "fk_field") and hasattr(field, "ct_field") and len(own) == 1 and self.types:
                yield field.fk_field, own[0], model._meta.get_field(field.ct_field).attname

    # Where it is

    def is_in(self, change: Change, contents: Mapping[str, bytes], approval: ApprovalRequest | None = None) -> bool:
        """Return whether a change touches the record or a row that refers to it, or names it; given its contents, and
        the request for approval beside it."""
        texts = [change.summary, change.outcome]
        if approval is not None:
            texts += [approval.reason, approval.word]
            if any(self._is_key(label, key) for label, keys in approval.rows.items() for key in keys):
                return True
        found = {name: json.loads(data) for name, data in contents.items()}
        leaves = [text for value in found.values() for text in _leaves(value)]
        folded = [text.casefold() for text in (*texts, *leaves)]
        if any(text in leaf for text in self.texts for leaf in folded):
            return True
        if "footprint" in found:
            return self._is_in_footprint(found["footprint"]["models"])
        # Without a footprint, there are only the texts that callers have sent and got.
        return self._is_among(leaves, change.labels.split())

    def is_told(self, told: Any, labels: Collection[str]) -> bool:
        """Return whether what a caller has sent or got, a value for JSON, names the record; ``labels`` are those of
        the models that it is about."""
        leaves = list(_leaves(told))
        if any(text in leaf.casefold() for text in self.texts for leaf in leaves):
            return True
        return self._is_among(leaves, labels)

    def _is_among(self, leaves: Collection[str], labels: Collection[str]) -> bool:
        """Return whether one of these texts is the record's key, or that of one of its parts."""
        if self.labels.isdisjoint(labels):
            return False
        parts = [forms for key in self.keys.values() for forms in key]
        return any(leaf in forms or leaf.rpartition("/")[2] in forms for leaf in leaves for forms in parts)

    def _is_key(self, label: str, key: Any) -> bool:
        """Return whether a key of a model, as it is kept with a request for approval, is the record's."""
        parts = key if isinstance(key, list) else [key]
        forms = self.keys.get(label, ())
        return len(forms) == len(parts) and all(part in form for part, form in zip(parts, forms, strict=True))

    def _is_in_footprint(self, tables: Mapping[str, Mapping[str, Any]]) -> bool:
        for label, kinds in tables.items():
            rows = list(_rows(kinds))
            names = kinds["key"]
            forms = self.keys.get(label)
            if forms is not None and any(_has_key(row, names, forms) for row in rows):
                return True
            try:
                references = list(self.references(apps.get_model(label)))
            except LookupError:
                continue
            for name, held, type_name in references:
                if any(self._refers(row, name, held, type_name) for row in rows):
                    return True
        return False

    def _refers(self, row: Mapping[str, set[str]], name: str, held: frozenset[str], type_name: str) -> bool:
        if row.get(name, set()).isdisjoint(held):
            return False
        # Of a changed row, a column that stayed as it was is not kept.
        return not type_name or type_name not in row or not row[type_name].isdisjoint(self.types)


class Erasure:
    """Erases one record from what was kept of changes."""

    def __init__(self, model: type[Model], pk: Any, texts: Collection[str] = ()) -> None:
        self.record = Record(model, pk, texts)
        self.using = router.db_for_write(Change)
        # The number of changes with contents that no known key opens.
        self.unopened = 0

    def found(self) -> Iterator[int]:
        """Yield the numbers of the changes that hold something of the record."""
        last = 0
        rows = Change.objects.using(self.using).order_by("pk").only("labels", "summary", "outcome", *SEALED)
        while batch := list(rows.filter(pk__gt=last)[:READ_AT_ONCE]):
            last = batch[-1].pk
            approvals = self._approvals.in_bulk([change.pk for change in batch])
            yield from (change.pk for change in batch if self._holds(change, approvals.get(change.pk)))

    @property
    def _approvals(self) -> QuerySet[ApprovalRequest]:
        return ApprovalRequest.objects.using(self.using)

    def _holds(self, change: Change, approval: ApprovalRequest | None) -> bool:
        kept = {name: opened(name, value) for name in SEALED if (value := getattr(change, name))}
        contents = {name: data for name, data in kept.items() if data is not None}
        self.unopened += len(contents) < len(kept)
        return self.record.is_in(change, contents, approval)

    @property
    def calls(self) -> QuerySet[CallEntry]:
        """The calls in the log that have the record's key."""
        known = (model for model in apps.get_models() if concrete(model)._meta.label_lower in self.record.keys)
        labels = [model._meta.label_lower for model in known]
        rows = CallEntry.objects.using(router.db_for_write(CallEntry)).filter(row_key__gt="", model__in=labels)
        return rows.filter(row_key=pk_text(self.record.pk)[:MAX_KEY])

    def run(self) -> int:
        """Erase the contents of these changes, and return their number; what waits for a yes can no longer be done."""
        number = 0
        for pk in self.found():
            number += 1
            rows = Change.objects.using(self.using).filter(pk=pk)
            rows.update(summary="", outcome="", cannot_undo=ERASED, **dict.fromkeys(SEALED, b""))
            self._approvals.filter(pk=pk).update(reason="", word="", rows={})
            waiting = rows.filter(state=Change.State.WAITING.value)
            waiting.update(state=Change.State.WITHDRAWN.value, decided=timezone.now(), outcome=ERASED)
        return number


def _key_forms(table: type[Model], pk: Any) -> KeyForms:
    fields = table._meta.pk_fields
    parts = pk if len(fields) > 1 else (pk,)
    return tuple(_forms(field, part) for field, part in zip(fields, parts, strict=True))


def _forms(field: Any, value: Any) -> frozenset[str]:
    """Return a value as the databases may store it, as text."""
    found = {str(value)}
    for connection in connections.all():
        found.add(str(field.get_db_prep_value(value, connection)))
    if isinstance(value, UUID):
        found |= {str(value), value.hex}
    return frozenset(found)


def _rows(kinds: Mapping[str, Any]) -> Iterator[dict[str, set[str]]]:
    """Yield the rows of a table in a footprint: by column, the texts of its cells before and after."""
    for key, cells in kinds["changed"]:
        named = {name: {_text(cell)} for name, cell in zip(kinds["key"], key, strict=True)}
        for name, pair in cells.items():
            named.setdefault(name, set()).update(map(_text, pair))
        yield named
    for row in (*kinds["added"], *kinds["deleted"]):
        yield {name: {_text(cell)} for name, cell in zip(kinds["columns"], row, strict=True)}


def _has_key(row: Mapping[str, set[str]], names: Sequence[str], forms: KeyForms) -> bool:
    return len(names) == len(forms) and all(
        not row[name].isdisjoint(part) for name, part in zip(names, forms, strict=True)
    )


def _text(cell: Any) -> str:
    if isinstance(cell, dict):
        return str(next(iter(cell.values())))
    return str(cell)


def _leaves(value: Any) -> Iterator[str]:
    """Yield all texts and numbers in a value of JSON as texts, names of members too."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)

"""What is kept of a write of many rows for its caller to read later: the first rows, with what has changed of each."""

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar

from django.db.models import Model

from ..conf import settings
from ..orm.access import ModelAccess
from ..orm.column_values import pk_text, render
from ..orm.columns import Column
from ..orm.labels import label_of
from ..orm.row_finder import RowFinder
from ..orm.row_reading import show_rows


class FirstRows:
    """The first rows that a write changes, as they are before: :meth:`changed` tells what has become of them."""

    # As many as a dry run shows.
    MAX_ROWS: ClassVar = 20

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self._before: list[Model] = []

    def note(self, row: Model) -> None:
        """Take a row that is about to be saved."""
        if len(self._before) < self.MAX_ROWS:
            self._before.append(copy(row))

    def changed(self) -> dict[str, dict[str, Any]]:
        """Return the rows that the caller sees now, by their keys as texts: each with the stored columns that differ,
        as the caller saw them before and sees them now."""
        model = self.model
        found = RowFinder(model).by_key([row.pk for row in self._before])
        pairs = [(row, found[row.pk]) for row in self._before if row.pk in found]
        pairs = [(old, now) for old, now in pairs if model.may_row("view", now)]
        names = [self._differing(old, now) for old, now in pairs]
        every = list(dict.fromkeys(name for own in names for name in own))
        before, after = [self._shown(rows, every) for rows in zip(*pairs, strict=True)] if pairs else ([], [])
        told = {}
        for place, (_old, now) in enumerate(pairs):
            told[pk_text(now.pk)] = {
                "model": model.exposure.label,
                "pk": render(now.pk),
                "label": label_of(model.exposure, now) or str(now.pk),
                "changed": {name: [before[place][name], after[place][name]] for name in names[place]},
            }
        return told

    def _differing(self, old: Model, now: Model) -> list[str]:
        """Return the stored columns that the caller sees of a row, and that differ."""
        self.model.request.go_to(self.model.exposure, "change", now.pk)
        attributes = {field.name: field.attname for field in self.model.exposure.opts.concrete_fields}
        before, after = vars(old), vars(now)
        differ = {name for name, attribute in attributes.items() if before.get(attribute) != after.get(attribute)}
        return [name for name in self.model.fields_of(now) if name in differ] if differ else []

    def _shown(self, rows: tuple[Model, ...], names: list[str]) -> list[Mapping[str, Any]]:
        if not names:
            return [{} for _ in rows]
        page = show_rows(self.model, rows, Column.all(self.model.exposure, names), settings.TEXT_CHARS)
        return [dict(zip(page.names, row, strict=True)) for row in page.rows]

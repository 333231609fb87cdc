"""Find the rows that a caller names: by primary key, by a unique field such as a number, or by the label.

A unique field or a label is looked up only if no row has the key, so keys cost nothing extra. Only the caller's rows
are searched, by unique fields that they may read and filter by, and by labels as results show them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Final

from django.db.models import Model, Q, QuerySet

from ..exceptions import NotFound, Repair, ToolError, Unreadable
from .access import ModelAccess
from .allowed_filters import AllowedFilter
from .alternative_spellings import is_short_text
from .column_values import pk_text
from .conditions import joined
from .fields import kind_of, parse_value
from .hidden_parts import hides_parts, with_no_part_hidden
from .labels import MAX_LABEL, label_of, labels_of, plain_label, with_labels_of
from .pagination import chunks, narrowed
from .search import TextSearch
from .undecodable_values import all_readable

# Maximum number of rows whose ``__str__`` is compared with a text, and of rows that an error names.
MAX_COMPARED: Final = 200
MAX_NAMED: Final = 5
# Minimum number of characters of a text that is searched for within labels.
MIN_PART: Final = 3


class RowFinder:
    """Finds the rows that a caller names: by primary key, by a unique field, or by the row's text."""

    NOT_FOUND: ClassVar = "No such record. Find records with query_records; the first column of its rows is the pk."

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.exposure = model.exposure

    def rows(self, given: Iterable[Any], missing: str) -> list[Model]:
        """Find the rows that the caller names, by primary keys or other names."""
        found: list[Model] = []
        for item in given:
            try:
                found.append(self.model.get_row(item))
            except NotFound:
                found.append(self.model.get_row(self.key(item, missing)))
        return list({row.pk: row for row in found}.values())

    def key(self, given: Any, missing: str, repair: Callable[[str], Repair] | None = None) -> str:
        """Find the one row that ``given``, a unique value or the row's text, names, and return its primary key.

        A text that could be a key never counts as a name, because the row with that key may have been deleted: the
        error only mentions the row with that name. ``repair`` corrects the call, given the key of the only row meant.
        """
        text = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
        if not is_short_text(text, MAX_LABEL) or not text.strip() or self.exposure.opts.is_composite_pk:
            raise ToolError(missing)
        text = text.strip()
        if hides_parts(text):
            raise ToolError(missing)
        could_be_key = self._could_be_key(text)
        try:
            found = self._named(text)
            is_exact = True
            if not found and not could_be_key and len(text) >= MIN_PART:
                found = self._near(text)
                is_exact = False
        except Unreadable:
            raise ToolError(missing) from None
        keys = [pk_text(row.pk) for row in found]
        if is_exact and len(keys) == 1 and not could_be_key:
            return keys[0]
        if keys:
            labels = (label_of(self.exposure, row) or "(no label)" for row in found[:MAX_NAMED])
            rows = "; ".join(f"{key}: {label}" for key, label in zip(keys, labels, strict=False))
            more = " and more" if len(keys) > MAX_NAMED else ""
            named = "is named" if len(keys) == 1 else "are named"
            which = named if is_exact else "may be meant by"
            missing = f"{missing} Of {self.exposure.label} {which} {text[:60]!r}, by key: {rows}{more}. Give the key."
        is_meant = repair is not None and len(keys) == 1 and (is_exact or self._says(found[0], text))
        raise ToolError(missing.strip(), repair=repair(keys[0]) if repair is not None and is_meant else None)

    def pick(self, pks: Iterable[Any]) -> tuple[QuerySet[Any], list[Model]]:
        """Find the rows with these primary keys, as a queryset of the exposure's and as instances."""
        keys = list(dict.fromkeys(self.model.parse_pk(pk) for pk in pks))
        found = self.by_key(keys)
        if len(found) != len(keys) or not all(self.model.may_row("view", row) for row in found.values()):
            raise NotFound
        return self.exposure.get_queryset(self.model.request).filter(pk__in=keys), list(found.values())

    def by_key(self, keys: Sequence[Any]) -> dict[Any, Model]:
        """Find the rows with these keys, in the order of the keys; keys without a row are left out."""
        found: dict[Any, Model] = {}
        queryset = self.exposure.get_queryset(self.model.request)
        for chunk in chunks(keys):
            with all_readable():
                rows = {row.pk: row for row in queryset.filter(pk__in=chunk)}
            found.update((key, rows[key]) for key in chunk if key in rows)
        return found

    def by_values(self, paths: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> list[Model]:
        """Find the rows whose columns hold one of these combinations of values, through filters that the caller is
        allowed; in no order."""
        found: list[Model] = []
        queryset = self.exposure.get_queryset(self.model.request)
        for chunk in chunks(keys):
            if len(paths) == 1:
                condition = Q((f"{paths[0]}__in", [value for (value,) in chunk]))
            else:
                condition = joined("or", [Q(*zip(paths, key, strict=True)) for key in chunk])
            with all_readable():
                found += queryset.filter(condition)
        return found

    def hints(self, given: Iterable[Any]) -> Iterator[str]:
        """Find rows that a caller may mean by texts that were taken for keys, and yield their keys."""
        for item in islice(given, MAX_NAMED):
            try:
                key = self.key(item, "")
            except ToolError as error:
                yield from [error.message.strip(" .")] if error.message else ()
            else:
                if key != item:
                    yield f"{item!r} is {key}"

    def _could_be_key(self, text: str) -> bool:
        """Return whether the text to find a row by could be a primary key; where keys are texts, none counts as one."""
        if kind_of(self.exposure.opts.pk).word == "text":
            return False
        try:
            self.model.parse_pk(text)
        except NotFound:
            return False
        return True

    def _named(self, text: str) -> list[Model]:
        """Find the rows whose unique field or displayed text is the text; if there are none, ignore case."""
        rows = self.exposure.get_queryset(self.model.request).order_by("pk")
        label = plain_label(self.exposure)
        conditions = [*self._unique_values(text), *([Q((label, text))] if label is not None else [])]
        found = self._read(rows.filter(joined("or", conditions))) if conditions else []
        if found:
            return found
        if label is not None:
            return self._read(rows.filter(Q((f"{label}__iexact", text))))
        # Compare the text with each row's ``__str__``, unless there are too many rows.
        read = self._read(rows, MAX_COMPARED, all_or_none=True)
        labels = labels_of(self.exposure, read)
        return [row for row, label in zip(read, labels, strict=True) if (label or "").casefold() == text.casefold()]

    def _near(self, text: str) -> list[Model]:
        """Find some rows whose displayed text contains the text, or which the exposure's search finds by it."""
        request = self.model.request
        label = plain_label(self.exposure)
        try:
            if label is not None:
                rows = self.exposure.get_queryset(request).filter(with_no_part_hidden(label))
                rows = rows.filter(Q((f"{label}__icontains", text)))
            else:
                TextSearch(self.model).check()
                rows = narrowed(self.model, (), text)
        except ToolError:
            return []
        return self._read(rows.order_by("pk"))

    def _says(self, row: Model, text: str) -> bool:
        """Return whether the row's displayed text has each word of a text: "Ann" is not "Joanna"."""
        label = label_of(self.exposure, row) or ""
        return {*text.casefold().split()} <= {*label.casefold().split()}

    def _read(self, rows: QuerySet[Any], most: int = MAX_NAMED, *, all_or_none: bool = False) -> list[Model]:
        """Read the first rows, up to one more than ``most``, and return those that the caller may view."""
        with all_readable():
            read = list(with_labels_of(self.exposure, rows)[: most + 1])
        if all_or_none and len(read) > most:
            return []
        return [row for row in read if self.model.may_row("view", row)]

    def _unique_values(self, text: str) -> Iterator[Q]:
        """Yield a ``Q`` to find rows by each unique field that can have the value and that is open to the caller."""
        exposure = self.exposure
        alone = {item.fields[0] for item in exposure.opts.total_unique_constraints if len(item.fields) == 1}
        for name in self.model.fields:
            field = exposure.options.model_fields.get(name)
            if field is None or field.is_relation or field.primary_key or not (field.unique or name in alone):
                continue
            found = AllowedFilter.find(self.model, name)
            if found is None or "exact" not in found.lookups:
                continue
            path = found.path.column
            try:
                value = parse_value(field, text)
            except ValueError:
                continue
            if exposure.lookup_allowed(self.model.request, f"{path}__exact", text):
                yield Q((path, value))

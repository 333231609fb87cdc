"""Rows of inlines written as the admin's page writes them: all rows are posted, and those that are not named stay.

Each row is ``{"pk": 17, "quantity": 5}`` to change one, ``{"pk": 17, "delete": true}`` to delete it, or the same
without ``pk`` to add one. The formset of the inline validates and saves them; errors bear the position of the row in
the caller's own list.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from django.contrib.admin.utils import NestedObjects
from django.core.exceptions import ValidationError
from django.db import connections, router
from django.db.models import Model, prefetch_related_objects
from django.forms import ModelChoiceField
from django.forms.formsets import (
    DELETION_FIELD_NAME,
    INITIAL_FORM_COUNT,
    MAX_NUM_FORM_COUNT,
    MIN_NUM_FORM_COUNT,
    TOTAL_FORM_COUNT,
)
from django.forms.utils import ErrorDict

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..orm.columns import pk_text
from ..orm.deletion import blockers
from ..orm.wording import json_or_text
from .constraints import duplicate_note
from .entering import Entered, deeper_formsets, enter, impose
from .filling import HIDDEN_ERROR, compare_whole, error_lines, keep, parse_truth, prepopulated, refuse, writable_names
from .html import Pair
from .inlines import Inline, visible_pks

# Rows of an inline that a page can hold, and that one call may name.
MAX_ON_PAGE: Final = 500
MAX_GIVEN: Final = 200
NOT_SAVED: Final = "Nothing was saved."


@dataclass(slots=True)
class Row:
    """A row of the page: its form as the page shows it, what was given for it, and its name in errors."""

    path: str
    form: Any
    values: dict[str, Any] = field(default_factory=dict)
    entered: Entered = field(default_factory=Entered)
    exists: bool = False
    given: bool = False
    delete: bool = False
    writable: Collection[str] = ()


class InlinePost:
    """What a page posts for one inline: :meth:`fill` it, then :meth:`prepare` the formset that gets it.

    ``draft`` is the formset as the page shows it. ``inline`` is None for one that the caller does not know of: it posts
    what it shows. One with more rows than a page can hold is left out, and keeps them unseen.
    """

    def __init__(
        self, request: MCPRequest, exposure: Exposure, obj: Model | None, admin: Any, draft: Any, inline: Any
    ) -> None:
        self.request, self.exposure, self.obj = request, exposure, obj
        self.admin, self.draft = admin, draft
        self.inline: Inline | None = inline
        self.name: str = inline.name if inline is not None else ""
        self.problems: list[str] = []
        self.entries: list[Pair] = []
        self.rows: list[Row] = []
        self.is_left_out = False

    def is_writable(self) -> bool:
        """Return whether the caller may write any rows of the inline."""
        admin = self.admin
        verdicts = (admin.has_change_permission, admin.has_add_permission, admin.has_delete_permission)
        return self.inline is not None and any(verdict(self.request, self.obj) for verdict in verdicts)

    def fill(self, value: Any) -> None:
        """Work out what is posted when ``value``, a list of rows or None, is entered.

        Raises:
            ToolError: it is no list of rows, or the inline has more rows than a page can hold.
        """
        if self._is_too_long():
            if value is not None:
                raise ToolError(f"{self.name} has more than {MAX_ON_PAGE} rows: write them one by one. {NOT_SAVED}")
            self.is_left_out = True
            return
        for form in self.draft.initial_forms:
            self.rows.append(Row(f"{self.name} (pk {pk_text(form.instance.pk)})", form, exists=True))
        items = self._items(value)
        known = self._named_rows(items)
        for index, item in enumerate(items):
            self._take(f"{self.name}[{index}]", item, known)
        self._check_deletions()
        self._check_number()
        while len(self.rows) < self.draft.min_num:
            self.rows.append(Row(f"{self.name}[{len(items)}]", self._blank()))
        self._write_entries()

    def _is_too_long(self) -> bool:
        if self.obj is None:
            return False
        return bool(self.draft.get_queryset()[MAX_ON_PAGE : MAX_ON_PAGE + 1])

    def _items(self, value: Any) -> list[Any]:
        value = json_or_text([] if value is None else value)
        if not isinstance(value, list) or len(value) > MAX_GIVEN:
            raise ToolError(f"{self.name} must be a list of at most {MAX_GIVEN} rows. {NOT_SAVED}")
        return [json_or_text(item) for item in value]

    def _named_rows(self, items: Sequence[Any]) -> dict[str, Row]:
        """Return the rows that the caller may name by their keys; those that are named stay locked."""
        known = {pk_text(row.form.instance.pk): row for row in self.rows}
        named = {str(item["pk"]) for item in items if isinstance(item, dict) and item.get("pk") is not None}
        pks = [row.form.instance.pk for key, row in known.items() if key in named]
        seen = visible_pks(self.request, self.exposure, self.admin, pks)
        using = router.db_for_write(self.admin.model)
        if pks and connections[using].features.has_select_for_update:
            list(self.admin.model._base_manager.using(using).select_for_update().filter(pk__in=pks))
        return known if seen is None else {key: row for key, row in known.items() if row.form.instance.pk in seen}

    def _take(self, path: str, item: Any, known: Mapping[str, Row]) -> None:
        if not isinstance(item, dict):
            self.problems.append(f"{path}: give an object, such as {{'pk': 1, 'field': value}}")
            return
        values = dict(item)
        pk, delete = values.pop("pk", None), values.pop("delete", False)
        row = self._new_row() if pk is None else known.get(str(pk)) if not isinstance(pk, bool) else None
        if row is None:
            self.problems.append(f"{path}: {self.name} has no row with this pk; get_record shows those that there are")
            return
        if row.given:
            self.problems.append(f"{path}: this row is named twice")
            return
        row.path, row.given = path, True
        try:
            row.delete = parse_truth(delete)
        except ValidationError:
            self.problems.append(f"{path}.delete: give true or false")
        row.writable = self.writable(row)
        self._name_values(row, values)
        self._check_allowed(row)

    def _new_row(self) -> Row:
        row = Row("", self._blank())
        self.rows.append(row)
        return row

    def _blank(self) -> Any:
        """Return the form of the next row of the page, which is added by a script after the first ones."""
        index = len(self.rows)
        if index < len(self.draft.forms):
            return self.draft.forms[index]
        form = self.draft.empty_form
        form.prefix = self.draft.add_prefix(index)
        for formset in deeper_formsets(form):
            formset.prefix = formset.prefix.replace("__prefix__", str(index))
        return form

    def writable(self, row: Row) -> Collection[str]:
        """Return the names that may be given for the row."""
        if self.inline is None:
            return ()
        names = writable_names(row.form, self.inline.fields)
        key = self.admin.opts.pk.name
        # A key that people choose is chosen when the row is added.
        chosen = key in row.form.fields and not row.form.fields[key].widget.is_hidden
        return [key, *names] if chosen and not row.exists else names

    def _name_values(self, row: Row, values: Mapping[str, Any]) -> None:
        columns = {f.attname: f.name for f in self.admin.opts.concrete_fields if f.name in row.writable}
        row.values = {columns.get(name, name): value for name, value in values.items()}
        unknown = [name for name in row.values if name not in row.writable]
        for name in unknown[:5]:
            self.problems.append(f"{row.path}: you cannot write {name[:60]!r}; valid: {', '.join(row.writable)}")
        for name in unknown:
            del row.values[name]
        if not row.exists:
            sources = self.admin.get_prepopulated_fields(self.request, self.obj)
            row.values |= prepopulated(sources, row.form, row.values, row.writable)

    def _check_allowed(self, row: Row) -> None:
        admin, about = self.admin, (self.request, self.obj)
        if row.delete:
            allowed, what = row.exists and self.draft.can_delete and admin.has_delete_permission(*about), "delete"
        elif row.exists:
            allowed, what = not row.values or admin.has_change_permission(*about), "change"
        else:
            allowed, what = admin.has_add_permission(*about), "add"
        if not allowed:
            self.problems.append(f"{row.path}: you may not {what} {'this row' if row.exists else 'such a row'}")

    def _check_deletions(self) -> None:
        for row in self.rows:
            if row.delete and row.exists:
                collector = NestedObjects(using=router.db_for_write(self.admin.model), origin=[row.form.instance])
                collector.collect([row.form.instance])
                if collector.protected:
                    who = blockers(self.request, collector.protected)
                    self.problems.append(
                        f"{row.path}: it cannot be deleted, because rows that refer to it are protected: {who}"
                    )

    def _check_number(self) -> None:
        new = sum(not row.exists for row in self.rows)
        left = sum(not row.delete for row in self.rows)
        if new and left > self.draft.max_num and self.admin.has_add_permission(self.request, self.obj):
            self.problems.append(f"{self.name}: there may be at most {self.draft.max_num} rows, and not {left}")

    def _write_entries(self) -> None:
        self.entries = management_entries(self.draft, len(self.rows), sum(row.exists for row in self.rows))
        for row in self.rows:
            row.entered = enter(self.request, row.form, row.values)
            self.entries += [*row.entered.data, *_deeper_entries(self.request, row.form)]
            if row.delete:
                self.entries.append((row.form.add_prefix(DELETION_FIELD_NAME), "on"))


def management_entries(draft: Any, total: int, initial: int) -> list[Pair]:
    """Return what the formset's page posts about the number of its rows."""
    counts = {
        TOTAL_FORM_COUNT: total,
        INITIAL_FORM_COUNT: initial,
        MIN_NUM_FORM_COUNT: draft.min_num,
        MAX_NUM_FORM_COUNT: draft.max_num,
    }
    return [(f"{draft.prefix}-{name}", str(count)) for name, count in counts.items()]


def _deeper_entries(request: MCPRequest, form: Any) -> list[Pair]:
    """Return what the rows within a row post, which stay as they are."""
    entries: list[Pair] = []
    for formset in deeper_formsets(form):
        number = len(formset.initial_forms)
        entries += management_entries(formset, number, number)
        for row in formset.initial_forms:
            entries += [*enter(request, row, {}).data, *_deeper_entries(request, row)]
    return entries


EMPTY: Final = "nothing differs from an empty row, so that there is nothing to add; give its values"


def prepare(post: InlinePost, formset: Any) -> None:
    """Let every row of the formset, which is not validated yet, keep what was not named."""
    link = getattr(getattr(formset, "fk", None), "name", "")
    rows = formset.get_queryset()
    if rows:
        prefetch_related_objects(list(rows), *_relations(post, formset, link))
    for row, form in zip(post.rows, formset.forms, strict=False):
        compare_whole(form)
        impose(form, row.entered.exact)
        _keep_deeper(form)
        # Rows that the caller may only view are not validated by the admin either.
        if row.exists and form._errors is None and not form.instance._state.adding:
            _keep_row(form, {link, *row.values}, changed=bool(row.values))


def _keep_deeper(form: Any) -> None:
    """Let the rows within the form's own row stay as they are."""
    for formset in deeper_formsets(form):
        link = getattr(getattr(formset, "fk", None), "name", "")
        for row in formset.initial_forms:
            _keep_row(row, {link}, changed=False)
            _keep_deeper(row)


def _relations(post: InlinePost, formset: Any, link: str) -> Iterator[str]:
    """Return the relations of the rows that are validated, to be read by one query each."""
    opts = post.admin.opts
    for found in (*opts.concrete_fields, *opts.many_to_many):
        if found.name in formset.form.base_fields and found.is_relation and found.name != link:
            yield found.name


def _keep_row(form: Any, mentioned: Collection[str], *, changed: bool) -> None:
    key = form.instance._meta.pk.name
    if isinstance(form.fields.get(key), ModelChoiceField):
        # It was looked up in the formset's own rows.
        form.fields[key].clean = lambda value: form.instance
    keep(form, form.instance, {*mentioned, key})
    if not changed:
        names = {field.name for field in form.instance._meta.get_fields()}
        form._get_validation_exclusions = lambda: set(names)


def formset_errors(post: InlinePost, formset: Any) -> list[str]:
    """Return what is wrong with the rows, a line for each error; the formset was validated."""
    lines = list(post.problems)
    for error in formset.non_form_errors().as_data():
        # Told before, with the rows that the caller may know of.
        if error.code != "deleting_protected":
            lines.append(f"{post.name}: {' '.join(map(str, error.messages))}")
    for row, form in zip(post.rows, formset.forms, strict=False):
        if not row.delete:
            lines += _row_errors(post, row, form)
    return lines if post.inline is not None or not lines else [HIDDEN_ERROR]


def _row_errors(post: InlinePost, row: Row, form: Any) -> Iterator[str]:
    if not isinstance(form.errors, ErrorDict):
        # The admin passes over rows that the caller may only view.
        return
    refuse(form, row.entered.wrong)
    lines = error_lines(form, post.writable(row), partial(duplicate_note, post.request))
    refused = any(problem.startswith(f"{row.path}:") for problem in post.problems)
    if row.given and not (row.exists or refused or lines or form.has_changed()):
        yield f"{row.path}: {EMPTY}"
    for line in lines:
        name, _, text = line.partition(": ")
        yield f"{row.path}: {text}" if name == "(row)" else f"{row.path}.{line}"


def is_changed(formset: Any) -> bool:
    """Return whether rows were written, when the formset has been saved."""
    return any(getattr(formset, f"{kind}_objects", ()) for kind in ("new", "changed", "deleted"))

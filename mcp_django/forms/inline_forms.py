"""The formset of an inline that is posted: its rows keep what was not named, and say what is wrong with them."""

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Final

from django.db.models import prefetch_related_objects
from django.forms import ModelChoiceField
from django.forms.utils import ErrorDict

from .constraints import duplicate_note
from .entering import deeper_formsets, impose
from .filling import HIDDEN_ERROR, compare_whole, error_lines, keep, refuse
from .inline_rows import InlinePost, Row

__all__ = ["formset_errors", "is_changed", "prepare"]

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

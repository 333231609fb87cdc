"""Saving a row with values that a caller gave: through the form of the admin's page, or the exposure's serializer."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import router
from django.db.models import Model
from django.forms import FileField as FormFileField
from django.forms import ModelChoiceField, ModelMultipleChoiceField, all_valid
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from rest_framework.fields import FileField
from rest_framework.relations import ManyRelatedField, PrimaryKeyRelatedField

from ..context.admin_page import as_page
from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..exposures.history import log_addition, log_change
from ..forms.constraints import duplicate_note
from ..forms.entering import Entered, enter, filled
from ..forms.files import read_file_value
from ..forms.filling import HIDDEN_ERROR, bare_key, error_lines, linked_rows, prepopulated, refuse, writable_names
from ..forms.formsets import InlinePost, formset_errors, is_changed, prepare
from ..forms.html import as_files, as_query
from ..forms.inlines import inlines_of
from ..forms.uploads import uploads_taken
from ..orm.columns import resolve_column
from ..orm.pages import show_row
from ..orm.unreadable import keep_stored
from ..sensitive import holds_hidden
from .list_editing import ListedRow, listed_fields
from .naming import NOT_SAVED, nameable, named_values


def save_with_serializer(
    request: MCPRequest, exposure: Exposure, obj: Model | None, values: Mapping[str, Any], tool: str
) -> tuple[Model, list[str]]:
    """Save the values through the exposure's serializer: see :func:`~.saving.save_row`."""
    assert exposure.serializer_class is not None
    change, context = obj is not None, {"request": request}
    visible = nameable(request, exposure, obj) - set(exposure.get_readonly_fields(request, obj))
    shown: Any = exposure.serializer_class(obj, context=context)
    writable = [name for name, field in shown.fields.items() if name in visible and not field.read_only]
    named, wrong = _with_files(request, shown, named_values(exposure, values, writable))
    wrong += _take_keys(request, shown, named)
    before = dict(shown.data) if change else {}
    serializer: Any = exposure.serializer_class(obj, data=named, partial=change, context=context)
    if wrong or not serializer.is_valid():
        raise ToolError("\n".join([NOT_SAVED, *(wrong or _serializer_lines(serializer.errors))]))
    saved: Model = serializer.save()
    _validate(saved)
    after = exposure.serializer_class(saved, context=context).data
    changed = [name for name in writable if name in after and (name not in before or before[name] != after[name])]
    if not change:
        log_addition(request, exposure, saved, [{"added": {}}], tool)
    elif changed:
        log_change(request, exposure, saved, [{"changed": {"fields": changed}}], tool)
    return saved, changed


def _with_files(request: MCPRequest, serializer: Any, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values with the files that some of them are, and what is wrong with those."""
    found, wrong = dict(values), []
    for name, value in values.items():
        if value is not None and isinstance(serializer.fields[name], FileField):
            try:
                found[name] = read_file_value(request, value)
            except ValidationError as error:
                wrong.append(f"{name}: {' '.join(error.messages)}")
    return found, wrong


def _take_keys(request: MCPRequest, serializer: Any, values: dict[str, Any]) -> Iterator[str]:
    """Put the primary keys of the rows that relations name into the values; yield what is wrong with a name."""
    for name, value in list(values.items()):
        field = serializer.fields[name]
        related: Any = field.child_relation if isinstance(field, ManyRelatedField) else field
        if value is None or not isinstance(related, PrimaryKeyRelatedField):
            continue
        rows: Any = related.get_queryset()
        exposure = request.mcp.site.exposures.get(rows.model)
        if exposure is None:
            continue
        many = isinstance(value, list)
        try:
            found = [row.pk for row in linked_rows(request, exposure, value if many else [value])]
        except ValidationError as error:
            yield f"{name}: {' '.join(error.messages)}"
        else:
            values[name] = found if many else found[0]


def _serializer_lines(errors: Any, path: str = "") -> Iterator[str]:
    if isinstance(errors, Mapping):
        for name, found in errors.items():
            yield from _serializer_lines(found, f"{path}.{name}".lstrip("."))
    elif isinstance(errors, (list, tuple)):
        for found in errors:
            yield from _serializer_lines(found, path)
    else:
        yield f"{'(row)' if path == 'non_field_errors' else path}: {errors}"


def _validate(saved: Model) -> None:
    """Run the validation of the model too, which serializers leave out; the caller's transaction undoes the write."""
    try:
        saved.full_clean()
    except ValidationError as error:
        lines = [f"{name}: {' '.join(messages)}" for name, messages in error.message_dict.items()]
        raise ToolError("\n".join([NOT_SAVED, *lines])) from None


def save_row(
    request: MCPRequest,
    exposure: Exposure,
    obj: Model | None,
    values: Mapping[str, Any],
    tool: str,
    messages: list[dict[str, str]] | None = None,
) -> tuple[Model, list[str]]:
    """Save ``values`` to ``obj``, or to a new row, with its entry in the history; return it and the changed fields.

    To be called in a transaction: validation may fail after the row was written. ``messages`` takes what the hooks of
    the project say to the user.

    Raises:
        ToolError: a field is not one that the caller may write, or a value is not valid.
    """
    with exposure.recording(request):
        if exposure.serializer_class is not None:
            done = save_with_serializer(request, exposure, obj, values, tool)
        else:
            done = _save_with_form(request, exposure, obj, values, tool, messages)
    uploads_taken(request, router.db_for_write(exposure.model))
    return done


def check_values(request: MCPRequest, exposure: Exposure, obj: Model, values: Mapping[str, Any]) -> None:
    """Pass if the row's own page has the fields of ``values`` and takes each of them; nothing is saved.

    Raises:
        ToolError: see :func:`save_row`.
    """
    if exposure.serializer_class is not None:
        return
    page = _filled_page(request, exposure, obj, values)
    lines = [f"{name}: {' '.join(error.messages)}" for name, error in page.entered.wrong.items()]
    lines += page.listed.errors() if page.listed is not None else []
    if not lines:
        with as_page(request, "POST", page.data, [], page.files):
            # Validation writes the values to the row, and it is not their time yet.
            form = filled(page.draft, copy(obj), page.named, page.entered.exact, request.POST, request.FILES)
            named = tuple(f"{name}: " for name in page.named)
            lines = [line for line in error_lines(form, page.writable) if line.startswith(named)]
    if lines:
        raise ToolError("\n".join([NOT_SAVED, *lines]))


@dataclass(frozen=True, slots=True)
class _Page:
    """A page of the admin, filled in: its form at first, what was entered, and what the browser posts.

    ``listed`` is what is entered in the admin's list instead; the page is left out where that is all.
    """

    draft: Any
    posts: Sequence[InlinePost]
    writable: Collection[str]
    named: Mapping[str, Any]
    entered: Entered
    data: QueryDict
    files: "MultiValueDict[str, Any]"
    listed: ListedRow | None
    is_left_out: bool


def _filled_page(request: MCPRequest, exposure: Exposure, obj: Model | None, values: Mapping[str, Any]) -> _Page:
    change = obj is not None
    with as_page(request, "GET"):
        initial = None if change else exposure.get_changeform_initial_data(request)
        draft = exposure.get_form(request, obj, change=change)(instance=obj, initial=initial)
        posts = _inline_posts(request, exposure, obj, draft)
        writable = writable_names(draft, nameable(request, exposure, obj))
        open_posts = {post.name: post for post in posts if post.is_writable()}
        listed = listed_fields(request, exposure, obj, draft) if change else {}
        named = named_values(exposure, values, [*writable, *listed, *open_posts])
        if obj is not None:
            named = {
                name: value
                for name, value in named.items()
                if not _is_as_shown(request, exposure, obj, draft, name, value)
            }
        for_list = {name: named.pop(name) for name in listed if name in named}
        is_left_out = bool(for_list) and not named
        for post in posts:
            post.fill(named.pop(post.name, None) if post.name in open_posts else None)
        if not change:
            named |= prepopulated(exposure.get_prepopulated_fields(request), draft, named, writable)
        entered = enter(request, draft, named)
    entries = entered.data + [entry for post in posts for entry in post.entries]
    row = ListedRow(request, exposure, obj, for_list) if obj is not None and for_list else None
    return _Page(draft, posts, writable, named, entered, as_query(entries), as_files(entries), row, is_left_out)


def _is_as_shown(request: MCPRequest, exposure: Exposure, obj: Model, draft: Any, name: str, value: Any) -> bool:
    """Return whether the value is the row's own, as results show it: sent back, it changes nothing.

    The form need not take what is shown: a file is shown by its uri, tags by key and label, and a key may lead to a
    row that the caller may not see.
    """
    if (item := draft.fields.get(name)) is None:
        return False
    is_key = isinstance(item, ModelChoiceField) and not isinstance(item, ModelMultipleChoiceField)
    column = resolve_column(exposure, name)
    is_told = is_key or isinstance(value, (list, dict)) or isinstance(item, FormFileField)
    if column is None or not (is_told or column.by_instance) or holds_hidden(value):
        return False
    shown = show_row(request, exposure, obj, (column,), {}).rows[0][0]
    if is_key:
        # A row that the caller sees is chosen as on the admin's page, which may not offer it any more.
        return bool(shown) and shown[1] is None and str(bare_key(value)) == str(shown[0])
    return bool(shown == value)


def _save_with_form(
    request: MCPRequest,
    exposure: Exposure,
    obj: Model | None,
    values: Mapping[str, Any],
    tool: str,
    messages: list[dict[str, str]] | None,
) -> tuple[Model, list[str]]:
    page = _filled_page(request, exposure, obj, values)
    saved, changed = (
        (obj, []) if obj is not None and page.is_left_out else _save_page(request, exposure, obj, page, tool, messages)
    )
    if page.listed is not None:
        saved, more = page.listed.save(tool, messages)
        changed += more
    return saved, changed


def _save_page(
    request: MCPRequest,
    exposure: Exposure,
    obj: Model | None,
    page: _Page,
    tool: str,
    messages: list[dict[str, str]] | None,
) -> tuple[Model, list[str]]:
    """Do what ``ModelAdmin.changeform_view`` does with a post, in its order."""
    change = obj is not None
    with as_page(request, "POST", page.data, messages, page.files):
        form = filled(page.draft, obj, page.named, page.entered.exact, request.POST, request.FILES)
        posted = _posted(request, exposure, form, page.posts, change)
        formsets = [formset for _, formset in posted]
        form.full_clean()
        refuse(form, page.entered.wrong)
        saved = exposure.save_form(request, form, change) if not form.errors else form.instance
        for post, formset in posted:
            prepare(post, formset)
        valid = all_valid(formsets) and not form.errors
        lines = error_lines(form, page.writable, partial(duplicate_note, request))
        lines += [line for post, formset in posted for line in formset_errors(post, formset)]
        if lines or not valid:
            raise ToolError("\n".join([NOT_SAVED, *dict.fromkeys(lines or [HIDDEN_ERROR])]))
        if change:
            keep_stored(saved, page.named)
        exposure.save_model(request, saved, form, change)
        exposure.save_related(request, form, formsets, change)
        if not change or form.has_changed() or any(map(is_changed, formsets)):
            message = exposure.construct_change_message(request, form, formsets, add=not change)
            log = log_change if change else log_addition
            log(request, exposure, saved, message, tool)
    changed = [name for name in form.changed_data if name in page.writable]
    return saved, changed + [post.name for post, formset in posted if post.name and is_changed(formset)]


def _inline_posts(request: MCPRequest, exposure: Exposure, obj: Model | None, draft: Any) -> list[InlinePost]:
    """Return what the page posts of its inlines, still to be filled."""
    pairs = exposure.get_formsets(request, draft.instance, obj is not None)
    shown = [admin for admin, _ in pairs if exposure.shows_inline(admin)]
    known = {inline.admin: inline for inline in inlines_of(request, exposure, obj, shown)}
    return [InlinePost(request, exposure, obj, admin, formset, known.get(admin)) for admin, formset in pairs]


def _posted(
    request: MCPRequest, exposure: Exposure, form: Any, posts: Sequence[InlinePost], change: bool
) -> list[tuple[InlinePost, Any]]:
    """Return the formsets that get what was posted."""
    pairs = zip(posts, exposure.get_formsets(request, form.instance, change), strict=True)
    return [(post, formset) for post, (_, formset) in pairs if not post.is_left_out]

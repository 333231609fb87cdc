"""Saving a row with values that a caller gave: through the form of the admin's page, or the exposure's serializer."""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import router
from django.db.models import Model
from django.forms import all_valid
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from ..context.admin_page import as_page
from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..exposures.history import log_addition, log_change
from ..forms.constraints import duplicate_note
from ..forms.entering import Entered, enter, filled
from ..forms.filling import HIDDEN_ERROR, error_lines, prepopulated, refuse, writable_names
from ..forms.html import as_files, as_query
from ..forms.inline_forms import formset_errors, is_changed, prepare
from ..forms.inline_rows import InlinePost
from ..forms.inlines import inlines_of
from ..forms.uploads import uploads_taken
from ..orm.unreadable import keep_stored
from .list_editing import ListedRow, listed_fields
from .naming import NOT_SAVED, nameable, named_values
from .serializers import save_with_serializer

__all__ = ["NOT_SAVED", "check_values", "save_row"]


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

"""Saving a row with values that a caller gave: through the form of the admin's page, or the exposure's serializer."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ValidationError
from django.db.models import Model
from django.forms import all_valid
from django.http import QueryDict
from rest_framework.relations import ManyRelatedField, PrimaryKeyRelatedField

from ..context import MCPRequest
from ..exceptions import NotFound, ToolError
from ..visibility import visible_fields
from .adminpage import as_page
from .arguments import alternatives
from .constraints import duplicate_note
from .controls import as_query
from .forms import HIDDEN_ERROR, error_lines, filled, page_entries, prepopulated, refuse, writable_names
from .history import log_addition, log_change
from .inlineforms import formset_errors, is_changed, prepare
from .inlinerows import InlinePost
from .inlines import inlines_of
from .inputs import pick_rows

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["NOT_SAVED", "check_values", "save_row"]

NOT_SAVED: Final = "Nothing was saved:"


def save_row(
    request: MCPRequest,
    exposure: "ModelExposure",
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
    if exposure.serializer_class is not None:
        return _save_with_serializer(request, exposure, obj, values, tool)
    return _save_with_form(request, exposure, obj, values, tool, messages)


def check_values(request: MCPRequest, exposure: "ModelExposure", obj: Model, values: Mapping[str, Any]) -> None:
    """Pass if the row's own page has the fields of ``values`` and can take them; nothing is validated or saved.

    Raises:
        ToolError: see :func:`save_row`.
    """
    if exposure.serializer_class is None:
        page = _filled_page(request, exposure, obj, values)
        lines = [f"{name}: {' '.join(error.messages)}" for name, error in page.wrong.items()]
        if lines:
            raise ToolError("\n".join([NOT_SAVED, *lines]))


def _visible(request: MCPRequest, exposure: "ModelExposure", obj: Model | None) -> set[str]:
    """Return the fields that the caller may name; a row does not change its primary key."""
    names = {*visible_fields(request, exposure, obj), *exposure.get_form_only_fields(request, obj)}
    key = {exposure.opts.pk.name, *(part.name for part in exposure.opts.pk_fields)}
    return names - key if obj is not None else names


def _named(exposure: "ModelExposure", values: Mapping[str, Any], writable: Collection[str]) -> dict[str, Any]:
    """Return the values by field name; a foreign key may be named by its column, as in filters.

    Raises:
        ToolError: a name is not writable; one text for hidden, read-only and missing fields.
    """
    columns = {field.attname: field.name for field in exposure.opts.concrete_fields if field.name in writable}
    found = {name if name in writable else columns.get(name, name): value for name, value in values.items()}
    unknown = [name for name in found if name not in writable]
    if unknown:
        names = ", ".join(repr(name[:60]) for name in unknown[:5])
        valid = alternatives(unknown[0], writable)
        raise ToolError(f"You cannot write {names} of {exposure.label}. {valid} Nothing was saved.")
    return found


# Forms


@dataclass(frozen=True, slots=True)
class _Page:
    """A page of the admin, filled in: its form at first, what was entered, and what the browser posts."""

    draft: Any
    posts: Sequence[InlinePost]
    writable: Collection[str]
    named: Mapping[str, Any]
    wrong: Mapping[str, ValidationError]
    data: QueryDict


def _filled_page(request: MCPRequest, exposure: "ModelExposure", obj: Model | None, values: Mapping[str, Any]) -> _Page:
    change = obj is not None
    with as_page(request, "GET"):
        initial = None if change else exposure.get_changeform_initial_data(request)
        draft = exposure.get_form(request, obj, change=change)(instance=obj, initial=initial)
        posts = _inline_posts(request, exposure, obj, draft)
        writable = writable_names(draft, _visible(request, exposure, obj))
        open_posts = {post.name: post for post in posts if post.is_writable()}
        named = _named(exposure, values, [*writable, *open_posts])
        for post in posts:
            post.fill(named.pop(post.name, None) if post.name in open_posts else None)
        if not change and hasattr(exposure, "model_admin"):
            named |= prepopulated(exposure.model_admin.get_prepopulated_fields(request), draft, named, writable)
        entries, wrong = page_entries(request, draft, named)
    data = as_query([*entries, *(entry for post in posts for entry in post.entries)])
    return _Page(draft, posts, writable, named, wrong, data)


def _save_with_form(
    request: MCPRequest,
    exposure: "ModelExposure",
    obj: Model | None,
    values: Mapping[str, Any],
    tool: str,
    messages: list[dict[str, str]] | None,
) -> tuple[Model, list[str]]:
    """Do what ``ModelAdmin.changeform_view`` does with a post, in its order."""
    change = obj is not None
    page = _filled_page(request, exposure, obj, values)
    with as_page(request, "POST", page.data, messages):
        form = filled(page.draft, obj, page.named, request.POST, request.FILES)
        posted = _posted(request, exposure, form, page.posts, change)
        formsets = [formset for _, formset in posted]
        form.full_clean()
        refuse(form, page.wrong)
        saved = exposure.save_form(request, form, change) if not form.errors else form.instance
        for post, formset in posted:
            prepare(post, formset)
        valid = all_valid(formsets) and not form.errors
        lines = error_lines(form, page.writable, partial(duplicate_note, request))
        lines += [line for post, formset in posted for line in formset_errors(post, formset)]
        if lines or not valid:
            raise ToolError("\n".join([NOT_SAVED, *dict.fromkeys(lines or [HIDDEN_ERROR])]))
        exposure.save_model(request, saved, form, change)
        exposure.save_related(request, form, formsets, change)
        message = exposure.construct_change_message(request, form, formsets, add=not change)
        log = log_change if change else log_addition
        log(request, exposure, saved, message, tool)
    changed = [name for name in form.changed_data if name in page.writable]
    return saved, changed + [post.name for post, formset in posted if post.name and is_changed(formset)]


def _inline_posts(request: MCPRequest, exposure: "ModelExposure", obj: Model | None, draft: Any) -> list[InlinePost]:
    """Return what the page posts of its inlines, still to be filled."""
    pairs = exposure.get_formsets(request, draft.instance, obj is not None)
    shown = [admin for admin, _ in pairs if exposure.shows_inline(admin)]
    known = {inline.admin: inline for inline in inlines_of(request, exposure, obj, shown)}
    return [InlinePost(request, exposure, obj, admin, formset, known.get(admin)) for admin, formset in pairs]


def _posted(
    request: MCPRequest, exposure: "ModelExposure", form: Any, posts: Sequence[InlinePost], change: bool
) -> list[tuple[InlinePost, Any]]:
    """Return the formsets that get what was posted."""
    pairs = zip(posts, exposure.get_formsets(request, form.instance, change), strict=True)
    return [(post, formset) for post, (_, formset) in pairs if not post.is_left_out]


# Serializers


def _save_with_serializer(
    request: MCPRequest, exposure: "ModelExposure", obj: Model | None, values: Mapping[str, Any], tool: str
) -> tuple[Model, list[str]]:
    assert exposure.serializer_class is not None
    change, context = obj is not None, {"request": request}
    visible = _visible(request, exposure, obj) - set(exposure.get_readonly_fields(request, obj))
    shown: Any = exposure.serializer_class(obj, context=context)
    writable = [name for name, field in shown.fields.items() if name in visible and not field.read_only]
    named = _named(exposure, values, writable)
    before = dict(shown.data) if change else {}
    serializer: Any = exposure.serializer_class(obj, data=named, partial=change, context=context)
    wrong = list(_invisible_rows(request, serializer, named))
    if wrong or not serializer.is_valid():
        raise ToolError("\n".join([NOT_SAVED, *(wrong or _serializer_lines(serializer.errors))]))
    saved: Model = serializer.save()
    _validate(saved)
    after = exposure.serializer_class(saved, context=context).data
    changed = [name for name in writable if name in after and (name not in before or before[name] != after[name])]
    if change:
        log_change(request, exposure, saved, [{"changed": {"fields": changed}}] if changed else [], tool)
    else:
        log_addition(request, exposure, saved, [{"added": {}}], tool)
    return saved, changed


def _invisible_rows(request: MCPRequest, serializer: Any, values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        field = serializer.fields[name]
        related: Any = field.child_relation if isinstance(field, ManyRelatedField) else field
        if value is None or not isinstance(related, PrimaryKeyRelatedField):
            continue
        rows: Any = related.get_queryset()
        exposure = request.mcp.site.exposures.get(rows.model)
        if exposure is None:
            continue
        try:
            given = value if isinstance(value, list) else [value]
            if exposure.has_view_permission(request) and pick_rows(request, exposure, given):
                continue
        except NotFound:
            pass
        yield f"{name}: No {exposure.label} has this primary key."


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

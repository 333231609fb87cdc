"""Describe inlines to callers before they read or write their rows."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Model

from ..conf import settings
from ..context.request import Exposure, MCPRequest
from ..forms.inlines import Inline, inlines_of_any_row
from ..orm.access import columns_of
from ..runtime.hooks import asked
from ..scopes import WRITE
from .type_words import type_words


def inline_names(request: MCPRequest, exposure: Exposure) -> str:
    """Return the inlines with the fields of their rows in few words, as :func:`~.overviews.overview` puts them."""
    texts = []
    inlines, row = inlines_of_any_row(request, exposure)
    for inline in inlines:
        fields = _form_fields(request, exposure, inline, row)
        names = [f"{inline.admin.opts.pk.name}*"] if inline.admin.opts.pk.name in fields else []
        for column in columns_of(exposure.exposure_of_inline(inline.admin), inline.fields):
            field = fields.get(column.name)
            words = [column.name + "*" * _is_required(field), *type_words(request, column)]
            names.append(" ".join([*words, "ro"] if field is None and words[-1] != "computed" else words))
        texts.append(f"{inline.name}({', '.join(names)})")
    return ", ".join(texts)


def inline_lines(request: MCPRequest, exposure: Exposure) -> list[str]:
    """Return a line for each inline: its name, model and fields, and what the caller may do with its rows."""
    inlines, row = inlines_of_any_row(request, exposure)
    return [_described(request, exposure, inline, row) for inline in inlines]


def _described(request: MCPRequest, exposure: Exposure, inline: Inline, row: Model | None) -> str:
    rows, admin = exposure.exposure_of_inline(inline.admin), inline.admin
    may = {
        "view": admin.has_view_or_change_permission,
        "add": admin.has_add_permission,
        "change": admin.has_change_permission,
        "delete": admin.has_delete_permission,
    }
    off = request.mcp.off
    writes = WRITE in request.mcp.scopes and not settings.READ_ONLY and (off is None or off.writes is None)
    obj = None if exposure.has_add_permission(request) else row
    verbs = " ".join(
        verb
        for verb, verdict in may.items()
        if (writes or verb == "view")
        and asked(exposure.label, f"{inline.name} may {verb}", verdict, request, obj, default=False)
    )
    fields = _form_fields(request, exposure, inline, row)
    words = [f"{admin.opts.pk.name} required in a new row"] if admin.opts.pk.name in fields else []
    for column in columns_of(rows, inline.fields):
        field = fields.get(column.name)
        use = "read-only" if field is None else "required" if _is_required(field) else "optional"
        words.append(" ".join([column.name, *(type_words(request, column) or ["text"]), use]))
    return f"{inline.name}: rows of {rows.label}, may {verbs or 'nothing'}: {', '.join(words)}"


def _form_fields(request: MCPRequest, exposure: Exposure, inline: Inline, row: Model | None) -> Mapping[str, Any]:
    """Return the fields of the form of a new row; the primary key is among them where people choose it."""
    formset = asked(
        exposure.label, f"get_formset of {inline.name}", inline.admin.get_formset, request, row, default=None
    )
    return formset.form.base_fields if formset is not None else {}


def _is_required(field: Any) -> bool:
    return field is not None and field.required and field.initial in (None, "")

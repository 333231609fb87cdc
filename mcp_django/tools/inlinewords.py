"""What callers are told of inlines before they read or write their rows."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..conf import settings
from ..context import MCPRequest
from ..visibility import columns_of
from .base import WRITE
from .inlines import Inline, inlines_of
from .typewords import type_words

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["inline_lines", "inline_names"]


def inline_names(request: MCPRequest, exposure: "ModelExposure") -> str:
    """Return the inlines with the fields of their rows in few words, as :func:`~.overviews.overview` puts them."""
    texts = []
    for inline in inlines_of(request, exposure, None):
        fields = _form_fields(request, inline)
        names = [f"{inline.admin.opts.pk.name}*"] if inline.admin.opts.pk.name in fields else []
        for column in columns_of(exposure.exposure_of_inline(inline.admin), inline.fields):
            field = fields.get(column.name)
            words = [column.name + "*" * _is_required(field), *type_words(request, column)]
            names.append(" ".join([*words, "ro"] if field is None and words[-1] != "computed" else words))
        texts.append(f"{inline.name}({', '.join(names)})")
    return ", ".join(texts)


def inline_lines(request: MCPRequest, exposure: "ModelExposure") -> list[str]:
    """Return a line for each inline: its name, model and fields, and what the caller may do with its rows."""
    return [_described(request, exposure, inline) for inline in inlines_of(request, exposure, None)]


def _described(request: MCPRequest, exposure: "ModelExposure", inline: Inline) -> str:
    rows, admin = exposure.exposure_of_inline(inline.admin), inline.admin
    may = {
        "view": admin.has_view_or_change_permission,
        "add": partial(admin.has_add_permission, obj=None),
        "change": admin.has_change_permission,
        "delete": admin.has_delete_permission,
    }
    writes = WRITE in request.mcp.scopes and not settings.READ_ONLY
    verbs = " ".join(verb for verb, verdict in may.items() if (writes or verb == "view") and verdict(request))
    fields = _form_fields(request, inline)
    words = [f"{admin.opts.pk.name} required in a new row"] if admin.opts.pk.name in fields else []
    for column in columns_of(rows, inline.fields):
        field = fields.get(column.name)
        use = "read-only" if field is None else "required" if _is_required(field) else "optional"
        words.append(" ".join([column.name, *(type_words(request, column) or ["text"]), use]))
    return f"{inline.name}: rows of {rows.label}, may {verbs or 'nothing'}: {', '.join(words)}"


def _form_fields(request: MCPRequest, inline: Inline) -> Mapping[str, Any]:
    """Return the fields of the form of a new row; the primary key is among them where people choose it."""
    fields: Mapping[str, Any] = inline.admin.get_formset(request, None).form.base_fields
    return fields


def _is_required(field: Any) -> bool:
    return field is not None and field.required and field.initial in (None, "")

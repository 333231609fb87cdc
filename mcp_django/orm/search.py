"""Text search: what a caller may search in, and the rows that a search finds, without revealing hidden rows."""

import re
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Case, CharField, F, ForeignObjectRel, Model, Q, QuerySet, TextField, When
from django.db.models.functions import Cast

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.model_exposure import ModelExposure
from ..exposures.querysets import Keys
from ..schema.secrets import is_sensitive
from .access import ModelAccess, access_of
from .allowed_filters import followed, is_shown_by_admin
from .conditions import check_patterns, is_part_of
from .fields import FieldPath, is_joinable, kind_of, resolve_path
from .hidden_parts import Searched, can_hide_parts, with_no_part_hidden
from .path import guards_on


class Unhidden(Case):
    """The values of a search field that leads to hidden rows: NULL there, and compared by the field's own ``lookup``.

    The admin's search recognises a lookup only after the name of a model field, and compares everything else by
    ``icontains``.
    """

    def __init__(self, *cases: Any, lookup: str = "icontains", **options: Any) -> None:
        super().__init__(*cases, **options)
        self.lookup = lookup

    def get_lookup(self, lookup: str) -> Any:
        """Return the lookup that the search field names, whatever lookup the admin's search asks for."""
        return super().get_lookup(self.lookup if lookup == "icontains" else lookup)


def _is_hidden_path(exposure: ModelExposure, text: str) -> bool:
    """Return whether a text search field leads through a field that is sensitive, or that an exposure leaves out."""
    name = text.lstrip("^=@")
    path = resolve_path(exposure.model, name)
    if path is not None and is_sensitive(path.field.name, path.field.model):
        return True
    seen: ModelExposure | None = exposure
    for part in name.split("__"):
        if is_sensitive(part) or (seen is not None and seen.options.leaves_out(part)):
            return True
        field = seen.options.model_fields.get(part) if seen is not None else None
        seen = exposure.site.exposures.get(field.related_model) if field is not None else None
    return False


class TextSearch:
    """The text search of a model for one caller: what it looks into, and the rows that it finds."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure

    def check(self) -> None:
        """Raise ``ToolError`` if the model has no text search."""
        if not self.exposure.options.has_search(self.request):
            label = self.exposure.label
            raise ToolError(f"{label} has no text search. Use filters instead; describe_model lists them.")

    def hides(self, text: str) -> bool:
        """Return whether a search field leads through a field that is sensitive, left out, or kept from the caller."""
        return _is_hidden_path(self.exposure, text) or self.model.is_kept_from(text.lstrip("^=@"))

    def looks_into(self, text: str) -> bool:
        """Return whether the search may look into a search field: the caller could read each field on its path.

        It may also look into a column of the model itself that no page shows. For a model that is not exposed, but
        could be shown, the admin's declaration stands.
        """
        if self.hides(text):
            return False
        site = self.request.mcp.site
        seen = self.model
        for name in text.lstrip("^=@").split("__"):
            field = seen.exposure.opts.pk if name == "pk" else seen.exposure.options.model_fields.get(name)
            if field is None:
                # An annotation of the project, or a lookup after the column.
                return True
            if not isinstance(field, ForeignObjectRel):
                # Do not search JSON, which may hold secrets that are hidden wherever it is shown.
                if kind_of(field).word == "json":
                    return False
                is_own = seen is self.model
                if seen.field_named(name) is None and not (is_own and is_shown_by_admin(self.model, name)):
                    return False
            if field.is_relation and not is_joinable(field):
                return False
            related = field.related_model if field.is_relation else None
            if related is None:
                return True
            is_closed = self.exposure.options.closed_exposure(related) is not None
            if not is_closed and related not in site.exposures:
                return site.may_show(related)
            there = followed(self.model, seen, related)
            if there is None:
                return False
            seen = there
        return True

    def left_out(self) -> list[str]:
        """Return the readable columns that the search leaves out for this caller, though others search by them."""
        model = self.model
        exposure = self.exposure

        def root(text: str) -> str:
            return text.lstrip("^=@").partition("__")[0]

        declared = exposure.options.search_fields(self.request)
        searched = exposure.get_search_fields(self.request)
        guards = ((text, guards_on(model.access, exposure.model, text.lstrip("^=@"))) for text in searched)
        looked_at = {root(text) for text, found in guards if found is not None}
        roots = dict.fromkeys(root(text) for text in declared if not _is_hidden_path(exposure, text))
        return [name for name in roots if name not in looked_at and model.field_named(name) is not None]

    def found_in(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Return those of the rows that the exposure's search finds by a text, each once."""
        try:
            found, may_have_duplicates = self.exposure.get_search_results(self.request, queryset, term)
        except (ValidationError, ValueError):
            raise ToolError(f"The search does not take {term[:60]!r}. Use filters instead.") from None
        check_patterns(found, re.split(r"[\s\"']+", term))
        if may_have_duplicates or not is_part_of(found, queryset, joins=True):
            return queryset.filter(pk__in=Keys.of(found))
        return found


def search_paths(
    request: MCPRequest, queryset: QuerySet[Any], fields: Sequence[str]
) -> tuple[QuerySet[Any], list[str]]:
    """Return the rows and their search fields, with columns that are NULL where a search field leads to hidden rows.

    A path through a model that the caller may not view is left out, and so are one into another database and a column
    that is hidden from this caller.
    """
    found = []
    exposure = request.mcp.site.exposures.get(queryset.model)
    for number, text in enumerate(fields):
        name = text.lstrip("^=@")
        if exposure is not None and access_of(request)[exposure].is_kept_from(name):
            continue
        guards = guards_on(access_of(request), queryset.model, name)
        column, way, lookup = _end_of(queryset.model, name)
        # JSON may hold secrets, which are hidden wherever it is shown.
        if guards is None or (column is not None and kind_of(column.field).word == "json"):
            continue
        may_hide = column is not None and can_hide_parts(column.field)
        if not guards and not may_hide:
            found.append(text)
            continue
        if guards and may_hide:
            guards = (*guards, with_no_part_hidden(way))
        value = _unhidden(column, way, lookup, guards) if guards else Searched(way, lookup or "icontains")
        alias = f"mcp_search{number}"
        queryset = queryset.alias(**{alias: value})
        found.append(text.removesuffix(name) + alias)
    return queryset, found


def _end_of(model: type[Model], name: str) -> tuple[FieldPath | None, str, str]:
    """Return the column that a search field ends at, the path to it, and the lookup after it, "" for none."""
    column = resolve_path(model, name)
    if column is not None:
        return column, name, ""
    way, _, lookup = name.rpartition("__")
    column = resolve_path(model, way) if way else None
    if column is None or column.field.get_lookup(lookup) is None:
        return column, name, ""
    return column, way, lookup


def _unhidden(column: FieldPath | None, way: str, lookup: str, guards: Sequence[Q]) -> Unhidden:
    """Return the value of a search field with the lookup of its name, NULL for rows that do not pass the ``guards``."""
    if column is None or not lookup:
        return Unhidden(When(Q(*guards), then=F(way)))
    # Cast as the admin's search does, so that any word can be compared with a number.
    is_cast = lookup == "exact" and not isinstance(column.field, (CharField, TextField))
    value = Cast(F(way), CharField()) if is_cast else F(way)
    return Unhidden(When(Q(*guards), then=value), lookup=lookup)

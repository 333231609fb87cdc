"""The rows of inlines as a model of their own, to be read: ``shop.orderline`` of the lines on the pages of orders.

No registration is needed. A caller reads what the pages show them: the inline's fields, of rows under parents that
they may view. Rows are written on the page of their parent alone.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from inspect import isfunction, unwrap
from operator import or_
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Model, Q, QuerySet

from ..context.request import MCPRequest, Registry
from ..forms.inlines import inlines_of, is_djangos, is_generic, link_of
from ..orm.access import has_every_row, may_view
from ..orm.columns import resolve_column
from ..runtime.hooks import asked
from .model import ModelExposure

if TYPE_CHECKING:
    from django.contrib.admin.options import InlineModelAdmin

logger = logging.getLogger("mcp_django")

# By these an inline could decide for each row of a page what is shown there; then no other rows than a page's are read.
ROW_HOOKS: Final = ("get_formset", "has_view_permission", "has_change_permission", "has_view_or_change_permission")
PAGE_HOOKS: Final = ("get_inlines", "get_inline_instances", "get_formsets_with_inlines")
FORMSET_HOOKS: Final = ("__init__", "get_queryset", "queryset")
# Names in code that asks a request for the row on whose page it is: any of these sets of them.
PAGE_OF_ROW: Final = ({"resolver_match", "object_id"}, {"resolver_match", "args"}, {"path"}, {"path_info"})


def is_readable(inline: "type[InlineModelAdmin[Any, Any]]") -> bool:
    """Return whether rows of the inline may be read without their page.

    ``mcp_readable = False`` on its class keeps them on their page, and so does code of the project that decides row by
    row what a page shows.
    """
    if not getattr(inline, "mcp_readable", True) or not getattr(inline, "mcp_expose", True):
        return False
    hooks = [getattr(inline, name) for name in ROW_HOOKS]
    hooks += [found for name in FORMSET_HOOKS if callable(found := getattr(inline.formset, name, None))]
    return not is_generic(inline) and all(map(is_djangos, hooks))


def _asks_for_page(inline: "type[InlineModelAdmin[Any, Any]]") -> bool:
    """Return whether the inline's ``get_queryset``, or what it calls, seems to ask on which row's page it is.

    It is read, not run. Rows that are read without their page would be none, or those of all pages and more.
    """
    waiting, known = ["get_queryset"], set[str]()
    for name in waiting:
        for owner in inline.__mro__:
            function = getattr(found := vars(owner).get(name), "__func__", found)
            if isfunction(function) and not is_djangos(function):
                names = {*_names(unwrap(function).__code__)}
                waiting += names - known
                known |= names
    return any(names <= known for names in PAGE_OF_ROW)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif constant == "object_id":
            yield constant


def inlines_to_read(exposures: Iterable[ModelExposure]) -> dict[type[Model], list[tuple[ModelExposure, type[Any]]]]:
    """Return the models of inlines with the exposures on whose pages they are, and their classes."""
    found: dict[type[Model], list[tuple[ModelExposure, type[Any]]]] = {}
    for exposure in exposures:
        for inline in exposure.declared_inlines:
            # What joins two models alone is no model that anybody would ask about.
            if not is_readable(inline) or inline.model._meta.auto_created:
                continue
            if _asks_for_page(inline):
                logger.warning(
                    "%s is not read as a model: get_queryset of %s asks on which page it is. Set mcp_readable = False "
                    "on the inline to say so.",
                    inline.model._meta.label,
                    inline.__name__,
                )
            else:
                found.setdefault(inline.model, []).append((exposure, inline))
    return found


class InlineRows(ModelExposure):
    """Rows that pages of other models show as inlines: ``pages`` are exposures of those, and the inlines' classes."""

    narrows_inlines = False
    # What the rows have is for the pages to say, which would ask here otherwise.
    has_allow_list = False

    def __init__(self, model: type[Model], site: Registry, pages: Sequence[tuple[ModelExposure, type[Any]]]) -> None:
        super().__init__(model, site)
        self.pages = tuple(pages)

    @cached_property
    def has_fixed_pages(self) -> bool:
        """Whether Django's own code decides which inlines the pages have."""
        admins = {type(parent.inline_admin) for parent, _ in self.pages}
        return all(is_djangos(getattr(admin, hook)) for admin in admins for hook in PAGE_HOOKS)

    @cached_property
    def kept(self) -> list[tuple[ModelExposure, Any]]:
        """An inline of each page to ask for permissions: to make one takes longer than to ask it."""
        return [(parent, inline(parent.model, parent.inline_admin.admin_site)) for parent, inline in self.pages]

    @cached_property
    def links(self) -> Mapping[type[Any], str]:
        """The foreign keys by which rows point to the row of their page, by the inlines' classes."""
        return {inline: link_of(parent, inline).name for parent, inline in self.pages}

    def shown(self, request: MCPRequest) -> list[tuple[ModelExposure, Any, str]]:
        """Return the pages that show the rows to the caller: the parent, the inline, and the foreign key to it."""
        return [
            (parent, inline, self.links[inline_class])
            for parent, inline_class in self.pages
            if may_view(request, parent)
            for inline in asked(parent.label, "get_inlines", parent.get_inlines, request, None, default=())
            if type(inline) is inline_class and inline.has_view_or_change_permission(request)
        ]

    def get_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the fields that all of these pages show, the parents among them."""
        of_pages = []
        for parent, admin, link in self.shown(request):
            fields = [inline.fields for inline in inlines_of(request, parent, None, [admin])]
            of_pages.append(dict.fromkeys([link, *(name for names in fields for name in names)]))
        common = set.intersection(*map(set, of_pages)) if of_pages else set()
        return self.with_primary_key(name for name in (*of_pages, {})[0] if name in common and self._is_stored(name))

    def _is_stored(self, name: str) -> bool:
        column = resolve_column(self, name)
        return column is not None and column.kind in ("field", "relation", "many")

    def get_search_terms(self, request: MCPRequest) -> Sequence[str]:
        """Return those of the inlines that the caller sees."""
        return [term for _, inline, _ in self.shown(request) for term in getattr(inline, "mcp_search_terms", ())]

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return the rows under parents that the caller may view."""
        pages = self.shown(request)
        if len(pages) == 1:
            parent, inline, link = pages[0]
            rows: QuerySet[Any] = inline.get_queryset(request)
            return rows if has_every_row(parent) else rows.filter(self._under(request, parent, link))
        none: QuerySet[Any] = self.model._default_manager.none()
        keys = [
            Q(pk__in=inline.get_queryset(request).filter(self._under(request, parent, link)).order_by().values("pk"))
            for parent, inline, link in pages
        ]
        return self.model._default_manager.filter(reduce(or_, keys)) if keys else none

    def _under(self, request: MCPRequest, parent: ModelExposure, link: str) -> Q:
        target = self.opts.get_field(link).target_field.attname  # type: ignore[union-attr]
        return Q((f"{link}__in", parent.get_queryset(request).order_by().values(target)))

    def has_view_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether a page shows such rows to the caller."""
        narrowing = request.mcp.narrowing
        if narrowing is not None and not narrowing.admits(self.model):
            return False
        if not self.has_fixed_pages:
            return bool(self.shown(request))
        return any(
            may_view(request, parent)
            and parent.shows_inline(inline)
            and bool(inline.has_view_or_change_permission(request))
            for parent, inline in self.kept
        )

    def has_add_permission(self, request: MCPRequest) -> bool:
        """Return False: rows are written on the page of their parent."""
        return False

    def has_change_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return False: rows are written on the page of their parent."""
        return False

    def has_delete_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return False: rows are written on the page of their parent."""
        return False

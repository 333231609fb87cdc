"""Inlines: the rows of another model that an admin's page shows and saves together with a row, and reading them.

Callers know an inline by the name of its relation, such as ``lines`` in ``order.lines``. The permissions, queryset and
fields of the inline's class apply. Inline rows can also be read as a model of their own, such as ``shop.orderline`` for
the lines on order pages.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

import orjson
from django.contrib.admin.utils import flatten_fieldsets
from django.db.models import Model, Q, QuerySet, prefetch_related_objects
from django.forms.models import _get_foreign_key

from ..conf import settings
from ..context.request import MCPRequest
from ..exposures.model_exposure import (
    ExposureOptions,
    ModelExposure,
    ReadOnlyExposure,
    is_djangos,
)
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import plain_key
from ..orm.columns import Column
from ..orm.compiled_queries import first_rows
from ..orm.row_reading import show_rows
from ..runtime.failing_hooks import call_hook
from ..schema.secrets import clean_text, is_withheld
from .page_requests import as_page

if TYPE_CHECKING:
    from django.contrib.admin.options import InlineModelAdmin

# Maximum number of rows of one inline that are shown with their parent row.
MAX_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Inline:
    """An inline by its name for callers, with the fields of the inline's rows that they can read."""

    name: str
    admin: Any
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownRows:
    """The first rows of an inline that are shown with their parent row."""

    inline: Inline
    rows: Sequence[Model]
    columns: tuple[Column, ...]
    more: bool


class PageInlines:
    """Reads the inlines and their rows on the page of a row, or on the add page, as far as the caller can see them.
    ``shown`` are the inline instances, if the caller has them already."""

    def __init__(self, model: ModelAccess, obj: Model | None, shown: Iterable[Any] | None = None) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.obj = obj
        self._shown = shown

    @classmethod
    def of_any_row(cls, model: ModelAccess) -> "PageInlines":
        """Return the inlines whose rows the change page shows, for a sample row, and those of the add page alone."""
        request = model.request
        exposure = model.exposure
        if exposure.serializer_class is not None:
            return cls(model, None, ())
        row = None
        shown = list[Any]()
        for row in model.sample_rows():
            found = call_hook(exposure.label, "get_inlines", exposure.get_inlines, request, row, default=None)
            if found is not None:
                shown = found
                break
        if model.may("add"):
            new = call_hook(exposure.label, "get_inlines", exposure.get_inlines, request, None, default=())
            shown = [*shown, *(inline for inline in new if type(inline) not in set(map(type, shown)))]
        return cls(model, row, shown)

    @cached_property
    def all(self) -> list[Inline]:
        """The inlines by their names."""
        exposure = self.exposure
        opts = self.exposure.opts
        if exposure.serializer_class is not None:
            return []
        shown: Any = self._shown
        if shown is None:
            about = self.request, self.obj
            shown = call_hook(exposure.label, "get_inlines", exposure.get_inlines, *about, default=())
        found: list[Inline] = []
        taken = {field.name for field in (*opts.concrete_fields, *opts.many_to_many)}
        narrowing = self.request.mcp.narrowing
        for admin in shown:
            if narrowing is not None and not narrowing.admits(admin.model):
                continue
            hook = f"The inline {type(admin).__name__}"
            named = call_hook(exposure.label, hook, self._named, admin, self.obj, default=None)
            if named is None:
                continue
            relation, fields = named
            name = relation
            number = 2
            while name in taken:
                name = f"{relation}_{number}"
                number = number + 1
            taken.add(name)
            found.append(Inline(name, admin, fields))
        return found

    def _named(self, admin: Any, obj: Model | None) -> tuple[str, tuple[str, ...]]:
        """Return the name of an inline on the page of a row, and the fields of its rows without keys, secrets and what
        its model hides."""
        request = self.request
        exposure = self.exposure
        rows = exposure.options.of_inline(admin)
        names = rows.declared
        if names is None:
            given = flatten_fieldsets(admin.get_fieldsets(request, obj))
            names = list(dict.fromkeys(name if isinstance(name, str) else name.__name__ for name in given))
            hooks = (*exposure.options.FIELD_HOOKS, "get_formset", *exposure.options.FORM_HOOKS)
            if all(is_djangos(getattr(type(admin), hook)) for hook in hooks):
                # No code of the project decides on the fields, so they never change.
                rows.declared = names
        closed = {admin.opts.pk.name}
        if is_generic(admin):
            closed |= {admin.ct_field, admin.ct_fk_field}
        elif (link := link_of(exposure, admin)) is not None:
            closed.add(link.name)
        own = exposure.site.exposures.get(admin.model)
        if own is not None:
            closed.update(own.exclude)
            if own.options.has_allow_list:
                allowed = own.get_fields(request)
                names = [name for name in names if name in allowed]
        kept = [name for name in names if name not in closed and not is_withheld(name, admin.model)]
        return relation_name(exposure, admin), self.model.access[rows].readable(kept)

    def formsets(self, row: Model) -> list[tuple[Any, Any]]:
        """Return the inlines whose inline rows the page shows, each with its formset, bound where the request posts.
        Inlines that callers do not see are included, because they post what the page shows."""
        request = self.request
        exposure = self.exposure
        narrowing = self.request.mcp.narrowing
        formsets, inlines = exposure.model_admin._create_formsets(request, row, self.obj is not None)
        pairs = list(zip(inlines, formsets, strict=True))
        if exposure.form is not None or exposure.fields is not None:
            pairs = [(inline, formset) for inline, formset in pairs if type(inline) in (exposure.inlines or ())]
        if narrowing is not None:
            pairs = [(inline, formset) for inline, formset in pairs if narrowing.admits(inline.model)]
        # Leave out nested inlines, which some packages add here too.
        pairs = [(inline, formset) for inline, formset in pairs if getattr(formset, "instance", row) is row]
        if self._shown is None:
            self._shown = [inline for inline, _ in pairs if exposure.options.shows_inline(inline)]
        return pairs

    # Rows

    def shown_rows(self, names: Sequence[str] | None = None) -> list[ShownRows]:
        """Read the first rows of each inline, or of the named inlines, by one query each."""
        found = []
        label = self.exposure.label
        for inline in self.all:
            verdict = inline.admin.has_view_or_change_permission
            hook = f"has_view_permission of {inline.name}"
            is_visible = call_hook(label, hook, verdict, self.request, self.obj, default=False)
            if not is_visible or (names is not None and inline.name not in names):
                continue
            shown = [inline.admin.opts.pk.name, *inline.fields]
            columns = Column.all(self.exposure.options.of_inline(inline.admin), shown)
            rows = call_hook(label, f"The queryset of {inline.name}", self._rows, inline, columns, default=None)
            if rows is not None:
                found.append(ShownRows(inline, rows[:MAX_SHOWN], columns, len(rows) > MAX_SHOWN))
        return found

    def _rows(self, inline: Inline, columns: tuple[Column, ...]) -> list[Model]:
        queryset = self._queryset(inline.admin)
        if not isinstance(queryset, QuerySet):
            rows = list(queryset[: MAX_SHOWN + 1])
        else:
            if (own := narrowing_of(self.exposure, inline.admin)) is not None:
                queryset = queryset.filter(pk__in=own.get_queryset(self.request).order_by().values("pk"))
            rows = first_rows(queryset, MAX_SHOWN + 1)
        link = None if is_generic(inline.admin) else link_of(self.exposure, inline.admin)
        for row in rows:
            row.mcp_inline = inline.admin
            if link is not None and isinstance(self.obj, link.remote_field.model):
                link.set_cached_value(row, self.obj)
        if any(column.is_computed for column in columns):
            # The function of a computed column may follow any of the relations.
            relations = [column.field.name for column in columns if column.is_foreign_key and column.field.is_relation]
            prefetch_related_objects(rows, *relations)
        return rows

    def _queryset(self, admin: Any) -> Any:
        """Return the inline's rows as its formset would hold them."""
        request = self.request
        exposure = self.exposure
        obj: Any = self.obj
        page: Any = type(exposure.model_admin)
        formset = admin.formset
        methods = (page.get_formset_kwargs, page._create_formsets, type(admin).get_formset)
        if not all(map(is_djangos, (*methods, formset.__init__, formset.get_queryset))):
            with as_page(request, "GET"):
                pairs = PageInlines(self.model, obj).formsets(obj)
            # These inlines are new instances of the same classes.
            same = [formset for inline, formset in pairs if type(inline) is type(admin)]
            if same:
                return same[0].get_queryset()
            return admin.model._default_manager.none()
        if is_generic(admin):
            from django.contrib.contenttypes.models import ContentType

            link = {admin.ct_field: ContentType.objects.get_for_model(obj), admin.ct_fk_field: obj.pk}
        else:
            link = {link_of(exposure, admin).name: obj}
        rows = admin.get_queryset(request).filter(**link)
        if rows.ordered:
            return rows
        return rows.order_by(admin.opts.pk.name)

    def show(self, found: Sequence[ShownRows]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
        """Return the rows of inlines as JSON by the inline's name, and hints on them."""
        request = self.request
        exposure = self.exposure
        shown: dict[str, list[dict[str, Any]]] = {}
        notes = []
        room = request.mcp.result_chars // 2
        for item in found:
            admin = item.inline.admin
            name = item.inline.name
            inline = self.model.access[exposure.options.of_inline(admin)]
            page = show_rows(inline, item.rows, item.columns, settings.TEXT_CHARS)
            kept = shown[name] = []
            for key, *values in page.rows:
                row = dict(zip(["pk", *page.names[1:]], [plain_key(key), *values], strict=True))
                room -= len(orjson.dumps(row))
                if room < 0:
                    break
                kept.append(row)
            notes += page.notes
            if item.more or len(kept) < len(page.rows):
                own = exposure.site.exposures.get(admin.model)
                where = f", query_records on {own.label} gives them" if own and self.model.access[own].is_there else ""
                notes.append(clean_text(f"{name}: only {len(kept)} rows shown, there are more{where}"))
        return shown, notes

    def form_fields(self, inline: Inline) -> Mapping[str, Any]:
        """Return the form fields of a new row of an inline."""
        hook = f"get_formset of {inline.name}"
        ask = inline.admin.get_formset
        formset = call_hook(self.exposure.label, hook, ask, self.request, self.obj, default=None)
        return formset.form.base_fields if formset is not None else {}


def is_generic(admin: Any) -> bool:
    """Return whether inline rows point to their parent by a generic foreign key."""
    return hasattr(admin, "ct_fk_field")


def link_of(exposure: ModelExposure, admin: Any) -> Any:
    """Return the foreign key from inline rows to their parent row, None where the inline's own code finds the rows."""
    try:
        return _get_foreign_key(exposure.model, admin.model, fk_name=admin.fk_name)
    except ValueError:
        if is_djangos(type(admin).get_formset):
            raise
        return None


def relation_name(exposure: ModelExposure, admin: Any) -> str:
    """Return the name of an inline for callers: that of the relation to its rows."""
    default = f"{admin.model._meta.model_name}_set"
    if is_generic(admin):
        for field in exposure.opts.private_fields:
            names = getattr(field, "content_type_field_name", None), getattr(field, "object_id_field_name", None)
            if field.related_model is admin.model and names == (admin.ct_field, admin.ct_fk_field):
                return field.name
        return default
    link = link_of(exposure, admin)
    name = link.remote_field.get_accessor_name(model=admin.model) if link is not None else None
    return (name or "").replace("+", "") or default


def narrowing_of(exposure: ModelExposure, admin: Any) -> ModelExposure | None:
    """Return the exposure of an inline's model if that shows fewer rows than the inline does."""
    own: ModelExposure | None = exposure.site.exposures.get(admin.model)
    if own is not None and own.options.narrows_inlines and not own.options.has_every_row:
        return own
    return None


# Rows without their page

# Hooks by which an inline can decide what it shows for each parent row: if it overrides one, only its pages are read.
ROW_HOOKS: Final = ("get_formset", "has_view_permission", "has_change_permission", "has_view_or_change_permission")
PAGE_HOOKS: Final = ("get_inlines", "get_inline_instances", "get_formsets_with_inlines")
FORMSET_HOOKS: Final = ("__init__", "get_queryset", "queryset")


def is_readable(inline: "type[InlineModelAdmin[Any, Any]]") -> bool:
    """Return whether an inline's rows can be read as a model of their own, without their page.

    They cannot if the project overrides a hook that decides per parent row, or sets ``mcp_readable = False`` on the
    class. An overridden ``get_queryset`` could depend on the parent row too, so it needs ``mcp_readable = True``, which
    says that it does not.
    """
    declared = getattr(inline, "mcp_readable", None)
    if declared is False or not getattr(inline, "mcp_expose", hasattr(inline, "get_formset")) or is_generic(inline):
        return False
    hooks = [getattr(inline, name) for name in ROW_HOOKS]
    hooks += [found for name in FORMSET_HOOKS if callable(found := getattr(inline.formset, name, None))]
    return all(map(is_djangos, hooks)) and (declared is True or is_djangos(inline.get_queryset))


class InlineRowsOptions(ExposureOptions):
    """The options of ``InlineRows``: the pages with the inlines decide on the rows."""

    narrows_inlines = False
    has_allow_list = False


class InlineRows(ReadOnlyExposure):
    """The exposure of an inline's rows as a model of their own, which nobody registers.

    ``pages`` are pairs of a parent's exposure and an inline's class. A caller reads what these pages show: the fields
    of the inline, for rows whose parents the caller can view. Rows can only be written through their parent.
    """

    _options_class = InlineRowsOptions

    def __init__(self, model: type[Model], site: Any, pages: Sequence[tuple[ModelExposure, type[Any]]]) -> None:
        super().__init__(model, site)
        self.pages = tuple(pages)

    @staticmethod
    def pages_of(exposures: Iterable[ModelExposure]) -> dict[type[Model], list[tuple[ModelExposure, type[Any]]]]:
        """Return the models of inline rows that can be read by themselves, with the pages that show these rows."""
        found: dict[type[Model], list[tuple[ModelExposure, type[Any]]]] = {}
        for exposure in exposures:
            for inline in exposure.options.inlines:
                # Nobody asks for the table that Django creates for a many-to-many field.
                if is_readable(inline) and not inline.model._meta.auto_created:
                    found.setdefault(inline.model, []).append((exposure, inline))
        return found

    @cached_property
    def has_fixed_pages(self) -> bool:
        """Whether only Django's own code decides which inlines, and so which inline rows, the pages have."""
        admins = {type(parent.model_admin) for parent, _ in self.pages}
        return all(is_djangos(getattr(admin, hook)) for admin in admins for hook in PAGE_HOOKS)

    @cached_property
    def kept(self) -> list[tuple[ModelExposure, Any]]:
        """One instance of each inline of these inline rows, kept because one for each permission check is slow."""
        return [(parent, inline(parent.model, parent.model_admin.admin_site)) for parent, inline in self.pages]

    @cached_property
    def links(self) -> Mapping[type[Any], str]:
        """The foreign keys from inline rows to their parent rows, by the classes of the inlines."""
        return {inline: link_of(parent, inline).name for parent, inline in self.pages}

    def shown(self, request: MCPRequest) -> list[tuple[ModelExposure, Any, str]]:
        """Return the pages that show these inline rows to the caller: parent, inline, and foreign key."""
        return [
            (parent, inline, self.links[inline_class])
            for parent, inline_class in self.pages
            if access_of(request)[parent].is_there
            for inline in call_hook(parent.label, "get_inlines", parent.get_inlines, request, None, default=())
            if type(inline) is inline_class and inline.has_view_or_change_permission(request)
        ]

    def get_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the fields that all pages show of the inline's rows, and the parents."""
        of_pages: list[list[str]] = []
        for parent, admin, link in self.shown(request):
            inlines = PageInlines(access_of(request)[parent], None, [admin]).all
            of_pages.append([link, *(name for inline in inlines for name in inline.fields)])
        first, *others = of_pages or [[]]
        common = [name for name in first if self._is_stored(name) and all(name in names for names in others)]
        return self.options.with_primary_key(common)

    def _is_stored(self, name: str) -> bool:
        column = Column.of(self, name)
        if column is None:
            return False
        return column.is_stored or (column.lists_rows and column.field.many_to_many)

    def get_search_terms(self, request: MCPRequest) -> Sequence[str]:
        """Return the inline rows' search terms: those of the inlines that the caller sees."""
        return [term for _, inline, _ in self.shown(request) for term in getattr(inline, "mcp_search_terms", ())]

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return the inline rows under parent rows that the caller can view."""
        pages = self.shown(request)
        if len(pages) == 1:
            parent, inline, link = pages[0]
            rows: QuerySet[Any] = inline.get_queryset(request)
            if parent.options.has_every_row:
                return rows
            return rows.filter(self._under(request, parent, link))
        none: QuerySet[Any] = self.model._default_manager.none()
        keys = [
            Q(pk__in=inline.get_queryset(request).filter(self._under(request, parent, link)).order_by().values("pk"))
            for parent, inline, link in pages
        ]
        if keys:
            return self.model._default_manager.filter(reduce(or_, keys))
        return none

    def _under(self, request: MCPRequest, parent: ModelExposure, link: str) -> Q:
        target = self.opts.get_field(link).target_field.attname  # type: ignore[union-attr]
        return Q((f"{link}__in", parent.get_queryset(request).order_by().values(target)))

    def has_view_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether a page shows rows of the inline to the caller."""
        if not self.has_fixed_pages:
            return bool(self.shown(request))
        return any(
            access_of(request)[parent].is_there
            and parent.options.shows_inline(inline)
            and bool(inline.has_view_or_change_permission(request))
            for parent, inline in self.kept
        )

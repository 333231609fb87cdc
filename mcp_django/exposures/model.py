"""``ModelExposure``: the part of a model that callers can see and change, in the vocabulary of ``ModelAdmin``.

An attribute serves the common case and the hook of the same name with ``get_`` the dynamic one; the app always calls
the hook. Every hook takes the caller's request, an :class:`~mcp_django.context.request.MCPRequest`.

Whatever imports a project's ``mcp.py`` loads this module, so what only a call needs is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial, update_wrapper, wraps
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.contrib.admin.utils import construct_change_message
from django.contrib.auth import get_permission_codename
from django.db.models import BinaryField, JSONField, Model, QuerySet, TextField
from django.forms import ModelForm, modelform_factory

from ..conf import settings
from ..orm.managers import filterable, gives_every_row
from ..orm.permissions import has_perm
from ..sensitive import is_sensitive

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.contrib.admin.options import InlineModelAdmin
    from rest_framework.serializers import BaseSerializer

    from ..context.request import MCPRequest, Registry
    from ..orm.lookups import NamedFilter
    from .actions import Action

# What the caller may do, and the answer of these hooks where the model is left out of what the call was narrowed to.
VERDICTS: Final[Mapping[str, Any]] = {
    "has_permission": False,
    "has_view_permission": False,
    "has_add_permission": False,
    "has_change_permission": False,
    "has_delete_permission": False,
    "get_actions": {},
}
# What the pages of a row have of other models, and how to tell the inline among it.
PARTS: Final[Mapping[str, Callable[[Any], Any]]] = {"get_inlines": lambda part: part, "get_formsets": itemgetter(0)}


def _verdict(hook: Callable[..., Any], refused: Any) -> Callable[..., Any]:
    @wraps(hook)
    def wrapper(self: Any, request: MCPRequest, *args: Any, **kwargs: Any) -> Any:
        narrowing = request.mcp.narrowing
        if narrowing is not None and not narrowing.admits(self.model):
            return refused
        return hook(self, request, *args, **kwargs)

    return wrapper


def _parts(hook: Callable[..., Any], inline_of: Callable[[Any], Any]) -> Callable[..., Any]:
    @wraps(hook)
    def wrapper(self: Any, request: MCPRequest, *args: Any, **kwargs: Any) -> Any:
        found, narrowing = hook(self, request, *args, **kwargs), request.mcp.narrowing
        return found if narrowing is None else [part for part in found if narrowing.admits(inline_of(part).model)]

    return wrapper


def _narrowed(kind: type[Any]) -> None:
    """Have the hooks of a project's exposure class heed what a call was narrowed to, as those of this app do."""
    for name in (*VERDICTS, *PARTS):
        hook = getattr(kind, name)
        if not hook.__module__.startswith("mcp_django.") and not hasattr(hook, "heeds_narrowing"):
            found = _parts(hook, PARTS[name]) if name in PARTS else _verdict(hook, VERDICTS[name])
            found.heeds_narrowing = True  # type: ignore[attr-defined]
            setattr(kind, name, found)


class ModelExposure:
    """How one model is exposed by one site. Subclass it, set what differs, register it for the model.

    ``fields`` is an allow-list of model fields, properties and methods of the model or of the exposure; it is also what
    may be filtered and sorted on. Left out, only the primary key and the label of a row are shown; ``"__all__"`` is
    every concrete field of the model but the sensitive ones.
    ``filter_fields`` narrows filtering to a mapping of field to lookups, ``sortable_by`` what callers may sort by; both
    may name paths through relations. ``filterset_class`` is a ``FilterSet`` of django-filter, whose filters are added
    by their names. ``list_display`` names the columns of a page when the caller does not choose. ``label_field`` names
    the model field that labels a row where ``__str__`` is not just that field. ``inlines`` are the admin's classes of
    the rows that are shown and written together with a row. ``stable_queryset`` says that the shape of
    :meth:`get_queryset` is the same for every caller and call, so that its SQL may be compiled once. ``cache_ttl_ms``
    is how many milliseconds a client may keep what it read of the model as a resource, None for what the setting
    ``CACHE_TTL_MS`` says; a change, and a permission that is lost, may go unnoticed for as long.
    ``search_terms`` are other words for the rows, such as synonyms, by which ``list_models`` finds the model.
    """

    fields: Sequence[str] | str | None = None
    exclude: Sequence[str] = ()
    readonly_fields: Sequence[str] = ()
    list_display: Sequence[str] = ()
    search_fields: Sequence[str] = ()
    filter_fields: Mapping[str, Sequence[str]] | None = None
    filterset_class: Any = None
    ordering: Sequence[Any] = ()
    sortable_by: Sequence[str] | None = None
    actions: Sequence[str] = ()
    list_per_page: int | None = None
    label_field: str | None = None
    stable_queryset: bool | None = None
    cache_ttl_ms: int | None = None
    form: type[ModelForm[Any]] | None = None
    inlines: Sequence[type[InlineModelAdmin[Any, Any]]] | None = None
    serializer_class: type[BaseSerializer[Any]] | None = None
    description: str = ""
    search_terms: Sequence[str] = ()
    # The methods that decide what a row is; an exposure that overrides one of them is read afresh for each call.
    row_hooks: ClassVar[tuple[str, ...]] = ("get_queryset",)
    # Whether inlines of the model, on pages of others, show no more rows than ``get_queryset`` gives.
    narrows_inlines: ClassVar[bool] = True
    # Whether a page finds its rows first, and computes their columns for these alone.
    reads_keys_first: ClassVar[bool] = False
    # The admin site whose pages are those of the model.
    admin_site_name: str = "admin"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _narrowed(cls)

    def __init__(self, model: type[Model], site: Registry) -> None:
        self.model = model
        self.opts = model._meta
        self.site = site
        # Where the methods are that decide on permissions of the project's own, such as those of actions.
        self.permission_owners: tuple[Any, ...] = (self,)
        if type(self).description == "":
            from ..schema.docstrings import first_sentence

            self.description = first_sentence(model)
        self._inline_exposures: dict[type[Any], InlineExposure] = {}

    @cached_property
    def label(self) -> str:
        """Django's label of the model, the name that clients use: ``shop.order``."""
        return self.opts.label_lower

    # Columns

    def get_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the names of everything that may be read of a row, in display order, the primary key first."""
        return self.default_fields

    @cached_property
    def default_fields(self) -> tuple[str, ...]:
        """The allow-list as declared; ``"__all__"`` leaves sensitive fields out."""
        declared = self.fields or ()
        if declared == "__all__":
            declared = [field.name for field in self.opts.concrete_fields if not is_sensitive(field.name, self.model)]
        return self.with_primary_key(name for name in declared if name not in self.exclude)

    @cached_property
    def fields_by_name(self) -> Mapping[str, Any]:
        """The fields of the model, relations from elsewhere included, by the names that paths of the ORM have."""
        return {field.name: field for field in self.opts.get_fields()}

    @cached_property
    def has_allow_list(self) -> bool:
        """Whether ``fields`` alone decides what may be known of a row."""
        return True

    def declares_field(self, name: str) -> bool:
        """Return whether the project named the field here, and not only its class."""
        own = self.fields is not None and self.fields != "__all__"
        return own or name in self.list_display or "__" in name

    def leaves_out(self, name: str) -> bool:
        """Return whether ``exclude`` or ``fields`` keeps a field of the model from callers."""
        if name in self.exclude:
            return True
        return self.has_allow_list and name in self.fields_by_name and name not in self.default_fields

    def with_primary_key(self, names: Any) -> tuple[str, ...]:
        """Return the names without repetition, the primary key's in front."""
        return tuple(dict.fromkeys([self.opts.pk.name, *names]))

    def get_list_display(self, request: MCPRequest) -> Sequence[str]:
        """Return the columns of a page when the caller names none; all of them are in :meth:`get_fields`.

        Where the exposure does not say, they are those that fit into a line: no long texts, no JSON, no binaries.
        """
        if self.list_display:
            return self.with_primary_key(self.list_display)
        return [name for name in self.get_fields(request) if name not in self.bulky_fields]

    @cached_property
    def bulky_fields(self) -> frozenset[str]:
        """The model's fields whose values would fill a page by themselves."""
        bulky = (TextField, JSONField, BinaryField)
        return frozenset(field.name for field in self.opts.concrete_fields if isinstance(field, bulky))

    def get_readonly_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the fields that may be read but not written."""
        return self.readonly_fields

    @cached_property
    def has_own_pages(self) -> bool:
        """Whether the project's own code says which fields of a row may be written."""
        hooks = ("get_fields", "get_readonly_fields", "get_form")
        return any(getattr(type(self), hook) is not getattr(ModelExposure, hook) for hook in hooks)

    def get_form_only_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the fields of the form that may be written although there is nothing to read."""
        return ()

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return what computes the column ``name`` from an instance, or None when the model itself has it."""
        # A column may bear the name of an option or hook of this class, such as ``model``.
        if name not in self.default_fields or hasattr(ModelExposure, name):
            return None
        method = getattr(self, name, None)
        return method if callable(method) else None

    def get_list_functions(self, request: MCPRequest) -> Mapping[str, Callable[[Any], Any]]:
        """Return what computes columns for this request alone, by their names."""
        return {}

    def get_listed_rows(self, request: MCPRequest, rows: Sequence[Model]) -> Sequence[Model]:
        """Return rows, from which columns are computed, as they are prepared for that."""
        return rows

    def is_display_error(self, request: MCPRequest, name: str, row: Any, error: Exception) -> bool:
        """Return whether a column that cannot be computed is shown as one without a value."""
        return False

    def get_search_terms(self, request: MCPRequest) -> Sequence[str]:
        """Return other words for the rows, by which ``list_models`` finds the model."""
        return self.search_terms

    # Rows

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return the rows that this caller may know of. Every read, write and action starts from it."""
        return filterable(self.model._default_manager.get_queryset())

    def get_ordering(self, request: MCPRequest) -> Sequence[Any]:
        """Return the order of pages; the primary key is added, so that it is total."""
        return self.ordering or self.opts.ordering or ()

    @property
    def declared_ordering(self) -> Sequence[Any]:
        """The order of pages as it is declared for all callers."""
        return self.ordering or self.opts.ordering or ()

    def get_sortable_by(self, request: MCPRequest) -> Sequence[str] | None:
        """Return what callers may sort by, paths through relations included, or None for all that they may read."""
        return self.sortable_by

    def get_list_select_related(self, request: MCPRequest) -> bool | Sequence[str]:
        """Return the relations that a page follows for its computed columns, or whether it follows all of them."""
        return False

    def has_search(self, request: MCPRequest) -> bool:
        """Return whether there is a text search."""
        return bool(self.get_search_fields(request))

    def get_search_fields(self, request: MCPRequest) -> Sequence[str]:
        """Return the fields that ``search`` looks in, with the admin's prefixes (``^ = @``)."""
        return self.search_fields

    def declared_search(self, request: MCPRequest) -> Sequence[str]:
        """Return the fields that the project has declared for ``search``, whoever asks."""
        return self.search_fields

    def closed_exposure(self, model: type[Model]) -> ModelExposure | None:
        """Return what the admin shows of a model that is exposed to nobody, in which searches of this one may look."""
        return None

    def get_search_results(
        self, request: MCPRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return the rows that match and whether they may hold duplicates, by the rules of the admin's search."""
        from django.contrib.admin import ModelAdmin, site

        from ..orm.filters import search_paths

        fields = list(self.get_search_fields(request))
        queryset, visible = search_paths(request, queryset, fields)
        if not visible:
            return queryset.none(), False
        searcher = ModelAdmin(self.model, site)
        searcher.search_fields = visible  # type: ignore[misc]
        found, may_have_duplicates = searcher.get_search_results(request, queryset, search_term)
        return found, may_have_duplicates or visible != fields

    def narrows_without_search(self, request: MCPRequest) -> bool:
        """Return whether :meth:`get_search_results` leaves rows out when the term is empty."""
        return False

    def get_filter_fields(self, request: MCPRequest) -> Mapping[str, Sequence[str]] | None:
        """Return the lookups allowed for each field, or None for those that go with the types of the fields."""
        return self.filter_fields

    def get_list_filter(self, request: MCPRequest) -> Sequence[Any]:
        """Return what the sidebar of the admin filters by, its dates included."""
        return ()

    def lookup_allowed(self, request: MCPRequest, lookup: str, value: str) -> bool:
        """Return whether a filter that is open to the caller may be used with the value; ``lookup`` is as in a URL."""
        return True

    def get_named_filters(self, request: MCPRequest) -> Sequence[NamedFilter]:
        """Return the filters that the project wrote itself: those of ``filterset_class``."""
        if self.filterset_class is None:
            return []
        from .filtersets import FilterSetFilter

        return [FilterSetFilter(request, self, self.filterset_class)]

    def get_opening_filters(self, request: MCPRequest) -> Sequence[NamedFilter]:
        """Return those of the named filters that narrow rows while nothing is chosen of them."""
        return ()

    def get_list_per_page(self, request: MCPRequest) -> int:
        """Return the number of rows of a page when the caller does not say."""
        return self.list_per_page or settings.PAGE_SIZE

    @cached_property
    def has_stable_queryset(self) -> bool:
        """Whether the query of the rows has one shape for all, so that it may be compiled once."""
        if self.stable_queryset is not None:
            return self.stable_queryset
        own = all(getattr(type(self), hook) is getattr(ModelExposure, hook) for hook in self.row_hooks)
        return own and self.has_plain_manager

    @property
    def has_plain_manager(self) -> bool:
        """Whether the default manager gives all rows of the table."""
        return gives_every_row(self.model)

    # Permissions

    def has_permission(self, request: MCPRequest, action: str, obj: Model | None = None) -> bool:
        """Return whether the caller has the model's permission; override it to look at ``obj`` too, as in the admin."""
        narrowing = request.mcp.narrowing
        if narrowing is not None and not narrowing.admits(self.model):
            return False
        return has_perm(request.user, f"{self.opts.app_label}.{get_permission_codename(action, self.opts)}")

    def get_refusal(self, request: MCPRequest) -> str:
        """Return what to tell callers who see nothing for another reason than their permissions; "" for others."""
        return ""

    def has_view_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the caller may view rows, or this row; who may change may view."""
        return self.has_permission(request, "view", obj) or self.has_permission(request, "change", obj)

    def has_add_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may add a row."""
        return self.has_permission(request, "add")

    def has_change_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the caller may change rows, or this row."""
        return self.has_permission(request, "change", obj)

    def has_delete_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the caller may delete rows, or this row."""
        return self.has_permission(request, "delete", obj)

    # Writes

    def get_form(self, request: MCPRequest, obj: Model | None = None, change: bool = False) -> type[ModelForm[Any]]:
        """Return the form that validates and saves a row: ``form``, or one of the writable ``fields``."""
        closed = set(self.get_readonly_fields(request, obj))
        writable = [
            field.name
            for field in (*self.opts.concrete_fields, *self.opts.many_to_many)
            if field.editable and field.name in self.get_fields(request, obj) and field.name not in closed
        ]
        return modelform_factory(self.model, form=self.form or ModelForm, fields=writable)

    def get_prepopulated_fields(self, request: MCPRequest) -> Mapping[str, Sequence[str]]:
        """Return the fields of a new row that the page fills in from others."""
        return {}

    def get_list_editable(self, request: MCPRequest) -> Sequence[str]:
        """Return the fields that the admin's list edits."""
        return ()

    def get_changeform_initial_data(self, request: MCPRequest) -> dict[str, Any]:
        """Return what the form of a new row shows at first, beside the defaults of its fields."""
        return {}

    @cached_property
    def asks_where(self) -> bool:
        """Whether there are hooks of an admin that could ask where a request is."""
        return False

    @cached_property
    def permits_by_place(self) -> bool:
        """Whether what a caller may do could depend on where the request is."""
        return False

    @cached_property
    def inline_admin(self) -> ModelAdmin[Any]:
        """The ``ModelAdmin`` that makes the inlines and their formsets."""
        from django.contrib.admin import ModelAdmin, site

        made: Any = ModelAdmin(self.model, self.site.admin_site or site)
        made.inlines = list(self.inlines or ())
        return made

    @property
    def declared_inlines(self) -> Sequence[type[Any]]:
        """The classes of the inlines that the page of a row can show."""
        return self.inlines or ()

    def get_inlines(self, request: MCPRequest, obj: Model | None = None) -> list[Any]:
        """Return the inlines that the page shows to the caller, as instances of their classes."""
        from ..forms.inlines import is_djangos

        admin: Any = self.inline_admin
        if is_djangos(type(admin).get_formsets_with_inlines):
            found = admin.get_inline_instances(request, obj)
        else:
            found = [inline for _, inline in admin.get_formsets_with_inlines(request, *([] if obj is None else [obj]))]
        narrowing = request.mcp.narrowing
        found = found if narrowing is None else [inline for inline in found if narrowing.admits(inline.model)]
        return [inline for inline in found if self.shows_inline(inline)]

    def get_formsets(self, request: MCPRequest, obj: Model, change: bool) -> list[tuple[Any, Any]]:
        """Return the inlines of the page and their formsets, bound where the request posts."""
        admin: Any = self.inline_admin
        formsets, inlines = admin._create_formsets(request, obj, change)
        pairs, narrowing = list(zip(inlines, formsets, strict=True)), request.mcp.narrowing
        if narrowing is not None:
            pairs = [(inline, formset) for inline, formset in pairs if narrowing.admits(inline.model)]
        # Rows within rows of inlines, which some packages put here too, are left alone.
        return [(inline, formset) for inline, formset in pairs if getattr(formset, "instance", obj) is obj]

    def exposure_of_inline(self, inline: Any) -> InlineExposure:
        """Return the rows of an inline as an exposure, the same for all instances of its class."""
        if type(inline) not in self._inline_exposures:
            self._inline_exposures[type(inline)] = InlineExposure(inline.model, self.site, inline)
        return self._inline_exposures[type(inline)]

    def shows_inline(self, inline: Any) -> bool:
        """Return whether callers may know of the inline at all."""
        return True

    def recording(self, request: MCPRequest) -> AbstractContextManager[Any]:
        """Return what the admin's views write within, where a package keeps versions of rows."""
        return nullcontext()

    def save_form(self, request: MCPRequest, form: Any, change: bool) -> Model:
        """Return the row of a valid form, not yet saved."""
        saved: Model = form.save(commit=False)
        return saved

    def save_model(self, request: MCPRequest, obj: Model, form: Any, change: bool) -> None:
        """Save a row that passed validation."""
        # Forms do not validate that a key of several columns is new, and save() would write over the row that has it.
        obj.save(force_insert=not change and self.opts.is_composite_pk)

    def save_related(self, request: MCPRequest, form: Any, formsets: Sequence[Any], change: bool) -> None:
        """Save the many-to-many values of a row that has been saved, and the rows of its inlines."""
        form.save_m2m()
        for formset in formsets:
            formset.save()

    def get_deleted_objects(self, objs: Sequence[Model], request: MCPRequest) -> tuple[Any, ...]:
        """Return what ``ModelAdmin.get_deleted_objects`` returns for the rows."""
        from ..orm.deletion import deleted_objects

        return deleted_objects(self, objs, request)

    def delete_model(self, request: MCPRequest, obj: Model) -> None:
        """Delete a row."""
        obj.delete()

    def delete_queryset(self, request: MCPRequest, queryset: QuerySet[Any]) -> None:
        """Delete rows, by one query where that is possible: the model's own ``delete()`` is not called."""
        queryset.delete()

    # History

    def construct_change_message(
        self, request: MCPRequest, form: Any, formsets: Sequence[Any], add: bool = False
    ) -> Any:
        """Return what the history says of a saved form and its inlines, in the admin's structure."""
        return construct_change_message(form, formsets, add)

    def log_addition(self, request: MCPRequest, obj: Model, message: Any) -> Any:
        """Log that a row was added."""
        return self._log(request, [obj], flag="ADDITION", message=message)

    def log_change(self, request: MCPRequest, obj: Model, message: Any) -> Any:
        """Log that a row was changed."""
        return self._log(request, [obj], flag="CHANGE", message=message)

    def log_deletions(self, request: MCPRequest, objs: Sequence[Model]) -> Any:
        """Log that rows will be deleted."""
        return self._log(request, objs, flag="DELETION")

    def _log(self, request: MCPRequest, objs: Sequence[Model], **entry: Any) -> Any:
        from .history import log

        return log(request, objs, **entry)

    # Actions

    def get_actions(self, request: MCPRequest) -> Mapping[str, Action]:
        """Return the actions that this caller may run, by name."""
        if not self.actions:
            return {}
        from .actions import FunctionAction

        found: dict[str, Action] = {}
        for name in self.actions:
            action = FunctionAction(self, name)
            if action.has_permission(request):
                found[name] = action
        return found

    def all_action_names(self) -> list[str]:
        """Return the names of the actions that any caller may find, for the check that tool names are unique."""
        return list(self.actions)


class InlineExposure(ModelExposure):
    """The rows of an inline, for what makes columns of them. Who may see which is for the page that they belong to.

    There is one for all pages, and ``inline`` is that of the first page. Each row has that of its own page, which may
    hold the request of its caller, as ``mcp_inline``.
    """

    def __init__(self, model: type[Model], site: Registry, inline: Any) -> None:
        super().__init__(model, site)
        self.inline = inline
        self.declared: Sequence[str] | None = None

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return the function in ``readonly_fields``, or the method of the inline, that makes the column."""
        if any(name == field.name for field in self.opts.get_fields()):
            return None
        named = [item for item in self.inline.readonly_fields if callable(item) and item.__name__ == name]
        if named:
            return named[0]
        method = getattr(self.inline, name, None)
        return update_wrapper(partial(_computed_by_inline, name), method) if callable(method) else None


def _computed_by_inline(name: str, row: Any) -> Any:
    return getattr(row.mcp_inline, name)(row)

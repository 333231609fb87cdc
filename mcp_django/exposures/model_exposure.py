"""``ModelExposure``: the part of a model that callers can see and change, in the vocabulary of ``ModelAdmin``.

An attribute serves the common case and the hook of the same name with ``get_`` the dynamic one; the app always calls
the hook. Every hook takes the caller's request, an :class:`~mcp_django.context.request.MCPRequest`.

Every process that imports a project's ``mcp.py`` imports this module, so what only calls need is imported in functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.contrib.admin.utils import get_deleted_objects
from django.contrib.auth import get_permission_codename
from django.db.models import BinaryField, JSONField, Model, QuerySet, TextField
from django.forms import ModelForm, modelform_factory

from ..conf import settings
from ..schema.secrets import is_withheld
from .querysets import filterable, gives_every_row

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.contrib.admin.options import InlineModelAdmin
    from rest_framework.serializers import BaseSerializer

    from ..context.request import MCPRequest
    from .declared_actions import Action


# Fields with values too long for a column of a page.
BULKY: Final = (TextField, JSONField, BinaryField)
DELETE_HOOKS: Final = ("delete_model", "delete_queryset")
# By verb, the permissions of which Django's own hooks require one.
ENOUGH: Final = {"view": ("view", "change"), "add": ("add",), "change": ("change",), "delete": ("delete",)}


def is_djangos(function: Callable[..., Any]) -> bool:
    """Return whether a hook is Django's own, not one of the project's."""
    return function.__module__.startswith("django.")


class ExposureOptions:
    """The options of a ``ModelExposure``, the same for every caller; as ``_meta`` has those of a model."""

    # The methods of the admin's pages and inlines that decide which fields are shown.
    FIELD_HOOKS: ClassVar = ("get_fields", "get_fieldsets", "get_readonly_fields", "get_exclude")
    # Methods that can leave fields out of the form, and so out of a page that declares no fields.
    FORM_HOOKS: ClassVar = (
        "_get_form_for_get_fields",
        "formfield_for_choice_field",
        "formfield_for_dbfield",
        "formfield_for_foreignkey",
        "formfield_for_manytomany",
    )
    # Whether inlines of the model, on pages of other models, only show rows that ``get_queryset`` returns.
    narrows_inlines = True
    # Whether a page first finds the keys of its rows, and then computes columns for these rows only.
    reads_keys_first = False
    hides_parts = True  # Whether parts of texts that look like secrets are hidden, also from conditions.

    def __init__(self, exposure: ModelExposure) -> None:
        self.exposure = exposure
        self._of_inlines: dict[type[Any], InlineExposure] = {}

    @cached_property
    def admin_site(self) -> AdminSite | None:
        """The admin site whose ``has_permission`` callers must pass, None if there is no such condition."""
        return None

    # Columns

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names in the allow-list ``fields``, the primary key first; ``"__all__"`` leaves sensitive fields out."""
        exposure = self.exposure
        names = exposure.fields or ()
        if names == "__all__":
            names = [item.name for item in exposure.opts.concrete_fields if not is_withheld(item.name, exposure.model)]
        return self.with_primary_key(name for name in names if name not in exposure.exclude)

    @cached_property
    def model_fields(self) -> Mapping[str, Any]:
        """All fields and reverse relations of the model, by the names in lookups."""
        return {field.name: field for field in self.exposure.opts.get_fields()}

    @cached_property
    def has_allow_list(self) -> bool:
        """Whether the option ``fields`` alone decides what callers can read."""
        return True

    def declares_field(self, name: str) -> bool:
        """Return whether the project names this field itself, rather than by ``"__all__"``."""
        exposure = self.exposure
        own = exposure.fields is not None and exposure.fields != "__all__"
        return own or name in exposure.list_display or "__" in name

    def leaves_out(self, name: str) -> bool:
        """Return whether ``exclude`` or ``fields`` hides this field of the model."""
        if name in self.exposure.exclude:
            return True
        return self.has_allow_list and name in self.model_fields and name not in self.fields

    def with_primary_key(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names without duplicates, the primary key first."""
        return tuple(dict.fromkeys([self.exposure.opts.pk.name, *names]))

    def _is_stock(self, *hooks: str, owner: type[ModelExposure] | None = None) -> bool:
        """Return whether the exposure inherits these hooks from ``owner``, by default ``ModelExposure``, unchanged."""
        return all(getattr(type(self.exposure), hook) is getattr(owner or ModelExposure, hook) for hook in hooks)

    @property
    def has_own_deletion(self) -> bool:
        """Whether code of the project deletes rows; it may only mark them as deleted."""
        from django.contrib.admin import ModelAdmin

        exposure = self.exposure
        admin = type(self.exposure.model_admin)
        of_admin = any(getattr(admin, hook) is not getattr(ModelAdmin, hook) for hook in DELETE_HOOKS)
        queryset = getattr(exposure.model._default_manager, "_queryset_class", QuerySet)
        of_model = exposure.model.delete is not Model.delete or queryset.delete is not QuerySet.delete
        return of_admin or of_model or not self._is_stock(*DELETE_HOOKS)

    @cached_property
    def has_own_pages(self) -> bool:
        """Whether hooks of the project decide which fields can be written."""
        return not self._is_stock("get_fields", "get_readonly_fields", "get_form")

    def may_take(self, field: Any) -> bool:
        """Return whether code of the project could take the field from some callers, and so decide who reads it."""
        is_declared = self.exposure.fields is None or field.name in self.fields
        return is_declared and not self._is_stock("get_fields")

    def form_only_fields(self, request: MCPRequest, obj: Model | None) -> Sequence[str]:
        """Return the fields that the form adds to those of the model: they can be written, but not read."""
        exposure = self.exposure
        form = self.exposure.form or self.exposure.model_admin.form
        closed = {*self.model_fields, *exposure.exclude, *exposure.get_readonly_fields(request, obj)}
        own = (name for name in form.declared_fields if name not in closed)
        return [name for name in own if not is_withheld(name, exposure.model)]

    # Rows

    @cached_property
    def has_stable_queryset(self) -> bool:
        """Whether ``get_queryset`` returns a query of the same shape for all callers, so that its SQL is compiled once.

        That is ``stable_queryset`` if it is set, otherwise whether neither exposure nor manager narrows the rows.
        """
        declared = self.exposure.stable_queryset
        model = self.exposure.model
        if declared is not None:
            return declared
        return self._is_stock("get_queryset") and gives_every_row(model)

    @cached_property
    def has_every_row(self) -> bool:
        """Whether every caller has access to every row of the table: no code of the project narrows them. A queryset
        that is declared stable may still hold parameters of the caller, so the declaration proves nothing."""
        return self.exposure.stable_queryset is None and self.has_stable_queryset

    @property
    def ordering(self) -> Sequence[Any]:
        """The declared ordering: of the exposure, otherwise of its ``ModelAdmin``, otherwise of the model."""
        exposure = self.exposure
        return exposure.ordering or exposure.model_admin.ordering or exposure.opts.ordering or ()

    def search_fields(self, request: MCPRequest) -> Sequence[str]:
        """Return the declared ``search_fields``, also those hidden from the caller."""
        return self.exposure.search_fields

    def has_search(self, request: MCPRequest) -> bool:
        """Return whether there is a text search."""
        return bool(self.exposure.get_search_fields(request))

    def closed_exposure(self, model: type[Model]) -> ModelExposure | None:
        """Return an exposure of a model that only the admin shows, such as users, to search another model's rows by it.

        None if the admin does not show the model, or if it is exposed.
        """
        return None

    # Permissions

    @cached_property
    def permissions(self) -> Mapping[str, tuple[str, ...]]:
        """The Django permissions of which one is enough, by verb; verbs on which hooks decide are left out."""
        return self._permissions(ModelExposure)

    def _permissions(self, owner: type[ModelExposure]) -> Mapping[str, tuple[str, ...]]:
        opts = self.exposure.opts
        return {
            deed: tuple(f"{opts.app_label}.{get_permission_codename(name, opts)}" for name in enough)
            for deed, enough in ENOUGH.items()
            if self._is_stock("has_permission", f"has_{deed}_permission", owner=owner)
        }

    @cached_property
    def asks_where(self) -> bool:
        """Whether hooks of the project could look at the path of the request."""
        return False

    @cached_property
    def permits_by_place(self) -> bool:
        """Whether permissions could depend on the path of the request."""
        return False

    def action_names(self) -> list[str]:
        """Return the names of all actions, whoever can run them, for the check that tool names are unique."""
        return list(self.exposure.actions)

    # Inlines

    @property
    def inlines(self) -> Sequence[type[Any]]:
        """The inline classes that the model's page can show.

        They are those of the ``ModelAdmin``, unless the exposure sets ``inlines``, ``form`` or ``fields``.
        """
        exposure = self.exposure
        if exposure.inlines is not None or exposure.form is not None or exposure.fields is not None:
            return exposure.inlines or ()
        return tuple(exposure.model_admin.inlines)

    def shows_inline(self, inline: Any) -> bool:
        """Return whether callers can see this inline, if they can see its rows."""
        exposure = self.exposure
        if exposure.inlines is not None:
            return type(inline) in exposure.inlines
        named = exposure.form is not None or exposure.fields is not None
        return not named and getattr(inline, "mcp_expose", True) and bool(exposure.site.may_show(inline.model))

    def of_inline(self, inline: Any) -> InlineExposure:
        """Return the ``ModelExposure`` of an inline (``InlineExposure``), the same for all instances of its class."""
        if type(inline) not in self._of_inlines:
            self._of_inlines[type(inline)] = InlineExposure(inline.model, self.exposure.site, inline)
        return self._of_inlines[type(inline)]


class ModelExposure:
    """The exposure of one model by one site: subclass it, set options, override hooks, register it.

    ``fields`` is an allow-list of model fields, and of properties and methods of the model or the exposure; callers can
    also filter and sort by them. Without it, only the primary key and the label of a row are shown; ``"__all__"`` is
    every concrete field of the model except the sensitive ones. ``filter_fields`` restricts filters to a mapping of
    fields to lookups, and ``sortable_by`` what callers can sort by; both can name paths through relations.
    ``filterset_class`` is a ``FilterSet`` of django-filter, whose filters are added by name. ``list_display`` has the
    columns of a page if the caller does not choose. ``label_field`` is the model field that labels a row, if
    ``__str__`` is not just that field. ``inlines`` are the admin's inline classes whose rows are shown and written
    together with a row. ``stable_queryset`` says that :meth:`get_queryset` has the same shape for every caller and
    call, so that its SQL can be compiled once. ``cache_ttl_ms`` is for how many milliseconds a client can keep rows
    that it read as resources, None for the setting ``CACHE_TTL_MS``; a change or a lost permission can go unnoticed for
    as long. ``search_terms`` are other words for the rows, such as synonyms, by which ``list_models`` finds the model.
    ``undo = False`` says that nothing is kept to take changes of the rows back. ``dry_run = False`` says that the hooks
    that write rows must not run in a transaction that is rolled back, because they do more than the database undoes.
    ``confirm`` says who confirms writes that ask (not ``CONFIRM``), ``approval`` which of them another person approves.
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
    undo: bool = True
    dry_run: bool = True
    confirm: Any = None
    approval: Any = None
    form: type[ModelForm[Any]] | None = None
    inlines: Sequence[type[InlineModelAdmin[Any, Any]]] | None = None
    serializer_class: type[BaseSerializer[Any]] | None = None
    description: str = ""
    search_terms: Sequence[str] = ()
    admin_site_name: str = "admin"  # That with the model's pages.
    _options_class: ClassVar[type[ExposureOptions]] = ExposureOptions

    def __init__(self, model: type[Model], site: Any) -> None:
        self.model = model
        self.opts = model._meta
        self.site = site
        # Django's label of the model, the name that clients use: ``shop.order``.
        self.label = self.opts.label_lower
        # Objects whose ``has_*_permission`` methods decide on the project's own permissions, such as those of actions.
        self.permission_owners: tuple[Any, ...] = (self,)
        if type(self).description == "":
            from ..schema.docstrings import Docstring

            self.description = Docstring.of_class(model).summary
        self.options = self._options_class(self)

    # Columns

    def get_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the names of the fields that the caller can read, in display order, the primary key first.

        A hook: ``obj`` is the row, None for the model as a whole.
        """
        return self.options.fields

    def get_list_display(self, request: MCPRequest) -> Sequence[str]:
        """Return the columns of a page if the caller names none: ``list_display`` with the primary key.

        Without ``list_display``, these are the fields that fit into a line: no long texts, no JSON, no binary data.
        """
        if self.list_display:
            return self.options.with_primary_key(self.list_display)
        types = {field.name: field for field in self.opts.concrete_fields}
        return [name for name in self.get_fields(request) if not isinstance(types.get(name), BULKY)]

    def get_readonly_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the names of the fields that the caller can read but not write: ``readonly_fields``."""
        return self.readonly_fields

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return the method of the exposure that computes this column from a row, None if the column has none."""
        # A column of the model can have the name of an option or hook of this class, such as ``model``.
        if name not in self.options.fields or hasattr(ModelExposure, name):
            return None
        method = getattr(self, name, None)
        return method if callable(method) else None

    def get_listing(self, request: MCPRequest) -> Listing:
        """Return the :class:`Listing` of this request: what it computes for its rows, and how it narrows them."""
        return Listing(request, self)

    def get_search_terms(self, request: MCPRequest) -> Sequence[str]:
        """Return other words for the rows, by which ``list_models`` finds the model: ``search_terms``."""
        return self.search_terms

    # Rows

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return the rows that the caller can know of; reads, writes and actions all start from them.

        By default these are the rows of the default manager.
        """
        return filterable(self.model._default_manager.get_queryset())

    def get_ordering(self, request: MCPRequest) -> Sequence[Any]:
        """Return the order of pages if the caller names none: ``ordering``, otherwise that of the model.

        The primary key is added to it, so that each row has one place.
        """
        return self.ordering or self.opts.ordering or ()

    def get_sortable_by(self, request: MCPRequest) -> Sequence[str] | None:
        """Return the fields, and paths through relations, that the caller can sort by: ``sortable_by``.

        None means every field that the caller can read.
        """
        return self.sortable_by

    def get_list_select_related(self, request: MCPRequest) -> bool | Sequence[str]:
        """Return the relations that pages join for computed columns, True for all; see ``list_select_related``."""
        related: bool | Sequence[str] = self.model_admin.get_list_select_related(request)
        return related

    def get_search_fields(self, request: MCPRequest) -> Sequence[str]:
        """Return the fields and paths that a search looks in, with the admin's prefixes (``^ = @``).

        The search leaves out paths to rows or fields that the caller cannot read.
        """
        return self.search_fields

    def get_search_results(
        self, request: MCPRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return the rows of ``queryset`` that match, as in the admin, and whether there may be duplicates."""
        from django.contrib.admin import ModelAdmin, site

        fields = list(self.get_search_fields(request))
        queryset, visible = self.site.search_paths(request, queryset, fields)
        if not visible:
            return queryset.none(), False
        searcher = ModelAdmin(self.model, site)
        searcher.search_fields = visible  # type: ignore[misc]
        found, may_have_duplicates = searcher.get_search_results(request, queryset, search_term)
        # The search sees no relation behind another name.
        renamed = {*fields} - {*visible}
        return found, may_have_duplicates or any("__" in name for name in renamed)

    def get_filter_fields(self, request: MCPRequest) -> Mapping[str, Sequence[str]] | None:
        """Return the allowed lookups by field or path (``filter_fields``), None for those of the fields' types."""
        return self.filter_fields

    def get_list_filter(self, request: MCPRequest) -> Sequence[Any]:
        """Return what the admin's sidebar filters by (``list_filter``), ``date_hierarchy`` included."""
        return ()

    def lookup_allowed(self, request: MCPRequest, lookup: str, value: str) -> bool:
        """Return whether the caller may filter by this lookup, such as ``customer__country``, with this value."""
        return True

    def get_named_filters(self, request: MCPRequest) -> Sequence[Any]:
        """Return the filters that are code of the project: those of ``filterset_class``."""
        if self.filterset_class is None:
            return []
        return [self.site.filterset_filter(request, self, self.filterset_class)]

    def get_list_per_page(self, request: MCPRequest) -> int:
        """Return how many rows a page has if the caller does not say: ``list_per_page``, otherwise ``PAGE_SIZE``."""
        return self.list_per_page or settings.PAGE_SIZE

    # Permissions

    def has_permission(self, request: MCPRequest, action: str, obj: Model | None = None) -> bool:
        """Return whether the caller has the Django permission for this verb: view, add, change or delete.

        Override it to look at ``obj`` too, as in the admin: it is the row, None for the model as a whole. By default
        every row gives the same answer. The other permission hooks ask this one.
        """
        return bool(request.user.has_perm(f"{self.opts.app_label}.{get_permission_codename(action, self.opts)}"))

    def get_refusal(self, request: MCPRequest) -> str:
        """Return why this caller sees nothing of the model, if that is not for their permissions; "" otherwise."""
        return ""

    def has_view_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the caller may view rows, or this row; who may change it may view it, as in the admin."""
        return self.has_permission(request, "view", obj) or self.has_permission(request, "change", obj)

    def has_add_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may add rows."""
        return self.has_permission(request, "add")

    def has_change_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the caller may change rows, or this row."""
        return self.has_permission(request, "change", obj)

    def has_delete_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the caller may delete rows, or this row."""
        return self.has_permission(request, "delete", obj)

    def has_export_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller, who may view rows, may take them away as a file: if no ``ModelAdmin`` says no."""
        own = getattr(self.model_admin, "has_export_permission", None)
        return own is None or bool(own(request))

    # Writes

    def get_form(self, request: MCPRequest, obj: Model | None = None, change: bool = False) -> type[ModelForm[Any]]:
        """Return the class of the form that validates and saves a row; ``change`` is False for a new one.

        It has the fields that the caller can read and that are not read-only, of those of ``form`` if one is set.
        """
        closed = set(self.get_readonly_fields(request, obj))
        kind = self.form or ModelForm
        own = kind._meta.fields if self.form is not None else None
        writable = [
            field.name
            for field in (*self.opts.concrete_fields, *self.opts.many_to_many)
            if field.editable
            and field.name in self.get_fields(request, obj)
            and field.name not in closed
            and (own is None or field.name in own)
        ]
        return modelform_factory(self.model, form=kind, fields=writable)

    def get_prepopulated_fields(self, request: MCPRequest) -> Mapping[str, Sequence[str]]:
        """Return the fields of a new row that are filled in from others, by name, as in ``ModelAdmin``."""
        fields: Mapping[str, Sequence[str]] = self.model_admin.get_prepopulated_fields(request)
        return fields

    def get_changeform_initial_data(self, request: MCPRequest) -> dict[str, Any]:
        """Return the initial data of the form of a new row."""
        initial: dict[str, Any] = self.model_admin.get_changeform_initial_data(request)
        return initial

    @cached_property
    def model_admin(self) -> Any:
        """The ``ModelAdmin`` whose forms, inlines and hooks are used: Django's own, with the exposure's ``inlines``."""
        from django.contrib.admin import ModelAdmin, site

        made: Any = ModelAdmin(self.model, self.site.admin_site or site)
        made.inlines = list(self.inlines or ())
        return made

    def get_inlines(self, request: MCPRequest, obj: Model | None = None) -> list[Any]:
        """Return the inlines that the caller can see on the page of this row, like ``get_inline_instances``.

        ``obj`` is None for the page of a new row.
        """
        admin = self.model_admin
        if is_djangos(type(admin).get_formsets_with_inlines):
            found = admin.get_inline_instances(request, obj)
        else:
            arguments = () if obj is None else (obj,)
            found = [inline for _, inline in admin.get_formsets_with_inlines(request, *arguments)]
        return [inline for inline in found if self.options.shows_inline(inline)]

    def save_form(self, request: MCPRequest, form: Any, change: bool) -> Model:
        """Return the row of a valid form, not saved yet, like ``ModelAdmin.save_form``."""
        saved: Model = self.model_admin.save_form(request, form, change)
        return saved

    def save_model(self, request: MCPRequest, obj: Model, form: Any, change: bool) -> None:
        """Save the row of a valid form, like ``ModelAdmin.save_model``; ``change`` is False for a new row."""
        # Forms do not validate that a composite primary key is new, and save() would overwrite the row that has it.
        obj.save(force_insert=not change and self.opts.is_composite_pk)

    def save_related(self, request: MCPRequest, form: Any, formsets: Sequence[Any], change: bool) -> None:
        """Save many-to-many values and the rows of inlines, after the row itself, like ``ModelAdmin.save_related``."""
        self.model_admin.save_related(request, form, formsets, change)

    def get_deleted_objects(self, objs: Sequence[Model], request: MCPRequest) -> tuple[Any, ...]:
        """Return what a deletion of these rows deletes too, what the caller may not delete, and what protects them.

        The tuple is that of ``ModelAdmin.get_deleted_objects``.
        """
        return get_deleted_objects(list(objs), request, DeletionSite(self.site))  # type: ignore[arg-type]

    def delete_model(self, request: MCPRequest, obj: Model) -> None:
        """Delete a row, like ``ModelAdmin.delete_model``."""
        self.model_admin.delete_model(request, obj)

    def delete_queryset(self, request: MCPRequest, queryset: QuerySet[Any]) -> None:
        """Delete rows, like ``ModelAdmin.delete_queryset``: without a call of the model's ``delete()`` for each."""
        self.model_admin.delete_queryset(request, queryset)

    # History

    def construct_change_message(
        self, request: MCPRequest, form: Any, formsets: Sequence[Any], add: bool = False
    ) -> Any:
        """Return the message in the row's history for a saved form and its inlines; ``add`` says that it is new."""
        return self.model_admin.construct_change_message(request, form, formsets, add)

    def log_addition(self, request: MCPRequest, obj: Model, message: Any) -> Any:
        """Write to the row's history that it was added."""
        return self.model_admin.log_addition(request, obj, message)

    def log_change(self, request: MCPRequest, obj: Model, message: Any) -> Any:
        """Write to the row's history that it was changed."""
        return self.model_admin.log_change(request, obj, message)

    def log_deletions(self, request: MCPRequest, objs: Sequence[Model]) -> Any:
        """Write to the rows' history that they will be deleted."""
        return self.model_admin.log_deletions(request, objs)

    # Actions

    def get_actions(self, request: MCPRequest) -> Mapping[str, Action]:
        """Return the actions that this caller can run, by name."""
        if not self.actions:
            return {}
        from .declared_actions import FunctionAction

        found: dict[str, Action] = {}
        for name in self.actions:
            action = FunctionAction(self, name)
            if action.has_permission(request):
                found[name] = action
        return found


@dataclass
class Listing:
    """What is computed for the rows of one request, and how their list is narrowed; see ``get_listing``."""

    request: MCPRequest
    exposure: Any

    def functions(self) -> Mapping[str, Callable[[Any], Any]]:
        """Return the functions that compute columns for this request only, by the name of the column."""
        return {}

    def prepared(self, rows: Sequence[Model]) -> Sequence[Model]:
        """Return the rows of a page, prepared for the code that computes their columns."""
        return rows

    def shows_nothing(self, name: str, row: Any, error: Exception) -> bool:
        """Return whether a computed column that failed with ``error`` is shown as empty, rather than as failed."""
        return False

    def fills_column(self, name: str) -> bool:
        """Return whether a page of the project may fill a computed column, by code that a call does not run."""
        return False

    def opening_filters(self) -> Sequence[Any]:
        """Return the filters that narrow the list while the caller chooses nothing."""
        return ()

    def narrows_without_search(self) -> bool:
        """Return whether the search narrows the list even without a search term."""
        return False


class ReadOnlyExposure(ModelExposure):
    """Base class for models whose rows nobody can add, change or delete."""

    def has_add_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return False."""
        return False

    has_change_permission = has_add_permission
    has_delete_permission = has_add_permission


class InlineExposure(ModelExposure):
    """The ``ModelExposure`` of a model as other models' pages show it; it makes the columns of its rows there.

    The page that the rows belong to decides who can see which.

    One exposure serves all pages, and its ``inline`` is that of the first page. Each row has the inline of its own
    page, which may hold the caller's request, as ``mcp_inline``.
    """

    def __init__(self, model: type[Model], site: Any, inline: Any) -> None:
        super().__init__(model, site)
        self.inline = inline
        self.declared: Sequence[str] | None = None

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return the function or method of the inline that computes the column, None if the model has the column."""
        if any(name == field.name for field in self.opts.get_fields()):
            return None
        named = [item for item in self.inline.readonly_fields if callable(item) and item.__name__ == name]
        if named:
            return named[0]
        method = getattr(self.inline, name, None)
        if callable(method):
            return update_wrapper(lambda row: getattr(row.mcp_inline, name)(row), method)
        return None


class DeletionSite:
    """Stands in for the ``AdminSite`` in ``ModelExposure.get_deleted_objects``: it asks the exposure of each model, or
    the admin for models that are not exposed."""

    def __init__(self, site: Any) -> None:
        from django.contrib import admin

        self.exposures = site.exposures
        self.admin_site = site.admin_site or admin.site
        self.name = self.admin_site.name

    def is_registered(self, model: type[Model]) -> bool:
        return model in self.exposures or self.admin_site.is_registered(model)

    def get_model_admin(self, model: type[Model]) -> Any:
        if model in self.exposures:
            return self.exposures[model]
        return self.admin_site.get_model_admin(model)

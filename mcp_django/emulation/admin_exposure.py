"""``AdminExposure``: expose a model by its ``ModelAdmin``, so that callers get what the admin shows and allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, Final

from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model, QuerySet
from django.forms import ModelForm

from ..context.admin_page import OwnPlace
from ..exposures.model_exposure import (
    ExposureOptions,
    Listing,
    ModelExposure,
    is_djangos,
)
from ..exposures.querysets import filterable, gives_every_row
from ..runtime.failing_hooks import call_hook
from ..schema.secrets import is_withheld
from .own_code import asks_where

if TYPE_CHECKING:
    from ..context.request import MCPRequest
    from ..exposures.declared_actions import Action
    from ..orm.named_filters import NamedFilter
    from .list_filters import Sidebar
    from .row_buttons import RowButton


# Unless one of these is overridden, the columns are the same for every caller and are computed once.
COLUMN_HOOKS: Final = (*ExposureOptions.FIELD_HOOKS, "get_form", "get_list_display")
COLUMN_OPTIONS: Final = ("fields", "fieldsets", "exclude", "form", "readonly_fields")
# Of these hooks, those that can only take a field from the form, which has no field that is not editable.
FORM_COLUMN_HOOKS: Final = ("get_exclude", "get_form")
# How the log names the hooks that decide what a page shows.
PAGE: Final = "The change page"
NOT_ADMITTED: Final = (
    "The admin of this server does not let this user in through this client, so none of it is shown. If it asks for a "
    "second factor, this access was granted without one: the user has to sign in to the site with the second factor, "
    "and then connect this client again."
)


def _is_fixed(field: Any) -> bool:
    """Return whether a model's field has the same form field in each call: it is Django's, without computed choices."""
    choices = getattr(field, "choices", None)
    return is_djangos(type(field)) and (choices is None or isinstance(choices, (list, tuple)))


class AdminOptions(ExposureOptions):
    """The options of an admin exposure: the declarations of its ``ModelAdmin`` for every caller."""

    exposure: AdminExposure
    # In the admin, an inline does not use the queryset of its model's own ModelAdmin.
    narrows_inlines = False

    def __init__(self, exposure: AdminExposure) -> None:
        super().__init__(exposure)
        self._closed: dict[ModelAdmin[Any], AdminExposure] = {}

    @cached_property
    def admin_site(self) -> AdminSite:
        return self.exposure.model_admin.admin_site

    @cached_property
    def has_allow_list(self) -> bool:
        """Whether the admin exposure's ``fields`` alone decide what callers can read, rather than the admin's pages."""
        return self.exposure.fields is not None

    def declares_field(self, name: str) -> bool:
        """Return whether the admin exposure or its ``ModelAdmin`` names the field."""
        admin = self.exposure.model_admin
        named = bool(admin.fields or admin.fieldsets or name in admin.list_display)
        return named or super().declares_field(name)

    @cached_property
    def has_own_columns(self) -> bool:
        """Whether the admin exposure's ``ModelAdmin`` overrides a hook that can choose the columns by caller."""
        exposure = self.exposure
        admin = self.exposure.model_admin
        return (
            exposure.overrides(*COLUMN_HOOKS)
            or (not (admin.fields or admin.fieldsets) and exposure.overrides(*ExposureOptions.FORM_HOOKS))
            or self._has_own_options
        )

    @cached_property
    def _has_own_options(self) -> bool:
        admin = type(self.exposure.model_admin)
        return any(isinstance(getattr(admin, name, None), property) for name in COLUMN_OPTIONS)

    @cached_property
    def has_fixed_form(self) -> bool:
        """Whether the admin exposure's pages have one form class for all calls: no code of the project makes it, nor
        the choices and rows that its fields offer."""
        exposure = self.exposure
        admin = self.exposure.model_admin
        fields = [
            field
            for field in (*exposure.opts.get_fields(), *exposure.opts.private_fields)
            if hasattr(field, "formfield")
        ]
        related = {field.related_model for field in fields if field.related_model is not None}
        sources = [self.admin_site._registry.get(model) for model in related]
        return (
            admin.form is ModelForm
            and not self.has_own_columns
            and not exposure.overrides(*ExposureOptions.FORM_HOOKS, "get_field_queryset")
            and all(map(_is_fixed, fields))
            and all(map(gives_every_row, related))
            and all(is_djangos(source.get_ordering) for source in sources if source is not None)
        )

    @cached_property
    def has_own_pages(self) -> bool:
        hooks = ("get_fields", "get_readonly_fields", "get_form", "has_change_permission")
        return self.has_own_columns or not self._is_stock(*hooks, owner=AdminExposure)

    def may_take(self, field: Any) -> bool:
        """Return whether a hook of the exposure or of its ``ModelAdmin`` could take the field from some callers."""
        exposure = self.exposure
        if not self._is_stock("get_fields", owner=AdminExposure):
            return super().may_take(field)
        if exposure.fields is not None or not self.has_own_columns:
            return False
        others = [hook for hook in COLUMN_HOOKS if hook not in FORM_COLUMN_HOOKS]
        return getattr(field, "editable", False) or self._has_own_options or exposure.overrides(*others)

    def form_only_fields(self, request: MCPRequest, obj: Model | None) -> Sequence[str]:
        """Return the admin exposure's form fields that the pages of its ``ModelAdmin`` do not show to read."""
        exposure = self.exposure
        if exposure.fields is not None or exposure.form is not None:
            return super().form_only_fields(request, obj)
        closed = {*exposure.exclude, *exposure.get_readonly_fields(request, obj), *exposure.get_fields(request, obj)}
        names = (name for name in exposure.page_fields(request, obj) if isinstance(name, str) and name not in closed)
        return [name for name in names if not is_withheld(name, exposure.model)]

    @cached_property
    def has_stable_queryset(self) -> bool:
        exposure = self.exposure
        if exposure.stable_queryset is not None:
            return exposure.stable_queryset
        own = self._is_stock("get_queryset", owner=AdminExposure) and not exposure.overrides("get_queryset")
        return own and gives_every_row(exposure.model)

    @cached_property
    def asks_where(self) -> bool:
        return asks_where(self.exposure.model_admin, self.admin_site, *self.inlines)

    @cached_property
    def permits_by_place(self) -> bool:
        return asks_where(self.exposure.model_admin, self.admin_site, permissions=True)

    @cached_property
    def permissions(self) -> Mapping[str, tuple[str, ...]]:
        """Return the Django permissions of the admin exposure, unless its ``ModelAdmin`` overrides the hook."""
        found = self._permissions(AdminExposure)
        return {deed: names for deed, names in found.items() if not self.exposure.overrides(f"has_{deed}_permission")}

    @cached_property
    def has_code_filters(self) -> bool:
        """Whether the admin exposure's ``ModelAdmin`` has sidebar filters that are code."""
        from .list_filters import has_code

        return self.exposure.overrides("get_list_filter") or any(map(has_code, self.exposure.model_admin.list_filter))

    def search_fields(self, request: MCPRequest) -> Sequence[str]:
        return self.exposure.search_fields or self.exposure.ask("get_search_fields", request, ())

    def has_search(self, request: MCPRequest) -> bool:
        """Return whether the admin exposure has a search: by ``search_fields``, or its ``ModelAdmin``'s own."""
        return self.exposure.overrides("get_search_results") or super().has_search(request)

    def closed_exposure(self, model: type[Model]) -> ModelExposure | None:
        site = self.exposure.site
        known = self.admin_site._registry.get(model)
        if known is None or model in site.exposures or not site.is_candidate(model, known, closed=True):
            return None
        return self._closed.get(known) or self._closed.setdefault(known, AdminExposure(model, site, known))

    @cached_property
    def has_admin_actions(self) -> bool:
        """Whether the admin exposure has actions of its ``ModelAdmin`` or admin site other than ``delete_selected``."""
        everywhere = (name for name, _ in self.admin_site.actions if name != "delete_selected")
        declared = bool(self.exposure.model_admin.actions) or self.exposure.overrides("get_actions")
        return declared or any(everywhere) or bool(self.buttons)

    @cached_property
    def buttons(self) -> Sequence[RowButton]:
        """The buttons that packages add to the admin exposure's change page, which are actions on rows."""
        from .row_buttons import row_buttons

        return call_hook(self.exposure.label, "Buttons", lambda: [*row_buttons(self.exposure.model_admin)], default=[])

    def action_names(self) -> list[str]:
        """Return the names of the admin exposure's actions: its own and those of its ``ModelAdmin``."""
        base: Any = self.exposure.model_admin
        declared = (AdminExposure.action_parts(action)[1] for action in base._get_base_actions())
        own = (name for name in declared if name != "delete_selected")
        return list(dict.fromkeys([*super().action_names(), *own, *(button.name for button in self.buttons)]))


class AdminListing(Listing):
    """The listing of an admin exposure: the changelist, sidebar and search that its ``ModelAdmin`` overrides."""

    exposure: AdminExposure

    def functions(self) -> Mapping[str, Callable[[Any], Any]]:
        """Return the admin exposure's functions in ``get_list_display`` for this request, by name."""
        if not self.exposure.overrides("get_list_display"):
            return {}
        declared = self.exposure.model_admin.list_display
        shown = self.exposure.ask("get_list_display", self.request, ())
        return {item.__name__: item for item in shown if callable(item) and item not in declared}

    def prepared(self, rows: Sequence[Model]) -> Sequence[Model]:
        """Return the rows of an admin exposure as the overridden changelist of its ``ModelAdmin`` prepares them."""
        if not self.exposure.overrides("get_changelist", "get_changelist_instance"):
            return rows
        sidebar = self.exposure.sidebar(self.request)
        return call_hook(self.exposure.label, "get_changelist_instance", sidebar.listed, rows, default=rows)

    def shows_nothing(self, name: str, row: Any, error: Exception) -> bool:
        """Return whether the admin exposure shows a read-only field that fails as empty, as the admin does."""
        return isinstance(error, (AttributeError, ValueError)) and name in call_hook(
            self.exposure.label, "get_readonly_fields", self.exposure.get_readonly_fields, self.request, row, default=()
        )

    def fills_column(self, name: str) -> bool:
        """Return whether a column of the ``ModelAdmin`` may need what its own ``changelist_view`` keeps for it."""
        return hasattr(type(self.exposure.model_admin), name) and self.exposure.overrides("changelist_view")

    def opening_filters(self) -> Sequence[NamedFilter]:
        """Return the admin exposure's sidebar filters that narrow the list when the list is opened."""
        if not self.exposure.options.has_code_filters:
            return ()
        return [item for item in self.exposure.sidebar(self.request).filters() if item.narrows_by_itself()]

    def narrows_without_search(self) -> bool:
        """Return whether the ``ModelAdmin``'s own search narrows the list without a search term."""
        exposure = self.exposure
        if not exposure.searches_itself(self.request):
            return False
        rows = exposure.get_queryset(self.request)
        hook = exposure.model_admin.get_search_results
        found, _ = call_hook(exposure.label, "get_search_results", hook, self.request, rows, "", default=(rows, False))
        query: Any = found.query
        return query.where != rows.query.where or bool(query.combinator) or query.is_sliced


class AdminExposure(ModelExposure):
    """The admin exposure of a model by its ``ModelAdmin``: callers see and do what they can in the admin.

    Subclasses refine it by their attributes.

    Callers need the permissions that the admin requires: ``AdminSite.has_permission`` (an active staff member) and the
    ``has_*_permission`` methods of the ``ModelAdmin``.
    """

    model_admin: ModelAdmin[Any]
    options: AdminOptions
    _options_class = AdminOptions

    def __init__(self, model: type[Model], site: Any, model_admin: ModelAdmin[Any]) -> None:
        super().__init__(model, site)
        self.model_admin = model_admin
        self.permission_owners = (self, model_admin)
        self.admin_site_name = model_admin.admin_site.name
        self.search_terms = self.search_terms or getattr(model_admin, "mcp_search_terms", ())
        self.undo = self.undo and getattr(model_admin, "mcp_undo", True)
        self.dry_run = self.dry_run and getattr(model_admin, "mcp_dry_run", True)
        self.confirm = self.confirm or getattr(model_admin, "mcp_confirm", None)
        self.approval = self.approval or getattr(model_admin, "mcp_approval", None)
        self._fixed_fields: dict[Any, Any] = {}
        self._kept_forms: dict[Any, type[ModelForm[Any]]] = {}

    def overrides(self, *hooks: str) -> bool:
        """Return whether the admin exposure's ``ModelAdmin`` overrides one of these hooks of Django."""
        admin = self.model_admin
        return any(
            getattr(type(admin), hook, None) is not getattr(ModelAdmin, hook, None) or hook in vars(admin)
            for hook in hooks
        )

    def ask(self, hook: str, request: MCPRequest, default: Any) -> Any:
        """Call a hook of the admin exposure's ``ModelAdmin`` with the request; ``default`` where it fails."""
        return call_hook(self.label, hook, getattr(self.model_admin, hook), request, default=default)

    # Columns

    def get_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the admin exposure's fields: columns of the list, then the page's fields without sensitive ones.

        Without a row, the change page of an empty row decides, not the add page: rows that are read exist already.
        """
        if self.fields is not None:
            return self.options.fields
        if not self.options.has_own_columns:
            if "_columns" not in self.__dict__:
                page = call_hook(self.label, PAGE, self._read_names, request, None, default=None)
                if page is None:
                    return self._shown(request, ())
                self._columns = self._shown(request, page)
            return self._columns
        if obj is None:
            return self._shown(request, self._names_of_any_row(request))
        none: list[str] = []
        return self._shown(request, call_hook(self.label, PAGE, self._read_names, request, obj, default=none))

    def _shown(self, request: MCPRequest, page: Iterable[str]) -> tuple[str, ...]:
        excluded = self.exclude
        names = [name for name in (*self._list_names(request), *page) if name not in excluded]
        return self.options.with_primary_key([name for name in names if not is_withheld(name, self.model)])

    def _names_of_any_row(self, request: MCPRequest) -> list[str]:
        """Return the admin exposure's fields on the page of an empty row, or those that all sample rows show."""
        from ..orm.access import access_of

        none: list[str] = []
        pages: list[list[str]] = []
        for number, row in enumerate(access_of(request)[self].sample_rows()):
            # Do not log hooks that fail for an empty row: it lacks what they rely on.
            names = call_hook(self.label if number else "", PAGE, self._read_names, request, row, default=none)
            if names and not number:
                return names
            pages += [names] if number else []
        if pages:
            return [name for name in pages[0] if all(name in page for page in pages)]
        return none

    def _read_names(self, request: MCPRequest, obj: Model | None) -> list[str]:
        """Return the readable fields on the ``ModelAdmin``'s page of a row, without form-only fields."""
        owners = self.model, self.model_admin
        shown = (name for name in self.page_fields(request, obj) if isinstance(name, str))
        return [
            name
            for name in shown
            if name in self.options.model_fields
            or any(getattr_static(owner, name, None) is not None for owner in owners)
        ]

    def page_fields(self, request: MCPRequest, obj: Model | None) -> Sequence[Any]:
        """Return the fields in the fieldsets of the ``ModelAdmin``, the same while one page is shown."""
        kept: Any
        key: Any
        if self.options.has_own_columns:
            # The cache keeps the row too, so that no other object can get the same id().
            kept = request.page_fields
            key = (self, id(obj))
            row = obj
        else:
            kept = self._fixed_fields
            key = obj is None
            row = None
        found: Any = kept.get(key) if kept is not None else None
        if found is None:
            found = row, flatten_fieldsets(self.model_admin.get_fieldsets(request, obj))
            if kept is not None:
                kept[key] = found
        fields: Sequence[Any] = found[1]
        return fields

    def _list_names(self, request: MCPRequest) -> list[str]:
        shown = self.ask("get_list_display", request, ())
        names = []
        for item in shown:
            names.append(item if isinstance(item, str) else item.__name__)
        return [name for name in names if name not in ("__str__", "action_checkbox")]

    def get_list_display(self, request: MCPRequest) -> Sequence[str]:
        """Return the admin exposure's ``list_display``; the fields of the model where that is only ``__str__``."""
        allowed = set(self.get_fields(request))
        names = self.list_display or self._list_names(request)
        if not names:
            return super().get_list_display(request)
        return self.options.with_primary_key([name for name in names if name in allowed])

    def get_listing(self, request: MCPRequest) -> Listing:
        """Return the ``AdminListing`` of this request."""
        return AdminListing(request, self)

    def sidebar(self, request: MCPRequest) -> Sidebar:
        from ..orm.access import access_of
        from .list_filters import Sidebar

        return Sidebar(access_of(request)[self])

    def get_readonly_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        return [str(name) for name in (*self.readonly_fields, *self.model_admin.get_readonly_fields(request, obj))]

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return the admin exposure's function for a column: a ``ModelAdmin``'s method, or one in ``list_display``."""
        try:
            field: Any = self.opts.get_field(name)
        except FieldDoesNotExist:
            field = None
        # As in the admin's list, a method takes precedence over a reverse or generic foreign key of the same name.
        if field is not None and not field.one_to_many and (field.concrete or field.related_model is not None):
            return None
        for item in (*self.model_admin.list_display, *self.model_admin.readonly_fields):
            if callable(item) and item.__name__ == name:
                return item
        method = getattr(self.model_admin, name, None)
        if callable(method):
            return method
        return super().get_computed(name)

    # Rows

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return the admin exposure's rows for this caller, from ``get_queryset`` of its ``ModelAdmin``."""
        if self.options.asks_where and not request.is_at_page:
            with OwnPlace(request):
                request.go_to(self, "changelist")
                return filterable(self.model_admin.get_queryset(request))
        return filterable(self.model_admin.get_queryset(request))

    def get_ordering(self, request: MCPRequest) -> Sequence[Any]:
        """Return the order of the admin's list."""
        return self.ordering or self.ask("get_ordering", request, ()) or super().get_ordering(request)

    def get_list_filter(self, request: MCPRequest) -> Sequence[Any]:
        """Return the ``ModelAdmin``'s ``list_filter`` and its ``date_hierarchy``."""
        found = self.ask("get_list_filter", request, ())
        return [*found, self.model_admin.date_hierarchy]

    def get_sortable_by(self, request: MCPRequest) -> Sequence[str] | None:
        """Return the admin exposure's ``sortable_by``, None where the ``ModelAdmin`` does not narrow the ordering."""
        admin = self.model_admin
        narrowed = admin.sortable_by is not None or self.overrides("get_sortable_by")
        if self.sortable_by is not None or not narrowed:
            return self.sortable_by
        found = self.ask("get_sortable_by", request, ()) or ()
        names = []
        for item in found:
            names.append(item if isinstance(item, str) else item.__name__)
        return names

    def lookup_allowed(self, request: MCPRequest, lookup: str, value: str) -> bool:
        """Return the verdict of the ``ModelAdmin``'s own ``lookup_allowed``, if no filters are declared."""
        if not self.overrides("lookup_allowed") or self.get_filter_fields(request) is not None:
            return True
        return self.sidebar(request).allows(lookup, value)

    def get_named_filters(self, request: MCPRequest) -> Sequence[NamedFilter]:
        """Return the admin exposure's filters that are code: of the admin's sidebar, and of ``filterset_class``."""
        return [*super().get_named_filters(request), *self.sidebar(request).filters()]

    def get_search_fields(self, request: MCPRequest) -> Sequence[str]:
        """Return the admin exposure's ``search_fields`` without those that are hidden from the caller."""
        from ..orm.access import access_of
        from ..orm.search import TextSearch

        names = self.options.search_fields(request)
        if self.search_fields:
            return names
        search = TextSearch(access_of(request)[self])
        return [name for name in names if search.looks_into(name)]

    def searches_itself(self, request: MCPRequest) -> bool:
        """Return whether the admin exposure calls the ``ModelAdmin``'s own search, which looks into no hidden field."""
        if self.search_fields or not self.overrides("get_search_results"):
            return False
        from ..orm.access import access_of
        from ..orm.search import TextSearch

        search = TextSearch(access_of(request)[self])
        return not any(map(search.hides, self.options.search_fields(request)))

    def get_search_results(
        self, request: MCPRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search the admin exposure as its ``ModelAdmin`` does, but not in fields that are hidden from the caller."""
        if self.searches_itself(request):
            return self.model_admin.get_search_results(request, queryset, search_term)
        return super().get_search_results(request, queryset, search_term)

    # Permissions

    def has_permission(self, request: MCPRequest, action: str, obj: Model | None = None) -> bool:
        """Return the verdict of the admin exposure's ``ModelAdmin``, False for callers outside its admin site."""
        from ..orm.access import access_of

        model = access_of(request)[self]
        if not model.is_admitted:
            return False
        verdict = model.stock_verdict(action)
        if verdict is not None:
            return verdict
        hook = f"has_{action}_permission"
        about = (request,) if action == "add" else (request, obj)
        leaves = self.options.permits_by_place and not request.is_at_page
        with OwnPlace(request) if leaves else nullcontext():
            if leaves:
                request.go_to(self, "changelist")
            return bool(call_hook(self.label, hook, getattr(self.model_admin, hook), *about, default=False))

    def get_refusal(self, request: MCPRequest) -> str:
        """Return why the admin exposure refuses a staff member: the admin site does not admit them."""
        user: Any = request.user
        is_staff = user.is_active and getattr(user, "is_staff", False)
        from ..orm.access import access_of
        from ..signin import SignIn

        if not is_staff or access_of(request).admits(self.model_admin.admin_site):
            return ""
        if SignIn(request).would_admit(self.model_admin.admin_site):
            return NOT_ADMITTED
        return ""

    def has_view_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the admin exposure's ``ModelAdmin`` lets the caller view the list, or the row."""
        return self.has_permission(request, "view", obj)

    # Writes

    def get_form(self, request: MCPRequest, obj: Model | None = None, change: bool = False) -> type[ModelForm[Any]]:
        """Return the admin exposure's form: its ``ModelAdmin``'s, with the fields of the page or of the exposure."""
        if self.form is not None:
            return super().get_form(request, obj, change)
        named = self.fields is not None
        names = [*super().get_form(request, obj, change).base_fields] if named else self.page_fields(request, obj)
        if named or not self.options.has_fixed_form:
            return self.model_admin.get_form(request, obj, change=change, fields=names)
        # Without the permission to change the row, the form has no fields.
        key = change, not change or self.model_admin.has_change_permission(request, obj), tuple(names)
        kept = self._kept_forms.get(key)
        if kept is None:
            kept = self._kept_forms[key] = self.model_admin.get_form(request, obj, change=change, fields=names)
            # The callback holds the request, which must not outlive the call.
            kept._meta.formfield_callback = None
        return kept

    def save_model(self, request: MCPRequest, obj: Model, form: Any, change: bool) -> None:
        """Save as the admin does."""
        self.model_admin.save_model(request, obj, form, change)

    def get_deleted_objects(self, objs: Sequence[Model], request: MCPRequest) -> tuple[Any, ...]:
        """Return what the admin's deletion page shows."""
        return self.model_admin.get_deleted_objects(objs, request)

    # Actions

    def get_actions(self, request: MCPRequest) -> Mapping[str, Action]:
        """Return the admin exposure's actions that this caller can run: the ``ModelAdmin``'s, and its own."""
        found = dict(super().get_actions(request)) if self.actions else {}
        if not self.options.has_admin_actions:
            return found
        from ..orm.access import access_of
        from .admin_actions import AdminAction, takes_selection

        admin: Any = self.model_admin
        model = access_of(request)[self]
        if not model.is_admitted:
            return found

        verdicts = {deed: model.stock_verdict(deed) for deed in self.options.permissions}

        def grants(permission: str) -> bool:
            verdict = verdicts.get(permission)
            if verdict is None:
                return bool(getattr(admin, f"has_{permission}_permission")(request))
            return verdict

        if (
            self.overrides("get_actions", "_get_base_actions", "_filter_actions_by_permissions")
            or model.access.known is None
        ):
            offered = [AdminExposure.action_parts(action) for action in admin.get_actions(request).values()]
        else:
            # The result of ModelAdmin.get_actions(), without checking known permissions again.
            declared = map(AdminExposure.action_parts, admin._get_base_actions() if admin.actions is not None else ())
            asked_for = ((action, getattr(action[0], "allowed_permissions", None)) for action in declared)
            offered = [action for action, names in asked_for if names is None or any(map(grants, names))]
        for function, name, description in offered:
            # delete_record deletes rows: it uses the same collector as the admin.
            if name != "delete_selected" and takes_selection(function):
                found.setdefault(name, AdminAction(self, name, function, str(description)))

        for button in self.options.buttons:
            found.setdefault(button.name, AdminAction(self, button.name, button.function, button.description))

        def may_run(action: Action) -> bool:
            known = [verdicts.get(permission) for permission in action.permissions]
            if None in known:
                return action.has_permission(request)
            return any(known)

        return {name: action for name, action in found.items() if may_run(action)}

    @staticmethod
    def action_parts(action: Any) -> tuple[Callable[..., Any], str, str]:
        """Take apart an action of the admin (an object since Django 6.1): function, name and description."""
        if hasattr(action, "func"):
            return action.func, action.name, action.plural_description
        function, name, description = action
        return function, name, description

"""``AdminExposure``: a ``ModelAdmin`` speaks for its model; what the admin shows and allows is what callers get."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model, QuerySet
from django.forms import ModelForm

from .context import MCPRequest
from .exposures import ModelExposure
from .lookups import resolve_path
from .managers import filterable
from .namedfilters import NamedFilter
from .sensitive import is_sensitive
from .tools.actions import Action, AdminAction, takes_selection
from .tools.adminfilters import admin_filters, allows

if TYPE_CHECKING:
    from .sites import MCPSite

__all__ = ["AdminExposure"]


class AdminExposure(ModelExposure):
    """The exposure that a ``ModelAdmin`` describes. Attributes set on a subclass refine it.

    Callers need what the admin asks for: ``AdminSite.has_permission`` (an active member of the staff) and the
    ``has_*_permission`` of the ``ModelAdmin``.
    """

    model_admin: "ModelAdmin[Any]"
    # While none of these is overridden, the columns are the same for every caller and are worked out once.
    column_hooks: ClassVar[tuple[str, ...]] = (
        "get_fields",
        "get_fieldsets",
        "get_form",
        "get_exclude",
        "get_readonly_fields",
        "get_list_display",
    )

    def __init__(self, model: type[Model], site: "MCPSite", model_admin: "ModelAdmin[Any]") -> None:
        super().__init__(model, site)
        self.model_admin = model_admin

    def overrides(self, *hooks: str) -> bool:
        """Return whether the ``ModelAdmin`` replaces one of these methods of Django's class."""
        return any(getattr(type(self.model_admin), hook) is not getattr(ModelAdmin, hook) for hook in hooks)

    @cached_property
    def has_own_columns(self) -> bool:
        """Whether the ``ModelAdmin`` works out the columns for each caller."""
        return self.overrides(*self.column_hooks)

    # Columns

    def get_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the list's columns, then what the change page shows; sensitive fields are left out."""
        if self.fields is not None:
            return self.default_fields
        if self.has_own_columns:
            return self._shown(request, obj)
        if "_columns" not in self.__dict__:
            self._columns = self._shown(request, None)
        return self._columns

    def _shown(self, request: MCPRequest, obj: Model | None) -> tuple[str, ...]:
        admin = self.model_admin
        names = [*self._list_names(request), *filter(self._is_read, self._page_names(request, obj))]
        names += admin.get_readonly_fields(request, obj)
        shown = (name for name in names if isinstance(name, str) and name not in self.exclude)
        return self.with_primary_key(name for name in shown if not is_sensitive(name, self.model))

    def _page_names(self, request: MCPRequest, obj: Model | None) -> list[str]:
        names = flatten_fieldsets(self.model_admin.get_fieldsets(request, obj))
        return [name for name in names if isinstance(name, str)]

    def _is_read(self, name: str) -> bool:
        """Whether a name of the change page is more than a field of its form."""
        known = {field.name for field in self.opts.get_fields()}
        found = (getattr_static(owner, name, None) for owner in (self.model, self.model_admin))
        return name in known or any(item is not None for item in found)

    def get_form_only_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """Return the fields of the admin's form that the model knows nothing of."""
        if self.fields is not None or self.form is not None:
            return ()
        closed = {*self.exclude, *self.get_readonly_fields(request, obj)}
        names = (name for name in self._page_names(request, obj) if name not in closed and not self._is_read(name))
        return [name for name in names if not is_sensitive(name, self.model)]

    def _list_names(self, request: MCPRequest) -> list[str]:
        names = [
            item if isinstance(item, str) else item.__name__ for item in self.model_admin.get_list_display(request)
        ]
        return [name for name in names if name not in ("__str__", "action_checkbox")]

    def get_list_display(self, request: MCPRequest) -> Sequence[str]:
        """Return the columns of the admin's list; where it is only ``__str__``, the fields of the model."""
        allowed = set(self.get_fields(request))
        names = self.list_display or self._list_names(request)
        return (
            self.with_primary_key(name for name in names if name in allowed)
            if names
            else super().get_list_display(request)
        )

    def get_readonly_fields(self, request: MCPRequest, obj: Model | None = None) -> Sequence[str]:
        """See :meth:`ModelExposure.get_readonly_fields`."""
        return [str(name) for name in (*self.readonly_fields, *self.model_admin.get_readonly_fields(request, obj))]

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return the method of the ``ModelAdmin``, or the function in ``list_display``, that makes the column."""
        try:
            field: Any = self.opts.get_field(name)
        except FieldDoesNotExist:
            field = None
        # A method comes before a relation of many rows, and before a generic one, as in the admin's list.
        if field is not None and not field.one_to_many and (field.concrete or field.related_model is not None):
            return None
        for item in (*self.model_admin.list_display, *self.model_admin.readonly_fields):
            if callable(item) and item.__name__ == name:
                return item
        method = getattr(self.model_admin, name, None)
        return method if callable(method) else super().get_computed(name)

    # Rows

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return the rows of the admin's list for this caller."""
        return filterable(self.model_admin.get_queryset(request))

    @cached_property
    def has_stable_queryset(self) -> bool:
        """See :attr:`ModelExposure.has_stable_queryset`."""
        if self.stable_queryset is not None:
            return self.stable_queryset
        own = type(self).get_queryset is AdminExposure.get_queryset and not self.overrides("get_queryset")
        return own and self.has_plain_manager

    def get_ordering(self, request: MCPRequest) -> Sequence[Any]:
        """Return the order of the admin's list."""
        return self.ordering or self.model_admin.get_ordering(request) or super().get_ordering(request)

    def get_sortable_by(self, request: MCPRequest) -> Sequence[str] | None:
        """Return the ``sortable_by`` of the admin, None where it does not narrow what may be sorted by."""
        admin = self.model_admin
        narrowed = admin.sortable_by is not None or self.overrides("get_sortable_by")
        if self.sortable_by is not None or not narrowed:
            return self.sortable_by
        return [item if isinstance(item, str) else item.__name__ for item in admin.get_sortable_by(request) or ()]

    def lookup_allowed(self, request: MCPRequest, lookup: str, value: str) -> bool:
        """Return the admin's verdict where it has rules of its own and the exposure does not say what is allowed."""
        if not self.overrides("lookup_allowed") or self.get_filter_fields(request) is not None:
            return True
        return allows(self.model_admin, request, lookup, value)

    def get_named_filters(self, request: MCPRequest) -> Sequence[NamedFilter]:
        """Return the filters of the admin's sidebar that are code, and those of ``filterset_class``."""
        return [*super().get_named_filters(request), *admin_filters(request, self)]

    def get_search_fields(self, request: MCPRequest) -> Sequence[str]:
        """Return the admin's ``search_fields``, but none that is hidden here: it could be guessed letter by letter."""
        if self.search_fields:
            return self.search_fields
        return [name for name in self.model_admin.get_search_fields(request) if not self._is_hidden_path(name)]

    def _is_hidden_path(self, text: str) -> bool:
        """Return whether the path leads through a field that is sensitive, or that an exposure leaves out."""
        name = text.lstrip("^=@")
        path = resolve_path(self.model, name)
        if path is not None and is_sensitive(path.field.name, path.field.model):
            return True
        exposure: ModelExposure | None = self
        for part in name.split("__"):
            if is_sensitive(part) or (exposure is not None and exposure.leaves_out(part)):
                return True
            field = exposure.fields_by_name.get(part) if exposure is not None else None
            exposure = self.site.exposures.get(field.related_model) if field is not None else None
        return False

    def get_search_results(
        self, request: MCPRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search as the admin does, its own override included."""
        if self.search_fields or any(map(self._is_hidden_path, self.model_admin.get_search_fields(request))):
            return super().get_search_results(request, queryset, search_term)
        return self.model_admin.get_search_results(request, queryset, search_term)

    # Permissions

    def has_permission(self, request: MCPRequest, action: str, obj: Model | None = None) -> bool:
        """Return the verdict of the ``ModelAdmin``, for members of its site only."""
        admin = self.model_admin
        if not admin.admin_site.has_permission(request):
            return False
        if action == "add":
            return bool(admin.has_add_permission(request))
        return bool(getattr(admin, f"has_{action}_permission")(request, obj))

    def has_view_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the admin would show the list, or the row."""
        return self.has_permission(request, "view", obj)

    # Writes

    def get_form(self, request: MCPRequest, obj: Model | None = None, change: bool = False) -> "type[ModelForm[Any]]":
        """Return the form of the admin's add or change page."""
        if self.form is not None or self.fields is not None:
            return super().get_form(request, obj, change)
        fields = flatten_fieldsets(self.model_admin.get_fieldsets(request, obj))
        return self.model_admin.get_form(request, obj, change=change, fields=fields)

    def get_changeform_initial_data(self, request: MCPRequest) -> dict[str, Any]:
        """Return what the admin's add page shows at first."""
        return self.model_admin.get_changeform_initial_data(request)

    @property
    def inline_admin(self) -> "ModelAdmin[Any]":
        """The ``ModelAdmin`` itself."""
        return self.model_admin

    def get_formsets(self, request: MCPRequest, obj: Model, change: bool) -> list[tuple[Any, Any]]:
        """Return all of the admin's, those that callers do not see too: they post what the page shows."""
        found = super().get_formsets(request, obj, change)
        if self.form is None and self.fields is None:
            return found
        return [(inline, formset) for inline, formset in found if type(inline) in (self.inlines or ())]

    def shows_inline(self, inline: Any) -> bool:
        """Return whether callers see it: all that ``inlines`` names, or all unless ``fields`` names what they see."""
        if self.inlines is not None:
            return type(inline) in self.inlines
        named = self.form is not None or self.fields is not None
        return not named and getattr(inline, "mcp_expose", True) and self.site.may_show(inline.model)

    def save_form(self, request: MCPRequest, form: Any, change: bool) -> Model:
        """See :meth:`ModelExposure.save_form`."""
        saved: Model = self.model_admin.save_form(request, form, change)
        return saved

    def save_model(self, request: MCPRequest, obj: Model, form: Any, change: bool) -> None:
        """Save as the admin does."""
        self.model_admin.save_model(request, obj, form, change)

    def save_related(self, request: MCPRequest, form: Any, formsets: Sequence[Any], change: bool) -> None:
        """Save related values and inlines as the admin does."""
        self.model_admin.save_related(request, form, formsets, change)

    def get_deleted_objects(self, objs: Sequence[Model], request: MCPRequest) -> tuple[Any, ...]:
        """Return what the admin's deletion page shows."""
        return self.model_admin.get_deleted_objects(objs, request)

    def delete_model(self, request: MCPRequest, obj: Model) -> None:
        """Delete as the admin does."""
        self.model_admin.delete_model(request, obj)

    def delete_queryset(self, request: MCPRequest, queryset: QuerySet[Any]) -> None:
        """Delete as the admin's ``delete_selected`` does."""
        self.model_admin.delete_queryset(request, queryset)

    # History

    def construct_change_message(
        self, request: MCPRequest, form: Any, formsets: Sequence[Any], add: bool = False
    ) -> Any:
        """See :meth:`ModelExposure.construct_change_message`."""
        return self.model_admin.construct_change_message(request, form, formsets, add)

    def log_addition(self, request: MCPRequest, obj: Model, message: Any) -> Any:
        """See :meth:`ModelExposure.log_addition`."""
        return self.model_admin.log_addition(request, obj, message)

    def log_change(self, request: MCPRequest, obj: Model, message: Any) -> Any:
        """See :meth:`ModelExposure.log_change`."""
        return self.model_admin.log_change(request, obj, message)

    def log_deletions(self, request: MCPRequest, objs: Sequence[Model]) -> Any:
        """See :meth:`ModelExposure.log_deletions`."""
        return self.model_admin.log_deletions(request, objs)  # type: ignore[arg-type]

    # Actions

    def get_actions(self, request: MCPRequest) -> Mapping[str, Action]:
        """Return the admin's actions that it would offer to this caller, and those of a subclass."""
        found = dict(super().get_actions(request))
        if not self.has_admin_actions or not self.model_admin.admin_site.has_permission(request):
            return found
        offered: Mapping[str, Any] = self.model_admin.get_actions(request)
        for name, declared in offered.items():
            # Deleting is delete_record's, which shows and obeys the same collector.
            if name != "delete_selected":
                function, _, description = action_parts(declared)
                if takes_selection(function):
                    found.setdefault(name, AdminAction(self, name, function, str(description)))
        return {name: action for name, action in found.items() if action.has_permission(request)}

    @cached_property
    def has_admin_actions(self) -> bool:
        """Whether the admin has an action for this model beside its own way to delete."""
        everywhere = (name for name, _ in self.model_admin.admin_site.actions if name != "delete_selected")
        return bool(self.model_admin.actions) or self.overrides("get_actions") or any(everywhere)

    def all_action_names(self) -> list[str]:
        """Return the names of its own actions and of those that the admin declares."""
        base: Any = self.model_admin
        declared = (action_parts(action)[1] for action in base._get_base_actions())
        own = (name for name in declared if name != "delete_selected")
        return list(dict.fromkeys([*super().all_action_names(), *own]))


def action_parts(action: Any) -> tuple[Callable[..., Any], str, str]:
    """Return the function, the name and the description of an admin action: a tuple, an object since Django 6.1."""
    if hasattr(action, "func"):
        return action.func, action.name, action.plural_description
    function, name, description = action
    return function, name, description

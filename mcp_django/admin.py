"""The app in the admin: the console, hosts of applications, service accounts, and a link to connected applications.

The link is an entry in the list of apps, because every admin shows that list, whatever its templates.
"""

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin import widgets
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _

from .conf.value_kinds import HOST
from .console.call_log_admin import CallEntryAdmin
from .console.console_pages import APPROVALS, TASKS, ReadOnlyAdmin
from .models import ApprovalRequest, ApprovalRule, CallEntry, ClientHost, ConnectedApplication, Switch, Task


def _is_mounted(name: str) -> bool:
    """Return whether the URLconf has the page of the authorization server with this URL name."""
    try:
        reverse(f"mcp_oauth:{name}")
    except NoReverseMatch:
        return False
    return True


class EntryAdmin(ReadOnlyAdmin):
    """An entry in the admin's index that leads to a page elsewhere. There are no rows and no other pages."""

    def get_urls(self) -> list[URLPattern]:
        """Return the URL of the entry alone."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.lead), name=name)]

    def lead(self, request: HttpRequest) -> HttpResponseBase:
        """Redirect to the page."""
        raise NotImplementedError

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return no rows: the page has them."""
        return super().get_queryset(request).none()

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return what :meth:`has_module_permission` returns: there are no rows."""
        return obj is None and self.has_module_permission(request)


@admin.register(ConnectedApplication)
class ConnectedApplicationAdmin(EntryAdmin):
    """An entry in the admin's index that leads users to their own applications.

    Those who may view the tokens of all users are led to the list of them. There is nothing to add here: applications
    ask for access themselves, and the page removes it.
    """

    def lead(self, request: HttpRequest) -> HttpResponseBase:
        """Redirect to the user's own applications, or operators to those of everybody."""
        from oauth2_provider.models import get_access_token_model

        model = get_access_token_model()
        if self.admin_site.is_registered(model):
            tokens = self.admin_site.get_model_admin(model)
            if tokens.has_view_permission(request):
                name = f"{model._meta.app_label}_{model._meta.model_name}_changelist"
                return redirect(f"{self.admin_site.name}:{name}")
        return redirect("mcp_oauth:authorized-token-list")

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the page to which the entry leads is mounted."""
        return _is_mounted("authorized-token-list")


@admin.register(ApprovalRequest)
class ApprovalRequestAdmin(EntryAdmin):
    """An entry in the admin's index that leads to the requests for approval: for those who may view them all, and for
    users who have one to decide."""

    def lead(self, request: HttpRequest) -> HttpResponseBase:
        """Redirect to the console's page of requests."""
        return redirect(f"{self.admin_site.name}:mcp_django_console_approvals")

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the entry leads the user to anything."""
        return APPROVALS.concerns(request)


@admin.register(Task)
class TaskAdmin(EntryAdmin):
    """An entry in the admin's index that leads to the console's page of tasks."""

    def lead(self, request: HttpRequest) -> HttpResponseBase:
        """Redirect to the page."""
        return redirect(f"{self.admin_site.name}:mcp_django_console_tasks")

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may open the page."""
        return TASKS.may_open(request)


class ClientHostForm(ModelForm):  # type: ignore[type-arg]
    """A form that stores hosts in lower case."""

    def clean_host(self) -> str:
        """Validate the host, and return it in the form in which hosts are compared."""
        host: str = self.cleaned_data["host"].strip().lower()
        if HOST.fullmatch(host) is None:
            raise ValidationError(_("Enter only the host, without scheme, port or path."))
        return host


@admin.register(ClientHost)
class ClientHostAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The hosts of applications, to allow or block them, and to see who asked for which."""

    form = ClientHostForm
    list_display = ("host", "decision", "url", "user", "created")
    list_filter = ("decision",)
    list_select_related = ("user",)
    search_fields = ("host",)
    ordering = ("-created",)
    fields = ("host", "decision", "url", "user", "created")
    readonly_fields = ("url", "user", "created")
    actions = ("allow", "block")

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may see hosts, and the authorization server is mounted."""
        return _is_mounted("authorize") and super().has_module_permission(request)

    def save_model(self, request: HttpRequest, obj: ClientHost, form: Any, change: bool) -> None:
        """Save the decision on a host; blocking it ends the access of its applications."""
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            _end_access(obj)

    @admin.action(description=_("Allow the chosen hosts"), permissions=["change"])
    def allow(self, request: HttpRequest, queryset: QuerySet[ClientHost]) -> None:
        """Let in applications of the hosts."""
        self._decide(request, queryset, ClientHost.Decision.ALLOWED)

    @admin.action(description=_("Block the chosen hosts and end their applications' access"), permissions=["change"])
    def block(self, request: HttpRequest, queryset: QuerySet[ClientHost]) -> None:
        """Block the hosts, and end all access of their applications."""
        self._decide(request, queryset, ClientHost.Decision.BLOCKED)

    def _decide(self, request: HttpRequest, queryset: QuerySet[ClientHost], decision: str) -> None:
        with transaction.atomic():
            for host in queryset:
                host.decision = decision
                host.save(update_fields=["decision"])
                self.log_change(request, host, [{"changed": {"fields": ["decision"]}}])
                _end_access(host)


def _end_access(host: ClientHost) -> None:
    from .oauth.client_documents import forget_clients_of

    if host.decision == ClientHost.Decision.BLOCKED:
        forget_clients_of(host.host)


admin.site.register(CallEntry, CallEntryAdmin)


@admin.register(Switch)
class SwitchAdmin(ReadOnlyAdmin):
    """The switches, read-only: they are changed on the console's page, which reaches all workers."""

    list_display = ("kind", "target", "name", "reason", "begins", "until", "ended", "by", "ended_by")
    list_filter = ("kind", ("ended", admin.EmptyFieldListFilter))
    search_fields = ("target", "name", "reason")
    ordering = ("-begins", "-pk")


@admin.register(ApprovalRule)
class ApprovalRuleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The rules by which calls wait for another person. All workers apply a change within five seconds."""

    list_display = ("name", "effect", "what", "deciders", "is_active")
    list_filter = ("effect", "is_active", "group")
    list_select_related = ("group",)
    search_fields = ("name", "permission", "group__name")
    ordering = ("name",)
    fieldsets = (
        (None, {"fields": ("name", "is_active", "effect")}),
        (_("Which calls"), {"fields": ("labels", "kinds", "tools", "actions", "condition", "rows_above")}),
        (_("Whose calls"), {"fields": ("users", "groups", "service_accounts", "clients")}),
        (_("Who decides"), {"fields": ("permission", "group", "hours")}),
    )

    @property
    def form(self) -> Any:  # type: ignore[override]
        """The form that checks a rule. Every process loads this file, and few show the form."""
        from .console.approval_rule_form import ApprovalRuleForm

        return ApprovalRuleForm

    def get_autocomplete_fields(self, request: HttpRequest) -> Any:
        """Return the fields whose rows the admin can search for this user."""
        found = []
        for name in ("users", "groups", "service_accounts"):
            related: Any = self.opts.get_field(name).related_model
            page = self.admin_site._registry.get(related)
            if page is not None and page.get_search_fields(request) and page.has_view_permission(request):
                found.append(name)
        return found

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the form field; where the admin cannot search its rows, two lists, or the keys of users."""
        if db_field.name not in self.get_autocomplete_fields(request):
            if db_field.name == "users":
                kwargs["widget"] = widgets.ManyToManyRawIdWidget(db_field.remote_field, self.admin_site)
            else:
                title = db_field.related_model._meta.verbose_name_plural
                kwargs["widget"] = widgets.FilteredSelectMultiple(title, is_stacked=True)
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    @admin.display(description=_("what"))
    def what(self, rule: ApprovalRule) -> str:
        """Return what the rule is about, in a line."""
        return self._shown(rule).what

    @admin.display(description=_("who decides"))
    def deciders(self, rule: ApprovalRule) -> str:
        """Return the permission or the group of those who decide."""
        return self._shown(rule).deciders

    @staticmethod
    def _shown(rule: ApprovalRule) -> Any:
        from .approvals.rules import Rule  # every process loads this file
        from .console.rule_report import SeenRule

        return SeenRule.of(Rule.of_row(rule, (), (), ()))

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Return the message in the history: of a change, what was changed from what to what."""
        from .console.approval_rule_form import change_message

        return super().construct_change_message(request, form, formsets, add) if add else change_message(form)


# The forms need django-oauth-toolkit, which a project may not have.
if apps.is_installed("oauth2_provider"):
    from .oauth import account_admin  # noqa: F401 - registers its pages

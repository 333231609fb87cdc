"""Pages of the admin for who acts without signing in here. For superusers: each entry lets somebody act as a user."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..conf import settings
from ..models import LinkedIdentity, ServiceAccount

# Every process of the project loads this, and few show these pages: what only they need is loaded there.


class ForSuperusers(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages that no permission opens: who may add an entry could act as anybody. They are there where a setting is."""

    setting = ""

    def has_module_permission(self, request: HttpRequest) -> bool:
        user: Any = request.user
        try:
            is_on = bool(getattr(settings, self.setting))
        except ImproperlyConfigured:
            # A setting that is wrong must not take the whole admin's index with it.
            return False
        return is_on and bool(user.is_active and getattr(user, "is_superuser", False))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    has_add_permission = has_change_permission = has_delete_permission = has_view_permission


class ServiceAccountAdmin(ForSuperusers):
    """The service accounts. Each change ends the tokens that an account has: it gets others by what is now so."""

    setting = "SERVICE_ACCOUNTS"
    list_display = ("name", "client_id", "user", "shown_scopes", "expires", "is_active")
    list_select_related = ("user",)
    list_filter = ("is_active",)
    search_fields = ("name", "client_id")
    raw_id_fields = ("user",)
    readonly_fields = ("client_id",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        from .forms import ServiceAccountForm

        fields = list(ServiceAccountForm.Meta.fields)
        return fields if obj is None else ["client_id", *fields]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        from .forms import ServiceAccountForm

        return super().get_form(request, obj, change, **{"form": ServiceAccountForm, **kwargs})

    def save_model(self, request: HttpRequest, obj: ServiceAccount, form: Any, change: bool) -> None:
        """Save the account, with a new secret where one is wanted, and end the tokens that it has."""
        from .programs import application_of, end_tokens, new_secret

        obj.shown_secret = new_secret(obj) if form.cleaned_data.get("new_secret") else ""  # type: ignore[attr-defined]
        super().save_model(request, obj, form, change)
        application_of(obj)
        end_tokens([obj.client_id])

    def delete_model(self, request: HttpRequest, obj: ServiceAccount) -> None:
        self.delete_queryset(request, ServiceAccount._default_manager.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ServiceAccount]) -> None:
        from oauth2_provider.models import get_application_model

        from .programs import end_tokens

        ids = list(queryset.values_list("client_id", flat=True))
        end_tokens(ids)
        super().delete_queryset(request, queryset)
        get_application_model()._default_manager.filter(client_id__in=ids).delete()

    def response_add(self, request: HttpRequest, obj: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        return self._shown(request, obj) or super().response_add(request, obj, *args, **kwargs)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return self._shown(request, obj) or super().response_change(request, obj)

    def _shown(self, request: HttpRequest, account: Any) -> HttpResponse | None:
        # A message would lie in the session or a cookie until it is shown; no cache keeps the admin's pages.
        if not account.shown_secret:
            return None
        context = {**self.admin_site.each_context(request), "account": account, "opts": self.opts}
        context |= {"title": gettext("The secret of the service account"), "secret": account.shown_secret}
        # Links lead to the admin that shows this, of several.
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "mcp_django/oauth/secret.html", context)

    @admin.display(description=_("scopes"))
    def shown_scopes(self, account: ServiceAccount) -> str:
        return " ".join(account.scopes)


class LinkedIdentityAdmin(ForSuperusers):
    """Which user is whom at the identity providers. A change ends the tokens that the user had by the link."""

    setting = "IDENTITY_PROVIDERS"
    list_display = ("subject", "issuer", "user", "created")
    list_select_related = ("user",)
    list_filter = ("issuer",)
    search_fields = ("subject",)
    raw_id_fields = ("user",)
    fields = ("issuer", "subject", "user")

    def save_model(self, request: HttpRequest, obj: LinkedIdentity, form: Any, change: bool) -> None:
        from .programs import end_tokens_of

        super().save_model(request, obj, form, change)
        end_tokens_of([obj.pk])

    def delete_model(self, request: HttpRequest, obj: LinkedIdentity) -> None:
        self.delete_queryset(request, LinkedIdentity._default_manager.filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[LinkedIdentity]) -> None:
        from .programs import end_tokens_of

        end_tokens_of(list(queryset.values_list("pk", flat=True)))
        super().delete_queryset(request, queryset)

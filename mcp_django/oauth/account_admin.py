"""Admin pages of service accounts and linked identities, for superusers: each entry lets somebody act as a user."""

import re
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..conf import settings
from ..models import LinkedIdentity, ServiceAccount
from ..scopes import Scope

# Every process of the project imports this module: what only these pages need is imported within functions.

# An https URL with a host and a path, in characters that an HTTP request line can hold.
HTTPS: Final = re.compile(r"https://[a-z0-9][a-z0-9.:-]*/[\x21-\x7e]+", re.IGNORECASE)


class ServiceAccountForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form with a checkbox that makes a new secret."""

    scopes = forms.MultipleChoiceField(label=_("scopes"), widget=forms.CheckboxSelectMultiple, initial=[Scope.READ])
    endpoints = forms.MultipleChoiceField(
        label=_("endpoints"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("None chosen means all of them."),
    )
    new_secret = forms.BooleanField(
        label=_("Make a new secret"),
        required=False,
        help_text=_("It is shown once, after saving, and replaces the one before."),
    )

    class Meta:
        model = ServiceAccount
        fields = ("name", "user", "scopes", "endpoints", "expires", "is_active", "new_secret", "public_key", "jwks_uri")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        from oauth2_provider.settings import oauth2_settings

        from .resource_urls import endpoints

        super().__init__(*args, **kwargs)
        fields: dict[str, Any] = self.fields
        for name, options in (("scopes", oauth2_settings.SCOPES), ("endpoints", endpoints())):
            # Also offer the account's own values that the site no longer has.
            fields[name].choices = [
                (value, value) for value in dict.fromkeys([*options, *getattr(self.instance, name)])
            ]
        fields["public_key"].help_text = _("For a program that signs in with its own key: PEM, or JSON (JWK or JWKS).")
        fields["jwks_uri"].help_text = _("For a program that publishes its keys itself. Use this or the field above.")

    def clean_public_key(self) -> str:
        """Validate that the text has a public key, and no private one."""
        from .assertions_and_keys import InvalidKeys, read_keys

        text: str = self.cleaned_data["public_key"].strip()
        if text:
            try:
                read_keys(text)
            except InvalidKeys as error:
                raise forms.ValidationError(str(error)) from None
        return text

    def clean_jwks_uri(self) -> str:
        """Validate that the URL is one with https."""
        url: str = self.cleaned_data["jwks_uri"]
        if url and HTTPS.fullmatch(url) is None:
            raise forms.ValidationError(gettext("Give an https URL with a path."))
        return url

    def clean(self) -> dict[str, Any]:
        """Validate that the account has a secret, a public key, or a URL of keys."""
        cleaned = super().clean() or {}
        has_key = bool(cleaned.get("public_key"))
        has_url = bool(cleaned.get("jwks_uri"))
        if has_key and has_url:
            self.add_error("jwks_uri", gettext("Give a public key or a URL, not both."))
        if not (has_key or has_url or cleaned.get("new_secret") or self.instance.secret or self.errors):
            self.add_error("new_secret", gettext("The account needs a secret, a public key or a URL of public keys."))
        return cleaned


class ForSuperusers(admin.ModelAdmin):  # type: ignore[type-arg]
    """Base of admin pages that only superusers can open, while a setting is on."""

    setting = ""

    def has_module_permission(self, request: HttpRequest) -> bool:
        user: Any = request.user
        try:
            is_on = bool(getattr(settings, self.setting))
        except ImproperlyConfigured:
            # An invalid setting must not break the index page of the admin.
            return False
        return is_on and bool(user.is_active and getattr(user, "is_superuser", False))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    has_add_permission = has_view_permission
    has_change_permission = has_view_permission
    has_delete_permission = has_view_permission

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self.delete_queryset(request, self.model._default_manager.filter(pk=obj.pk))


@admin.register(ServiceAccount)
class ServiceAccountAdmin(ForSuperusers):
    """The service accounts; every change revokes the tokens of the account."""

    setting = "SERVICE_ACCOUNTS"
    form = ServiceAccountForm
    list_display = ("name", "client_id", "user", "shown_scopes", "expires", "is_active")
    list_select_related = ("user",)
    list_filter = ("is_active",)
    search_fields = ("name", "client_id")
    raw_id_fields = ("user",)
    readonly_fields = ("client_id",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [*(["client_id"] if obj is not None else []), *self.form.Meta.fields]

    def save_model(self, request: HttpRequest, obj: ServiceAccount, form: Any, change: bool) -> None:
        """Save an account, with a new secret if one is asked for, and revoke the account's tokens."""
        from .service_accounts import application_of, end_tokens, new_secret

        obj.shown_secret = new_secret(obj) if form.cleaned_data.get("new_secret") else ""  # type: ignore[attr-defined]
        super().save_model(request, obj, form, change)
        application_of(obj)
        end_tokens([obj.client_id])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ServiceAccount]) -> None:
        from oauth2_provider.models import get_application_model

        from .service_accounts import end_tokens

        ids = list(queryset.values_list("client_id", flat=True))
        end_tokens(ids)
        super().delete_queryset(request, queryset)
        get_application_model()._default_manager.filter(client_id__in=ids).delete()

    def response_add(self, request: HttpRequest, obj: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        return self._shown(request, obj) or super().response_add(request, obj, *args, **kwargs)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return self._shown(request, obj) or super().response_change(request, obj)

    def _shown(self, request: HttpRequest, account: Any) -> HttpResponse | None:
        # Not a message, which would stay in the session or a cookie until it is shown. Admin pages are never cached.
        if not account.shown_secret:
            return None
        context = {**self.admin_site.each_context(request), "account": account, "opts": self.opts}
        context |= {"title": gettext("The secret of the service account"), "secret": account.shown_secret}
        # If there are several admin sites, links must lead to the one that shows this page.
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "mcp_django/oauth/secret.html", context)

    @admin.display(description=_("scopes"))
    def shown_scopes(self, account: ServiceAccount) -> str:
        return " ".join(account.scopes)


@admin.register(LinkedIdentity)
class LinkedIdentityAdmin(ForSuperusers):
    """The links from accounts at identity providers to users.

    Every change revokes the tokens that were issued through the link.
    """

    setting = "IDENTITY_PROVIDERS"
    list_display = ("subject", "issuer", "user", "created")
    list_select_related = ("user",)
    list_filter = ("issuer",)
    search_fields = ("subject",)
    raw_id_fields = ("user",)
    fields = ("issuer", "subject", "user")

    def save_model(self, request: HttpRequest, obj: LinkedIdentity, form: Any, change: bool) -> None:
        from .identity_providers import end_tokens_of

        super().save_model(request, obj, form, change)
        end_tokens_of([obj.pk])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[LinkedIdentity]) -> None:
        from .identity_providers import end_tokens_of

        end_tokens_of(list(queryset.values_list("pk", flat=True)))
        super().delete_queryset(request, queryset)

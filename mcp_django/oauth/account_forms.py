"""The form for a service account in the admin."""

import re
from typing import Any, Final

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from oauth2_provider.settings import oauth2_settings

from ..models import ServiceAccount
from ..scopes import READ
from .keys import InvalidKeys, read_keys
from .resource import endpoints

# A host and a path, in what a request line can hold.
HTTPS: Final = re.compile(r"https://[a-z0-9][a-z0-9.:-]*/[\x21-\x7e]+", re.IGNORECASE)


class ServiceAccountForm(forms.ModelForm):  # type: ignore[type-arg]
    """A service account, with the wish for a new secret."""

    scopes = forms.MultipleChoiceField(label=_("scopes"), widget=forms.CheckboxSelectMultiple, initial=[READ])
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
        super().__init__(*args, **kwargs)
        fields: dict[str, Any] = self.fields
        fields["scopes"].choices = [(scope, scope) for scope in (*oauth2_settings.SCOPES, *self.unknown("scopes"))]
        fields["endpoints"].choices = [(path, path) for path in (*endpoints(), *self.unknown("endpoints"))]
        fields["public_key"].help_text = _("For a program that signs in with its own key: PEM, or JSON (JWK or JWKS).")
        fields["jwks_uri"].help_text = _("For a program that publishes its keys itself. Use this or the field above.")

    def unknown(self, name: str) -> list[str]:
        """Return what the account has of this field that the site has no more."""
        known = oauth2_settings.SCOPES if name == "scopes" else endpoints()
        return [value for value in getattr(self.instance, name) if value not in known]

    def clean_public_key(self) -> str:
        """Take public keys alone."""
        text: str = self.cleaned_data["public_key"].strip()
        if text:
            try:
                read_keys(text)
            except InvalidKeys as error:
                raise forms.ValidationError(str(error)) from None
        return text

    def clean_jwks_uri(self) -> str:
        """Take https alone."""
        url: str = self.cleaned_data["jwks_uri"]
        if url and HTTPS.fullmatch(url) is None:
            raise forms.ValidationError(gettext("Give an https URL with a path."))
        return url

    def clean(self) -> dict[str, Any]:
        """Require one way to sign in, and not two kinds of keys."""
        cleaned = super().clean() or {}
        has_key, has_url = bool(cleaned.get("public_key")), bool(cleaned.get("jwks_uri"))
        if has_key and has_url:
            self.add_error("jwks_uri", gettext("Give a public key or a URL, not both."))
        if not (has_key or has_url or cleaned.get("new_secret") or self.instance.secret or self.errors):
            self.add_error("new_secret", gettext("The account needs a secret, a public key or a URL of public keys."))
        return cleaned

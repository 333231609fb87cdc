"""The consent form."""

import re
from typing import Any, Final, cast

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from oauth2_provider.settings import oauth2_settings

from ..context.narrowing import LABEL, MAX_LABELS
from ..models import ServiceAccount
from ..scopes import READ
from .assertions import InvalidKeys, read_keys
from .resource import endpoints


def _hidden(**options: Any) -> forms.CharField:
    # Stripping would change the client's state.
    return forms.CharField(widget=forms.HiddenInput(), strip=False, **options)


class ConsentForm(forms.Form):
    """The authorization request, carried through the page, with the user's answer.

    Cleaned, ``scope`` holds what was asked for and ticked; with nothing ticked, ``allow`` is False. ``models`` are the
    labels of the apps and models that it is for, none for all; ``days`` is when it ends, None for what the site has.
    """

    allow = forms.BooleanField(required=False)
    client_id = _hidden()
    redirect_uri = _hidden()
    response_type = _hidden()
    scope = _hidden()
    state = _hidden(required=False)
    code_challenge = _hidden(required=False)
    code_challenge_method = _hidden(required=False)
    resource = _hidden(required=False)
    days = forms.TypedChoiceField(required=False, coerce=int, empty_value=None, choices=[("1", "1"), ("30", "30")])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        ticked = set(cast(QueryDict, self.data).getlist("granted"))
        granted = [scope for scope in cleaned.get("scope", "").split() if scope in ticked]
        cleaned["allow"] = bool(cleaned.get("allow") and granted)
        cleaned["scope"] = " ".join(granted)
        cleaned["models"] = cast(QueryDict, self.data).getlist("models")
        if len(cleaned["models"]) > MAX_LABELS or not all(map(LABEL.fullmatch, cleaned["models"])):
            # Without one of them it could be for more than was meant.
            raise forms.ValidationError("unknown model")
        return cleaned


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

"""The consent form."""

from typing import Any, cast

from django import forms
from django.http import QueryDict


def _hidden(**options: Any) -> forms.CharField:
    # Stripping would change the client's state.
    return forms.CharField(widget=forms.HiddenInput(), strip=False, **options)


class ConsentForm(forms.Form):
    """The authorization request, carried through the page, with the user's answer.

    Cleaned, ``scope`` holds what was asked for and ticked; with nothing ticked, ``allow`` is False.
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

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        ticked = set(cast(QueryDict, self.data).getlist("granted"))
        granted = [scope for scope in cleaned.get("scope", "").split() if scope in ticked]
        cleaned["allow"] = bool(cleaned.get("allow") and granted)
        cleaned["scope"] = " ".join(granted)
        return cleaned

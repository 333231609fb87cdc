"""The consent form."""

from typing import Any, cast

from django import forms
from django.http import QueryDict

from ..context.narrowing import LABEL, MAX_LABELS


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

"""The console's visibility page: what an AI model sees that acts as a chosen user, with scopes or a client's token."""

from typing import Any, Final

from django import forms
from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponseBase
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from oauth2_provider.models import get_access_token_model
from oauth2_provider.settings import oauth2_settings

from ..oauth.client_and_token_display import describe
from ..oauth.stored_tokens import live
from ..scopes import Scope, default_scopes, join
from ..transports.local_client import LocalClient
from .console_pages import Page
from .known_sites import known_sites
from .visibility_report import VisibilityReport

# Maximum number of a user's tokens to choose from, the newest first.
MAX_ACCESS: Final = 50


def known_scopes() -> list[str]:
    """Return the scopes to choose from, the weakest first."""
    return join({*oauth2_settings.SCOPES, *Scope.HIERARCHY}).split()


class SiteForm(forms.Form):
    """The form fields that choose a site and scopes."""

    site = forms.ChoiceField(label=_("Site"))
    scope = forms.MultipleChoiceField(label=_("Scopes"), required=False, widget=forms.CheckboxSelectMultiple)

    def __init__(self, data: Any, *, auto_id: str) -> None:
        super().__init__(data, auto_id=auto_id)
        fields: Any = self.fields
        fields["site"].choices = [(name, name) for name in known_sites()]
        fields["scope"].choices = [(scope, scope) for scope in known_scopes()]


class AsUserForm(SiteForm):
    """The form that chooses user, site, and scopes or token. Cleaned, ``access`` is the token or None."""

    user = forms.CharField(label=_("User"), max_length=254, help_text=_("The user's name at sign-in."))
    access = forms.ChoiceField(
        label=_("Client"), required=False, help_text=_("Its scopes and records apply instead of those above.")
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data, auto_id="seen_%s")
        fields: Any = self.fields
        fields["scope"].initial = list(default_scopes())
        choices = [(str(token.pk), _told(token)) for token in self.tokens]
        fields["access"].choices = [("", _("any, with the scopes above")), *choices]

    @cached_property
    def person(self) -> Any:
        """The chosen user, None without one."""
        model = get_user_model()
        name = self.data.get("user", "").strip()
        try:
            # PostgreSQL raises an error for a NUL character, where other databases find nobody.
            if "\0" not in name:
                return model._default_manager.get_by_natural_key(name)
            return None
        except (model.DoesNotExist, ValueError):
            return None

    @cached_property
    def tokens(self) -> list[Any]:
        """The tokens of the chosen user."""
        if self.person is None:
            return []
        rows = get_access_token_model()._default_manager.filter(live(), user=self.person)
        tokens = list(rows.select_related("application", "refresh_token").order_by("-created", "-pk")[:MAX_ACCESS])
        describe(tokens)
        return tokens

    def clean_user(self) -> Any:
        """Validate that there is such a user."""
        if self.person is None:
            raise forms.ValidationError(_("There is no such user."))
        if not self.person.is_active:
            raise forms.ValidationError(_("The user is not active."))
        return self.person

    def clean_access(self) -> Any:
        """Return the chosen token, None for none."""
        return next((token for token in self.tokens if str(token.pk) == self.cleaned_data["access"]), None)


def _told(token: Any) -> str:
    records = "" if token.labels is None else f" · {', '.join(token.labels)}"
    return f"{token.client_name or '-'} · {token.scope}{records}"[:200]


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the form, and the report of the chosen user."""
    if "user" not in request.GET:
        return page.render(request, {"form": AsUserForm()})
    form = AsUserForm(with_defaults(request.GET))
    view = None
    if form.is_valid():
        chosen = form.cleaned_data
        token = form.cleaned_data["access"]
        site = known_sites()[chosen["site"]]
        person = chosen["user"]
        scopes = chosen["scope"] if token is None else token.scope.split()
        facts = None if token is None else token.facts
        client_id = "" if token is None or token.application is None else token.application.client_id
        try:
            view = VisibilityReport.of(site, person, scopes, facts=facts, client_id=client_id)
        except LocalClient.CallFailed as refused:
            form.add_error(None, str(refused))
    return page.render(request, {"form": form, "view": view})


def with_defaults(given: Any) -> Any:
    """Return the query string with the default site and scopes filled in."""
    query = given.copy()
    query.setdefault("site", next(iter(known_sites())))
    if "scope" not in query and "asked" not in query:
        query.setlist("scope", list(default_scopes()))
    return query

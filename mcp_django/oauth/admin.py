"""The toolkit's lists of applications and tokens in the admin, with the columns that matter for MCP.

``provider_settings`` names these classes. They are the toolkit's own, which registers them, with other columns.
"""

from collections.abc import Iterable
from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Count, Max, QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch
from django.utils.html import format_html_join
from django.utils.translation import gettext_lazy as _
from oauth2_provider import admin as toolkit
from oauth2_provider.models import get_access_token_model

TOKEN: Final = ("user", "application", "scope", "endpoint", "created", "last_use", "ends")


class AccessTokenAdmin(toolkit.AccessTokenAdmin):
    """Who let which application in, where and for how long. Tokens can be looked at and revoked, never seen."""

    list_display = ("pk", "user", "application", "scope", "endpoint", "last_use", "ends")
    list_select_related = ("application", "user", "refresh_token")
    list_filter = ("application", "scope")
    date_hierarchy = "created"
    fields = TOKEN
    readonly_fields = TOKEN

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Iterable[str]:
        """Return what can be seen of a token."""
        return self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Iterable[str]:
        """Return the same: a token is what was granted."""
        return self.readonly_fields

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Return the list with what is known of its tokens."""
        from .tokenlist import describe

        found: ChangeList = super().get_changelist_instance(request)
        found.result_list = list(found.result_list)
        describe(found.result_list)
        return found

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the token with what is known of it."""
        from .tokenlist import describe

        found = super().get_object(request, object_id, from_field)
        if found is not None:
            describe([found])
        return found

    @admin.display(description=_("endpoint"))
    def endpoint(self, token: Any) -> str:
        """Return where the token is good."""
        return " ".join(token.resource or ())

    @admin.display(description=_("last use"))
    def last_use(self, token: Any) -> Any:
        """Return when the token was last used, as far as it is known."""
        return token.used

    @admin.display(description=_("ends"))
    def ends(self, token: Any) -> Any:
        """Return when the access ends unless it is used before."""
        return token.until


class ApplicationAdmin(toolkit.ApplicationAdmin):
    """Which applications there are, where they live, and how many people let them in."""

    list_display = ("name", "lives_at", "client_id", "registration_source", "people", "last_token", "created")
    list_display_links = ("name", "client_id")
    search_fields = ("client_id", *toolkit.ApplicationAdmin.search_fields)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the applications with what is known of their tokens."""
        field = get_access_token_model()._meta.get_field("application").related_query_name()
        counted = {"_people": Count(f"{field}__user", distinct=True), "_last_token": Max(f"{field}__created")}
        found: QuerySet[Any] = super().get_queryset(request)
        return found.annotate(**counted)

    def view_on_site(self, application: Any) -> str | None:
        """Return the toolkit's own page of an application, where the project mounts it."""
        try:
            return str(application.get_absolute_url())
        except NoReverseMatch:
            return None

    @admin.display(description=_("host"))
    def lives_at(self, application: Any) -> str:
        """Return where the application sends people back to."""
        from .targets import targets_of

        shown = ((target.before, target.domain, target.after) for target in targets_of(application))
        return format_html_join(", ", "{}<strong>{}</strong>{}", shown)

    @admin.display(description=_("people"), ordering="_people")
    def people(self, application: Any) -> int:
        """Return how many users have tokens of it."""
        return int(application._people)

    @admin.display(description=_("last token"), ordering="_last_token")
    def last_token(self, application: Any) -> Any:
        """Return when it last got a token, be it by a refresh."""
        return application._last_token

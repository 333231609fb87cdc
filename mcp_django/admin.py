"""The link from the admin to the page on which people see and end the access of applications.

It is an entry in the list of apps, as every admin shows that, whatever its templates.
"""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import URLPattern, path

from .models import ConnectedApplication


@admin.register(ConnectedApplication)
class ConnectedApplicationAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Leads everybody who may enter the admin to their own applications. It has no rows and no other page."""

    def get_urls(self) -> list[URLPattern]:
        """Return the address of the list alone."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.lead), name=name)]

    def lead(self, request: HttpRequest) -> HttpResponseBase:
        """Go to the page."""
        return redirect("mcp_oauth:authorized-token-list")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return no rows: they are the page's."""
        return super().get_queryset(request).none()

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Tell whether the page is there."""
        from .oauth.frame import url_of

        return bool(url_of("authorized-token-list"))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Tell the same of the entry, which is all that there is to see."""
        return obj is None and self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Say no: applications ask for access."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Say no."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Say no: the page removes access."""
        return False

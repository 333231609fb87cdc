"""The URLs of the shop. Its start page says how each client connects."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from ..sites import site

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:mcp_django_console_connect")),
    path("admin/", admin.site.urls),
    path("mcp", site.urls),
    path("", include("mcp_django.oauth.urls")),
]

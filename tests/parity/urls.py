"""The admin, and beside it an endpoint with nothing but what the admin says: no exposure refines it."""

from django.contrib import admin
from django.urls import include, path

from mcp_django import MCPSite

site = MCPSite("parity", admin_site=admin.site)

urlpatterns = [
    path("admin/", admin.site.urls),
    path("mcp", site.urls),
    path("", include("mcp_django.oauth.urls")),
]

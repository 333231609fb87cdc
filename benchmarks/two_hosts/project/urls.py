"""The endpoint, the admin and the pages for people."""

from django.contrib import admin
from django.urls import include, path

import mcp_django

urlpatterns = [
    path("admin/", admin.site.urls),
    path("mcp", mcp_django.site.urls),
    path("", include("mcp_django.oauth.urls")),
]

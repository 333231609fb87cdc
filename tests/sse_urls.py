"""The endpoint and, beside it, the transport of 2024-11-05."""

from django.contrib import admin
from django.urls import include, path

import mcp_django

urlpatterns = [
    path("admin/", admin.site.urls),
    path("mcp", mcp_django.site.urls),
    path("sse", mcp_django.site.sse_urls),
    path("", include("mcp_django.oauth.urls")),
]

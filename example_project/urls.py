from django.conf import settings
from django.conf.urls.static import static
from django.contrib import admin
from django.urls import include, path

import mcp_django

urlpatterns = [
    path("admin/", admin.site.urls),
    path("mcp", mcp_django.site.urls),
    path("", include("mcp_django.oauth.urls")),
    *static(settings.MEDIA_URL, document_root=settings.MEDIA_ROOT),
]

from django.conf import settings
from django.conf.urls.static import static
from django.contrib import admin
from django.urls import include, path
from rest_framework.routers import DefaultRouter

import mcp_django
from example_project.shop.api import ReviewViewSet
from example_project.shop.views import SignIn, documentation, start

api = DefaultRouter()
api.register("reviews", ReviewViewSet)

urlpatterns = [
    path("", start),
    path("docs/<path:path>", documentation, name="docs"),
    path("login/", SignIn.as_view(), name="login"),
    path("admin/", admin.site.urls),
    path("api/", include(api.urls)),
    path("mcp", mcp_django.site.urls),
    path("", include("mcp_django.oauth.urls")),
    *static(settings.MEDIA_URL, document_root=settings.MEDIA_ROOT),
]

from django.conf import settings
from django.conf.urls.static import static
from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path
from rest_framework.routers import DefaultRouter

import mcp_django
from example_project.shop.api import ReviewViewSet
from example_project.shop.views import start

api = DefaultRouter()
api.register("reviews", ReviewViewSet)

LOGIN = {"site_header": "The example shop", "site_title": "The example shop", "title": "Sign in"}

urlpatterns = [
    path("", start),
    # The admin's own login page turns away who is not staff, and "nobody" is not.
    path("login/", LoginView.as_view(template_name="admin/login.html", extra_context=LOGIN), name="login"),
    path("admin/", admin.site.urls),
    path("api/", include(api.urls)),
    path("mcp", mcp_django.site.urls),
    path("", include("mcp_django.oauth.urls")),
    *static(settings.MEDIA_URL, document_root=settings.MEDIA_ROOT),
]

"""The endpoint, and the bare views that it is compared with."""

from django.contrib import admin
from django.urls import path

import mcp_django

from . import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("mcp", mcp_django.site.urls),
    path("bare/articles", views.articles),
    path("bare/articles/<int:pk>", views.article),
    path("bare/totals", views.totals),
]

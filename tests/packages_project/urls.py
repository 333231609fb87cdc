from django.contrib import admin
from django.urls import include, path

import mcp_django
from tests.packages_project.archive.admin import archive_admin
from tests.packages_project.archive.mcp import archive
from tests.packages_project.vault import vault, vault_admin

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("allauth.urls")),
    path("archive/", archive_admin.urls),
    path("vault/", vault_admin.urls),
    path("vault-mcp", vault.urls),
    path("mcp", mcp_django.site.urls),
    path("archive-mcp", archive.urls),
    path("", include("mcp_django.oauth.urls")),
]

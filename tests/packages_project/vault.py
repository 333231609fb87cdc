"""An admin that lets in nobody without a second factor, and the endpoint over it."""

from django.contrib import admin
from django_otp.admin import OTPAdminSite

import mcp_django
from tests.packages_project.shelf.models import Parcel

vault_admin = OTPAdminSite(name="vault")


@admin.register(Parcel, site=vault_admin)
class ParcelAdmin(admin.ModelAdmin):
    list_display = ["name"]


vault = mcp_django.MCPSite("vault_mcp", admin_site=vault_admin)

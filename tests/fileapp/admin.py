"""An admin site of its own, so that no other test lists these models."""

from django.contrib import admin

from tests.fileapp.models import Manual, Page

files_admin = admin.AdminSite("files_admin")


class PageInline(admin.TabularInline):
    model = Page
    extra = 0


@admin.register(Manual, site=files_admin)
class ManualAdmin(admin.ModelAdmin):
    list_display = ["title", "file"]
    inlines = [PageInline]

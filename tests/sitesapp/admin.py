"""Two admins with their own idea of the same models, and of who comes in."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from .models import Item


class FrontSite(admin.AdminSite):
    """For everybody who may look at items."""

    def has_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and request.user.has_perm("sitesapp.view_item")


class BackSite(admin.AdminSite):
    """For superusers."""

    def has_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and request.user.is_superuser


front_admin = FrontSite("front_admin")
back_admin = BackSite("back_admin")


@admin.action(description="Grow", permissions=["change"])
def grow(modeladmin: Any, request: HttpRequest, queryset: QuerySet[Item]) -> None:
    for item in queryset:
        item.size += 1
        item.save()


grow.mcp_destructive = False  # type: ignore[attr-defined]


@admin.action(description="Shrink", permissions=["change"])
def shrink(modeladmin: Any, request: HttpRequest, queryset: QuerySet[Item]) -> None:
    queryset.update(size=0)


@admin.register(Item, site=front_admin)
class FrontItemAdmin(admin.ModelAdmin):
    """What is not deleted, without its size."""

    list_display = ["name", "kind"]
    fields = ["name", "kind"]
    search_fields = ["name"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Item]:
        return Item.every.filter(deleted=False)


@admin.register(Item, site=back_admin)
class BackItemAdmin(admin.ModelAdmin):
    list_display = ["name", "size", "deleted"]
    fields = ["name", "kind", "size", "deleted"]
    actions = [shrink]


back_admin.add_action(grow)
back_admin.disable_action("delete_selected")

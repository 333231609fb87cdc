"""A second admin, with rules of its own for a model that the first one has too."""

from django.contrib import admin

from tests.packages_project.archive import models
from tests.packages_project.shelf.models import Note, Parcel


class ArchiveSite(admin.AdminSite):
    """Open to those who may look at boxes, of the staff or not."""

    def has_permission(self, request):
        return request.user.is_active and request.user.has_perm("archive.view_box")


archive_admin = ArchiveSite(name="archive")


@admin.register(models.Box, site=archive_admin)
class BoxAdmin(admin.ModelAdmin):
    list_display = ["name", "owner", "parcel", "note", "paper_count"]
    search_fields = ["name"]

    def paper_count(self, box):
        return box.papers.count()


@admin.register(models.Paper, site=archive_admin)
class PaperAdmin(admin.ModelAdmin):
    list_display = ["title", "box"]


@admin.register(models.BoxSize, site=archive_admin)
class BoxSizeAdmin(admin.ModelAdmin):
    list_display = ["box", "papers"]


@admin.register(Parcel, site=archive_admin)
class ArchivedParcelAdmin(admin.ModelAdmin):
    """The names of the even parcels, never changed."""

    fields = ["name"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(name__endswith="0")

    def has_view_permission(self, request, obj=None):
        return True

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False

    def has_delete_permission(self, request, obj=None):
        return False


archive_admin.register([models.Label, Note])

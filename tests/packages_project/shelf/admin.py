"""The admin classes of the packages, used as their documentation shows."""

from adminsortable2.admin import SortableAdminMixin
from django.contrib import admin
from guardian.admin import GuardedModelAdmin
from import_export.admin import ImportExportActionModelAdmin, ImportExportModelAdmin
from modeltranslation.admin import TranslationAdmin
from mptt.admin import DraggableMPTTAdmin
from parler.admin import TranslatableAdmin
from polymorphic.admin import PolymorphicChildModelAdmin, PolymorphicChildModelFilter, PolymorphicParentModelAdmin
from reversion.admin import VersionAdmin
from simple_history.admin import SimpleHistoryAdmin
from solo.admin import SingletonModelAdmin
from treebeard.admin import TreeAdmin
from treebeard.forms import movenodeform_factory

from tests.packages_project.shelf import models


@admin.register(models.Genre)
class GenreAdmin(DraggableMPTTAdmin):
    search_fields = ["name"]


@admin.register(models.Place)
class PlaceAdmin(TreeAdmin):
    form = movenodeform_factory(models.Place)
    search_fields = ["name"]


@admin.register(models.Novel)
class NovelAdmin(ImportExportModelAdmin, SimpleHistoryAdmin):
    list_display = ["title", "genre", "place", "tag_list"]
    list_filter = ["genre", "tags"]
    search_fields = ["title", "genre__name"]
    history_list_display = ["pages"]

    def get_queryset(self, request):
        return super().get_queryset(request).prefetch_related("tags")

    def tag_list(self, novel):
        return ", ".join(sorted(tag.name for tag in novel.tags.all()))


@admin.register(models.Note)
class NoteAdmin(VersionAdmin):
    list_display = ["title"]


@admin.register(models.Parcel)
class ParcelAdmin(GuardedModelAdmin):
    list_display = ["name"]


@admin.register(models.Loan)
class LoanAdmin(ImportExportActionModelAdmin):
    list_display = ["novel", "days"]


@admin.register(models.News)
class NewsAdmin(TranslationAdmin):
    list_display = ["title"]
    search_fields = ["title"]


@admin.register(models.Article)
class ArticleAdmin(TranslatableAdmin):
    list_display = ["title", "language_column"]
    search_fields = ["translations__title"]


@admin.register(models.Medium)
class MediumAdmin(PolymorphicParentModelAdmin):
    child_models = [models.Disc, models.Map]
    list_filter = [PolymorphicChildModelFilter]


@admin.register(models.Disc)
class DiscAdmin(PolymorphicChildModelAdmin):
    base_model = models.Medium


@admin.register(models.Map)
class MapAdmin(PolymorphicChildModelAdmin):
    base_model = models.Medium
    show_in_index = True


@admin.register(models.Step)
class StepAdmin(SortableAdminMixin, admin.ModelAdmin):
    list_display = ["position", "name"]


admin.site.register(models.Preferences, SingletonModelAdmin)

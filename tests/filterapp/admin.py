"""A sidebar with a filter of each kind. It has a site of its own, so that other tests do not list these models."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from .models import Film, Genre, Studio

sidebar = admin.AdminSite("sidebar")


class DecadeFilter(admin.SimpleListFilter):
    title = "decade"
    parameter_name = "decade"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("80s", "the eighties"), ("90s", "the nineties")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Film]) -> QuerySet[Film] | None:
        starts = {"80s": 1980, "90s": 1990}
        if self.value() not in starts:
            return None
        start = starts[self.value()]
        return queryset.filter(year__gte=start, year__lt=start + 10)


class MineFilter(admin.SimpleListFilter):
    """Is there for superusers alone, and asks the request."""

    title = "mine"
    parameter_name = "mine"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]] | None:
        return [("yes", f"of {request.user.get_username()}")] if request.user.is_superuser else None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Film]) -> QuerySet[Film] | None:
        return queryset.filter(note=request.user.get_username()) if request.GET.get("mine") == "yes" else None


class GenreNameFilter(admin.SimpleListFilter):
    """Joins rows, so that a film of two genres would come twice."""

    title = "genre"
    parameter_name = "genre_like"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        # With an input field of its own: any text.
        return ((),)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Film]) -> QuerySet[Film]:
        return queryset.filter(genres__name__icontains=self.value()) if self.value() else queryset


class EveryRowFilter(admin.SimpleListFilter):
    """Forgets the rows that it was given."""

    title = "every"
    parameter_name = "every"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("row", "row")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Film]) -> QuerySet[Film]:
        return Film.objects.all() if self.value() else queryset


class CountingFilter(admin.SimpleListFilter):
    """Runs the queryset that it is given."""

    title = "counting"
    parameter_name = "first"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("2", "two"), ("x", "wrong")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Film]) -> QuerySet[Film]:
        if self.value() == "x":
            raise IncorrectLookupParameters
        pks = [film.pk for film in queryset.order_by("pk")[: int(self.value() or 0)]]
        return queryset.filter(pk__in=pks) if self.value() else queryset


class BrokenFilter(admin.SimpleListFilter):
    title = "broken"
    parameter_name = "broken"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        raise RuntimeError("SELECT secret FROM broken")

    def queryset(self, request: HttpRequest, queryset: QuerySet[Film]) -> QuerySet[Film]:
        return queryset


class YearFilter(admin.SimpleListFilter):
    """Bears the name of a field."""

    title = "age"
    parameter_name = "year"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("old", "before 1990")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Film]) -> QuerySet[Film]:
        return queryset.filter(year__lt=1990) if self.value() == "old" else queryset


class BandFilter(admin.FieldListFilter):
    """For a field, with a parameter of its own."""

    def expected_parameters(self) -> list[str]:
        return ["rating_band"]

    def choices(self, changelist: Any) -> Any:
        for value, title in ((None, "All"), ("high", "High"), ("low", "Low")):
            query = changelist.get_query_string({"rating_band": value} if value else {}, ["rating_band"])
            yield {"selected": False, "query_string": query, "display": title}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Film]) -> QuerySet[Film]:
        values = self.used_parameters.get("rating_band")
        if not values:
            return queryset
        bands = {"high": Q(rating__gte=7), "low": Q(rating__lt=7)}
        return queryset.filter(bands[values[-1]])


@admin.register(Film, site=sidebar)
class FilmAdmin(admin.ModelAdmin):
    list_display = ["title", "year", "rating", "released", "shown", "studio"]
    fields = ["title", "year", "studio"]
    list_filter = [
        DecadeFilter,
        MineFilter,
        GenreNameFilter,
        EveryRowFilter,
        CountingFilter,
        YearFilter,
        "color",
        ("studio", admin.RelatedOnlyFieldListFilter),
        ("note", admin.EmptyFieldListFilter),
        ("rating", BandFilter),
        "studio__country",
        ("studio__name", admin.EmptyFieldListFilter),
    ]
    date_hierarchy = "released"
    search_fields = ["title", "^note", "=studio__name", "genres__name", "year__exact", "pk"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Film]:
        films = super().get_queryset(request)
        return films if request.user.is_superuser else films.filter(archived=False)


@admin.register(Studio, site=sidebar)
class StudioAdmin(admin.ModelAdmin):
    list_display = ["name", "country", "budget"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Studio]:
        studios = super().get_queryset(request)
        return studios if request.user.is_superuser else studios.exclude(name="Hidden")


@admin.register(Genre, site=sidebar)
class GenreAdmin(admin.ModelAdmin):
    pass

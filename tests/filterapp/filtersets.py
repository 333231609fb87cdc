"""Filters of django-filter, as a project has them for its REST interface."""

import django_filters
from django.db.models import QuerySet

from .models import Film, Studio


class FilmFilterSet(django_filters.FilterSet):
    long_title = django_filters.BooleanFilter(method="filter_long", label="Has a long title")
    rating = django_filters.RangeFilter()
    years = django_filters.BaseInFilter(field_name="year")
    era = django_filters.ChoiceFilter(choices=[("old", "Before 1990"), ("new", "Since 1990")], method="filter_era")
    studio = django_filters.ModelChoiceFilter(queryset=Studio.objects.all())

    class Meta:
        model = Film
        fields = {"title": ["istartswith"], "year": ["gt"]}

    def filter_long(self, queryset: QuerySet[Film], name: str, value: bool) -> QuerySet[Film]:
        return queryset.filter(title__regex=r"^.{10,}$") if value else queryset

    def filter_era(self, queryset: QuerySet[Film], name: str, value: str) -> QuerySet[Film]:
        assert self.request.user is not None
        return queryset.filter(year__lt=1990) if value == "old" else queryset.filter(year__gte=1990)

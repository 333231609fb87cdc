from django.contrib import admin

from .models import City, Continent, Country


@admin.register(Continent)
class ContinentAdmin(admin.ModelAdmin):
    list_display = ["name", "code"]
    search_fields = ["name", "code"]


@admin.register(Country)
class CountryAdmin(admin.ModelAdmin):
    list_display = ["name", "iso", "continent", "capital", "population", "currency_code"]
    list_filter = ["continent"]
    list_select_related = ["continent"]
    search_fields = ["name", "=iso", "capital"]
    ordering = ["name"]


@admin.register(City)
class CityAdmin(admin.ModelAdmin):
    list_display = ["name", "country", "population", "timezone"]
    list_filter = ["country__continent"]
    list_select_related = ["country"]
    search_fields = ["name", "country__name", "=country__iso"]
    ordering = ["-population", "geonameid"]
    autocomplete_fields = ["country"]

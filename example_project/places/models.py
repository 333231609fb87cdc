"""Places of the world. The data comes from GeoNames (https://www.geonames.org), licensed under CC BY 4.0."""

from django.db import models


class Continent(models.Model):
    """One of the seven continents."""

    code = models.CharField(max_length=2, primary_key=True)
    name = models.CharField(max_length=50, unique=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Country(models.Model):
    """A country or territory with an ISO 3166-1 code."""

    iso = models.CharField("ISO code", max_length=2, primary_key=True)
    name = models.CharField(max_length=100, unique=True)
    continent = models.ForeignKey(Continent, on_delete=models.PROTECT, related_name="countries")
    capital = models.CharField(max_length=100, blank=True)
    population = models.PositiveBigIntegerField(default=0)
    currency_code = models.CharField(max_length=3, blank=True, help_text="ISO 4217, such as EUR.")
    languages = models.TextField(blank=True, help_text="Language codes, the most widely spoken first.")

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "countries"

    def __str__(self) -> str:
        return self.name


class City(models.Model):
    """A populated place, under the number that GeoNames gives it."""

    geonameid = models.PositiveIntegerField("GeoNames id", primary_key=True)
    name = models.CharField(max_length=200)
    country = models.ForeignKey(Country, on_delete=models.PROTECT, related_name="cities")
    admin1 = models.CharField("first-level division", max_length=20, blank=True)
    latitude = models.DecimalField(max_digits=8, decimal_places=5)
    longitude = models.DecimalField(max_digits=8, decimal_places=5)
    population = models.PositiveIntegerField(default=0)
    timezone = models.CharField(max_length=40)

    class Meta:
        ordering = ["-population", "geonameid"]
        verbose_name_plural = "cities"
        indexes = [
            models.Index(fields=["population", "geonameid"], name="city_population"),
            models.Index(fields=["name"], name="city_name"),
        ]

    def __str__(self) -> str:
        return f"{self.name}, {self.country_id}"

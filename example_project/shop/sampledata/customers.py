"""Who buys: people with names as they are written where they live."""

from collections.abc import Iterator
from datetime import date, timedelta
from random import Random

from django.utils.text import slugify

from example_project.places.models import City

from ..models import Customer
from . import texts

SHARE_ELSEWHERE = 15
CITIES_PER_MARKET = 40


def customers(rng: Random, count: int, first: date, last: date) -> Iterator[Customer]:
    """Unsaved customers, most of them in the home markets, who joined between the two days."""
    days = (last - first).days
    markets, elsewhere = _cities()
    shares = [texts.MARKETS[country][0] for country in markets]
    pools = [*markets.values(), elsewhere]
    weights = [*shares, SHARE_ELSEWHERE if elsewhere else 0]
    for number in range(1, count + 1):
        city = rng.choice(rng.choices(pools, weights)[0])
        name = _name(rng, city.country_id)
        yield Customer(
            id=number,
            name=name,
            email=f"{slugify(name) or 'customer'}.{number}@example.com",
            phone=f"+{rng.randint(10, 99)} {rng.randint(100, 999)} {rng.randint(100000, 9999999)}",
            city=city,
            joined=first + timedelta(days=rng.randrange(days)),
        )


def _cities() -> tuple[dict[str, list[City]], list[City]]:
    """The largest cities of each home market, and the largest of all other countries."""
    markets = {country: list(City.objects.filter(country=country)[:CITIES_PER_MARKET]) for country in texts.MARKETS}
    elsewhere = City.objects.exclude(country__in=texts.MARKETS)[: 10 * CITIES_PER_MARKET]
    return {country: cities for country, cities in markets.items() if cities}, list(elsewhere)


def _name(rng: Random, country: str) -> str:
    script = texts.MARKETS[country][1] if country in texts.MARKETS else rng.choice([*texts.NAMES])
    given, family, space = texts.NAMES[script]
    parts = [rng.choice(given.split()), rng.choice(family.split())]
    if script in texts.FAMILY_NAME_FIRST:
        parts.reverse()
    return space.join(parts)

"""Continents, countries and cities, with data from GeoNames (https://www.geonames.org, CC BY 4.0)."""

"""The types of fields that only PostgreSQL has."""

from django.contrib.postgres.fields import (
    ArrayField,
    BigIntegerRangeField,
    DateRangeField,
    DateTimeRangeField,
    DecimalRangeField,
    HStoreField,
    IntegerRangeField,
)
from django.contrib.postgres.search import SearchVectorField
from django.db import models


class PostgresSample(models.Model):
    name = models.CharField(max_length=100)
    words = ArrayField(models.CharField(max_length=20), null=True, blank=True)
    numbers = ArrayField(models.IntegerField(), size=5, null=True, blank=True)
    days = ArrayField(models.DateField(), null=True, blank=True)
    grid = ArrayField(ArrayField(models.IntegerField()), null=True, blank=True)
    span = IntegerRangeField(null=True, blank=True)
    wide = BigIntegerRangeField(null=True, blank=True)
    amounts = DecimalRangeField(null=True, blank=True)
    stay = DateRangeField(null=True, blank=True)
    open = DateTimeRangeField(null=True, blank=True)
    extra = HStoreField(null=True, blank=True)
    search = SearchVectorField(null=True, editable=False)

    def __str__(self) -> str:
        return self.name

"""What the clients write and read."""

from typing import ClassVar

from django.db import models


class Entry(models.Model):
    """What was done under a key, as often as it was done."""

    key = models.CharField(max_length=80, db_index=True)
    number = models.IntegerField(default=0)

    class Meta:
        ordering: ClassVar = ["id"]
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.key}: {self.number}"


class Row(models.Model):
    """A row of a table that nobody changes."""

    number = models.IntegerField(unique=True)
    name = models.CharField(max_length=40)
    amount = models.DecimalField(max_digits=10, decimal_places=2)

    class Meta:
        ordering: ClassVar = ["number"]

    def __str__(self) -> str:
        return self.name


class Counter(models.Model):
    """What subscribers watch."""

    value = models.IntegerField(default=0)

    class Meta:
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return str(self.value)

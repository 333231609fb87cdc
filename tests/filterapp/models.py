"""What filters have to cope with: dates and times, relations with hidden rows, and names that mean something else."""

from django.db import models


class Studio(models.Model):
    name = models.CharField(max_length=50)
    country = models.CharField(max_length=50, blank=True)
    budget = models.IntegerField(null=True, blank=True)
    owner = models.ForeignKey("self", models.CASCADE, null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class Genre(models.Model):
    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Film(models.Model):
    title = models.CharField(max_length=100)
    year = models.IntegerField(default=2000)
    released = models.DateField(null=True, blank=True)
    shown = models.DateTimeField(null=True, blank=True)
    rating = models.IntegerField(null=True, blank=True)
    note = models.CharField(max_length=50, blank=True)
    color = models.BooleanField(default=True)
    studio = models.ForeignKey(Studio, models.CASCADE, null=True, blank=True)
    genres = models.ManyToManyField(Genre, blank=True)
    archived = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.title


class Odd(models.Model):
    """Has fields that are named like parts of an expression."""

    name = models.CharField(max_length=50)
    locals()["or"] = models.IntegerField(default=0)
    locals()["not"] = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name

"""What filters have to cope with: dates and times, relations with hidden rows, and names that mean something else."""

from django.db import models

from .fields import RandomField, SavedField, SteadyField, SteadyIntegerField


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


class Screening(models.Model):
    """Has choices that differ in case only, choices that are compared, and numbers that outgrow what holds them."""

    class Size(models.TextChoices):
        LARGE = "L", "m"
        MEDIUM = "M", "Medium"
        MINI = "m", "Mini"
        GIANT = "X", "mini"

    class Level(models.IntegerChoices):
        LOW = 1, "Low"
        HIGH = 10, "High"
        TOP = 20, "10"

    film = models.ForeignKey(Film, models.CASCADE, null=True, blank=True)
    size = models.CharField(max_length=1, choices=Size, default=Size.LARGE)
    level = models.IntegerField(choices=Level, default=Level.LOW)
    seats = models.BigIntegerField(default=0)
    takings = models.DecimalField(max_digits=15, decimal_places=3, default=0)
    weight = models.FloatField(default=0)

    def __str__(self) -> str:
        return self.size


class Patient(models.Model):
    """What stands in its columns is encrypted."""

    name = models.CharField(max_length=50)
    diary = SavedField(blank=True)
    plan = RandomField(max_length=50, null=True, blank=True)
    nickname = SteadyField(max_length=50, blank=True)
    age = SteadyIntegerField(default=0)

    def __str__(self) -> str:
        return self.name

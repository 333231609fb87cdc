from django.contrib.auth.models import AbstractUser
from django.db import models


class Team(models.Model):
    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Account(AbstractUser):
    """A user, who belongs to a team."""

    home = models.ForeignKey(Team, models.SET_NULL, null=True, blank=True)


class Deal(models.Model):
    name = models.CharField(max_length=50)
    team = models.ForeignKey(Team, models.CASCADE, null=True)

    def __str__(self) -> str:
        return self.name


class Note(models.Model):
    """A note of a deal; people look at one kind at a time, which their session knows."""

    deal = models.ForeignKey(Deal, models.CASCADE)
    kind = models.CharField(max_length=10, default="call")
    text = models.CharField(max_length=100)


class Invoice(models.Model):
    """Its page depends on the department of the request."""

    deal = models.ForeignKey(Deal, models.CASCADE)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    cost = models.DecimalField(max_digits=10, decimal_places=2, default=0)


class Visit(models.Model):
    """Its admin keeps what it has shown in the session, and says so."""

    deal = models.ForeignKey(Deal, models.CASCADE)
    seen = models.IntegerField(default=0)


class Straße(models.Model):
    """A model whose name has a letter that URIs escape."""

    name = models.CharField(max_length=50)

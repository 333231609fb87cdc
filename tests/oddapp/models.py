"""Rows as they are found: of fields with classes of their own, and of values that would not be entered today."""

from typing import Any

from django.conf import settings
from django.db import models

from .fields import Blocks, BlocksField, MoneyField, ShapeField


class Page(models.Model):
    """A page that is put together by scripts."""

    title = models.CharField(max_length=50)
    body = BlocksField(default=Blocks, blank=True)
    price = MoneyField(max_digits=9, decimal_places=2, null=True, blank=True)
    place = ShapeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.title


class Part(models.Model):
    page = models.ForeignKey(Page, models.CASCADE, related_name="parts")
    name = models.CharField(max_length=50)
    body = BlocksField(default=Blocks, blank=True)

    def __str__(self) -> str:
        return self.name


class Detail(models.Model):
    part = models.ForeignKey(Part, models.CASCADE, related_name="details")
    text = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.text


class Kind(models.Model):
    name = models.CharField(max_length=50)
    active = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


class Task(models.Model):
    """A row may be older than the rules for it."""

    name = models.CharField(max_length=50)
    state = models.CharField(max_length=10, choices=[("open", "Open"), ("done", "Done")], default="open")
    kind = models.ForeignKey(Kind, models.CASCADE, null=True, blank=True, limit_choices_to={"active": True})
    parent = models.ForeignKey(Kind, models.DO_NOTHING, related_name="+", db_constraint=False, null=True)
    starts = models.DateTimeField(null=True, blank=True)
    rank = models.PositiveIntegerField(default=1)
    watchers: Any = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name", "kind"], name="one_name_of_a_kind"),
            models.CheckConstraint(condition=models.Q(rank__lte=100), name="rank_up_to_a_hundred"),
        ]

    def __str__(self) -> str:
        return self.name


class Currency(models.Model):
    """What others point to by its code, which is not its primary key."""

    code = models.CharField(max_length=3, unique=True)
    number = models.PositiveIntegerField(unique=True)
    name = models.CharField(max_length=50)

    class Meta:
        ordering = ["code"]

    def __str__(self) -> str:
        return f"{self.name} ({self.code})"


class Bid(models.Model):
    name = models.CharField(max_length=50)
    currency = models.ForeignKey(Currency, models.CASCADE, to_field="code", related_name="bids")
    paid_in = models.ForeignKey(
        Currency, models.SET_NULL, to_field="number", related_name="+", null=True, blank=True, db_constraint=False
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

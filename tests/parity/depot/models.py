from django.conf import settings
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models


class Shelf(models.Model):
    name = models.CharField(max_length=30)
    zone = models.CharField(max_length=5, choices=[("cold", "Cold"), ("dry", "Dry")], default="dry")
    active = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


class Mark(models.Model):
    name = models.CharField(max_length=30)
    internal = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.name


class Remark(models.Model):
    content_type = models.ForeignKey(ContentType, models.CASCADE, related_name="+")
    object_id = models.PositiveBigIntegerField()
    target = GenericForeignKey("content_type", "object_id")
    text = models.CharField(max_length=20)

    def __str__(self) -> str:
        return self.text


class Crate(models.Model):
    code = models.CharField(max_length=10, unique=True)
    label = models.CharField(max_length=30, blank=True)
    state = models.CharField(max_length=10, choices=[("open", "Open"), ("sealed", "Sealed"), ("lost", "Lost")])
    shelf = models.ForeignKey(Shelf, models.CASCADE, limit_choices_to={"active": True})
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="+")
    weight = models.PositiveIntegerField(default=1)
    rank = models.PositiveIntegerField(default=1)
    pieces = models.PositiveIntegerField(default=0, editable=False)
    opened = models.DateTimeField(null=True, blank=True)
    note = models.CharField(max_length=30, blank=True)
    checked_by = models.CharField(max_length=30, blank=True, editable=False)
    hidden = models.BooleanField(default=False)
    deleted = models.BooleanField(default=False, editable=False)
    marks = models.ManyToManyField(Mark, blank=True)
    remarks = GenericRelation(Remark)

    def __str__(self) -> str:
        return self.code


class Item(models.Model):
    crate = models.ForeignKey(Crate, models.CASCADE, related_name="items")
    name = models.CharField(max_length=30)
    quantity = models.PositiveIntegerField(default=1)

    class Meta:
        unique_together = [("crate", "name")]

    def __str__(self) -> str:
        return self.name

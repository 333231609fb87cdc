"""Tables in a database of their own, one with a manager that hides rows, and a view."""

from django.conf import settings
from django.db import models


class Kept(models.Manager):
    def get_queryset(self):
        return super().get_queryset().filter(deleted=False)


class Box(models.Model):
    """`owner` is a row of the other database."""

    name = models.CharField(max_length=50)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.DO_NOTHING, db_constraint=False, null=True, blank=True)
    parcel = models.ForeignKey("shelf.Parcel", models.DO_NOTHING, db_constraint=False, null=True, blank=True)
    note = models.ForeignKey("shelf.Note", models.DO_NOTHING, db_constraint=False, null=True, blank=True)
    deleted = models.BooleanField(default=False)

    objects = Kept()
    all_rows = models.Manager()

    class Meta:
        base_manager_name = "all_rows"

    def __str__(self):
        return self.name


class Paper(models.Model):
    box = models.ForeignKey(Box, models.CASCADE, related_name="papers")
    title = models.CharField(max_length=50)
    tags = models.ManyToManyField("Label", blank=True)

    def __str__(self):
        return f"{self.title} in {self.box}"


class Label(models.Model):
    name = models.CharField(max_length=50)

    def __str__(self):
        return self.name


class BoxSize(models.Model):
    """A view, which the tests make."""

    box = models.OneToOneField(Box, models.DO_NOTHING, primary_key=True, db_constraint=False)
    papers = models.IntegerField()

    class Meta:
        managed = False
        db_table = "archive_boxsize"

    def __str__(self):
        return f"{self.papers} papers"

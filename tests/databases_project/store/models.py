"""Rows that refer to rows of another database, which no constraint and no join can reach."""

from django.db import models

FAR = {"on_delete": models.DO_NOTHING, "db_constraint": False, "null": True, "blank": True}


class Depot(models.Model):
    name = models.CharField(max_length=50, unique=True)

    def __str__(self) -> str:
        return self.name


class Crate(models.Model):
    name = models.CharField(max_length=50)
    depot = models.ForeignKey(Depot, models.CASCADE, null=True, blank=True, related_name="crates")
    item = models.ForeignKey("sitesapp.Item", related_name="crates", **FAR)
    kept = models.ForeignKey("sitesapp.KeptItem", related_name="+", **FAR)
    items = models.ManyToManyField("sitesapp.KeptItem", related_name="+", db_constraint=False, blank=True)

    def __str__(self) -> str:
        return self.name

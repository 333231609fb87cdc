"""Rows that change while clients watch, and enough models for a second page of the list of resources."""

from django.db import models

from mcp_django.resources.model_resources import LIST_PAGE


class Note(models.Model):
    """Something that clients write and watch."""

    title = models.CharField(max_length=100)
    text = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.title


def make_shelf(number: int) -> type[models.Model]:
    name = models.CharField(max_length=20)
    return type(f"Shelf{number:03}", (models.Model,), {"__module__": __name__, "name": name})


SHELVES = [make_shelf(number) for number in range(LIST_PAGE)]

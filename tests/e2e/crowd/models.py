"""What the tasks of the crowd have done."""

from typing import ClassVar

from django.db import models


class Entry(models.Model):
    """A number that a task has written down, as often as it has done so."""

    number = models.IntegerField()
    worker = models.CharField(max_length=20)

    class Meta:
        app_label = "crowd"
        ordering: ClassVar = ["number"]

    def __str__(self) -> str:
        return f"{self.number} by {self.worker}"

"""One model."""

from django.db import models


class Order(models.Model):
    """What somebody ordered."""

    number = models.CharField(max_length=10)

    class Meta:
        app_label = "installed"

    def __str__(self) -> str:
        return self.number

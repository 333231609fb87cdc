"""What the ViewSets of this app serve. None of it is in an admin."""

from django.conf import settings
from django.db import models


class Client(models.Model):
    name = models.CharField(max_length=50, unique=True)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    number = models.CharField(max_length=20, unique=True)
    client = models.ForeignKey(Client, models.PROTECT, null=True, blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    status = models.CharField(max_length=10, choices=[("new", "New"), ("paid", "Paid in full")], default="new")
    total = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    note = models.TextField(blank=True)
    locked = models.BooleanField(default=False)
    secret = models.CharField(max_length=20, default="s3cret")

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.number} {self.secret}"


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
    name = models.CharField(max_length=20)
    quantity = models.PositiveIntegerField(default=1)
    created = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name

"""An order with rows of every kind of inline."""

import uuid
from decimal import Decimal

from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ValidationError
from django.db import models


class Product(models.Model):
    name = models.CharField(max_length=50, unique=True)

    def __str__(self) -> str:
        return self.name


class Label(models.Model):
    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Remark(models.Model):
    content_type = models.ForeignKey(ContentType, models.CASCADE, related_name="+")
    object_id = models.PositiveBigIntegerField()
    target = GenericForeignKey("content_type", "object_id")
    text = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.text


class Order(models.Model):
    number = models.CharField(max_length=20, unique=True)
    customer = models.CharField(max_length=50)
    express = models.BooleanField(default=False)
    api_token = models.CharField(max_length=50, blank=True)
    labels = models.ManyToManyField(Label, blank=True)
    products = models.ManyToManyField(Product, through="Line")
    remarks = GenericRelation(Remark)

    def __str__(self) -> str:
        return self.number


class Line(models.Model):
    """A through table whose rows others may protect."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, models.PROTECT)
    quantity = models.PositiveIntegerField(default=1)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=Decimal(1))
    secret_code = models.CharField(max_length=20, blank=True)
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["order", "product"], name="one_line_for_each_product"),
            models.CheckConstraint(condition=models.Q(quantity__lte=1000), name="not_too_many"),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} of {self.product}"

    def clean(self) -> None:
        if self.order_id and self.order.express and self.quantity > 10:
            raise ValidationError({"quantity": "Express takes ten at most."})


class Shipment(models.Model):
    """Has a key that people choose, and two ways to belong to an order."""

    code = models.CharField(max_length=10, primary_key=True)
    order = models.ForeignKey(Order, models.CASCADE, related_name="shipments")
    returned_for = models.ForeignKey(Order, models.SET_NULL, null=True, blank=True, related_name="returns")
    lines = models.ManyToManyField(Line, blank=True)

    def __str__(self) -> str:
        return self.code


class Claim(models.Model):
    """Protects its line."""

    line = models.ForeignKey(Line, models.PROTECT)
    text = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.text


class Invoice(models.Model):
    """Its key is that of its order."""

    order = models.OneToOneField(Order, models.CASCADE, primary_key=True, related_name="invoice")
    text = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.text


class Note(models.Model):
    """Has a UUID as its key, and no name for the relation."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    order = models.ForeignKey(Order, models.CASCADE)
    text = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.text

"""The tables of the shop. They name their app: otherwise they would belong to the package that this folder lies in."""

from django.db import models

# Each with what people read.
STATES = [(name, name.title()) for name in ("pending", "shipped", "delivered", "cancelled")]
CARRIERS = [(name, name) for name in ("DHL", "FedEx", "Post", "UPS")]


class Named(models.Model):
    """What goes by a name of its own."""

    name = models.CharField(max_length=60, unique=True)

    class Meta:
        abstract, app_label = True, "tinyshop"

    def __str__(self) -> str:
        return self.name


class Customer(Named):
    """A person who orders."""

    country = models.CharField(max_length=30)


class Product(Named):
    """What can be ordered, and how many of it are left."""

    price = models.DecimalField(max_digits=7, decimal_places=2)
    stock = models.PositiveIntegerField()


class Order(Named):
    """An order of one product, and the way of its parcel."""

    customer = models.ForeignKey(Customer, models.PROTECT)
    product = models.ForeignKey(Product, models.PROTECT)
    quantity = models.PositiveIntegerField()
    total = models.DecimalField(max_digits=9, decimal_places=2)
    status = models.CharField(max_length=9, choices=STATES, default="pending")
    carrier = models.CharField(max_length=5, choices=CARRIERS, blank=True)
    created = models.DateTimeField()
    shipped = models.DateTimeField(null=True, blank=True)
    delivered = models.DateTimeField(null=True, blank=True)

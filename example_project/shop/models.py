"""What the shop sells, to whom, and what happens to it on the way."""

import uuid
from datetime import date
from decimal import Decimal

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction
from django.db.models import F, Q, Sum
from django.utils import timezone


class Customer(models.Model):
    """Somebody who buys, with the city that orders are sent to."""

    name = models.CharField(max_length=120)
    email = models.EmailField(unique=True)
    phone = models.CharField(max_length=30, blank=True)
    city = models.ForeignKey("places.City", on_delete=models.PROTECT, related_name="customers")
    joined = models.DateField(default=date.today)

    class Meta:
        ordering = ["name", "id"]
        indexes = [models.Index(fields=["name", "id"], name="customer_name")]

    def __str__(self) -> str:
        return self.name


class Category(models.Model):
    """A node in the tree of categories."""

    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    name = models.CharField(max_length=80)
    slug = models.SlugField(max_length=80, unique=True)

    class Meta:
        ordering = ["slug"]
        verbose_name_plural = "categories"

    def __str__(self) -> str:
        return self.name


class Supplier(models.Model):
    """A company that the shop buys products from."""

    name = models.CharField(max_length=120, unique=True)
    country = models.ForeignKey("places.Country", on_delete=models.PROTECT, related_name="suppliers")
    email = models.EmailField(blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    """Something for sale."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    sku = models.CharField("SKU", max_length=20, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    category = models.ForeignKey(Category, on_delete=models.PROTECT, related_name="products")
    suppliers = models.ManyToManyField(Supplier, related_name="products", blank=True)
    price = models.DecimalField(max_digits=10, decimal_places=2, validators=[MinValueValidator(0)])
    image = models.ImageField(upload_to="products", blank=True)
    attributes = models.JSONField(default=dict, blank=True, help_text="Such as colour, weight and material.")
    active = models.BooleanField(default=True, help_text="Whether it can be ordered.")
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name", "id"]
        indexes = [models.Index(fields=["name", "id"], name="product_name")]
        constraints = [models.CheckConstraint(condition=Q(price__gte=0), name="product_price_not_negative")]

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """What one customer ordered at one time."""

    class Status(models.TextChoices):
        PENDING = "pending"
        PAID = "paid"
        SHIPPED = "shipped"
        DELIVERED = "delivered"
        CANCELLED = "cancelled"
        REFUNDED = "refunded"

    CANCELLABLE = (Status.PENDING, Status.PAID)
    EARNED = REFUNDABLE = (Status.PAID, Status.SHIPPED, Status.DELIVERED)

    id = models.AutoField(primary_key=True)
    number = models.CharField(max_length=20, unique=True)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="orders")
    country = models.ForeignKey(
        "places.Country",
        on_delete=models.PROTECT,
        related_name="orders",
        editable=False,
        help_text="Where the customer lived when ordering. Its warehouse sees the order.",
    )
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    total = models.DecimalField(max_digits=10, decimal_places=2, default=Decimal(0), editable=False)
    note = models.TextField(blank=True)
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [
            models.Index(fields=["-created", "-id"], name="order_newest"),
            models.Index(fields=["country", "-created", "-id"], name="order_country_newest"),
            models.Index(fields=["status", "-created", "-id"], name="order_status_newest"),
        ]
        permissions = [("refund_order", "Can refund order"), ("approve_refund", "Can approve refunds")]

    def __str__(self) -> str:
        return self.number

    def recalculate_total(self) -> None:
        lines = self.lines.aggregate(total=Sum(F("quantity") * F("unit_price")))
        self.total = round(lines["total"] or Decimal(0), 2)
        self.save(update_fields=["total"])

    def refund(self, amount: Decimal, reason: str, by: str) -> None:
        """Marks the order as refunded, on the card that paid for it."""
        captured = self.payments.filter(event=PaymentAudit.Event.CAPTURED).first()
        with transaction.atomic():
            self.status = self.Status.REFUNDED
            self.note = f"{self.note}\nRefunded {amount}: {reason}".strip()
            self.save(update_fields=["status", "note"])
            self.payments.create(
                event=PaymentAudit.Event.REFUNDED,
                card_token=captured.card_token if captured else "",
                amount=amount,
                created_by=by,
            )


class OrderLine(models.Model):
    """One product of an order, at the price of that day."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="lines")
    quantity = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    unit_price = models.DecimalField(max_digits=10, decimal_places=2)

    class Meta:
        ordering = ["order", "id"]
        constraints = [models.CheckConstraint(condition=Q(quantity__gt=0), name="line_quantity_positive")]

    def __str__(self) -> str:
        return f"{self.quantity} × {self.product}"


class Shipment(models.Model):
    """A parcel on its way to a customer."""

    class Carrier(models.TextChoices):
        DHL = "dhl", "DHL"
        UPS = "ups", "UPS"
        FEDEX = "fedex", "FedEx"
        POST = "post", "Postal service"

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="shipments")
    carrier = models.CharField(max_length=10, choices=Carrier.choices)
    tracking_number = models.CharField(max_length=40, unique=True)
    shipped_at = models.DateTimeField(default=timezone.now)
    promised_at = models.DateTimeField(null=True, blank=True, help_text="What the customer was told.")
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-shipped_at", "-id"]
        indexes = [models.Index(fields=["-shipped_at", "-id"], name="shipment_newest")]
        constraints = [
            models.CheckConstraint(
                condition=Q(delivered_at__isnull=True) | Q(delivered_at__gte=F("shipped_at")),
                name="shipment_delivered_after_shipped",
                violation_error_message="A parcel cannot arrive before it was sent.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_carrier_display()} {self.tracking_number}"


class Review(models.Model):
    """What a customer thinks of a product."""

    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="reviews")
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="reviews")
    rating = models.PositiveSmallIntegerField(validators=[MinValueValidator(1), MaxValueValidator(5)])
    title = models.CharField(max_length=120)
    body = models.TextField(blank=True)
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["-created", "-id"], name="review_newest")]
        constraints = [models.CheckConstraint(condition=Q(rating__gte=1, rating__lte=5), name="review_rating_1_to_5")]

    def __str__(self) -> str:
        return f"{self.title} ({self.rating}/5)"


class StockMovement(models.Model):
    """Goods that came into the warehouse (positive) or left it (negative)."""

    class Reason(models.TextChoices):
        PURCHASE = "purchase"
        SALE = "sale"
        RETURN = "return"
        DAMAGE = "damage"
        CORRECTION = "correction"

    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="stock_movements")
    quantity = models.IntegerField(help_text="Negative for goods that leave.")
    reason = models.CharField(max_length=10, choices=Reason.choices)
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["-created", "-id"], name="stock_newest")]
        constraints = [models.CheckConstraint(condition=~Q(quantity=0), name="stock_quantity_not_zero")]

    def __str__(self) -> str:
        return f"{self.quantity:+} {self.product}"


class Document(models.Model):
    """A file, of one product (a manual, say) or of the shop."""

    title = models.CharField(max_length=120)
    file = models.FileField(upload_to="documents")
    product = models.ForeignKey(Product, on_delete=models.CASCADE, null=True, blank=True, related_name="documents")
    uploaded = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["title", "id"]

    def __str__(self) -> str:
        return self.title


class PaymentAudit(models.Model):
    """A record of what was done with a customer's money. Written by the shop, never by people."""

    class Event(models.TextChoices):
        AUTHORISED = "authorised"
        CAPTURED = "captured"
        REFUNDED = "refunded"

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="payments")
    event = models.CharField(max_length=10, choices=Event.choices)
    card_token = models.CharField(max_length=64, blank=True, help_text="Charges the card: never show it.")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    created = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["-created", "-id"], name="payment_newest")]

    def __str__(self) -> str:
        return f"{self.get_event_display()} {self.amount}"


class StaffProfile(models.Model):
    """Ties a member of staff to a country: they see its orders only."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="staff_profile")
    country = models.ForeignKey("places.Country", on_delete=models.PROTECT, related_name="staff")

    class Meta:
        ordering = ["user__username"]

    def __str__(self) -> str:
        return f"{self.user} ({self.country})"

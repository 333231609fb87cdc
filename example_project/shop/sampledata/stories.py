"""What there is to find in the sample data, beside chance.

Products that ran out, products that nobody ever bought, a carrier that takes twice as long as the others, a region that
grows, a customer who sends everything back, a customer who is there twice, and days on which nothing could be ordered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property

from django.db.models import Count, Sum
from django.utils.text import slugify

from ..models import Customer, Product, StockMovement

MONTHS = 24
# The places of the products in the catalogue.
RUN_OUT = ("KIT-0001", "KIT-0010", "OFF-0019", "OUT-0026", "GIF-0033")
NEVER_SOLD = ("KIT-0007", "OFF-0052", "OUT-0063", "GIF-0072")
# Of each of those that ran out, so many are left.
LEFT = 2
# Shipping takes so many hours; the postal service is late.
USUAL_HOURS = (18, 110)
HOURS = {"post": (120, 340)}
# How long after it was sent customers are told that an order arrives; not every parcel does.
USUAL_PROMISE = timedelta(days=4)
PROMISES = {"post": timedelta(days=10), "ups": timedelta(days=3)}
# The countries whose share grows, and by how much of all orders until today.
GROWING = ("JP", "IN")
GROWTH = 0.35
# One person under the name that she had, and under the one that she has now. No other customer is called so.
FORMER_NAME, PRESENT_NAME = "Ada Ibarra", "Ada Evans"
HER_PHONE = "+44 20 7946018"
HER_COUNTRY = "GB"
# So few orders that a person can look through them.
HER_ORDERS = (2, 9)
OUTAGE_MONTHS_AGO = 5
OUTAGE = timedelta(days=11)


@dataclass(frozen=True)
class Period:
    """The time that the data covers: two years up to the midnight before today, in UTC."""

    today: date

    @cached_property
    def end(self) -> datetime:
        return datetime(self.today.year, self.today.month, self.today.day, tzinfo=UTC)

    @cached_property
    def opening(self) -> datetime:
        return first_of_month(self.end, MONTHS)

    @cached_property
    def outage(self) -> datetime:
        """The moment when the shop went down, for :data:`OUTAGE`."""
        return first_of_month(self.end, OUTAGE_MONTHS_AGO) + timedelta(days=9)

    @cached_property
    def open_time(self) -> timedelta:
        return self.end - self.opening - OUTAGE

    def moment(self, open_time: timedelta) -> datetime:
        """The moment after so much time in which orders could be placed."""
        moment = self.opening + open_time
        return moment if moment < self.outage else moment + OUTAGE

    def share(self, moment: datetime) -> float:
        """How much of the period has passed, from 0 to 1."""
        return (moment - self.opening) / (self.end - self.opening)


def first_of_month(moment: datetime, months_ago: int) -> datetime:
    """The first moment of a month."""
    month = moment.year * 12 + moment.month - 1 - months_ago
    return moment.replace(year=month // 12, month=month % 12 + 1, day=1)


def returner(customers: Sequence[Customer]) -> Customer:
    """The customer who sends everything back, one of the first."""
    return min(customers, key=lambda customer: (customer.joined, customer.pk))


def run_out(opening: datetime) -> None:
    """Make the first purchase of some products so small that next to nothing of it is left."""
    for product in Product.objects.filter(sku__in=RUN_OUT):
        movements = StockMovement.objects.filter(product=product)
        purchase = movements.filter(reason=StockMovement.Reason.PURCHASE, created=opening)
        moved = movements.exclude(reason=StockMovement.Reason.PURCHASE).aggregate(total=Sum("quantity"))["total"] or 0
        purchase.update(quantity=LEFT - moved)


def sign_up_twice() -> None:
    """Let two customers be one person, who has ordered, and written reviews, under both names.

    A shop with too few customers in her country is left as it is.
    """
    customers = Customer.objects.filter(city__country=HER_COUNTRY)
    counted = customers.annotate(bought=Count("orders", distinct=True), wrote=Count("reviews", distinct=True))
    found = list(counted.filter(bought__range=HER_ORDERS).order_by("-wrote", "pk")[:2])
    if len(found) < 2:
        return
    former, present = found
    for customer, name in ((former, FORMER_NAME), (present, PRESENT_NAME)):
        customer.name = name
        customer.email = f"{slugify(name).replace('-', '.')}@example.com"
        customer.phone = HER_PHONE
        customer.city = present.city
        customer.save(update_fields=["name", "email", "phone", "city"])

"""What was ordered, and what followed from each order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import TypeVar

from ..models import Customer, Order, OrderLine, PaymentAudit, Product, Review, Shipment, StockMovement
from . import texts

T = TypeVar("T")

Status = Order.Status
Event = PaymentAudit.Event
Reason = StockMovement.Reason

# The fates of orders of the last three months, and of all earlier ones.
RECENT_FATES = {Status.PENDING: 25, Status.PAID: 35, Status.SHIPPED: 30, Status.CANCELLED: 10}
FATES = {Status.DELIVERED: 86, Status.REFUNDED: 6, Status.CANCELLED: 5, Status.SHIPPED: 3}
UNPAID = (Status.PENDING, Status.CANCELLED)
SENT = (Status.SHIPPED, Status.DELIVERED, Status.REFUNDED)
RATINGS = {1: 5, 2: 8, 3: 15, 4: 32, 5: 40}
PERIOD = timedelta(days=3 * 365)
RECENT = timedelta(days=90)


def pick(rng: Random, weights: dict[T, int]) -> T:
    return rng.choices([*weights], [*weights.values()])[0]


@dataclass
class Batch:
    """Unsaved rows that belong together."""

    orders: list[Order] = field(default_factory=list)
    lines: list[OrderLine] = field(default_factory=list)
    payments: list[PaymentAudit] = field(default_factory=list)
    shipments: list[Shipment] = field(default_factory=list)
    movements: list[StockMovement] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)

    def save(self) -> None:
        Order.objects.bulk_create(self.orders)
        OrderLine.objects.bulk_create(self.lines)
        PaymentAudit.objects.bulk_create(self.payments)
        Shipment.objects.bulk_create(self.shipments)
        StockMovement.objects.bulk_create(self.movements)
        Review.objects.bulk_create(self.reviews)


class OrderMaker:
    """Makes orders evenly spread over the years since the shop opened, the oldest first.

    Primary keys are set here, so that they too are the same each time and rows need no saved parent.
    """

    def __init__(
        self,
        rng: Random,
        total: int,
        opening: datetime,
        customers: Sequence[Customer],
        products: Sequence[Product],
    ) -> None:
        self.rng = rng
        self.opening = opening
        self.interval = PERIOD / total
        self.customers = customers
        self.products = products
        self.order_ids = count(1)
        self.line_ids = count(1)
        self.payment_ids = count(1)
        self.shipment_ids = count(1)
        self.movement_ids = count(len(products) + 1)  # after the first purchase of each product
        self.review_ids = count(1)

    def batch(self, size: int) -> Batch:
        batch = Batch()
        for _ in range(size):
            self.add_order(batch)
        return batch

    def add_order(self, batch: Batch) -> None:
        pk = next(self.order_ids)
        age = self.interval * pk
        customer = self.rng.choice(self.customers)
        order = Order(
            id=pk,
            number=f"{(self.opening + age).year}-{pk:07}",
            customer=customer,
            country_id=customer.city.country_id,
            status=pick(self.rng, RECENT_FATES if age > PERIOD - RECENT else FATES),
            note=self.rng.choice(texts.NOTES) if self.rng.random() < 0.08 else "",
            created=self.opening + age,
        )
        lines = self.lines(order)
        order.total = sum(line.quantity * line.unit_price for line in lines)
        batch.orders.append(order)
        batch.lines += lines
        if order.status not in UNPAID:
            self.add_payments(batch, order)
        if order.status in SENT:
            self.add_shipment(batch, order, lines)
        if order.status == Status.DELIVERED and self.rng.random() < 0.25:
            batch.reviews.append(self.review(order, lines[0].product))

    def lines(self, order: Order) -> list[OrderLine]:
        return [
            OrderLine(
                id=next(self.line_ids),
                order=order,
                product=product,
                quantity=self.rng.randint(1, 4),
                unit_price=product.price,
            )
            for product in self.rng.sample(self.products, k=self.rng.randint(1, 5))
        ]

    def add_payments(self, batch: Batch, order: Order) -> None:
        events = {Event.AUTHORISED: timedelta(minutes=1), Event.CAPTURED: timedelta(hours=1)}
        if order.status == Status.REFUNDED:
            events[Event.REFUNDED] = timedelta(days=12)
        token = f"tok_{self.rng.getrandbits(128):032x}"
        for event, delay in events.items():
            payment = PaymentAudit(
                id=next(self.payment_ids),
                order=order,
                event=event,
                card_token=token,
                amount=order.total,
                created=order.created + delay,
                created_by="checkout",
            )
            batch.payments.append(payment)

    def add_shipment(self, batch: Batch, order: Order, lines: list[OrderLine]) -> None:
        sent = order.created + timedelta(hours=self.rng.randint(4, 48))
        arrived = sent + timedelta(hours=self.rng.randint(18, 160))
        shipment = Shipment(
            id=next(self.shipment_ids),
            order=order,
            carrier=self.rng.choice(Shipment.Carrier.values),
            tracking_number=f"{self.rng.getrandbits(40):012X}{order.id:07}",
            shipped_at=sent,
            delivered_at=None if order.status == Status.SHIPPED else arrived,
        )
        batch.shipments.append(shipment)
        batch.movements += [self.movement(line, -line.quantity, Reason.SALE, sent) for line in lines]
        if order.status == Status.REFUNDED:
            returned = arrived + timedelta(days=2)
            batch.movements += [self.movement(line, line.quantity, Reason.RETURN, returned) for line in lines]

    def movement(self, line: OrderLine, quantity: int, reason: Reason, created: datetime) -> StockMovement:
        return StockMovement(
            id=next(self.movement_ids),
            product=line.product,
            quantity=quantity,
            reason=reason,
            created=created,
        )

    def review(self, order: Order, product: Product) -> Review:
        rating = pick(self.rng, RATINGS)
        title, body = self.rng.choice(texts.REVIEWS[rating])
        return Review(
            id=next(self.review_ids),
            product=product,
            customer=order.customer,
            rating=rating,
            title=title,
            body=body,
            created=order.created + timedelta(days=self.rng.randint(9, 40)),
        )

"""What was ordered, and what followed from each order."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import count
from random import Random
from typing import TypeVar

from ..models import Customer, Order, OrderLine, PaymentAudit, Product, Review, Shipment, StockMovement
from . import stories, texts
from .stories import Period

T = TypeVar("T")

Status = Order.Status
Event = PaymentAudit.Event
Reason = StockMovement.Reason

# The fates of orders of the last weeks, and of all earlier ones.
RECENT_FATES = {Status.PENDING: 20, Status.PAID: 30, Status.SHIPPED: 42, Status.CANCELLED: 8}
FATES = {Status.DELIVERED: 88, Status.REFUNDED: 5, Status.CANCELLED: 5, Status.SHIPPED: 2}
RECENT = timedelta(days=14)
# A small shop has open orders too.
RECENT_ORDERS = 40
UNPAID = (Status.PENDING, Status.CANCELLED)
SENT = (Status.SHIPPED, Status.DELIVERED, Status.REFUNDED)
RATINGS = {1: 5, 2: 8, 3: 15, 4: 32, 5: 40}
REFUNDED_AFTER = timedelta(days=12)


def joined(customer: Customer) -> date:
    return customer.joined


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
    """Makes orders from the day when the shop opened to the evening before today, the oldest first.

    Primary keys are set here, so that they too are the same each time and rows need no saved parent.
    """

    def __init__(
        self,
        rng: Random,
        total: int,
        period: Period,
        customers: Sequence[Customer],
        products: Sequence[Product],
    ) -> None:
        self.rng = rng
        self.period = period
        self.interval = period.open_time / total
        self.customers = sorted(customers, key=joined)
        self.growing = [customer for customer in self.customers if customer.city.country_id in stories.GROWING]
        self.returner = stories.returner(customers)
        self.products = [product for product in products if product.sku not in stories.NEVER_SOLD]
        self.first_recent = total - RECENT_ORDERS
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
        # The first order comes half an interval after the opening, the last one half an interval before the end.
        created = self.period.moment(self.interval * (pk - 0.5))
        customer = self.customer(created)
        order = Order(
            id=pk,
            number=f"{created.year}-{pk:07}",
            customer=customer,
            country_id=customer.city.country_id,
            status=self.fate(pk, customer, created),
            note=self.rng.choice(texts.NOTES) if self.rng.random() < 0.08 else "",
            created=created,
        )
        lines = self.lines(order)
        order.total = sum(line.quantity * line.unit_price for line in lines)
        batch.orders.append(order)
        batch.lines += lines
        if order.status in SENT:
            self.add_shipment(batch, order, lines)
        if order.status not in UNPAID:
            self.add_payments(batch, order)
        if order.status == Status.DELIVERED and self.rng.random() < 0.25:
            batch.reviews.append(self.review(order, lines[0].product, batch.shipments[-1].delivered_at))

    def customer(self, created: datetime) -> Customer:
        """A region that grows takes a larger share of the orders from month to month."""
        grows = self.rng.random() < stories.GROWTH * self.period.share(created)
        pool = self.growing if grows and self.growing else self.customers
        members = bisect_left(pool, created.date(), key=joined)
        return pool[self.rng.randrange(max(members, 1))]

    def fate(self, pk: int, customer: Customer, created: datetime) -> Status:
        recent = pk > self.first_recent or created > self.period.end - RECENT
        fate = pick(self.rng, RECENT_FATES if recent else FATES)
        return Status.REFUNDED if customer == self.returner and not recent else fate

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
            events[Event.REFUNDED] = REFUNDED_AFTER
        token = f"tok_{self.rng.getrandbits(128):032x}"
        for event, delay in events.items():
            payment = PaymentAudit(
                id=next(self.payment_ids),
                order=order,
                event=event,
                card_token=token,
                amount=order.total,
                created=min(order.created + delay, self.period.end),
                created_by="checkout",
            )
            batch.payments.append(payment)

    def add_shipment(self, batch: Batch, order: Order, lines: list[OrderLine]) -> None:
        """Send the order, unless that would be in the future; what has not arrived yet is under way."""
        carrier = self.rng.choice(Shipment.Carrier.values)
        sent = order.created + timedelta(hours=self.rng.randint(4, 48))
        arrived = sent + timedelta(hours=self.rng.randint(*stories.HOURS.get(carrier, stories.USUAL_HOURS)))
        if sent >= self.period.end:
            order.status = Status.PAID
            return
        if arrived + REFUNDED_AFTER >= self.period.end:
            order.status = Status.SHIPPED if arrived >= self.period.end else Status.DELIVERED
        shipment = Shipment(
            id=next(self.shipment_ids),
            order=order,
            carrier=carrier,
            tracking_number=f"{self.rng.getrandbits(40):012X}{order.id:07}",
            shipped_at=sent,
            promised_at=sent + stories.PROMISES.get(carrier, stories.USUAL_PROMISE),
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

    def review(self, order: Order, product: Product, arrived: datetime) -> Review:
        rating = pick(self.rng, RATINGS)
        title, body = self.rng.choice(texts.REVIEWS[rating])
        return Review(
            id=next(self.review_ids),
            product=product,
            customer=order.customer,
            rating=rating,
            title=title,
            body=body,
            created=min(arrived + timedelta(days=self.rng.randint(1, 30)), self.period.end),
        )

"""The rows that the shop begins with. Each start has the same, moved to its day."""

import json
import random
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from .models import Customer, Order, Product

# How many days a parcel takes, but for chance.
TRANSIT = {"DHL": 2.3, "FedEx": 2.6, "Post": 10.0, "UPS": 2.5}


def load_rows(now: datetime) -> None:
    """Fill the empty tables with customers, products, and 600 orders of the year before ``now``."""
    rows = json.loads(Path(__file__).with_name("rows.json").read_text())
    customers = Customer.objects.bulk_create(Customer(**row) for row in rows["customers"])
    products = Product.objects.bulk_create(Product(**row) for row in rows["products"])
    chance = random.Random(1)
    ages = sorted((chance.uniform(0, 365) for _ in range(600)), reverse=True)
    orders = [Order(name=f"R-{number:04}", created=now - timedelta(age)) for number, age in enumerate(ages, 1)]
    for order in orders:
        order.customer, order.product = chance.choice(customers), chance.choice(products)
        order.quantity = chance.randint(1, 4)
        order.total = order.quantity * Decimal(order.product.price)
        carrier, shipped = chance.choice([*TRANSIT]), order.created + timedelta(chance.uniform(2, 9))
        delivered = shipped + timedelta(TRANSIT[carrier] * chance.uniform(0.8, 1.2))
        # As far on its way as it would be by now.
        if shipped < now:
            order.status, order.carrier, order.shipped = "shipped", carrier, shipped
        if delivered < now:
            order.status, order.delivered = "delivered", delivered
    Order.objects.bulk_create(orders)

"""Fills the shop with made-up data of the last two years."""

from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.management.color import no_style
from django.db import connection, models, reset_queries, transaction

from example_project.places.models import City
from example_project.progress import Progress
from example_project.shop import models as shop
from example_project.shop.sampledata import history
from example_project.shop.sampledata.catalogue import create_catalogue
from example_project.shop.sampledata.customers import customers
from example_project.shop.sampledata.orders import OrderMaker
from example_project.shop.sampledata.stories import Period, run_out, sign_up_twice

# How long before the opening of the shop its first customers joined.
EARLY = timedelta(days=180)
BATCH = 500
CUSTOMERS = range(100, 20_000)
ORDERS_PER_CUSTOMER = 5

MODELS: tuple[type[models.Model], ...] = (
    shop.Category,
    shop.Supplier,
    shop.Product,
    shop.Product.suppliers.through,
    shop.Document,
    shop.Customer,
    shop.Order,
    shop.OrderLine,
    shop.PaymentAudit,
    shop.Shipment,
    shop.StockMovement,
    shop.Review,
)


class Command(BaseCommand):
    help = (
        "Fills the shop with made-up data of the 24 months up to yesterday, the same for the same arguments and day. "
        "Existing data is kept."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--orders", type=int, default=2000, metavar="N", help="default: %(default)s")
        parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
        parser.add_argument("--today", type=date.fromisoformat, metavar="YYYY-MM-DD", help="default: today in UTC")
        parser.add_argument("--flush", action="store_true", help="empty the shop first")

    def handle(self, *, orders: int, seed: int, today: date | None, flush: bool, **options: Any) -> None:
        if orders < 1:
            raise CommandError("--orders must be at least 1.")
        if not City.objects.exists():
            raise CommandError("Customers need cities to live in: run load_places first.")
        with transaction.atomic():
            if flush:
                empty_shop()
            if shop.Order.objects.exists():
                self.stdout.write("The shop has data already, and keeps it. --flush replaces it.")
                return
            period = Period(today or datetime.now(UTC).date())
            self.fill(Random(seed), orders, period)
            history.record(seed, period)
            reset_sequences()
        self.stdout.write(
            f"{shop.Product.objects.count():,} products, {shop.Customer.objects.count():,} customers"
            f" and {shop.Order.objects.count():,} orders."
        )

    def fill(self, rng: Random, orders: int, period: Period) -> None:
        products = create_catalogue(rng, period.opening)
        wanted = min(max(orders // ORDERS_PER_CUSTOMER, CUSTOMERS.start), CUSTOMERS.stop)
        buyers = shop.Customer.objects.bulk_create(customers(rng, wanted, period.opening.date() - EARLY, period.today))
        maker = OrderMaker(rng, orders, period, buyers, products)
        progress = Progress(self.stderr, "Orders", orders)
        while progress.done < orders:
            size = min(BATCH, orders - progress.done)
            maker.batch(size).save()
            reset_queries()  # with DEBUG on, Django would keep the SQL of every batch
            progress.advance(size)
        run_out(period.opening)
        sign_up_twice()


def empty_shop() -> None:
    """Truncates: `QuerySet.delete()` would read a million orders into memory."""
    history.forget()
    tables = [model._meta.db_table for model in MODELS]
    connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), tables, reset_sequences=True))


def reset_sequences() -> None:
    """Lets the database count on from the primary keys that the sample data set."""
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), MODELS):
            cursor.execute(statement)

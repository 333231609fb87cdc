"""What there is to find in the data of the example project, and that a client can find it."""

import io
from datetime import UTC, date, datetime, timedelta

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import transaction
from django.db.models import Avg, Count, F, Max, Min, Q, Sum
from django.db.models.functions import TruncDate

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from docs.pictures.conversation import FIRST, of_carriers
from evals.shop import quiet
from example_project.shop.models import Customer, Order, OrderLine, PaymentAudit, Product, Review, Shipment
from example_project.shop.models import StockMovement as Movement
from example_project.shop.sampledata import stories
from mcp_django.testing import MCPClient
from tests.documentation import DOCS

pytestmark = pytest.mark.django_db

# A day on which neither month nor year begins; and one that its month two years ago does not have.
TODAY = date(2026, 8, 20)
LEAP_DAY = date(2028, 2, 29)


def load(name, **options):
    call_command(name, stdout=io.StringIO(), stderr=io.StringIO(), **options)


@pytest.fixture(scope="module", autouse=True)
def shop(django_db_setup, django_db_blocker):
    """The shop of the demo as of one day, rolled back after the last test."""
    with quiet(), django_db_blocker.unblock(), transaction.atomic():
        load("load_places", min_population=200_000)
        load("load_shop", today=TODAY)
        load("create_accounts")
        yield
        transaction.set_rollback(True)


def client_of(name):
    return MCPClient(get_user_model().objects.get(username=name))


def test_the_data_covers_two_years_up_to_yesterday():
    first, last = Order.objects.aggregate(first=Min("created"), last=Max("created")).values()
    assert first.date() == date(2024, 8, 1)
    assert last.date() == TODAY - timedelta(days=1)


@pytest.mark.parametrize(
    ("model", "field"),
    [
        *[(Order, "created"), (Shipment, "shipped_at"), (Shipment, "delivered_at"), (Review, "created")],
        *[(PaymentAudit, "created"), (Movement, "created")],
    ],
)
def test_nothing_happens_in_the_future(model, field):
    assert model.objects.aggregate(last=Max(field))["last"] <= datetime(2026, 8, 20, tzinfo=UTC)


def test_nobody_buys_before_joining():
    assert not Order.objects.annotate(day=TruncDate("created", tzinfo=UTC)).filter(day__lt=F("customer__joined"))


def test_some_products_ran_out_and_no_other_did():
    left = Product.objects.annotate(left=Sum("stock_movements__quantity"))
    assert set(left.filter(left__lt=100).values_list("sku", flat=True)) == set(stories.RUN_OUT)
    assert set(left.filter(sku__in=stories.RUN_OUT).values_list("left", flat=True)) == {stories.LEFT}


def test_some_products_were_never_sold_and_no_other():
    assert set(Product.objects.filter(lines=None).values_list("sku", flat=True)) == set(stories.NEVER_SOLD)


def test_one_carrier_is_late():
    on_the_way = Avg(F("delivered_at") - F("shipped_at"))
    days = dict(Shipment.objects.order_by().values_list("carrier").annotate(days=on_the_way))
    assert days.pop("post") > 2 * max(days.values())


def test_the_front_page_of_the_documentation_has_the_answer_of_the_shop():
    days = ["count", "avg:delivered_at-shipped_at"]
    asked = {"model": "shop.shipment", "group_by": ["carrier"], "aggregates": days}
    answer = client_of("admin").call("aggregate_records", **asked).structured
    page = " ".join((DOCS / "index.md").read_text().split())
    assert f"> {FIRST}" in page
    assert of_carriers(answer) in page


def test_one_region_grows():
    middle = datetime(2025, 8, 20, tzinfo=UTC)
    orders = Order.objects.filter(country__in=stories.GROWING)
    assert orders.filter(created__gte=middle).count() > 1.5 * orders.filter(created__lt=middle).count()


def test_one_customer_returns_everything():
    refunded = Count("orders", filter=Q(orders__status="refunded"))
    customers = Customer.objects.annotate(number=Count("orders"), refunded=refunded)
    assert customers.filter(number__gte=5, refunded=F("number")).count() == 1


def test_one_person_is_there_twice():
    names = [stories.FORMER_NAME, stories.PRESENT_NAME]
    former, present = (Customer.objects.get(name=name) for name in names)
    assert (former.phone, former.city) == (present.phone, present.city)
    assert former.orders.exists()
    assert former.reviews.exists()
    assert present.orders.exists()
    assert Customer.objects.filter(phone=former.phone).count() == 2


def test_one_month_has_an_outage():
    down = datetime(2026, 3, 10, tzinfo=UTC)
    assert not Order.objects.filter(created__gte=down, created__lt=down + stories.OUTAGE)
    assert Order.objects.filter(created__year=2026, created__month=3).exists()


@pytest.mark.parametrize("today", [LEAP_DAY, date(2027, 1, 1), date(2026, 12, 31)])
def test_every_day_has_its_data_the_same_each_time(today):
    facts = []
    for _ in range(2):
        with transaction.atomic():
            load("load_shop", orders=60, today=today, flush=True)
            facts.append(list(Order.objects.values_list("number", "customer__email", "status", "total", "created")))
            transaction.set_rollback(True)
    assert len(facts[0]) == 60
    assert facts[0] == facts[1]


def test_a_client_finds_the_best_sellers():
    result = client_of("admin").call(
        "aggregate_records",
        model="shop.orderline",
        group_by=["product"],
        aggregates=["sum:quantity"],
        ordering=["-sum_quantity"],
        limit=5,
    )
    assert not result.is_error, result.text
    best = (
        OrderLine.objects.order_by()
        .values("product", "product__name")
        .annotate(sold=Sum("quantity"))
        .order_by("-sold")[0]
    )
    assert result.structured["rows"][0][-1] == best["sold"]
    assert best["product__name"] in result.text


def test_the_warehouse_asks_the_lines_of_its_own_orders_only():
    result = client_of("warehouse").call("aggregate_records", model="shop.orderline", aggregates=["count"])
    own = OrderLine.objects.filter(order__country="DE").count()
    assert 0 < own < OrderLine.objects.count()
    assert result.structured["rows"] == [[own]]


def test_lines_are_changed_within_their_orders_alone():
    line = OrderLine.objects.first()
    client = client_of("admin")
    target = {"model": "shop.orderline", "pk": str(line.pk)}
    values = {"order": line.order_id, "product": str(line.product_id), "quantity": 99, "unit_price": "1.00"}
    assert client.call("update_record", **target, values={"quantity": 99}).is_error
    assert client.call("create_record", model="shop.orderline", values=values).is_error
    assert client.call("delete_record", **target).is_error
    assert OrderLine.objects.get(pk=line.pk).quantity == line.quantity
    assert not OrderLine.objects.filter(quantity=99)

"""What the example tells of work that takes longer than a request: the stock is taken."""

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import Sum

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from example_project.shop.models import Product, StockMovement
from mcp_django.testing import MCPClient

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shop")]
SHOP_ORDERS = 200


def client_of(name):
    return MCPClient(get_user_model().objects.get(username=name))


@pytest.fixture(scope="module")
def shelves(shop, django_db_setup):
    """What the stock is, as the tool of the shop tells it."""
    result = client_of("admin").call("take_stock", seconds=0)
    assert not result.is_error, result.text
    return result.structured["result"]


def test_each_shelf_has_the_pieces_that_its_movements_leave(shelves):
    pieces = StockMovement.objects.filter(product__active=True).order_by()
    stored = pieces.values_list("product__category__name").annotate(Sum("quantity"))
    assert {shelf["category"]: shelf["pieces"] for shelf in shelves} == dict(stored)


def test_each_product_on_sale_is_counted_once(shelves):
    assert sum(shelf["products"] for shelf in shelves) == Product.objects.filter(active=True).count()


def test_it_names_what_is_nearly_gone(shelves):
    named = [name for shelf in shelves for name in shelf["nearly_gone"]]
    left = Product.objects.filter(active=True).annotate(pieces=Sum("stock_movements__quantity"))
    assert sorted(named) == sorted(left.filter(pieces__lt=10).values_list("name", flat=True))
    assert named


def test_half_a_minute_is_what_it_takes_by_default():
    [tool] = [tool for tool in client_of("admin").tools() if tool["name"] == "take_stock"]
    seconds = tool["inputSchema"]["properties"]["seconds"]["default"]
    assert 15 < seconds * Product.objects.filter(active=True).count() < 35


def test_only_who_sees_the_stock_can_take_it():
    assert not client_of("auditor").call("take_stock", seconds=0).is_error
    names = {tool["name"] for tool in client_of("nobody").tools()}
    assert "take_stock" not in names

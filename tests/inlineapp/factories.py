"""Rows and requests that the tests of inlines start from."""

from typing import Any

from django.contrib.auth.models import User

from mcp_django import MCPSite
from mcp_django.context.request import MCPRequest
from tests.tool_calls import request_of

from .admin import shop
from .models import Line, Order, Product

URLS = "tests.inlineapp.admin"
ORDER = {"model": "inlineapp.order"}


def make_order(number: str = "1", *quantities: int, **values: Any) -> Order:
    """Make an order with a line of a product of its own for each of the quantities."""
    order = Order.objects.create(number=number, **{"customer": "Ada", **values})
    for position, quantity in enumerate(quantities):
        product, _ = Product.objects.get_or_create(name=f"P{position}")
        Line.objects.create(order=order, product=product, quantity=quantity)
    return order


def shop_request(user: User, **options: Any) -> MCPRequest:
    """Return a request to a site that exposes what the admin site of the inlines has."""
    return request_of(user, MCPSite("shop", admin_site=shop), **options)


def rows_of(order: Order) -> list[tuple[Any, ...]]:
    return list(order.lines.order_by("pk").values_list("product__name", "quantity", "price"))

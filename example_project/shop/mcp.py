"""What the shop offers to MCP clients beyond its admin."""

import time
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated

from django.contrib import admin
from django.db.models import Count, QuerySet, Sum
from django.db.models.functions import ExtractMonth
from django.http import HttpRequest

import mcp_django as mcp
from mcp_django.context.request import MCPRequest

from .api import ReviewViewSet
from .models import Order, OrderLine, Product, StockMovement

# Pieces of a product of which fewer are nearly none.
FEW = 10

mcp.register_viewset("reviews", ReviewViewSet)


@mcp.register(Product)
class ProductExposure(mcp.ModelExposure):
    fields = [
        *["id", "sku", "name", "description", "category", "suppliers"],
        *["price", "image", "attributes", "active", "created"],
    ]
    search_fields = ["name", "sku", "category__name"]
    ordering = ["name", "id"]
    actions = ["adjust_price"]

    @mcp.action(permissions=["change"], destructive=False)
    def adjust_price(self, request: HttpRequest, queryset: QuerySet[Product], *, percent: Decimal) -> str:
        """Raise prices by so many percent, or lower them by a negative percentage."""
        if not -90 <= percent <= 100:
            raise mcp.ToolError("percent must be between -90 and 100.")
        factor = 1 + percent / 100
        for product in queryset:
            product.price = (product.price * factor).quantize(Decimal("0.01"))
            product.save(update_fields=["price"])
        return f"{len(queryset)} prices changed by {percent:+}%."


@mcp.register(StockMovement)
class StockMovementExposure(mcp.ModelExposure):
    fields = ["id", "product", "quantity", "reason", "created"]
    search_fields = ["product__name", "product__sku"]
    ordering = ["-created", "-id"]


@mcp.register(OrderLine)
class OrderLineExposure(mcp.ModelExposure):
    """The admin shows lines within their orders, and changes them there: here they can be asked."""

    fields = ["id", "order", "product", "quantity", "unit_price", "subtotal"]
    search_fields = ["product__name", "product__sku"]
    search_terms = ["items sold", "sales", "best sellers", "revenue", "turnover"]
    ordering = ["-id"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[OrderLine]:
        orders = admin.site.get_model_admin(Order).get_queryset(request)
        return super().get_queryset(request).filter(order__in=orders.order_by())

    @admin.display(description="subtotal")
    def subtotal(self, line: OrderLine) -> Decimal:
        return line.quantity * line.unit_price

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: OrderLine | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: OrderLine | None = None) -> bool:
        return False


@dataclass
class MonthRevenue:
    """What was sold in one month, without cancelled and refunded orders."""

    month: int
    orders: int
    revenue: Decimal


@mcp.tool(read_only=True, permissions=["shop.view_order"])
def revenue_by_month(request: HttpRequest, year: int) -> list[MonthRevenue]:
    """Orders and revenue of each month of a year, of the orders that the caller may see."""
    order_admin = admin.site.get_model_admin(Order)
    months = (
        order_admin.get_queryset(request)
        .filter(created__year=year, status__in=Order.EARNED)
        .order_by()
        .values(month=ExtractMonth("created"))
        .annotate(orders=Count("id"), revenue=Sum("total"))
        .order_by("month")
    )
    return [MonthRevenue(row["month"], row["orders"], round(row["revenue"], 2)) for row in months]


@dataclass
class Shelf:
    """What is in stock of one category, at the prices of today, and what is nearly gone of it."""

    category: str
    products: int = 0
    pieces: int = 0
    value: Decimal = Decimal(0)
    nearly_gone: list[str] = field(default_factory=list)


@mcp.tool(
    read_only=True,
    permissions=["shop.view_product", "shop.view_stockmovement"],
    task=mcp.task(timeout=600),
)
def take_stock(
    request: MCPRequest,
    seconds: Annotated[float, mcp.Param("Time that the scanner takes for one product", minimum=0, maximum=1)] = 0.1,
) -> list[Shelf]:
    """Count what is in stock, shelf by shelf: each product on sale is scanned, which takes half a minute in all."""
    exposures = request.mcp.site.exposures
    products = exposures[Product].get_queryset(request).filter(active=True).select_related("category")
    movements = exposures[StockMovement].get_queryset(request)
    on_sale = list(products.order_by("category__name", "name"))
    shelves: dict[str, Shelf] = {}
    for done, product in enumerate(on_sale, start=1):
        time.sleep(seconds)
        counted = movements.filter(product=product).order_by().aggregate(pieces=Sum("quantity"))
        pieces = counted["pieces"] or 0

        shelf = shelves.setdefault(product.category.name, Shelf(product.category.name))
        shelf.products += 1
        shelf.pieces += pieces
        shelf.value += pieces * product.price
        if pieces < FEW:
            shelf.nearly_gone.append(product.name)
        request.mcp.progress(done, len(on_sale), f"{product.category.name}: {shelf.pieces} pieces")
    return list(shelves.values())


@mcp.resource("shop://policy/returns")
def returns_policy(request: HttpRequest) -> str:
    """What customers may send back, and how long."""
    return (
        "Goods may be returned within 30 days of delivery, unused and in their box. "
        "Orders that have not been sent are cancelled instead; the refund goes to the card that paid."
    )


@mcp.prompt(permissions=["shop.view_order"])
def triage_order(request: HttpRequest, order: Order) -> str:
    """Find out what an order needs next."""
    return (
        f"Order {order.number} is {order.get_status_display().lower()}, created {order.created:%Y-%m-%d}, "
        f"total {order.total}. Read the order, its lines and its shipments, and shop://policy/returns. "
        "Then say in three sentences what holds it up and what to do next. Change nothing."
    )

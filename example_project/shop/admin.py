"""The shop's admin. Nothing here knows of MCP, but for what actions say of themselves, and the progress of one."""

import csv
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import Avg, Count, ForeignKey, QuerySet
from django.forms import BaseInlineFormSet, Form, ModelChoiceField, ModelForm
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import ngettext

from .forms import RefundForm
from .models import (
    Category,
    Customer,
    Document,
    Order,
    OrderLine,
    PaymentAudit,
    Product,
    Review,
    Shipment,
    StaffProfile,
    StockMovement,
    Supplier,
)


class OwnCountryAdmin(admin.ModelAdmin):
    """Shows staff with a profile the rows of their own country only."""

    country_lookup = "country"

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        queryset = super().get_queryset(request)
        profile = StaffProfile.objects.filter(user_id=request.user.pk).first()
        if profile is None or request.user.is_superuser:
            return queryset
        return queryset.filter(**{self.country_lookup: profile.country_id})


class OrderSizeFilter(admin.SimpleListFilter):
    title = "size"
    parameter_name = "size"
    sizes = {
        "small": {"total__lt": 100},
        "medium": {"total__gte": 100, "total__lt": 1000},
        "large": {"total__gte": 1000},
    }

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [("small", "Less than 100"), ("medium", "100 to 1,000"), ("large", "1,000 or more")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Order]) -> QuerySet[Order]:
        return queryset.filter(**self.sizes.get(self.value(), {}))


class OrderLineInline(admin.TabularInline):
    model = OrderLine
    extra = 0
    autocomplete_fields = ["product"]
    fields = ["product", "quantity", "unit_price", "subtotal"]
    readonly_fields = ["subtotal"]

    @admin.display(description="subtotal")
    def subtotal(self, line: OrderLine) -> Decimal | None:
        return line.quantity * line.unit_price if line.pk else None


class ShipmentInline(admin.TabularInline):
    model = Shipment
    extra = 0


@admin.register(Order)
class OrderAdmin(OwnCountryAdmin):
    list_display = ["number", "customer", "city", "country", "status", "total", "is_open", "created"]
    list_filter = ["status", OrderSizeFilter, ("country", admin.RelatedOnlyFieldListFilter), "created"]
    list_select_related = ["customer__city", "country"]
    search_fields = ["number", "customer__name", "customer__email", "customer__city__name"]
    date_hierarchy = "created"
    ordering = ["-created", "-id"]
    show_full_result_count = False
    autocomplete_fields = ["customer"]
    readonly_fields = ["country", "total", "created"]
    fieldsets = [
        (None, {"fields": ["number", "customer", "country", "status"]}),
        ("Money", {"fields": ["total"]}),
        ("More", {"fields": ["note", "created"], "classes": ["collapse"]}),
    ]
    inlines = [OrderLineInline, ShipmentInline]
    actions = ["mark_shipped", "cancel_orders", "refund", "export_csv", "recalculate_totals"]

    @admin.display(description="city", ordering="customer__city__name")
    def city(self, order: Order) -> str:
        return order.customer.city.name

    @admin.display(description="open", boolean=True)
    def is_open(self, order: Order) -> bool:
        return order.status in (Order.Status.PENDING, Order.Status.PAID)

    def get_readonly_fields(self, request: HttpRequest, obj: Order | None = None) -> Sequence[str]:
        return self.readonly_fields if obj is None else [*self.readonly_fields, "number"]

    def has_delete_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        if obj is not None and obj.status == Order.Status.DELIVERED:
            return False
        return super().has_delete_permission(request, obj)

    def has_refund_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("shop.refund_order")

    def save_model(self, request: HttpRequest, obj: Order, form: ModelForm, change: bool) -> None:
        if not change or "customer" in form.changed_data:
            obj.country_id = obj.customer.city.country_id
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Form, formsets: list[BaseInlineFormSet], change: bool) -> None:
        super().save_related(request, form, formsets, change)
        form.instance.recalculate_total()

    @admin.action(description="Mark selected orders as shipped")
    def mark_shipped(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        if not self.has_change_permission(request):
            raise PermissionDenied
        shipped = queryset.filter(status=Order.Status.PAID).update(status=Order.Status.SHIPPED)
        message = ngettext("%d order was marked as shipped.", "%d orders were marked as shipped.", shipped)
        self.message_user(request, message % shipped, messages.SUCCESS)

    mark_shipped.mcp_destructive = False  # type: ignore[attr-defined]

    @admin.action(description="Cancel selected orders", permissions=["change"])
    def cancel_orders(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        selected = queryset.count()
        cancelled = queryset.filter(status__in=Order.CANCELLABLE).update(status=Order.Status.CANCELLED)
        message = ngettext("%d order was cancelled.", "%d orders were cancelled.", cancelled) % cancelled
        self.message_user(request, message, messages.SUCCESS)
        if cancelled < selected:
            self.message_user(request, "Orders already sent were left as they are.", messages.WARNING)

    @admin.action(description="Refund selected orders…", permissions=["refund"])
    def refund(self, request: HttpRequest, queryset: QuerySet[Order]) -> HttpResponse | None:
        orders = queryset.filter(status__in=Order.REFUNDABLE)
        if not orders:
            self.message_user(request, "None of these orders can be refunded.", messages.ERROR)
            return None
        if "apply" in request.POST:
            form = RefundForm(request.POST)
            if form.is_valid():
                return self.refund_orders(request, orders, form.cleaned_data)
        else:
            form = RefundForm()
        context = {
            **self.admin_site.each_context(request),
            "title": "Refund orders",
            "opts": self.opts,
            "orders": orders,
            "form": form,
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/shop/order/refund.html", context)

    refund.mcp_form = RefundForm  # type: ignore[attr-defined]

    def refund_orders(self, request: HttpRequest, orders: QuerySet[Order], data: dict[str, Any]) -> None:
        reason = f"{data['reason']} {data['comment']}".strip()
        count = 0
        for order in orders:
            amount = order.total if data["amount"] is None else min(data["amount"], order.total)
            order.refund(amount, reason, by=request.user.get_username())
            count += 1
        message = ngettext("%d order was refunded.", "%d orders were refunded.", count) % count
        self.message_user(request, message, messages.SUCCESS)

    @admin.action(description="Export selected orders as CSV", permissions=["view"])
    def export_csv(self, request: HttpRequest, queryset: QuerySet[Order]) -> HttpResponse:
        response = HttpResponse(
            content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": 'attachment; filename="orders.csv"'},
        )
        columns = ["number", "country_id", "status", "total", "created"]
        writer = csv.writer(response)
        writer.writerow(columns)
        writer.writerows(queryset.values_list(*columns).iterator())
        return response

    export_csv.mcp_destructive = False  # type: ignore[attr-defined]

    @admin.action(description="Recalculate totals of selected orders", permissions=["change"])
    def recalculate_totals(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        total = queryset.count()
        mcp = getattr(request, "mcp", None)
        for done, order in enumerate(queryset.iterator(), start=1):
            order.recalculate_total()
            if mcp is not None and done % 10 == 0:
                mcp.progress(done, total)
        message = ngettext("%d total was recalculated.", "%d totals were recalculated.", total) % total
        self.message_user(request, message, messages.SUCCESS)

    recalculate_totals.mcp_destructive = False  # type: ignore[attr-defined]


@admin.register(Shipment)
class ShipmentAdmin(OwnCountryAdmin):
    country_lookup = "order__country"
    list_display = [
        "tracking_number",
        "carrier",
        "order",
        "shipped_at",
        "promised_at",
        "delivered_at",
        "days_on_the_way",
    ]
    list_filter = ["carrier", ("delivered_at", admin.EmptyFieldListFilter), "shipped_at"]
    list_select_related = ["order"]
    search_fields = ["tracking_number", "order__number", "order__customer__name"]
    date_hierarchy = "shipped_at"
    autocomplete_fields = ["order"]

    @admin.display(description="days on the way")
    def days_on_the_way(self, shipment: Shipment) -> int:
        return ((shipment.delivered_at or timezone.now()) - shipment.shipped_at).days

    def formfield_for_foreignkey(
        self, db_field: ForeignKey, request: HttpRequest, **kwargs: Any
    ) -> ModelChoiceField | None:
        # Autocompletion alone would not stop a posted number of another country's order.
        if db_field.name == "order":
            kwargs["queryset"] = self.admin_site.get_model_admin(Order).get_queryset(request)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


@admin.register(PaymentAudit)
class PaymentAuditAdmin(OwnCountryAdmin):
    country_lookup = "order__country"
    list_display = ["order", "event", "amount", "created", "created_by"]
    list_filter = ["event", "created"]
    list_select_related = ["order"]
    search_fields = ["order__number", "created_by"]
    date_hierarchy = "created"
    exclude = ["card_token"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: PaymentAudit | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: PaymentAudit | None = None) -> bool:
        return False


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    list_display = ["name", "email", "city", "joined"]
    list_filter = ["joined", "city__country__continent"]
    list_select_related = ["city"]
    search_fields = ["name", "email", "city__name"]
    autocomplete_fields = ["city"]


@admin.register(Category)
class CategoryAdmin(admin.ModelAdmin):
    list_display = ["name", "parent", "slug", "product_count"]
    list_filter = [("parent", admin.RelatedOnlyFieldListFilter)]
    list_select_related = ["parent"]
    search_fields = ["name", "slug"]
    prepopulated_fields = {"slug": ["name"]}
    autocomplete_fields = ["parent"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Category]:
        return super().get_queryset(request).annotate(product_count=Count("products"))

    @admin.display(description="products", ordering="product_count")
    def product_count(self, category: Category) -> int:
        return category.product_count


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ["name", "sku", "category", "price", "rating", "active", "picture"]
    list_filter = ["active", "category__parent", "suppliers"]
    list_select_related = ["category"]
    list_editable = ["active"]
    search_fields = ["name", "sku", "category__name"]
    autocomplete_fields = ["category", "suppliers"]
    readonly_fields = ["created"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Product]:
        return super().get_queryset(request).annotate(rating=Avg("reviews__rating"))

    @admin.display(description="rating", ordering="rating", empty_value="none yet")
    def rating(self, product: Product) -> str | None:
        return None if product.rating is None else f"{product.rating:.1f}"

    @admin.display(description="picture")
    def picture(self, product: Product) -> str:
        return format_html('<img src="{}" alt="" height="24">', product.image.url) if product.image else ""


@admin.register(Supplier)
class SupplierAdmin(admin.ModelAdmin):
    list_display = ["name", "country", "email"]
    list_filter = [("country", admin.RelatedOnlyFieldListFilter)]
    list_select_related = ["country"]
    search_fields = ["name", "country__name"]
    autocomplete_fields = ["country"]


@admin.register(Review)
class ReviewAdmin(admin.ModelAdmin):
    list_display = ["title", "rating", "product", "customer", "created"]
    list_filter = ["rating", "created"]
    list_select_related = ["product", "customer"]
    search_fields = ["title", "body", "product__name"]
    autocomplete_fields = ["product", "customer"]


@admin.register(StockMovement)
class StockMovementAdmin(admin.ModelAdmin):
    list_display = ["product", "quantity", "reason", "created"]
    list_filter = ["reason", "created"]
    list_select_related = ["product"]
    search_fields = ["product__name", "product__sku"]
    date_hierarchy = "created"
    autocomplete_fields = ["product"]
    readonly_fields = ["created"]


@admin.register(Document)
class DocumentAdmin(admin.ModelAdmin):
    list_display = ["title", "file", "product", "uploaded"]
    list_select_related = ["product"]
    search_fields = ["title", "product__name"]
    autocomplete_fields = ["product"]
    readonly_fields = ["uploaded"]


@admin.register(StaffProfile)
class StaffProfileAdmin(admin.ModelAdmin):
    list_display = ["user", "country"]
    list_select_related = ["user", "country"]
    autocomplete_fields = ["user", "country"]

"""An admin site of its own, with every kind of inline."""

from typing import Any

from django.contrib import admin
from django.contrib.contenttypes.admin import GenericTabularInline
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet, ModelForm
from django.http import HttpRequest
from django.urls import path

from .models import Claim, Invoice, Label, Line, Note, Order, Product, Remark, Shipment

shop = admin.AdminSite("inlineapp")


class LineForm(ModelForm):
    def clean_price(self) -> Any:
        price = self.cleaned_data["price"]
        if price == 13:
            raise ValidationError("Thirteen is bad luck.")
        return price


class LineFormSet(BaseInlineFormSet):
    def clean(self) -> None:
        super().clean()
        kept = [form for form in self.forms if form.cleaned_data and not form.cleaned_data.get("DELETE")]
        if sum(form.cleaned_data.get("quantity") or 0 for form in kept) > 100:
            raise ValidationError("More than a hundred pieces.")


class LineInline(admin.TabularInline):
    model = Line
    form = LineForm
    formset = LineFormSet
    fields = ["product", "quantity", "price", "secret_code", "total", "updated"]
    readonly_fields = ["total", "updated"]
    autocomplete_fields = ["product"]
    max_num = 4

    @admin.display(description="total")
    def total(self, line: Line) -> str:
        return f"{line.order.number}/{line.product.name}: {line.quantity * line.price}"


class ShipmentInline(admin.StackedInline):
    model = Shipment
    fk_name = "order"
    fields = ["code", "lines"]
    raw_id_fields = ["lines"]
    extra = 1


class ReturnInline(admin.TabularInline):
    model = Shipment
    fk_name = "returned_for"
    fields = ["code", "order"]
    can_delete = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Shipment]:
        return super().get_queryset(request).exclude(code__startswith="X")


class RemarkInline(GenericTabularInline):
    model = Remark
    extra = 0


class LabelInline(admin.TabularInline):
    model = Order.labels.through


class InvoiceInline(admin.StackedInline):
    model = Invoice


class NoteInline(admin.TabularInline):
    model = Note

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class HiddenNoteInline(admin.TabularInline):
    model = Note
    mcp_expose = False
    verbose_name = "hidden note"


class OrderAdmin(admin.ModelAdmin):
    fields = ["number", "customer", "express"]
    inlines = [LineInline, ShipmentInline, ReturnInline, RemarkInline, LabelInline, InvoiceInline, NoteInline]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"customer": request.user.get_username(), **request.GET.dict()}


class ProductAdmin(admin.ModelAdmin):
    search_fields = ["name"]


shop.register(Order, OrderAdmin)
shop.register(Product, ProductAdmin)
shop.register([Line, Claim, Label])

urlpatterns = [path("shop/", shop.urls)]

from django.contrib import admin

from .models import Customer, Ticket
from .tasks import tell_customer


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    list_display = ["name", "email"]
    search_fields = ["name", "email"]


@admin.register(Ticket)
class TicketAdmin(admin.ModelAdmin):
    list_display = ["subject", "customer", "assignee", "status", "created"]
    list_filter = ["status", "created"]
    search_fields = ["subject", "customer__name"]
    autocomplete_fields = ["customer", "assignee"]

    def save_model(self, request, obj, form, change):
        super().save_model(request, obj, form, change)
        if "status" in form.changed_data:
            tell_customer.delay(obj.pk)

"""The admin of the shop, which is all that clients see of it."""

from django.contrib import admin

from .models import Customer, Order, Product

admin.site.register([Customer, Product], search_fields=["name"])
admin.site.register(Order, list_display=["name", "customer", "product", "total", "status", "carrier", "created"])

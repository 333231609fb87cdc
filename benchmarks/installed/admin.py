"""The admin, from which the app takes what it exposes."""

from django.contrib import admin

from .models import Order

admin.site.register(Order)

"""Creates the accounts that the documentation and the tests sign in with."""

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models import Q

from example_project.places.models import Country
from example_project.shop.models import StaffProfile

WAREHOUSE_COUNTRY = "DE"
WAREHOUSE_PERMISSIONS = {
    "view": [
        *["city", "country", "category", "customer", "document", "order", "orderline"],
        *["product", "shipment", "stockmovement", "supplier"],
    ],
    "add": ["shipment", "stockmovement"],
    "change": ["order", "shipment"],
}


class Command(BaseCommand):
    help = "Creates admin, warehouse, auditor, manager and nobody, each with its name as password. Needs DEBUG."

    @transaction.atomic
    def handle(self, **options: Any) -> None:
        if not settings.DEBUG:
            raise CommandError("Accounts with known passwords are for development only: set DJANGO_DEBUG=1.")
        country = Country.objects.filter(iso=WAREHOUSE_COUNTRY).first()
        if country is None:
            raise CommandError("The warehouse needs a country: run load_places first.")
        account("admin", is_staff=True, is_superuser=True)
        warehouse = account("warehouse", is_staff=True)
        warehouse.user_permissions.set(warehouse_permissions())
        StaffProfile.objects.update_or_create(user=warehouse, defaults={"country": country})
        in_shop = Permission.objects.filter(content_type__app_label__in=["places", "shop"])
        everything = in_shop.filter(codename__startswith="view_")
        account("auditor", is_staff=True).user_permissions.set(everything)
        account("manager", is_staff=True).user_permissions.set([*everything, in_shop.get(codename="approve_refund")])
        account("nobody")
        self.stdout.write("admin, warehouse, auditor, manager, nobody: the password of each is its name.")


def account(name: str, *, is_staff: bool = False, is_superuser: bool = False) -> Any:
    user, _ = get_user_model().objects.update_or_create(
        username=name,
        defaults={"is_staff": is_staff, "is_superuser": is_superuser, "email": f"{name}@example.com"},
    )
    if not user.check_password(name):
        user.set_password(name)
        user.save(update_fields=["password"])
    return user


def warehouse_permissions() -> list[Permission]:
    wanted = Q()
    for verb, models in WAREHOUSE_PERMISSIONS.items():
        wanted |= Q(codename__in=[f"{verb}_{model}" for model in models])
    return list(Permission.objects.filter(wanted, content_type__app_label__in=["places", "shop"]))

"""Creates the approval rule of the demo, as one would in the admin."""

from typing import Any

from django.core.management.base import BaseCommand

from mcp_django.models import ApprovalRule

NAME = "Refunds above 100"


class Command(BaseCommand):
    help = "Creates the approval rule that lets refunds above 100 wait for the manager, unless it is there."

    def handle(self, **options: Any) -> None:
        ApprovalRule.objects.get_or_create(
            name=NAME,
            defaults={
                "actions": ["shop.order.refund"],
                "condition": {"arguments": {"amount__gt": 100}},
                "permission": "shop.approve_refund",
            },
        )
        self.stdout.write(f"{NAME}: they wait for whoever may approve refunds, which is the manager.")

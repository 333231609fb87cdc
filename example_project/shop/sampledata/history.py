"""What the shop's staff changed in the last months, as the admin's history tells it."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model

from ..models import Customer, Order, Product
from .stories import Period

# How many changes of which field, of rows of which model.
CHANGES: Sequence[tuple[type[Model], str, int]] = [
    (Customer, "Email", 30),
    (Customer, "Phone", 15),
    (Order, "Status", 60),
    (Order, "Note", 20),
    (Product, "Price", 40),
    (Product, "Active", 10),
]
ROWS = 200
DAYS = 120
# Every third change came through a client; its message says so as the server writes it.
CLIENTS = (("Claude", "claude-desktop"), ("Codex", "codex-cli"))


def record(seed: int, period: Period) -> None:
    """Add entries of the staff that there is; nobody's where there is none."""
    staff = list(get_user_model().objects.filter(is_staff=True).order_by("pk"))
    if staff:
        LogEntry.objects.bulk_create(_entries(Random(seed), period, staff))


def forget() -> None:
    """Remove the entries of the shop's rows."""
    LogEntry.objects.filter(content_type__app_label="shop").delete()


def _entries(rng: Random, period: Period, staff: Sequence[Any]) -> Iterator[LogEntry]:
    for model, label, number in CHANGES:
        rows = list(model._default_manager.order_by("pk")[:ROWS])
        kind = ContentType.objects.get_for_model(model)
        for _ in range(number):
            row = rng.choice(rows)
            message: list[dict[str, Any]] = [{"changed": {"fields": [label]}}]
            if rng.random() < 1 / 3:
                client, client_id = rng.choice(CLIENTS)
                message += [
                    {"changed": {"fields": [f"via MCP: {client} ({client_id}), update_record"]}},
                    {
                        "via MCP": UUID(int=rng.getrandbits(128)).hex,
                        "tool": "update_record",
                        "client": client,
                        "client_id": client_id,
                    },
                ]
            yield LogEntry(
                action_time=period.end - timedelta(minutes=rng.randrange(DAYS * 24 * 60)),
                user=rng.choice(staff),
                content_type=kind,
                object_id=str(row.pk),
                object_repr=str(row)[:200],
                action_flag=CHANGE,
                change_message=json.dumps(message),
            )

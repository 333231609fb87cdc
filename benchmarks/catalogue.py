"""A site of many models, as a business has them: for counting what a language model reads of it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.apps.registry import Apps
from django.contrib import admin
from django.db import connection, models

from mcp_django import MCPSite

NUMBER, ROWS = 50, 50
NOUNS = ("order", "invoice", "shipment", "ticket", "contract", "lead", "payment", "return", "visit", "project")
PARTS = ("", "line", "note", "event", "rule")


class State(models.TextChoices):
    """Where a record is on its way."""

    DRAFT = "draft"
    OPEN = "open"
    CLOSED = "closed"


def catalogue() -> MCPSite:
    """Return a site of ``NUMBER`` models with thirteen fields and an action each; they have no tables."""
    registry, admin_site = Apps(), admin.AdminSite("catalogue")
    made: list[type[models.Model]] = []
    for noun in NOUNS:
        for part in PARTS:
            made.append(_model(noun + part, made[-1] if made else None, registry))
    for model in made:
        admin_site.register(model, _admin(model))
    return MCPSite("catalogue", admin_site=admin_site, history=False)


def _model(name: str, before: type[models.Model] | None, registry: Apps) -> type[models.Model]:
    meta = type("Meta", (), {"app_label": "shop", "apps": registry})
    fields: dict[str, Any] = {
        "number": models.CharField(max_length=20),
        "title": models.CharField(max_length=80),
        "parent": models.ForeignKey(before or "self", models.PROTECT, null=True, blank=True),
        "state": models.CharField(max_length=10, choices=State.choices, default=State.DRAFT),
        "quantity": models.IntegerField(default=1),
        "total": models.DecimalField(max_digits=10, decimal_places=2),
        "weight": models.FloatField(null=True, blank=True),
        "paid": models.BooleanField(default=False),
        "country": models.CharField(max_length=2, blank=True),
        "due": models.DateField(null=True, blank=True),
        "created": models.DateTimeField(),
        "note": models.TextField(blank=True),
    }
    members = {**fields, "Meta": meta, "__module__": __name__, "__str__": lambda row: row.number}
    return type(name.title(), (models.Model,), members)


@contextmanager
def filled(site: MCPSite) -> Iterator[str]:
    """Let the first model have a table with ``ROWS`` rows, and give its label."""
    model = min(site.exposures, key=lambda model: model._meta.label != "shop.Order")
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        model._default_manager.bulk_create(_rows(model))
        yield model._meta.label_lower
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(model)


def _rows(model: type[models.Model]) -> list[models.Model]:
    chance = random.Random(1)
    return [
        model(
            number=f"A-{1000 + number}",
            title=chance.choice(["Chairs", "Desk lamp", "Paper", "Office plants", "Coffee"]),
            parent_id=chance.randrange(1, number) if number > 1 and chance.random() < 0.3 else None,
            state=chance.choice(State.values),
            quantity=chance.randrange(1, 40),
            total=f"{chance.randrange(500, 90_000) / 100:.2f}",
            weight=None if chance.random() < 0.5 else chance.randrange(1, 60) / 4,
            paid=chance.random() < 0.6,
            country=chance.choice(["DE", "FR", "US", ""]),
            due=None if chance.random() < 0.5 else date(2026, 1, 1) + timedelta(days=chance.randrange(300)),
            created=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(10**7)),
        )
        for number in range(1, ROWS + 1)
    ]


def _admin(model: type[models.Model]) -> "type[admin.ModelAdmin[Any]]":
    @admin.action(description="Close", permissions=["change"])
    def close(modeladmin: Any, request: Any, queryset: Any) -> None:
        queryset.update(state=State.CLOSED)

    options = {
        "list_display": ["number", "title", "state", "total", "created"],
        "search_fields": ["number", "title"],
        "actions": [close],
    }
    return type(f"{model.__name__}Admin", (admin.ModelAdmin,), options)

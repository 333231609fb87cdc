"""The store has a database of its own; rows of two other apps may be read from a replica."""

from contextvars import ContextVar
from typing import Any

from django.db.models import Model

# Where rows of the replicated apps are read.
reads_from: ContextVar[str] = ContextVar("reads_from", default="default")
REPLICATED = ("sitesapp", "testapp")


class StoreRouter:
    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        if model._meta.app_label == "store":
            return "other"
        return reads_from.get() if model._meta.app_label in REPLICATED else "default"

    def db_for_write(self, model: type[Model], **hints: Any) -> str:
        return "other" if model._meta.app_label == "store" else "default"

    def allow_relation(self, first: Model, second: Model, **hints: Any) -> bool:
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "other") == (app_label == "store")

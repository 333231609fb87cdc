"""The store has a database of its own; what else is read may be read from the replica."""

from contextvars import ContextVar
from typing import Any

from django.db.models import Model

# Whether reads go to the replica.
reads_replica: ContextVar[bool] = ContextVar("reads_replica", default=False)


class StoreRouter:
    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        if model._meta.app_label == "store":
            return "other"
        return "replica" if reads_replica.get() and model._meta.app_label == "sitesapp" else "default"

    def db_for_write(self, model: type[Model], **hints: Any) -> str:
        return "other" if model._meta.app_label == "store" else "default"

    def allow_relation(self, first: Model, second: Model, **hints: Any) -> bool:
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "other") == (app_label == "store")

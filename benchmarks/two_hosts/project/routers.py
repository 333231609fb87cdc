"""Who reads from the replica."""

from typing import Any

from django.db.models import Model


class ReplicaRouter:
    """Reads of the project's own models go to the replica, everything else to the primary."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        """Return the database for a read."""
        return "replica" if model._meta.app_label == "ledger" else "default"

    def db_for_write(self, model: type[Model], **hints: Any) -> str:
        """Return the database for a write."""
        return "default"

    def allow_relation(self, first: Model, second: Model, **hints: Any) -> bool:
        """Return whether rows may be related."""
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        """Return whether tables are made there: the replica gets them from the primary."""
        return db == "default"

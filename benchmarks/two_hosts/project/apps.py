"""The app of the served project."""

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    """A ledger, a long table and counters."""

    name = "benchmarks.two_hosts.project"
    label = "ledger"
    default_auto_field = "django.db.models.BigAutoField"

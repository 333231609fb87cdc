"""The app of the crowd."""

from django.apps import AppConfig


class CrowdConfig(AppConfig):
    """A ledger, and tools that write it."""

    name = "tests.e2e.crowd"
    label = "crowd"
    default_auto_field = "django.db.models.BigAutoField"

"""The app of the shop."""

from django.apps import AppConfig


class TryoutConfig(AppConfig):
    """An ordinary app: models and an admin, and no code for MCP."""

    name, label, verbose_name = "mcp_django.tryout", "tinyshop", "Shop"
    default_auto_field = "django.db.models.BigAutoField"

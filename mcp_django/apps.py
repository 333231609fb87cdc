"""The app: it finds every ``mcp.py`` of the project and registers the system checks."""

from django.apps import AppConfig
from django.core import checks
from django.utils.module_loading import autodiscover_modules


class MCPDjangoConfig(AppConfig):
    """``mcp_django`` in ``INSTALLED_APPS``."""

    name = "mcp_django"
    verbose_name = "Model Context Protocol"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import the ``mcp`` module of every installed app, as the admin does with ``admin``."""
        from .checks import CHECKS
        from .sites import site

        for check in CHECKS:
            checks.register(check)
        autodiscover_modules("mcp", register_to=site)

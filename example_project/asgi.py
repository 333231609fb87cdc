"""ASGI entry point: MCP requests go straight to their consumer, all others to Django."""

import os

from mcp_django.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

application = get_asgi_application()

"""The application: the fast road, and Django behind it."""

import os

from mcp_django.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.two_hosts.project.settings")

application = get_asgi_application()

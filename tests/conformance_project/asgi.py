import os

from mcp_django.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.conformance_project.settings")

application = get_asgi_application()

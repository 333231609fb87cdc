"""The fast road: endpoints go straight to their consumer."""

from mcp_django.asgi import get_asgi_application

application = get_asgi_application()

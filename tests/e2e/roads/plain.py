"""The plain road: everything goes through Django."""

from django.core.asgi import get_asgi_application

application = get_asgi_application()

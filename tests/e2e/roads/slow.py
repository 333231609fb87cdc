"""The fast road where a stream takes long to open, as behind a lock in the database."""

import time
from typing import Any

from mcp_django.asgi import get_asgi_application

application = get_asgi_application()

# Django is set up by now.
from mcp_django.transports import notification_queues  # noqa: E402

open_subscription = notification_queues.open_subscription


def open_slowly(*arguments: Any, **options: Any) -> Any:
    time.sleep(1.5)
    return open_subscription(*arguments, **options)


notification_queues.open_subscription = open_slowly

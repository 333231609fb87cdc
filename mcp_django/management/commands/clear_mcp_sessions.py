"""``manage.py clear_mcp_sessions``: delete what is left of sessions, streams and calls that are over."""

from typing import Any

from django.core.management.base import BaseCommand

from ...methods.once import clear_keyed_calls
from ...sessions import clear_sessions
from ...streams import clear_streams


class Command(BaseCommand):
    """Deletes what is older than ``SESSION_IDLE``, ``STREAM_MAX_AGE`` and ``IDEMPOTENCY_MAX_AGE``."""

    help = "Delete MCP sessions that were not used for SESSION_IDLE seconds, and streams and calls of no more use."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print how many were deleted."""
        streams, sessions, calls = clear_streams(), clear_sessions(), clear_keyed_calls()
        self.stdout.write(f"Deleted {sessions} sessions, {streams} streams and {calls} calls.")

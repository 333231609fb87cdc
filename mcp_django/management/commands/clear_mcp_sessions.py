"""``manage.py clear_mcp_sessions``: delete what is left of sessions and streams that are over."""

from typing import Any

from django.core.management.base import BaseCommand

from ...sessions import clear_sessions
from ...streams import clear_streams


class Command(BaseCommand):
    """Deletes sessions that lay unused longer than ``SESSION_IDLE``, and streams past ``STREAM_MAX_AGE``."""

    help = "Delete MCP sessions that were not used for SESSION_IDLE seconds, and streams that nobody can resume."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print how many were deleted."""
        streams, sessions = clear_streams(), clear_sessions()
        self.stdout.write(f"Deleted {sessions} sessions and {streams} streams.")

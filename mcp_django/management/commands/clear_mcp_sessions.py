"""``manage.py clear_mcp_sessions``: delete sessions, streams, keyed calls, changes and uploads that are too old."""

from typing import Any

from ...differences.kept_changes import KeptChange
from ...emulation.uploads import Upload
from ...server.idempotency_keys import Once
from ...server.sessions import ClientSession
from ...server.stored_streams import StoredStream
from ..command_arguments import TableCommand


class Command(TableCommand):
    """Delete what is older than ``SESSION_IDLE``, ``STREAM_MAX_AGE``, ``IDEMPOTENCY_MAX_AGE`` and ``UNDO_DAYS`` say."""

    help = "Delete MCP sessions unused for a week, streams, calls and uploads that are done, and old changes."

    def handle(self, *args: Any, **options: Any) -> None:
        streams = StoredStream.clear_expired()
        sessions = ClientSession.clear_expired()
        calls = Once.clear_expired()
        uploads = Upload.clear()
        changes = KeptChange.clear_expired()
        self.stdout.write(f"Deleted {sessions} sessions, {streams} streams, {calls} calls and {uploads} uploads.")
        if changes:
            self.stdout.write(f"Deleted {changes} changes: they can no longer be taken back.")

"""``manage.py clear_mcp_sessions``: delete sessions, streams, keyed calls and uploads that are no longer needed."""

from typing import Any

from ...emulation.uploads import Upload
from ...server.idempotency_keys import Once
from ...server.sessions import ClientSession
from ...server.stored_streams import StoredStream
from ..command_arguments import TableCommand


class Command(TableCommand):
    """Delete what is older than ``SESSION_IDLE``, ``STREAM_MAX_AGE`` and ``IDEMPOTENCY_MAX_AGE`` say."""

    help = "Delete MCP sessions unused for a week, and streams, calls and uploads that are done."

    def handle(self, *args: Any, **options: Any) -> None:
        streams = StoredStream.clear_expired()
        sessions = ClientSession.clear_expired()
        calls = Once.clear_expired()
        uploads = Upload.clear()
        self.stdout.write(f"Deleted {sessions} sessions, {streams} streams, {calls} calls and {uploads} uploads.")

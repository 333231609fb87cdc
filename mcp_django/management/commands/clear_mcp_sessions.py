"""``manage.py clear_mcp_sessions``: delete old sessions, streams, keyed calls, changes, tasks, uploads and exports."""

from typing import Any

from ...console.task_list import LOST, count_open
from ...differences.kept_changes import KeptChange
from ...emulation.uploads import Upload
from ...exports.kept_exports import KeptExport
from ...server.idempotency_keys import Once
from ...server.sessions import ClientSession
from ...server.stored_streams import StoredStream
from ...tasks.stored_tasks import StoredTask
from ..command_arguments import TableCommand


class Command(TableCommand):
    """Delete what is older than ``SESSION_IDLE``, ``STREAM_MAX_AGE``, ``IDEMPOTENCY_MAX_AGE`` and ``UNDO_DAYS`` say."""

    help = (
        "Delete MCP sessions unused for a week, streams, calls, tasks, uploads that are done, old changes and exports."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        streams = StoredStream.clear_expired()
        sessions = ClientSession.clear_expired()
        calls = Once.clear_expired()
        uploads = Upload.clear()
        exports = KeptExport.purge()
        changes = KeptChange.clear_expired()
        lost = count_open(lost=LOST)["lost"]
        tasks = StoredTask.clear_expired()
        self.stdout.write(f"Deleted {sessions} sessions, {streams} streams, {calls} calls and {uploads} uploads.")
        if changes:
            self.stdout.write(f"Deleted {changes} changes: they can no longer be taken back.")
        if exports:
            self.stdout.write(f"Deleted {exports} exports: their files can no longer be fetched.")
        if lost:
            self.stdout.write(f"Ended {lost} tasks that had lost their worker.")
        if tasks:
            self.stdout.write(f"Deleted {tasks} tasks: their results can no longer be read.")

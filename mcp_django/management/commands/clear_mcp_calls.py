"""``manage.py clear_mcp_calls``: delete what is old of the log of calls."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...conf import settings
from ...operating.retention import clear_calls


class Command(BaseCommand):
    """Deletes calls older than ``CALL_LOG_DAYS``, in batches, so that nothing waits for it."""

    help = "Delete calls from the log that are older than CALL_LOG_DAYS."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the age."""
        parser.add_argument("--days", type=int, default=None, help="Keep so many days instead; 0 deletes all.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print how many were deleted."""
        days = settings.CALL_LOG_DAYS if options["days"] is None else options["days"]
        if days < 0:
            raise CommandError("--days has to be 0 or more.")
        self.stdout.write(f"Deleted {clear_calls(days)} calls.")

"""``manage.py clear_mcp_calls``: delete old calls from the log of calls."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...conf import settings
from ...conf.defaults import DEFAULTS
from ...operating.call_log_storage import clear_calls, old_calls
from ..command_arguments import TableCommand


class Command(TableCommand):
    """Delete calls that are older than the days of ``CALL_LOG``, in batches."""

    help = "Delete calls from the log that are older than the days of CALL_LOG."

    def add_arguments(self, parser: CommandParser) -> None:
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument("--days", type=int, default=None, help="keep this many days instead")
        chosen.add_argument("--all", action="store_true", help="delete all calls")
        parser.add_argument("--dry-run", action="store_true", help="count, and delete nothing")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        days = (settings.CALL_LOG or DEFAULTS["CALL_LOG"])["days"] if options["days"] is None else options["days"]
        if days < 1:
            raise CommandError("--days must be 1 or more. To delete the whole log, use --all.")
        days = 0 if options["all"] else days
        if dry_run:
            self.stdout.write(f"Would delete {old_calls(days).count()} calls.")
        else:
            self.stdout.write(f"Deleted {clear_calls(days)} calls.")

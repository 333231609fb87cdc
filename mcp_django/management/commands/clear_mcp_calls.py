"""``manage.py clear_mcp_calls``: delete old calls from the log of calls."""

from datetime import timedelta
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser
from django.db import router
from django.utils import timezone

from ...conf import settings
from ...conf.defaults import DEFAULTS
from ...models import CallEntry
from ..command_arguments import TableCommand

# Maximum number of rows that one statement deletes; more only if they have the same time.
DELETED_AT_ONCE: Final = 10_000


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


def old_calls(days: int) -> Any:
    """Return the queryset of the calls that are older than so many days."""
    return CallEntry._default_manager.using(router.db_for_write(CallEntry)).filter(
        time__lt=timezone.now() - timedelta(days=days)
    )


def clear_calls(days: int) -> int:
    """Delete the calls that are older than so many days, the oldest first; return their number.

    Each batch is a transaction of its own. The index on time finds it from the end of the last batch on, so that
    deleted rows are not scanned again.
    """
    rows = old_calls(days)
    since = None
    deleted = 0
    while True:
        old = rows.filter(time__gte=since) if since is not None else rows
        last = list(old.order_by("time").values_list("time", flat=True)[DELETED_AT_ONCE - 1 : DELETED_AT_ONCE])
        batch = old.filter(time__lte=last[0]) if last else old
        # Delete without Django's collector: these rows have no relations and no signal receivers.
        deleted += batch._raw_delete(rows.db)
        if not last:
            return deleted
        since = last[0]

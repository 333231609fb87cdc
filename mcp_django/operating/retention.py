"""How long the log of calls is kept: what is older is deleted in batches, of which none holds anybody up."""

from datetime import timedelta
from typing import Any, Final

from django.db import router
from django.utils import timezone

from ..models import CallEntry

# Rows of one statement, more only where they have one time.
BATCH: Final = 10_000


def old_calls(days: int) -> Any:
    """Return the queryset of the calls that are older than so many days."""
    rows = CallEntry._default_manager.using(router.db_for_write(CallEntry))
    return rows.filter(time__lt=timezone.now() - timedelta(days=days))


def clear_calls(days: int) -> int:
    """Delete the calls that are older than so many days, the oldest first; return how many there were.

    Each batch is a transaction of its own, and is found by the index of the time: what was deleted before is not looked
    at again.
    """
    rows, since, deleted = old_calls(days), None, 0
    while True:
        old = rows.filter(time__gte=since) if since is not None else rows
        found = list(old.order_by("time").values_list("time", flat=True)[BATCH - 1 : BATCH])
        batch = old.filter(time__lte=found[0]) if found else old
        # There are no relations and no signals to look for.
        deleted += batch._raw_delete(rows.db)
        if not found:
            return deleted
        since = found[0]

"""What goes on now, over all workers: sessions that are used, streams that are open, and calls that run."""

from datetime import timedelta
from typing import Final

from django.utils import timezone

from ..models import CallEntry, Stream

# A session with a call in this time is in use.
IN_USE: Final = timedelta(minutes=15)


def counted() -> dict[str, int]:
    """Return how many ``sessions`` were used of late, and how many calls are ``running`` or ``asking`` their clients.

    ``streams`` are those that tell of changes, of the workers that share a channel layer with this one. Calls that are
    answered at once are over before anybody could count them; these have a stream of events.
    """
    # The admin is loaded where no call is served, too: by migrate and the shell.
    from ..server.streams import DEAD_AFTER
    from ..transports.http import roll

    now = timezone.now()
    used = CallEntry._default_manager.filter(time__gt=now - IN_USE).exclude(session="")
    alive = Stream._default_manager.filter(state=Stream.State.RUNNING, alive__gt=now - timedelta(seconds=DEAD_AFTER))
    return {
        "streams": roll.call().count,
        "sessions": used.order_by().values("session").distinct().count(),
        "running": alive.count(),
        "asking": Stream._default_manager.filter(state=Stream.State.ASKING).count(),
    }

"""A queue in Redis as bad as one can be that is allowed: some ids come twice, and some are lost at first."""

from functools import cache

from django.conf import settings
from redis import Redis

QUEUE = f"{settings.PREFIX}-tasks"
LOST = f"{settings.PREFIX}-lost"
# By the last digit of the id.
TWICE, AT_FIRST_LOST = "0", "1"


@cache
def broker() -> "Redis":
    return Redis.from_url(settings.REDIS_URL)


def enqueue(task_id: str) -> None:
    """Put the id of a task into the queue: what the setting names."""
    if task_id.endswith(AT_FIRST_LOST) and broker().sadd(LOST, task_id):
        return
    broker().lpush(QUEUE, *[task_id] * (2 if task_id.endswith(TWICE) else 1))


def take() -> str | None:
    """Wait a second for an id, and take it."""
    found = broker().brpop([QUEUE], timeout=1)
    return found[1].decode() if found else None

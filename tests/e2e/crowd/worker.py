"""A process that runs tasks from the queue until it is ended; its clock may go wrong by so many hours."""

import os
import sys
import time


def set_clock(hours: float) -> None:
    """Let the clock of this process be ahead, before it has anything imported that reads it."""
    real = time.time
    time.time = lambda: real() + hours * 3600
    from datetime import timedelta

    from django.utils import timezone

    now = timezone.now
    timezone.now = lambda: now() + timedelta(hours=hours)


def main() -> None:
    if hours := float(os.environ.get("CROWD_CLOCK", 0)):
        set_clock(hours)
    import django

    django.setup()
    from django.db import connection

    from mcp_django.tasks import run_task

    from .broker import broker, take

    queries = 0

    def count(execute, *rest):
        nonlocal queries
        queries += 1
        return execute(*rest)

    told = f"{os.environ['WORKERS_PREFIX']}-queries"
    with connection.execute_wrapper(count):
        while True:
            task_id = take()
            if task_id is None:
                continue
            queries = 0
            run_task(task_id)
            broker().hincrby(told, sys.argv[1], queries)


if __name__ == "__main__":
    main()

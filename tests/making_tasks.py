"""Tasks as rows, at times that are relative to now: as a worker, a client and an operator would find them."""

import time
from typing import Any

from mcp_django.models import Task

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def make_task(ago: int = 0, **values: Any) -> Task:
    """Make a task, which was made ``ago`` milliseconds before now and waits for a worker; times are relative to now."""
    now = int(time.time() * SECOND)
    times = {"created": -ago, "updated": -ago, "handed": -ago, "expires": 24 * HOUR - ago}
    times |= {name: values.pop(name) for name in ("began", "lease", "ended", *times) if name in values}
    number = Task.objects.count()
    given: dict[str, Any] = {
        "id": f"{number:032x}",
        "timeout": 3600,
        "tool": "run_action",
        "model": "testapp.book",
        "action": "reprice",
        "username": "ada",
        "client_name": "Claude",
        "client_id": "claude-1",
        "site": "mcp",
        "call": f"{number:031x}c",
        **{name: now + value for name, value in times.items()},
        **values,
    }
    return Task.objects.create(**given)


def running(ago: int = 0, **values: Any) -> Task:
    """Make a task that a worker has taken ``ago`` milliseconds before now."""
    return make_task(ago, **{"began": -ago, "lease": 15 * SECOND, "attempt": 1, **values})


def ended(state: str, ago: int = 0, **values: Any) -> Task:
    """Make a task that has ended ``ago`` milliseconds before now, after a run of two seconds."""
    began = -ago - 2 * SECOND
    return make_task(ago + 3 * SECOND, state=state, began=began, ended=-ago, attempt=1, **values)

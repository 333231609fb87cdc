"""Tasks that code declares: which function tools and actions may go on when the request that called them has ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How the calls of a function tool or of an action run as tasks.

    ``timeout`` is the number of seconds that one run may take, None for the setting ``TASK_TIMEOUT``; ``CALL_TIMEOUT``
    does not hold for it. ``atomic`` runs a sync function in one transaction: a worker that comes back late changes
    nothing, and the work is run again if its worker dies. ``required`` refuses clients that do not declare that they
    take tasks.

    Raises:
        ImproperlyConfigured: ``timeout`` is not a number above 0.
    """

    timeout: float | None = None
    atomic: bool = False
    required: bool = False

    @staticmethod
    def read(declared: Any) -> TaskOptions | None:
        """Return the options that True or ``mcp.task()`` declares, None for False or None. Raises
        ``ImproperlyConfigured`` for anything else."""
        if declared is None or declared is False:
            return None
        if declared is True:
            return TaskOptions()
        if isinstance(declared, TaskOptions):
            return declared
        raise ImproperlyConfigured(f"task must be True, False or mcp.task(...), not {declared!r}.")

    @classmethod
    def of_action(cls, declared: Any, *, atomic: bool) -> TaskOptions | None:
        """Return what is declared of an action, as :meth:`read` does. Its own ``atomic`` says whether it is one
        transaction; raises ``ImproperlyConfigured`` where both disagree."""
        options = cls.read(declared)
        if options is not None and options.atomic and not atomic:
            raise ImproperlyConfigured("An action with atomic=False manages its own transactions: its task has none.")
        return options

    def __post_init__(self) -> None:
        seconds: Any = self.timeout
        if seconds is None:
            return
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not is_number or not 0 < seconds < math.inf:
            raise ImproperlyConfigured(f"timeout of mcp.task() must be a number of seconds above 0, not {seconds!r}.")

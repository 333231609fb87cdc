"""What a project declares of an action, and how its method runs."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["ActionOptions", "runs_anywhere"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOptions:
    """What is declared of an action.

    ``permissions`` are names of ``has_*_permission``; a caller needs one of them, as in the admin, for every row that
    is picked. ``destructive``: True asks before it runs, False hints that it is harmless, None is not known.
    ``atomic`` runs it in one transaction. ``asks`` says that it uses ``request.mcp.ask()``.
    """

    permissions: tuple[str, ...] = ("change",)
    description: str = ""
    destructive: bool | None = True
    read_only: bool = False
    atomic: bool = True
    asks: bool = False


def runs_anywhere(method: F) -> F:
    """Return a method ``(self, request, ...)`` that, as a generator, runs to its end for a request without ``mcp``.

    The admin calls its actions and looks no further: a generator would do nothing there, and nobody would notice.
    """
    if not inspect.isgeneratorfunction(method):
        return method

    @functools.wraps(method)
    def run(self: Any, request: Any, *args: Any, **options: Any) -> Any:
        steps = method(self, request, *args, **options)
        return steps if hasattr(request, "mcp") else _result_of(steps)

    return run  # type: ignore[return-value]


def _result_of(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value

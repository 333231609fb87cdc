"""Contain hooks of the project that fail: log each failing hook once, and go on with a default."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError
from django.db.models import Model

from ..exceptions import Cancelled, NotFound, ToolError

logger = logging.getLogger("mcp_django")

T = TypeVar("T")
D = TypeVar("D")
# Exceptions by which a hook refuses; they are not failures.
REFUSALS: Final = (PermissionDenied, NotFound, ToolError)
# Exceptions that are raised again: an unavailable database must not look like a model without rows or fields.
PASSING: Final = (DatabaseError, InterfaceError, Cancelled)
_noted: "ContextVar[HookFailures | None]" = ContextVar("mcp_django.failures", default=None)
_is_logged: ContextVar[bool] = ContextVar("mcp_django.logs_failures", default=True)
# Owner and name of each hook that was logged, at most as many as the project has hooks.
_logged: set[tuple[str, str]] = set()


def call_hook(owner: str, hook: str, ask: Callable[..., T], *arguments: Any, default: D) -> T | D:
    """Call a hook of the project and return its result, or ``default`` if it fails.

    ``owner`` is the label of its model, for the log; if it is empty, nothing is logged. Nor is it if an argument is a
    row that is not stored: only this app asks about one, when it describes a model. Database errors are raised.
    """
    try:
        return ask(*arguments)
    except Exception as error:
        note_failure("" if any(map(is_new, arguments)) else owner, hook, error)
        return default


def is_new(argument: Any) -> bool:
    """Return whether an argument of a hook is a row that is not stored, which lacks what hooks rely on."""
    return isinstance(argument, Model) and argument._state.adding


def note_failure(owner: str, hook: str, error: Exception) -> None:
    """Log the exception of a failing hook once, unless it is a refusal; raise database errors again."""
    if isinstance(error, PASSING):
        raise error
    if not owner or isinstance(error, REFUSALS):
        return
    if (noted := _noted.get()) is not None:
        noted.append((owner, hook, error))
    if _is_logged.get() and (owner, hook) not in _logged:
        _logged.add((owner, hook))
        why = cause_of(error)
        logger.warning("%s of %s failed: %swhat depends on it is left out", hook, owner, why, exc_info=error)


def cause_of(error: BaseException) -> str:
    """Return the cause of a failing hook, if it reads what only the project's middleware sets, for a log message; ""
    for any other cause."""
    # Imported here, because few hooks fail.
    from .middleware_source import missing_attribute

    found = missing_attribute(error)
    return f"{found}; " if found else ""


class HookFailures(list[tuple[str, str, BaseException]]):
    """Failures of hooks of the project: owner and name of each hook, and its exception."""

    @classmethod
    @contextmanager
    def noted(cls) -> "Iterator[HookFailures]":
        """Yield a list that gets each hook that fails within the block, whether it is logged or not."""
        noted = cls()
        token = _noted.set(noted)
        try:
            yield noted
        finally:
            _noted.reset(token)

    @staticmethod
    @contextmanager
    def unlogged() -> Iterator[None]:
        """Within the block, log no failing hook: for a command that prints the causes itself."""
        token = _is_logged.set(False)
        try:
            yield
        finally:
            _is_logged.reset(token)

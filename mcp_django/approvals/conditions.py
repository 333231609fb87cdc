"""The conditions of approval rules: on rows before and after a call, and on its arguments.

They are evaluated with the system's access, whatever the caller sees. A condition that cannot be evaluated applies.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from django.db.models import Model


class WrongCondition(ValueError):
    """Raised for a condition that cannot be used. Its text says why, for the person who wrote it."""


class RuleCondition:
    """A condition: ``{"total__gt": 100}`` on a row before or after, ``{"before": {...}}``, ``{"after": {...}}``,
    ``{"arguments": {...}}``; all members must hold. An empty one holds for everything.

    ``function`` is one in code, ``(request, arguments)``, in place of the data.
    """

    def __init__(self, data: Mapping[str, Any] | None = None, function: Callable[..., Any] | None = None) -> None:
        self.data = dict(data or {})
        self.function = function

    @classmethod
    def read(cls, data: Mapping[str, Any], models: Collection[type[Model]], names: Collection[str]) -> "RuleCondition":
        """Return the condition, checked against every model it is for, and the names of arguments that are known.

        Raises ``WrongCondition`` for a name that does not exist, a lookup or a value that does not fit.
        """
        raise NotImplementedError

    @property
    def is_on_rows(self) -> bool:
        """Whether the condition is on rows, before or after."""
        raise NotImplementedError

    @property
    def needs_after(self) -> bool:
        """Whether the rows after the call have to be known: a plain condition on rows that do not meet it before."""
        raise NotImplementedError

    def reads(self, model: type[Model]) -> list[str]:
        """Return the names of the columns of a model that the condition reads, also those of arguments' rows."""
        raise NotImplementedError

    def arguments_meet(self, request: Any, arguments: Mapping[str, Any]) -> bool:
        """Return whether the arguments (and the form within them) meet the condition, or cannot be compared."""
        raise NotImplementedError

    def rows_meeting(self, model: type[Model], keys: Iterable[Any], side: str, using: str) -> set[Any]:
        """Return the keys of the rows in the database that meet the condition's part for a side, "before" or "after";
        all keys if it cannot be evaluated. Call it while the rows are as they are on that side."""
        raise NotImplementedError

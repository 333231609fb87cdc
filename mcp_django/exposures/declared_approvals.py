"""Approvals that code declares: beside an exposure, an action or a tool, which calls wait for another person's yes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from ..context.request import MCPRequest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Approval:
    """Which calls wait for the yes of another person, and whose.

    ``when`` is a condition on rows or arguments, as in the filters of ``query_records``, or a function
    ``(request, arguments)`` that returns a bool; None means all calls. ``permission`` or ``group`` (its name) say who
    decides. ``rows_above`` leaves calls with no more rows alone. Callers are told the ``name``. A request is open for
    ``hours`` hours.

    Raises:
        ImproperlyConfigured: nobody is named who decides, or both a permission and a group are.
    """

    when: Mapping[str, Any] | Callable[[MCPRequest, Mapping[str, Any]], bool] | None = None
    permission: str = ""
    group: str = ""
    name: str = ""
    rows_above: int | None = None
    hours: int = 72

    @staticmethod
    def listed(declared: Any) -> tuple[Approval, ...]:
        """Return the approvals of an option, which may be one, several, or None."""
        if declared is None:
            return ()
        return (declared,) if isinstance(declared, Approval) else tuple(declared)

    def __post_init__(self) -> None:
        if bool(self.permission) == bool(self.group):
            raise ImproperlyConfigured("An approval needs a permission or a group that decides, and not both.")
        if self.permission and "." not in self.permission:
            raise ImproperlyConfigured(f'permission must be like "shop.approve_refund", not {self.permission!r}.')

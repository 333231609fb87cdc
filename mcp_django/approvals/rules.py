"""Approval rules as they are applied: rows of the admin and declarations of code in one form."""

from dataclasses import dataclass, field
from typing import Any

from ..exposures.declared_approvals import Approval
from ..models import ApprovalRule
from .conditions import RuleCondition


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule in force. An empty set leaves it open for all; ``rows_above`` is None where the number does not matter.

    ``kinds`` are those of :class:`~mcp_django.models.ApprovalRule`, ``labels`` of models, ``actions`` names like
    ``shop.order.refund``. ``users``, ``groups`` and ``services`` are primary keys as text, ``clients`` client ids.
    """

    name: str
    blocks: bool = False
    labels: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    actions: frozenset[str] = frozenset()
    condition: RuleCondition = field(default_factory=RuleCondition)
    rows_above: int | None = None
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()
    permission: str = ""
    group: str = ""
    group_key: Any = None
    hours: int = 72

    @classmethod
    def of_row(cls, row: ApprovalRule) -> "Rule":
        """Return the rule of a row of the admin."""
        raise NotImplementedError

    @classmethod
    def declared(cls, approval: Approval, name: str, **scope: Any) -> "Rule":
        """Return the rule of a declaration; ``scope`` says what it stands beside: labels, tools or actions."""
        raise NotImplementedError

    def concerns(self, request: Any) -> bool:
        """Return whether the rule is for this caller: for all, or their user, a group, client or service account."""
        raise NotImplementedError

    @property
    def deciders(self) -> str:
        """Who decides, in words for the caller: "somebody with 'Can approve refunds'"."""
        raise NotImplementedError

    def may_decide(self, user: Any) -> bool:
        """Return whether a user has the permission, or is in the group, that decides."""
        raise NotImplementedError


def rules_in_force() -> tuple[Rule, ...]:
    """Return the active rules of the admin, from this process's snapshot, renewed as that of the switches is."""
    raise NotImplementedError

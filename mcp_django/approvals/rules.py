"""Approval rules as they are applied: rows of the admin and declarations of code in one form."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib.auth.models import Permission
from django.db import DatabaseError

from ..exposures.declared_approvals import Approval
from ..models import ApprovalRule
from ..operating.shared_snapshots import SharedSnapshot, logger
from ..orm.fields import link_table
from ..runtime.missing_migrations import MissingTables
from .conditions import RuleCondition

# The columns of a rule that list names.
LISTS: Final = ("labels", "kinds", "tools", "actions", "clients")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule in force. An empty set leaves it open for all; ``rows_above`` is None where the number does not matter.

    ``kinds`` are those of :class:`~mcp_django.models.ApprovalRule`, ``labels`` of models, ``actions`` names like
    ``shop.order.refund``. ``users`` and ``groups`` are primary keys as text, ``clients`` client ids, and ``services``
    those of service accounts. ``key`` is that of the row, None for a rule that code declares. ``unreadable`` are the
    columns of the row that cannot be read.
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
    key: Any = None
    unreadable: frozenset[str] = frozenset()

    @classmethod
    def of_row(
        cls,
        row: ApprovalRule,
        users: Iterable[Any] | None = None,
        groups: Iterable[Any] | None = None,
        services: Iterable[str] | None = None,
    ) -> "Rule":
        """Return the rule of a row of the admin; the last three are its many-to-many values, if they are known.

        What cannot be read of the row leaves the rule open for all, so that it applies.
        """
        if users is None:
            users = row.users.values_list("pk", flat=True)
        if groups is None:
            groups = row.groups.values_list("pk", flat=True)
        if services is None:
            services = row.service_accounts.values_list("client_id", flat=True)
        unreadable = {name for name in LISTS if not _is_list_of_texts(getattr(row, name))}
        if not isinstance(row.condition, Mapping):
            unreadable.add("condition")
        return cls(
            key=row.pk,
            unreadable=frozenset(unreadable),
            name=row.name,
            blocks=row.effect == ApprovalRule.Effect.BLOCK,
            labels=frozenset(label.lower() for label in _texts(row.labels)),
            kinds=_texts(row.kinds),
            tools=_texts(row.tools),
            actions=_texts(row.actions),
            condition=RuleCondition(row.condition if isinstance(row.condition, Mapping) else None),
            rows_above=row.rows_above,
            users=frozenset(map(str, users)),
            groups=frozenset(map(str, groups)),
            clients=_texts(row.clients),
            services=frozenset(services),
            permission=row.permission,
            group=row.group.name if row.group is not None else "",
            group_key=row.group_id,
            hours=row.hours,
        )

    @classmethod
    def declared(cls, approval: Approval, name: str, **scope: Any) -> "Rule":
        """Return the rule of a declaration; ``scope`` says what it stands beside: labels, tools or actions."""
        names: dict[str, Any] = {key: frozenset(found) for key, found in scope.items()}
        function = approval.when if callable(approval.when) else None
        data = approval.when if isinstance(approval.when, Mapping) else None
        return cls(
            name=approval.name or name,
            condition=RuleCondition(data, function),
            rows_above=approval.rows_above,
            permission=approval.permission,
            group=approval.group,
            hours=approval.hours,
            **names,
        )

    def concerns(self, request: Any) -> bool:
        """Return whether the rule is for this caller: for all, or their user, a group, client or service account."""
        if not (self.users or self.groups or self.clients or self.services):
            return True
        context = request.mcp
        if str(request.user.pk) in self.users or context.client_id in self.clients:
            return True
        if context.record.kind == "service" and context.record.client_id in self.services:
            return True
        return bool(self.groups) and not self.groups.isdisjoint(_groups_of(request))

    @property
    def deciders(self) -> str:
        """Who decides, in words for the caller: "somebody with 'Can approve refunds'"."""
        if self.permission:
            app_label, _, codename = self.permission.partition(".")
            named = Permission._default_manager.filter(content_type__app_label=app_label, codename=codename)
            title = named.values_list("name", flat=True).first()
            return f"somebody with {title or self.permission!r}"
        if self.group:
            return f"somebody in the group {self.group!r}"
        return "nobody"

    def may_decide(self, user: Any) -> bool:
        """Return whether a user has the permission, or is in the group, that decides."""
        if not user.is_active:
            return False
        if self.permission:
            return bool(user.has_perm(self.permission))
        if not self.group or not hasattr(user, "groups"):
            return False
        wanted = {"name": self.group} if self.group_key is None else {"pk": self.group_key}
        return bool(user.groups.filter(**wanted).exists())


def _texts(value: Any) -> frozenset[str]:
    """Return the texts of a list as it was stored, none if it is something else."""
    return frozenset(value if _is_list_of_texts(value) else ())


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _groups_of(request: Any) -> frozenset[str]:
    """Return the keys of the groups of a request's user as text; they are asked for once."""
    kept = request.__dict__.get("_mcp_groups")
    if kept is None or kept[0] is not request.user:
        groups = getattr(request.user, "groups", None)
        found = groups.values_list("pk", flat=True) if groups is not None else ()
        kept = request.__dict__["_mcp_groups"] = request.user, frozenset(map(str, found))
    keys: frozenset[str] = kept[1]
    return keys


class RuleBook(SharedSnapshot[Rule]):
    """This process's cached snapshot of the active rules of the admin."""

    model = ApprovalRule
    mark = "mcp_django:approval_rules"
    title = "approval rules"

    def __init__(self) -> None:
        super().__init__()
        # Whether the rules were ever read.
        self._is_known = False

    def current(self) -> tuple[Rule, ...]:
        """Return the active rules, read again when that is due.

        Raises ``DatabaseError`` if they were never read and cannot be, unless the table is missing.
        """
        if time.monotonic() >= self.due:
            self.renew()
        if not self._is_known and self._failure is not None and not MissingTables(self._failure):
            raise DatabaseError("The approval rules cannot be read.") from self._failure
        return self._rows

    def _read(self) -> tuple[Rule, ...]:
        rows = list(
            ApprovalRule._default_manager.using(self.alias)
            .filter(is_active=True)
            .select_related("group")
            .order_by("pk")
        )
        if not rows:
            self._is_known = True
            return ()
        keys = [row.pk for row in rows]
        users = self._linked("users", "", keys)
        groups = self._linked("groups", "", keys)
        services = self._linked("service_accounts", "__client_id", keys)
        found = tuple(Rule.of_row(row, users[row.pk], groups[row.pk], services[row.pk]) for row in rows)
        self._is_known = True
        return found

    def _linked(self, name: str, path: str, keys: list[Any]) -> Mapping[Any, list[Any]]:
        """Return what rules are linked to, by their keys: all of it, whatever a manager hides."""
        through, source, target = link_table(ApprovalRule._meta.get_field(name))
        column = f"{target.removesuffix('_id')}{path}" if path else target
        links = through._base_manager.using(self.alias).filter(**{f"{source}__in": keys})
        found: dict[Any, list[Any]] = defaultdict(list)
        for key, value in links.values_list(source, column):
            found[key].append(value)
        return found

    def _tell_of(self, error: Exception) -> None:
        if MissingTables(error) and not self._is_known:
            logger.error("No approval rule applies: their table is missing. Run %s.", MissingTables.REMEDY)
        else:
            super()._tell_of(error)


rule_book: Final = RuleBook()


# Another thread may have held the lock when the process forked.
os.register_at_fork(after_in_child=lambda: rule_book.__init__())  # type: ignore[misc]


def rules_in_force() -> tuple[Rule, ...]:
    """Return the active rules of the admin, from this process's snapshot, renewed as that of the switches is."""
    return rule_book.current()

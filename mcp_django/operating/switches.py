"""Switches: an operator turns tools, models, clients or everything off in all workers, with a reason and an end.

Rows of :class:`~mcp_django.models.Switch` say what is off. Each process keeps a snapshot of them in memory.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Final, cast

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Model, Q
from django.db.models.base import ModelBase
from django.utils import timezone
from django.utils.translation import gettext as _

from ..context.call_record import CallRecord
from ..context.untrusted_text import plain
from ..models import CallEntry, ServiceAccount, Switch
from ..problems import nearest
from ..signals import switches_changed
from .alerts import alerts
from .shared_snapshots import SharedSnapshot

EVERYTHING = Switch.Kind.EVERYTHING
WRITES = Switch.Kind.WRITES
TOOL = Switch.Kind.TOOL
MODEL = Switch.Kind.MODEL
ACTION = Switch.Kind.ACTION
CLIENT = Switch.Kind.CLIENT
USER = Switch.Kind.USER
SERVICE = Switch.Kind.SERVICE


@dataclass(frozen=True)
class Off:
    """A snapshot of the switches in force: everything that is off. ``version`` changes with the snapshot."""

    # The kinds that block a caller from everything.
    CALLERS: ClassVar = frozenset({EVERYTHING, CLIENT, USER, SERVICE})

    switched: tuple[Switch, ...]
    version: str = ""

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], Switch]:
        # A client can be switched off by its host, which has no case.
        hosts = {
            (CLIENT, item.target.lower()): item for item in self.switched if item.kind == CLIENT and "." in item.target
        }
        return hosts | {(item.kind, item.target): item for item in self.switched}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of the switches in force."""
        return frozenset(item.kind for item in self.switched)

    @property
    def writes(self) -> Switch | None:
        """The switch that turns all writes off, None if writes are on."""
        return self._by_key.get((WRITES, "")) or self._by_key.get((EVERYTHING, ""))

    def caller(self, record: CallRecord) -> Switch | None:
        """Return the switch that turns this caller off, or None: of everything, a user, client or service account."""
        keys = [(EVERYTHING, ""), (USER, record.user), (CLIENT, record.client_id), (CLIENT, record.client_host)]
        if record.kind == "service":
            keys.append((SERVICE, record.client_id))
        return self._first(key for key in keys if key[1] or key[0] == EVERYTHING)

    def tool(self, name: str, *, read_only: bool) -> Switch | None:
        """Return the switch that turns a tool off, or all tools that write; or None."""
        return self._by_key.get((TOOL, name)) or (None if read_only else self._by_key.get((WRITES, "")))

    def model(self, label: str) -> Switch | None:
        """Return the switch that turns the model or its app off, or None; ``label`` is in lower case."""
        if MODEL not in self.kinds:
            return None
        return self._first([(MODEL, label), (MODEL, label.partition(".")[0])])

    def action(self, label: str, name: str) -> Switch | None:
        """Return the switch that turns an action off, for this model or for all; or None."""
        if ACTION not in self.kinds:
            return None
        return self._first([(ACTION, f"{label}.{name}"), (ACTION, name)])

    def call(self, tool: str, model: str, action: str, *, read_only: bool) -> Switch | None:
        """Return the switch that turns a call of a tool off, whose model and action are "" if it has none; or None."""
        found = self.tool(tool, read_only=read_only)
        if found is None and model:
            found = self.model(model)
        if found is None and action:
            found = self.action(model, action)
        return found

    def _first(self, keys: Iterable[tuple[str, str]]) -> Switch | None:
        return next((self._by_key[key] for key in keys if key in self._by_key), None)


# How long the console shows that a switch has reached its end.
LATELY: Final = timedelta(hours=12)
# Maximum number of switches in force at a time.
MOST: Final = 10_000


class Board(SharedSnapshot[Switch]):
    """This process's cached snapshot of the switches: ``off`` is None if nothing is off."""

    model = Switch
    mark = "mcp_django:switches"
    title = "switches"

    def __init__(self) -> None:
        super().__init__()
        self.off: Off | None = None

    def _read(self) -> tuple[Switch, ...]:
        return tuple(Switch.active().using(self.alias).order_by("pk")[:MOST])

    def _take(self, before: tuple[Switch, ...]) -> float:
        moment = timezone.now()
        self.off, seconds = _picture(self._rows, moment)
        _over(before, moment)
        return seconds

    def current(self) -> Off | None:
        """Return the current snapshot, reloaded when due."""
        if time.monotonic() >= self.due:
            self.renew()
        return self.off

    def _publish(self) -> None:
        # The mark is set before the signal: processes that the signal wakes read the mark.
        super()._publish()
        switches_changed.send(sender=Switch)


board: Final = Board()


# Another thread may have held the lock when the process forked.
os.register_at_fork(after_in_child=lambda: board.__init__())  # type: ignore[misc]


def _picture(rows: Iterable[Switch], now: datetime) -> tuple[Off | None, float]:
    """Return the snapshot of now, and the seconds until a switch begins or ends."""
    begun = [row for row in rows if row.begins <= now and (row.until is None or now < row.until)]
    turns = [turn for row in rows for turn in (row.begins, row.until) if turn is not None and now < turn]
    seconds = (min(turns) - now).total_seconds() if turns else float("inf")
    if not begun:
        return None, seconds
    return Off(tuple(begun), ".".join(str(row.pk) for row in begun)), seconds


def _over(rows: Iterable[Switch], now: datetime) -> list[Switch]:
    """Return the switches that have reached their end, and raise an alert for each of them once."""
    over = [row for row in rows if row.until is not None and row.until <= now]
    for row in over:
        text = _("On again, because its time has run out: %(what)s.") % {"what": row}
        alerts.raise_alert("switch", str(row.pk), text, {"kind": row.kind, "target": row.target})
    return over


# Changing switches


def newest(most: int) -> tuple[list[Switch], list[Switch]]:
    """Return the newest switches in force, and those that lately reached their end; raise one alert for each."""
    now = timezone.now()
    rows = Switch._default_manager.filter(Q(until=None) | Q(until__gt=now - LATELY), ended=None, begins__lte=now)
    rows = rows.order_by("-begins", "-pk")[:most]
    ended = _over(rows, now)
    off = [row for row in rows if row not in ended]
    again = {(row.kind, row.target) for row in off}
    return off, [row for row in ended if (row.kind, row.target) not in again]


def set_switch(
    kind: str,
    target: Any = "",
    *,
    reason: str = "",
    by: Any = None,
    until: datetime | timedelta | None = None,
    begins: datetime | None = None,
) -> Switch:
    """Turn a target off in all workers within five seconds; return the switch.

    ``kind`` is "everything", "writes", "tool", "model", "action", "client", "user" or "service". ``target`` is the name
    of a tool; a model, its label, or the label of an app; an action as ``app.model.action``, or its name alone for the
    actions of all models; the id or host of a client; a user or a username; a service account, its name or its client
    id. Callers are told the ``reason``. ``until`` is the end of the switch, or its length; ``begins`` is now by
    default. ``by`` is the user who sets the switch, for the admin's history, or a text that names a program. An earlier
    switch of the same kind and target is replaced.
    """
    now = timezone.now()
    begins = begins or now
    until = begins + until if isinstance(until, timedelta) else until
    if until is not None and until <= max(begins, now):
        raise ValueError("A switch has to end after it begins, and in the future.")
    key, name = _find(kind, target)
    with transaction.atomic(using=board.alias):
        # Keep switches that begin later: they were set on purpose.
        if begins <= now:
            former = [switch.pk for switch in _active(kind, key) if switch.begins <= now]
            Switch.active().filter(pk__in=former).update(ended=now, ended_by=_named(by))
        made = Switch(kind=kind, target=key, name=name[:100], reason=reason[:200], begins=begins, until=until)
        made.by = _named(by)
        made.save(using=board.alias)
        _note(made, by, [{"added": {}}], is_new=True)
        board.tell()
    return made


def end_switch(switch: Switch, *, by: Any = None) -> bool:
    """Turn a target on again in all workers within five seconds; ``by`` is as in :func:`set_switch`.
    Return False if the switch has ended already."""
    now = timezone.now()
    with transaction.atomic(using=board.alias):
        if not Switch.active().filter(pk=switch.pk).update(ended=now, ended_by=_named(by)):
            return False
        switch.ended = now
        switch.ended_by = _named(by)
        _note(switch, by, [{"changed": {"fields": ["ended"]}}], is_new=False)
        board.tell()
    return True


def find_switches(kind: str, target: Any = "") -> list[Switch]:
    """Return the switches that turn this target off now or later."""
    key, _ = _find(kind, target)
    return _active(kind, key)


def _active(kind: str, key: str) -> list[Switch]:
    switches = Switch.active().filter(kind=kind, target=key).order_by("pk")
    # The database may ignore case, and spaces at the end.
    return [switch for switch in switches if switch.target == key]


def known_names(sites: Iterable[Any]) -> dict[str, set[str]]:
    """Return the names of the tools, models and actions that a switch can turn off, by kind."""
    found = list(sites)
    exposures = [item for site in found for item in site.exposures_by_label.items()]
    actions = [(label, name) for label, exposure in exposures for name in exposure.options.action_names()]
    return {
        TOOL: {name for site in found for name in (*site.all_tool_names(), *site._extra_tools)},
        MODEL: {label for label, _ in exposures},
        ACTION: {named for label, name in actions for named in (name, f"{label}.{name}")},
    }


def _named(by: Any) -> str:
    return str(by.get_username() if hasattr(by, "get_username") else by or "")[:100]


def _find(kind: str, target: Any) -> tuple[str, str]:
    """Return a target as it is stored, and its display name."""
    if kind not in Switch.Kind.values:
        raise ValueError(f"There is no kind of switch {kind!r}.{nearest(kind, Switch.Kind.values)}")
    if kind in (EVERYTHING, WRITES):
        if target:
            raise ValueError(f"A switch for {kind} has no target.")
        return "", ""
    if not target:
        raise ValueError(f"Name the {kind} that is to be off.")
    if kind == USER:
        users = get_user_model()
        if not isinstance(target, Model):
            try:
                target = users._default_manager.get_by_natural_key(target)
            except users.DoesNotExist:
                raise ValueError(f"There is no user {target!r}.") from None
        return str(target.pk), target.get_username()
    if kind == SERVICE:
        if not isinstance(target, ServiceAccount):
            rows = ServiceAccount._default_manager.filter(Q(client_id=target) | Q(name=target))
            accounts = [account for account in rows if target in (account.client_id, account.name)]
            if len(accounts) != 1:
                raise ValueError(f"There is no service account {target!r}, or more than one: name its client id.")
            target = accounts[0]
        return target.client_id, target.name
    if kind == MODEL:
        is_model = isinstance(target, ModelBase)
        key = cast(type[Model], target)._meta.label_lower if is_model else str(target).strip().lower()
        labels = {model._meta.label_lower for model in apps.get_models()} | set(apps.app_configs)
        if key not in labels:
            raise ValueError(f"There is no model {key!r}.{nearest(key, labels)}")
        return key, ""
    label, dot, name = str(target).strip().rpartition(".")
    # Labels of models are in lower case; names of actions and tools, and clients, keep their case.
    key = f"{label.lower()}{dot}{name}" if kind == ACTION else str(target).strip()
    if len(key) > 255:
        raise ValueError("That is too long.")
    calls = CallEntry._default_manager.filter(client_id=key).exclude(client_name="").order_by("-time")
    return key, plain(calls.values_list("client_name", flat=True).first() if kind == CLIENT else None)


def _note(switch: Switch, by: Any, message: list[dict[str, Any]], *, is_new: bool) -> None:
    """Write the switch into the admin's history of its user."""
    if getattr(by, "pk", None) is None or not apps.is_installed("django.contrib.admin"):
        return
    import json

    from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    LogEntry.objects.create(
        user_id=by.pk,
        content_type=ContentType.objects.get_for_model(Switch),
        object_id=str(switch.pk),
        object_repr=str(switch)[:200],
        action_flag=ADDITION if is_new else CHANGE,
        change_message=json.dumps(message),
    )

"""``manage.py mcp_switch``: switch something off for clients at once, or on again."""

import getpass
import json
import re
from datetime import timedelta
from typing import Any, Final

from django.apps import apps
from django.core.management.base import CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone

from ...conf.value_kinds import HOST
from ...models import Switch
from ...operating.switches import end_switch, find_switches, known_names, set_switch
from ...problems import nearest
from ...routing import mounted_sites
from ...sites import site as default_site
from ..command_arguments import TableCommand, find_user, no_tables

PERIODS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
PERIOD: Final = re.compile(r"([0-9]{1,6})([smhdw])")


class Command(TableCommand):
    """Set, end or list switches."""

    help = (
        "Switches a tool, a model, an action, a client, a user, a service, all writes or everything off, or on again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("state", choices=["off", "on"], nargs="?", help="whether to switch it off or on")
        parser.add_argument("kind", choices=Switch.Kind.values, nargs="?", help="what kind of thing to switch")
        parser.add_argument(
            "target",
            nargs="?",
            default="",
            help="a tool's name, app.model or an app, app.model.action or an action, a client's id, name or host, a "
            "username, a service account's name",
        )
        parser.add_argument("--reason", default="", help="what callers are told")
        parser.add_argument("--for", dest="lasts", metavar="TIME", help="on again after 30m, 2h, 3d, 1w")
        parser.add_argument("--user", help="who does it, for the history in the admin")
        parser.add_argument("--list", action="store_true", dest="lists", help="show what is off")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print the list as JSON")

    def handle(self, *args: Any, state: str | None, kind: str | None, target: str, **options: Any) -> None:
        if not options["lists"] and (state is None or kind is None):
            raise CommandError('Say what to switch, such as "mcp_switch off tool delete_record", or use --list.')
        try:
            if options["lists"]:
                self.show(as_json=options["as_json"])
            elif state == "off":
                self.switch_off(str(kind), target, **options)
            else:
                self.switch_on(str(kind), target, options["user"])
        except ValueError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise no_tables(error) from None

    def show(self, *, as_json: bool) -> None:
        """Print the switches, the oldest first."""
        if as_json:
            fields = ("id", "kind", "target", "name", "begins", "until", "by", "reason")
            rows = list(Switch.active().order_by("begins", "pk").values(*fields))
            self.stdout.write(json.dumps(rows, indent=1, ensure_ascii=False, cls=DjangoJSONEncoder))
            return
        for switch in Switch.active().order_by("begins", "pk"):
            when = "off" if switch.begins <= timezone.now() else f"off from {switch.begins:%Y-%m-%d %H:%M %Z}"
            until = f"until {switch.until:%Y-%m-%d %H:%M %Z}" if switch.until is not None else ""
            what = " ".join(part for part in (switch.kind, switch.name or switch.target) if part)
            row = [str(switch.pk), what, when, until, f"by {switch.by}" if switch.by else "", switch.reason]
            self.stdout.write("  ".join(part.rstrip() for part in row if part))

    def switch_off(self, kind: str, target: str, *, reason: str, lasts: str | None, user: str | None, **_: Any) -> None:
        """Switch the target off, and print until when."""
        by = find_user(user) if user else _account()
        switch = set_switch(kind, _known(kind, target), reason=reason, by=by, until=_period(lasts))
        until = f" until {switch.until:%Y-%m-%d %H:%M %Z}" if switch.until is not None else ""
        self.stdout.write(
            f"{' '.join([kind, target]).strip()} is off{until.rstrip()}. All workers apply it within 5 s."
        )

    def switch_on(self, kind: str, target: str, user: str | None) -> None:
        """Switch the target on again."""
        by = find_user(user) if user else _account()
        # Find the switch by its own columns, because its target may no longer exist.
        condition = Q(target=target) | Q(target=target.lower()) | Q(name=target)
        switches = list(Switch.active().filter(condition, kind=kind))
        if not switches and target:
            switches = find_switches(kind, _known(kind, target))
        if not switches:
            raise CommandError(f"{' '.join([kind, target]).strip()} is not off. --list shows what is.")
        for switch in switches:
            end_switch(switch, by=by)
        self.stdout.write(f"{' '.join([kind, target]).strip()} is on again. All workers apply it within 5 s.")


def _account() -> str:
    """Return the name of the operating system's user who runs the command."""
    try:
        return f"mcp_switch ({getpass.getuser()})"
    except (KeyError, OSError):
        return "mcp_switch"


def _period(text: str | None) -> timedelta | None:
    if text is None:
        return None
    match = PERIOD.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(f"--for is {text!r}. Give a number and s, m, h, d or w, such as 2h.")
    return timedelta(**{PERIODS[match[2]]: int(match[1])})


def _known(kind: str, target: str) -> str:
    """Return a target as a switch stores it; raise ``ValueError`` for an unknown one."""
    if kind == "client":
        if not apps.is_installed("oauth2_provider"):
            return target
        from oauth2_provider.models import get_application_model

        rows = get_application_model()._default_manager.filter(Q(client_id=target) | Q(name=target))
        clients = list(rows.values_list("client_id", "name"))
        # The database may ignore case, and spaces at the end.
        if any(client_id == target for client_id, _ in clients):
            return target
        client_ids = [str(client_id) for client_id, name in clients if name == target]
        if len(client_ids) == 1:
            return client_ids[0]
        if client_ids:
            raise ValueError(f"Several clients are called {target!r}: give the client id.")
        if "." in target and HOST.fullmatch(target.lower()):
            return target.lower()
        raise ValueError(f"There is no client {target!r}: give its client id, its name or its host.")
    if kind not in ("tool", "action"):
        return target
    names = known_names({id(site): site for site in (default_site, *mounted_sites())}.values())[kind]
    if target not in names:
        raise ValueError(f"There is no {kind} {target!r}.{nearest(target, names)}")
    return target

"""``manage.py mcp_undo``: take back all that one client wrote between two times."""

from collections.abc import Sequence
from datetime import datetime, time
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from ...context.untrusted_text import plain
from ...differences.client_times import ClientTime, Step, Writers
from ...exceptions import ToolError
from ...operating.recorded_calls import RecordedCall
from ...problems import closest, nearest
from ...scopes import Scope
from ...transports.local_client import LocalClient
from ..command_arguments import TableCommand, find_model, find_site, find_user

# What the log of calls has as the method.
METHOD: Final = "mcp_undo"


class Command(TableCommand):
    """Show what a client wrote in a time, ask, and take it back in one transaction."""

    help = (
        "Takes back what a client wrote from --since until --until, the newest first, with the rights of --as. Exits "
        "with status 1 if something cannot be taken back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--as", dest="who", required=True, metavar="USER", help="whose rights decide, by name")
        parser.add_argument("--client", required=True, metavar="CLIENT_ID", help="the client's id")
        parser.add_argument("--since", required=True, help="14:00 today in the project's time zone, or in ISO format")
        parser.add_argument("--until", required=True, help="likewise, the end of the time")
        parser.add_argument("--user", default="", help="only what was written for this user")
        parser.add_argument("--model", default="", help="only changes of rows of this model, such as shop.order")
        parser.add_argument("--site", default=None, help="name of an MCPSite that urls.py mounts")
        parser.add_argument("--dry-run", action="store_true", help="show it, and change nothing")
        parser.add_argument("--noinput", "--no-input", action="store_false", dest="asks", help="do not ask")

    def handle(self, *args: Any, who: str, client: str, since: str, until: str, model: str, **options: Any) -> None:
        begins, ends = _moment("--since", since), _moment("--until", until)
        if begins >= ends:
            raise CommandError("--since is not before --until.")
        label = find_model(model)._meta.label_lower if model else ""
        caller = LocalClient(find_site(options["site"]), find_user(who), [Scope.WRITE])

        def written() -> ClientTime:
            return ClientTime(caller.new_request(), client, begins, ends, user=options["user"], model=label)

        look = written()
        _check_known(look)
        try:
            plan = look.plan()
            self._tell(plan)
            ready = [step for step in plan if not step.why_not]
            if ready and not options["dry_run"]:
                if options["asks"] and not _confirmed(len(ready)):
                    raise CommandError("Nothing was changed.")
                # A request of its own: what was tried is not in its record.
                writes = written()
                with RecordedCall(writes.request).by_operator(METHOD, writes.TOOL, model=label, arguments=writes.told):
                    writes.run(writes.pin(plan))
                self.stdout.write(f"Taken back: {_counted(len(ready))}.")
        except ClientTime.TooMany as error:
            raise CommandError(
                f"The client wrote {error.rows} rows in this time, and {look.MAX_ROWS} is the most at once. Give a "
                "shorter time, a --user or a --model."
            ) from None
        except ToolError as error:
            raise CommandError(str(error)) from None
        if left := len(plan) - len(ready):
            raise CommandError(f"{_counted(left)} cannot be taken back.")

    def _tell(self, plan: Sequence[Step]) -> None:
        """Print what is taken back, the newest first, and what is left out."""
        if not plan:
            self.stdout.write("The client wrote nothing in this time that is not taken back already.")
        for step in plan:
            change = step.change
            when = timezone.localtime(change.time) if timezone.is_aware(change.time) else change.time
            # Of what clients and rows are called, nothing must move the cursor of a terminal.
            parts = [str(change.pk), f"{when:%Y-%m-%d %H:%M:%S}", change.username, change.tool, change.summary]
            self.stdout.write("  ".join(plain(part, 200) for part in parts if part))
            if step.why_not:
                self.stdout.write(f"    left out: {plain(step.why_not, 400)}")


def _check_known(writes: ClientTime) -> None:
    """Raise ``CommandError`` if nothing is kept of such a client or user: that is no answer about this time."""
    writers = Writers(writes.request)
    client = writes.client_id
    if client not in writers.clients:
        # People know the name, which is not verified: several clients may have it.
        ids = {name: key for key, name in writers.clients.items()} | {key: key for key in writers.clients}
        near = closest(client, ids, 0.6)
        hint = "" if near is None else f" Did you mean {ids[near]!r}?"
        raise CommandError(f"Nothing is kept that a client {client!r} has written.{hint}")
    user = writes.user
    if user and user not in writers.users:
        raise CommandError(f"Nothing is kept that was written for a user {user!r}.{nearest(user, writers.users)}")


def _moment(name: str, text: str) -> datetime:
    """Return the moment that an argument gives: a time of today, or a date with a time; raise ``CommandError``."""
    try:
        at = time.fromisoformat(text)
    except ValueError:
        at = None
    try:
        found = parse_datetime(text) if at is None else datetime.combine(timezone.localdate(), at)
    except ValueError:
        found = None
    if found is None:
        raise CommandError(f"{name} is {text!r}. Give a time such as 14:00, or a date and a time in ISO format.")
    return timezone.make_aware(found) if timezone.is_naive(found) else found


def _confirmed(number: int) -> bool:
    try:
        answer = input(f"Take back {_counted(number)}? [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")


def _counted(number: int) -> str:
    return f"{number} change{'s' if number != 1 else ''}"

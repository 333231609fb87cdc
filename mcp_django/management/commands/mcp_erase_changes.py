"""``manage.py mcp_erase_changes``: erase one record from what was kept of changes, calls, tasks and exports."""

import json
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db.models import Model

from ...differences.erased_values import Erasure
from ...exports.kept_exports import KeptExport
from ...tasks.erased_tasks import TaskErasure
from ..command_arguments import TableCommand, find_model


class Command(TableCommand):
    """Erase the contents of all changes that touch one record, also of one that was deleted; take its key from the log
    of calls; delete the tasks about it, and all exports.

    An export may hold the record in any of a million rows, and by any path, so none is looked into.
    """

    help = (
        "Erases the values of one record from what was kept of changes, which can then not be taken back, and tasks, "
        "takes its key from the log of calls, and deletes all exports."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="the record's model, such as shop.customer")
        parser.add_argument("pk", help="the record's primary key")
        parser.add_argument(
            "--text", action="append", default=[], help="also where this text is, such as a name; can be repeated"
        )
        parser.add_argument("--dry-run", action="store_true", help="count, and erase nothing")

    def handle(self, *args: Any, model: str, pk: str, text: list[str], dry_run: bool, **options: Any) -> None:
        found = find_model(model)
        if not all(part.strip() for part in text):
            raise CommandError("--text is empty: it would be found everywhere.")
        try:
            erasure = Erasure(found, _key(found, pk), text)
        except (ValueError, ValidationError):
            raise CommandError(f"{pk!r} cannot be a primary key of {found._meta.label_lower}.") from None
        tasks = TaskErasure(erasure.record)
        if dry_run:
            self.stdout.write(f"Would erase the contents of {len(list(erasure.found()))} changes.")
            number = len(list(tasks.found()))
            exports = KeptExport.rows().count()
        else:
            self.stdout.write(f"Erased the contents of {erasure.run()} changes. They can no longer be taken back.")
            number = tasks.run()
            exports = KeptExport.purge(every=True)
        if calls := erasure.calls.count() if dry_run else erasure.calls.update(row_key=""):
            self.stdout.write(f"{'Would take' if dry_run else 'Took'} its key from {calls} calls in the log.")
        if number:
            self.stdout.write(f"{'Would delete' if dry_run else 'Deleted'} {number} tasks with their results.")
        if exports:
            self.stdout.write(
                f"{'Would delete' if dry_run else 'Deleted'} {exports} exports, which may hold the record."
            )
        if not dry_run and (left := KeptExport.rows().count()):
            self.stderr.write(f"{left} exports could not be deleted: see the log, mend their storage, and repeat this.")
        if erasure.unopened:
            self.stderr.write(
                f"{erasure.unopened} changes could not be looked into: they were sealed with a SECRET_KEY that is not "
                "among SECRET_KEY_FALLBACKS. Nobody can read them; clear_mcp_sessions deletes them after UNDO_DAYS."
            )


def _key(model: type[Model], text: str) -> Any:
    """Return a primary key from its text: of a composite one, a JSON array."""
    fields: Any = model._meta.pk_fields
    parts = [text] if len(fields) == 1 else json.loads(text)
    if not isinstance(parts, list) or len(parts) != len(fields):
        raise ValueError(text)
    values = [field.to_python(part) for field, part in zip(fields, parts, strict=True)]
    return values[0] if len(values) == 1 else tuple(values)

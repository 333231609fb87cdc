"""``manage.py clear_mcp_clients``: delete clients that have registered themselves and are not in use."""

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from oauth2_provider.models import get_application_model

from ...models import ClientKeys, UsedAssertion
from ...oauth.stored_tokens import clear_token_facts, unused_clients
from ..command_arguments import TableCommand

BATCH = 500


class Command(TableCommand):
    """Delete unused clients in batches, and what is kept of deleted tokens and expired assertions.

    A deleted client can register again.
    """

    help = "Deletes clients that registered themselves and have no live code or token. Run it daily, after cleartokens."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--days", type=int, default=7, help="keep those registered within this many days (default 7)"
        )
        parser.add_argument("--dry-run", action="store_true", help="count, and delete nothing")

    def handle(self, *args: Any, days: int, dry_run: bool, **options: Any) -> None:
        if days < 0:
            raise CommandError("--days must not be negative.")
        source = get_application_model().RegistrationSource
        unused = unused_clients(source.DCR, source.CIMD).filter(created__lt=timezone.now() - timedelta(days=days))
        count = unused.count()
        while not dry_run and (batch := list(unused.values_list("pk", flat=True)[:BATCH])):
            get_application_model()._default_manager.filter(pk__in=batch).delete()
        if not dry_run:
            clear_token_facts()
            UsedAssertion.clear_expired()
            self.clear_keys()
        self.stdout.write(f"{count} unused clients{'' if dry_run else ' deleted'}.")

    def clear_keys(self) -> None:
        """Delete stored keys of clients that no longer exist."""
        client_ids = get_application_model()._default_manager.values_list("client_id", flat=True)
        gone = set(ClientKeys._default_manager.values_list("client_id", flat=True)).difference(client_ids)
        ClientKeys._default_manager.filter(client_id__in=gone).delete()

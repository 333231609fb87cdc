"""``manage.py clear_mcp_clients``: deletes clients that registered themselves and are not in use."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)

from ...oauth.facts import clear_token_facts

BATCH = 500


class Command(BaseCommand):
    """Delete in batches, and what was kept with tokens that are no more; clients that come back register again."""

    help = "Deletes dynamically registered clients that hold no live code or token. Run it daily, after cleartokens."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the age and the dry run."""
        parser.add_argument(
            "--days", type=int, default=7, help="spare those registered within so many days (default 7)"
        )
        parser.add_argument("--dry-run", action="store_true", help="count, and delete nothing")

    def handle(self, *args: Any, days: int, dry_run: bool, **options: Any) -> None:
        """Delete what is unused, and say how many.

        Raises:
            CommandError: the number of days is negative.
        """
        if days < 0:
            raise CommandError("--days must not be negative.")
        unused = _unused(days)
        count = unused.count()
        while not dry_run and (batch := list(unused.values_list("pk", flat=True)[:BATCH])):
            get_application_model()._default_manager.filter(pk__in=batch).delete()
        if not dry_run:
            clear_token_facts()
        self.stdout.write(f"{count} unused clients{'' if dry_run else ' deleted'}.")


def _unused(days: int) -> Any:
    now = timezone.now()
    mine = Q(application=OuterRef("pk"))
    refresh = get_refresh_token_model().objects.filter(mine, revoked__isnull=True, access_token__isnull=False)
    lifetime = refresh_token_expire_timedelta()
    if lifetime is not None:
        refresh = refresh.filter(access_token__expires__gt=now - lifetime)
    model = get_application_model()
    return model._default_manager.filter(
        ~Exists(refresh),
        ~Exists(get_access_token_model().objects.filter(mine, expires__gt=now)),
        ~Exists(get_grant_model().objects.filter(mine, expires__gt=now)),
        registration_source=model.RegistrationSource.DCR,
        created__lt=now - timedelta(days=days),
    )

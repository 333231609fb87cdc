"""Tokens as people see them, on their own page and in the admin: never the token itself."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from django.apps import apps
from django.utils.translation import gettext as _
from oauth2_provider.models import refresh_token_expire_timedelta
from oauth2_provider.settings import oauth2_settings

from ..context.lookalikes import doubts_about
from ..context.narrowing import narrowing_of
from ..context.text import plain
from ..exposures.history import made_by
from ..signin import chosen_words
from .facts import facts_of_many, until_of
from .targets import described_by, hosts_of, targets_of
from .usage import last_uses

# Entries of a user's history that are looked through for the last of each client.
LOOKED_AT: Final = 300


def describe(tokens: Collection[Any]) -> None:
    """Give access tokens what is to be shown of them, whatever their number by one question to the cache and one query.

    ``client_name``, ``doubts`` about that name, ``described`` and ``targets`` are of their client, ``words`` say their
    scopes. ``used`` is when they were last used, and ``place`` from where, as far as that is known, ``until`` when
    access ends, None for never; ``labels`` are the apps and models that it is for, None for all; ``chosen`` is what the
    user chose beside. ``facts`` are what is kept with each.
    """
    uses = last_uses(token.token_checksum for token in tokens)
    kept = facts_of_many(token.token_checksum for token in tokens)
    described = oauth2_settings.SCOPES
    for token in tokens:
        token.client_name = client_name(token.application)
        token.doubts = name_doubts(token.application)
        token.described = described_by(token.application)
        token.targets = targets_of(token.application)
        token.words = [_(described.get(scope) or scope) for scope in token.scope.split()]
        use = uses.get(token.token_checksum)
        token.used, token.place = (use.moment, use.place) if use is not None else (_renewed(token), "")
        token.facts = facts = kept.get(token.token_checksum, {})
        narrowing, chosen = narrowing_of(facts), until_of(facts)
        token.chosen = [(label, plain(words)) for label, words in chosen_words(facts)]
        token.labels = None if narrowing is None or narrowing.labels is None else sorted(narrowing.labels)
        token.until = _until(token)
        if chosen is not None:
            token.until = chosen if token.until is None else min(token.until, chosen)


def add_last_changes(tokens: Collection[Any], user: Any) -> None:
    """Give tokens of a user the last entry of the admin's history that their client made as ``last_change``, or None.

    The admin shows users their own entries in the same way, under recent actions.
    """
    found: dict[str, Any] = {}
    if tokens and apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import LogEntry

        asked = {token.application.client_id for token in tokens if token.application is not None}
        for entry in LogEntry.objects.filter(user=user).order_by("-action_time", "-pk")[:LOOKED_AT]:
            for client_id in asked.difference(found):
                if made_by(entry.change_message, client_id):
                    found[client_id] = entry
    for token in tokens:
        token.last_change = found.get(token.application.client_id) if token.application is not None else None
        if token.last_change is not None:
            token.last_change.object_repr = plain(token.last_change.object_repr)


def client_name(client: Any) -> str:
    """Return what to call a client."""
    return "" if client is None else plain(client.name) or plain(client.client_id)


def name_doubts(client: Any) -> list[str]:
    """Return in words what is odd about the name of a client; what administrators registered is what they called it."""
    if client is None or client.registration_source == client.RegistrationSource.MANUAL:
        return []
    return doubts_about(client.name, hosts_of(client))


def _renewed(token: Any) -> datetime | None:
    """Return when the client got the token for one that it had before: that was a use of it."""
    made: datetime | None = token.created if token.source_refresh_token_id is not None else None
    return made


def _until(token: Any) -> datetime | None:
    refresh = getattr(token, "refresh_token", None)
    ends: datetime = token.expires
    if refresh is None or refresh.revoked is not None:
        return ends
    lifetime = refresh_token_expire_timedelta()
    return None if lifetime is None else ends + lifetime

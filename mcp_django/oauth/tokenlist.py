"""Tokens as people see them, on their own page and in the admin: never the token itself."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from oauth2_provider.models import refresh_token_expire_timedelta
from oauth2_provider.settings import oauth2_settings

from ..context.text import plain
from .targets import targets_of
from .usage import last_uses


def describe(tokens: Collection[Any]) -> None:
    """Give access tokens what is to be shown of them, whatever their number by one question to the cache.

    ``client_name`` and ``targets`` are of their client, ``words`` say their scopes. ``used`` is when they were last
    used, as far as that is known, ``until`` when access ends, None for never.
    """
    uses = last_uses(token.token_checksum for token in tokens)
    described = oauth2_settings.SCOPES
    for token in tokens:
        token.client_name = client_name(token.application)
        token.targets = targets_of(token.application)
        token.words = [_(described.get(scope) or scope) for scope in token.scope.split()]
        token.used = uses.get(token.token_checksum) or _renewed(token)
        token.until = _until(token)


def client_name(client: Any) -> str:
    """Return what to call a client."""
    return "" if client is None else plain(client.name) or plain(client.client_id)


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

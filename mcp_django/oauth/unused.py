"""Clients that came by themselves and hold nothing that is alive."""

from typing import Any

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)


def unused_clients(*sources: str) -> Any:
    """Return the clients of these sources (``registration_source``) that hold no live code or token."""
    now = timezone.now()
    mine = Q(application=OuterRef("pk"))
    refresh = get_refresh_token_model().objects.filter(mine, revoked__isnull=True, access_token__isnull=False)
    lifetime = refresh_token_expire_timedelta()
    if lifetime is not None:
        refresh = refresh.filter(access_token__expires__gt=now - lifetime)
    return get_application_model()._default_manager.filter(
        ~Exists(refresh),
        ~Exists(get_access_token_model().objects.filter(mine, expires__gt=now)),
        ~Exists(get_grant_model().objects.filter(mine, expires__gt=now)),
        registration_source__in=sources,
    )

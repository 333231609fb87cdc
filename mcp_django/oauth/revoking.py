"""Which access is live, and its end, whoever ends it: users on their page, administrators in the admin."""

from collections.abc import Collection
from typing import Any

from django.db import router, transaction
from django.db.models import Q
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)

from ..orm.queries import chunks


def live() -> Q:
    """Return the condition on access tokens that act for their user now, or may again by a refresh token."""
    now, lifetime = timezone.now(), refresh_token_expire_timedelta()
    renewed = Q(refresh_token__isnull=False, refresh_token__revoked__isnull=True)
    if lifetime is not None:
        renewed &= Q(expires__gt=now - lifetime)
    return Q(expires__gt=now) | renewed


def end_access(tokens: Collection[Any]) -> None:
    """Revoke access tokens with their refresh tokens and all that came of the same grants.

    ``tokens`` were read together with their ``refresh_token``. Streams end with the tokens. It takes a few queries for
    each few hundred of them.
    """
    access, refresh = get_access_token_model(), get_refresh_token_model()
    with transaction.atomic(using=router.db_for_write(access)):
        for part in chunks(list(tokens)):
            families = {family for token in part if (family := _family_of(token)) is not None}
            # By families: a client that refreshes meanwhile has other tokens, of the same family. What it gets after
            # this is left without its access token, which the token endpoint refuses.
            mine = Q(token_family__in=families) | Q(access_token__in=[token.pk for token in part])
            now = timezone.now()
            refresh._default_manager.filter(mine, revoked__isnull=True).update(revoked=now, updated=now)
            theirs = refresh._default_manager.filter(token_family__in=families).values("access_token")
            access._default_manager.filter(Q(pk__in=[token.pk for token in part]) | Q(pk__in=theirs)).delete()


def drop_codes(**of: Any) -> None:
    """Delete the codes that no token was made of yet: of a ``user``, of an ``application``, or all."""
    get_grant_model()._default_manager.filter(**of).delete()


def _family_of(token: Any) -> Any:
    refresh = getattr(token, "refresh_token", None)
    return None if refresh is None else refresh.token_family

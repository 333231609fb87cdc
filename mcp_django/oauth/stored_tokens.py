"""Stored tokens: facts kept with them, tokens created by commands and programs, their revocation and expiry.

Facts are stored when the user consents, and passed on to each later token of the grant. This module creates tokens for
headless clients and for tests. It also ends access, for users on their page and for administrators in the admin.
"""

import hashlib
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings as django_settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import router, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
    set_token_value,
)
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..context.call_restrictions import Narrowing
from ..models import LinkedIdentity, ServiceAccount, TokenFacts
from ..orm.pagination import chunks
from ..scopes import expand, join
from ..signin import FactName, credential_of

# Name of the fact with the time at which access ends (seconds since the epoch), if the user chose one.
UNTIL: Final = "granted_until"
# Minimum age of facts that are cleared: facts are stored before their token, and those of a code wait for its exchange.
YOUNG: Final = timedelta(days=1)
# Client id and name of the application for tokens that are created here.
CLIENT: Final = "mcp_token"
# No other stored secret begins with this: the toolkit's have letters and digits only, and in those of Django's hashers
# the name of a hasher precedes the first "$".
PREFIX: Final = "mcp_sha256$"


def checksum_of(text: str) -> str:
    """Return the SHA-256 (hexadecimal) under which a token or an authorization code is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


def store_facts(
    token: str, user: Any, facts: Mapping[str, Any], family: UUID | None = None, *, is_renewed: bool = False
) -> None:
    """Store facts with the token or code of a checksum; ``family`` is that of its refresh token.

    Those of a token that ``is_renewed``, made for a refresh token, are as old as the access of its family.
    """
    times = [timezone.now()]
    if is_renewed:
        # Facts that earlier releases stored are as old as the newest token.
        refresh = get_refresh_token_model()._default_manager.filter(token_family=family)
        for rows in (TokenFacts._default_manager.filter(family=family), refresh):
            times += rows.order_by("created").values_list("created", flat=True)[:1]
    TokenFacts(token=token, family=family, user=user, facts=dict(facts), created=min(times)).save(force_insert=True)


def facts_of(token: str) -> dict[str, Any]:
    """Return the facts stored with the token or authorization code of this checksum."""
    return facts_of_many([token]).get(token, {})


def facts_of_many(tokens: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the facts stored with each of many tokens, by checksum."""
    manager = TokenFacts._default_manager
    return {
        pk: facts
        for part in chunks(list(tokens))
        for pk, facts in manager.filter(pk__in=part).values_list("pk", "facts")
    }


def facts_of_family(family: UUID | None) -> dict[str, Any]:
    """Return the facts stored with the newest token of a refresh token's family."""
    if family is None:
        return {}
    rows = TokenFacts._default_manager.filter(family=family).order_by("-created")
    return dict(rows.values_list("facts", flat=True).first() or {})


def chosen(models: Collection[str], days: int | None) -> dict[str, Any]:
    """Return the facts of a token that its user limits: to apps and models (none for all), to so many days."""
    until = {} if days is None else {UNTIL: int(time.time()) + days * 24 * 3600}
    return until | (Narrowing.fact(models) if models else {})


def until_of(facts: Mapping[str, Any]) -> datetime | None:
    """Return when access ends by the user's choice, None for no choice; nonsense has ended."""
    if UNTIL not in facts:
        return None
    zone = UTC if django_settings.USE_TZ else None
    moment = facts[UNTIL]
    return datetime.fromtimestamp(moment if isinstance(moment, int) else 0, tz=zone)


def stands(facts: Mapping[str, Any], user: Any) -> bool:
    """Return whether the account or linked identity in the facts still exists and has this user."""
    account = facts.get(FactName.SERVICE_ACCOUNT)
    identity = facts.get(FactName.LINKED_IDENTITY)
    if account is not None:
        accounts = ServiceAccount.usable().filter(pk=account, user=user)
        if not settings.SERVICE_ACCOUNTS or not accounts.exists():
            return False
    if identity is None:
        return True
    links = LinkedIdentity._default_manager.filter(pk=identity, user=user)
    issuer = links.values_list("issuer", flat=True).first()
    return any(entry["issuer"] == issuer for entry in settings.IDENTITY_PROVIDERS)


def beside_tokens() -> bool:
    """Return whether tokens and their facts are in one database, so that one query can read both."""
    return router.db_for_read(TokenFacts) == router.db_for_read(get_access_token_model())


def forget_former(family: UUID) -> None:
    """Delete the facts of a family's former tokens, once they are stored with the newest token."""
    if beside_tokens():
        tokens = get_access_token_model().objects.values("token_checksum")
        manager = TokenFacts._default_manager
        former = manager.filter(family=family).exclude(pk__in=tokens).values_list("pk", flat=True)
        # By keys: in the condition of a deletion, MySQL would lock all access tokens.
        manager.filter(pk__in=list(former)).delete()


def clear_token_facts() -> int:
    """Delete the facts of tokens that are gone and get no successor; return their number."""
    old = TokenFacts._default_manager.filter(created__lt=timezone.now() - YOUNG)
    access = get_access_token_model()
    refresh = get_refresh_token_model()
    if not beside_tokens():
        return 0
    alive = access._default_manager.filter(token_checksum=OuterRef("pk"))
    to_come = refresh._default_manager.filter(token_family=OuterRef("family"), revoked__isnull=True)
    return old.filter(~Exists(alive), ~Exists(to_come)).delete()[0]


def create_token(
    user: AbstractBaseUser,
    *,
    scopes: Iterable[str],
    resources: Iterable[str],
    days: int = 30,
    facts: Mapping[str, Any] | None = None,
) -> tuple[Any, str]:
    """Create and store a token without an OAuth flow, for the endpoints ``resources``; return row and text.

    The text is stored hashed, as the toolkit does it, and cannot be shown again. Hooks find ``facts`` at
    ``request.mcp.facts``.
    """
    expires = timezone.now() + timedelta(days=days)
    model = get_application_model()
    # No flow issues tokens to this application, and nobody knows its secret.
    defaults = {
        "name": CLIENT,
        "client_type": model.CLIENT_CONFIDENTIAL,
        "authorization_grant_type": model.GRANT_CLIENT_CREDENTIALS,
        "client_secret": hashed_secret(model().client_secret),
        "hash_client_secret": False,
    }
    client, _ = model._default_manager.get_or_create(client_id=CLIENT, defaults=defaults)
    return save_token(user, client, scopes=scopes, resources=resources, expires=expires, facts=facts)


def save_token(
    user: AbstractBaseUser,
    client: Any,
    *,
    scopes: Iterable[str],
    resources: Iterable[str],
    expires: datetime,
    facts: Mapping[str, Any] | None = None,
) -> tuple[Any, str]:
    """Store a new token of ``user`` for the application ``client``; return its row and its text."""
    raw = secrets.token_urlsafe(32)
    store_facts(checksum_of(raw), user, {**(facts or {}), **credential_of(user)})
    token = get_access_token_model()(
        user=user, application=client, scope=join(scopes), expires=expires, resource=list(resources)
    )
    set_token_value(token, raw)
    token.save()
    return token, raw


def issue(
    user: AbstractBaseUser,
    client: Any,
    scopes: Iterable[str],
    resources: Iterable[str],
    facts: Mapping[str, Any],
    *,
    until: datetime | None = None,
) -> dict[str, Any]:
    """Store a new token without a refresh token, and return the token endpoint's answer; ``until`` ends it earlier.

    It is for programs, which can authenticate again instead of refreshing (RFC 6749, section 4.4.3).
    """
    now = timezone.now()
    lasts = now + timedelta(seconds=oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS)
    expires = lasts if until is None else min(lasts, until)
    token, raw = save_token(user, client, scopes=scopes, resources=resources, expires=expires, facts=facts)
    seconds = int((expires - now).total_seconds())
    return {"access_token": raw, "token_type": "Bearer", "expires_in": seconds, "scope": join(token.scope.split())}


def issue_token(
    user: AbstractBaseUser, *, scopes: Iterable[str], resource: str, facts: Mapping[str, Any] | None = None
) -> str:
    """Create and store a token of ``user`` for one endpoint and a day; return its text."""
    return create_token(user, scopes=scopes, resources=[resource], days=1, facts=facts)[1]


def own_tokens() -> QuerySet[Any]:
    """Return the tokens that ``mcp_token`` created, outside any OAuth flow."""
    tokens: QuerySet[Any] = get_access_token_model()._default_manager.filter(application__client_id=CLIENT)
    return tokens


# Secrets made by this server, long and random, so that one round of hashing is enough


def hashed_secret(secret: str) -> str:
    """Return the hash to store for a random secret, a SHA-256 as for stored tokens."""
    return PREFIX + hashlib.sha256(secret.encode()).hexdigest()


def is_hashed_here(stored: str) -> bool:
    """Return whether a stored secret is a hash that :func:`hashed_secret` made."""
    return stored.startswith(PREFIX)


def same_secret(given: str, stored: str) -> bool:
    """Return whether a secret, hashed like a stored token, equals the stored one that :func:`hashed_secret` made."""
    return constant_time_compare(hashed_secret(given), stored)


# Live access, and its end


def live() -> Q:
    """Return the condition for access tokens that are valid now, or renewable by a refresh token."""
    now = timezone.now()
    lifetime = refresh_token_expire_timedelta()
    renewed = Q(refresh_token__isnull=False, refresh_token__revoked__isnull=True)
    if lifetime is not None:
        renewed &= Q(expires__gt=now - lifetime)
    return Q(expires__gt=now) | renewed


def family_of(token: str) -> UUID | None:
    """Return the family of the refresh token that came with the access token of this checksum, None without one."""
    return TokenFacts._default_manager.filter(pk=token).values_list("family", flat=True).first()


def still_granted(
    token: str,
    family: str | None,
    facts: Mapping[str, Any],
    user: Any,
    scopes: frozenset[str],
    *,
    outlives_token: bool = False,
) -> bool:
    """Return whether the access stands that was given with the access token of this checksum, "" for no token.

    That is the token, or one that its client has got for it by a refresh, in the same ``family``; with all of the
    ``scopes``, and with what vouches for it in the ``facts``. Access that ``outlives_token`` ends when it is taken
    back, or at the time that the user has chosen, and not when the token expires.
    """
    if not stands(facts, user.pk):
        return False
    if not token:
        return True
    mine = Q(token_checksum=token)
    if family is not None:
        mine |= Q(refresh_token__token_family=family)
    until = until_of(facts)
    if outlives_token and until is not None and until <= timezone.now():
        return False
    alive = Q(refresh_token__revoked__isnull=True) if outlives_token else live()
    stored = get_access_token_model()._default_manager.filter(mine, alive, user=user)
    return any(expand(scope.split()) >= scopes for scope in stored.values_list("scope", flat=True))


def end_access(tokens: Collection[Any]) -> None:
    """Revoke access tokens, with their refresh tokens and all tokens of the same families.

    ``tokens`` must have been fetched with their ``refresh_token``. Streams end with the tokens. A few queries revoke
    each few hundred of them.
    """
    access = get_access_token_model()
    refresh = get_refresh_token_model()
    with transaction.atomic(using=router.db_for_write(access)):
        for part in chunks(list(tokens)):
            renewed = [token.refresh_token for token in part if getattr(token, "refresh_token", None) is not None]
            families = {refresh_token.token_family for refresh_token in renewed} - {None}
            # By families: a client that refreshes meanwhile has new tokens in the same family. A refresh token that it
            # gets after this has no access token, and the token endpoint refuses it.
            mine = Q(token_family__in=families) | Q(access_token__in=[token.pk for token in part])
            now = timezone.now()
            refresh._default_manager.filter(mine, revoked__isnull=True).update(revoked=now, updated=now)
            theirs = refresh._default_manager.filter(token_family__in=families).values("access_token")
            access._default_manager.filter(Q(pk__in=[token.pk for token in part]) | Q(pk__in=theirs)).delete()


def drop_codes(**of: Any) -> None:
    """Delete authorization codes not yet exchanged for tokens: of a user, of an application, or all."""
    get_grant_model()._default_manager.filter(**of).delete()


def find_client(client_id: str) -> Any:
    """Return the client (application) with this id, None if there is none."""
    client = get_application_model()._default_manager.filter(client_id=client_id).first()
    # The database may ignore case, and spaces at the end.
    return client if client is not None and client.client_id == client_id else None


def unused_clients(*sources: str) -> Any:
    """Return the clients of these registration sources that have no live token or code."""
    mine = Q(application=OuterRef("pk"))
    codes = get_grant_model().objects.filter(mine, expires__gt=timezone.now())
    return get_application_model()._default_manager.filter(
        ~Exists(get_access_token_model().objects.filter(mine, live())), ~Exists(codes), registration_source__in=sources
    )

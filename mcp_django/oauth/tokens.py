"""Tokens that are made without a client asking: for headless clients and for tests."""

import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import QuerySet
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_application_model, set_token_value

from ..signin import credential_of
from .facts import checksum_of, store_facts
from .scopes import join

CLIENT = "mcp_token"


def create_token(
    user: AbstractBaseUser,
    *,
    scopes: Iterable[str],
    resources: Iterable[str],
    days: int = 30,
    facts: Mapping[str, Any] | None = None,
) -> tuple[Any, str]:
    """Save a token of ``user`` for the endpoints with the URLs ``resources``; return its row and its text.

    The text is stored as the toolkit stores tokens, hashed, and cannot be had again. ``facts`` are for hooks to find at
    ``request.mcp.facts``.
    """
    expires = timezone.now() + timedelta(days=days)
    return save_token(user, _client(), scopes=scopes, resources=resources, expires=expires, facts=facts)


def save_token(
    user: AbstractBaseUser,
    client: Any,
    *,
    scopes: Iterable[str],
    resources: Iterable[str],
    expires: datetime,
    facts: Mapping[str, Any] | None = None,
) -> tuple[Any, str]:
    """Save a token of ``user`` that the application ``client`` will have; return its row and its text."""
    raw = secrets.token_urlsafe(32)
    store_facts(checksum_of(raw), user, {**(facts or {}), **credential_of(user)})
    token = get_access_token_model()(
        user=user, application=client, scope=join(scopes), expires=expires, resource=list(resources)
    )
    set_token_value(token, raw)
    token.save()
    return token, raw


def issue_token(
    user: AbstractBaseUser,
    *,
    scopes: Iterable[str],
    resource: str,
    days: int = 1,
    facts: Mapping[str, Any] | None = None,
) -> str:
    """Return a new token of ``user`` for one endpoint."""
    return create_token(user, scopes=scopes, resources=[resource], days=days, facts=facts)[1]


def own_tokens() -> QuerySet[Any]:
    """Return the tokens that were made here, and not by a flow."""
    found: QuerySet[Any] = get_access_token_model()._default_manager.filter(application__client_id=CLIENT)
    return found


def _client() -> Any:
    """Return the application that these tokens belong to: no flow issues tokens to it, and its secret is not kept."""
    model = get_application_model()
    defaults = {
        "name": CLIENT,
        "client_type": model.CLIENT_CONFIDENTIAL,
        "authorization_grant_type": model.GRANT_CLIENT_CREDENTIALS,
    }
    return model._default_manager.get_or_create(client_id=CLIENT, defaults=defaults)[0]

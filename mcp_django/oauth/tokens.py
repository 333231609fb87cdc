"""Tokens that are made without a client asking: for headless clients and for tests."""

import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_application_model, set_token_value

from .scopes import join

__all__ = ["create_token", "issue_token"]

CLIENT = "mcp_token"


def create_token(
    user: AbstractBaseUser, *, scopes: Iterable[str], resources: Iterable[str], days: int = 30
) -> tuple[Any, str]:
    """Save a token of ``user`` for the endpoints with the URLs ``resources``; return its row and its text.

    The text is stored as the toolkit stores tokens, hashed, and cannot be had again.
    """
    raw = secrets.token_urlsafe(32)
    token = get_access_token_model()(
        user=user,
        application=_client(),
        scope=join(scopes),
        expires=timezone.now() + timedelta(days=days),
        resource=list(resources),
    )
    set_token_value(token, raw)
    token.save()
    return token, raw


def issue_token(user: AbstractBaseUser, *, scopes: Iterable[str], resource: str, days: int = 1) -> str:
    """Return a new token of ``user`` for one endpoint."""
    return create_token(user, scopes=scopes, resources=[resource], days=days)[1]


def _client() -> Any:
    """Return the application that these tokens belong to: no flow issues tokens to it, and its secret is not kept."""
    model = get_application_model()
    defaults = {
        "name": CLIENT,
        "client_type": model.CLIENT_CONFIDENTIAL,
        "authorization_grant_type": model.GRANT_CLIENT_CREDENTIALS,
    }
    return model._default_manager.get_or_create(client_id=CLIENT, defaults=defaults)[0]

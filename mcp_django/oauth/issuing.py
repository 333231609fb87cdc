"""Tokens for programs that ask for them without a user at the browser: how far they reach, and the answer."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest
from django.utils import timezone
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2.rfc6749 import errors

from .scopes import expand, join
from .tokens import save_token
from .validator import check_resources


class Issued(TypedDict):
    """The answer of the token endpoint (RFC 6749, section 5.1)."""

    access_token: str
    token_type: str
    expires_in: int
    scope: str


def narrowed(request: HttpRequest, granted: Iterable[str], default: Iterable[str]) -> frozenset[str]:
    """Return what a request gets of the scopes that its client may have: those it asks for, or the default.

    Clients ask for what the endpoint names, so what they may not have is left out, and the answer says what is left
    (RFC 6749, section 3.3).

    Raises:
        OAuth2Error: nothing is left.
    """
    reach = expand(granted).intersection(oauth2_settings.SCOPES)
    found = reach.intersection(request.POST.get("scope", "").split() or default)
    if not found:
        raise errors.InvalidScopeError(description="None of these scopes is granted.")
    return found


def bound_to(request: HttpRequest) -> list[str]:
    """Return the endpoints that a token is asked for.

    Raises:
        OAuth2Error: one is none of this server, or there are several and none was named.
    """
    return check_resources(request.POST.getlist("resource"), request)


def issue(
    user: AbstractBaseUser,
    client: Any,
    scopes: Iterable[str],
    resources: Iterable[str],
    facts: Mapping[str, Any],
    *,
    until: datetime | None = None,
) -> Issued:
    """Save a token and return the answer that has it; it ends ``until`` then at the latest.

    There is no refresh token: who got this one can prove again who they are (RFC 6749, section 4.4.3).
    """
    now = timezone.now()
    lasts = now + timedelta(seconds=oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS)
    expires = lasts if until is None else min(lasts, until)
    token, raw = save_token(user, client, scopes=scopes, resources=resources, expires=expires, facts=facts)
    seconds = int((expires - now).total_seconds())
    return {"access_token": raw, "token_type": "Bearer", "expires_in": seconds, "scope": join(token.scope.split())}

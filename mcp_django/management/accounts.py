"""Whom a command acts for, and what for: names of users and scopes from the command line."""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from ..oauth.scopes import default_scopes, join

__all__ = ["find_scopes", "find_user"]


def find_user(name: str) -> Any:
    """Return the active user who signs in with this name.

    Raises:
        CommandError: there is none.
    """
    model = get_user_model()
    try:
        person = model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist:
        raise CommandError(f"There is no user {name!r}.") from None
    if not person.is_active:
        raise CommandError(f"The user {name!r} is not active.")
    return person


def find_scopes(asked: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    """Return the scopes that are asked for, or those that clients are asked to request.

    Raises:
        CommandError: one of them is none of those known.
    """
    scopes = join(asked or default_scopes()).split()
    unknown = sorted(set(scopes).difference(known))
    if unknown:
        raise CommandError(f"No such scope: {', '.join(unknown)}. There are {join(known)}.")
    return scopes

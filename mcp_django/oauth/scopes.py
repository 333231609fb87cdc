"""The scopes of the endpoint and what they imply."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ..conf import settings
from ..scopes import ADMIN, READ, WRITE

__all__ = ["ADMIN", "READ", "WRITE"]

# Weakest first: each implies those before it.
HIERARCHY: Final = (READ, WRITE, ADMIN)


def expand(scopes: Iterable[str]) -> frozenset[str]:
    """Return the scopes with all that they imply (specification, basic/authorization, Scope Challenge Handling)."""
    return _expanded(frozenset(scopes))


# Most tokens have the same few.
@lru_cache(maxsize=256)
def _expanded(scopes: frozenset[str]) -> frozenset[str]:
    granted = set(scopes)
    for rank, scope in enumerate(HIERARCHY):
        if scope in granted:
            granted.update(HIERARCHY[:rank])
    return frozenset(granted)


def default_scopes() -> tuple[str, ...]:
    """Return what an ordinary user of the site needs, so that clients that cannot step up are not stuck."""
    return (READ,) if settings.READ_ONLY else (READ, WRITE)


def join(scopes: Iterable[str]) -> str:
    """Return the scopes as one parameter, without repeats and in a stable order."""
    ranks = {scope: rank for rank, scope in enumerate(HIERARCHY)}
    return " ".join(sorted(set(scopes), key=lambda scope: (ranks.get(scope, len(ranks)), scope)))

"""The OAuth scopes of the endpoint, and the weaker scopes that each of them implies."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final


class Scope:
    """The names of the scopes."""

    READ: Final = "mcp:read"
    WRITE: Final = "mcp:write"
    ADMIN: Final = "mcp:admin"
    # Weakest first: each implies those before it.
    HIERARCHY: Final = (READ, WRITE, ADMIN)


def expand(scopes: Iterable[str]) -> frozenset[str]:
    """Expand OAuth scopes with the weaker scopes that they imply (basic/authorization, Scope Challenge Handling)."""
    return _expanded(frozenset(scopes))


# Cached, because most tokens have the same few scopes.
@lru_cache(maxsize=256)
def _expanded(scopes: frozenset[str]) -> frozenset[str]:
    implied = (Scope.HIERARCHY[:rank] for rank, scope in enumerate(Scope.HIERARCHY) if scope in scopes)
    return scopes.union(*implied)


def default_scopes() -> tuple[str, ...]:
    """Return the default OAuth scopes, for ordinary users of clients that cannot ask for more later."""
    from .conf import settings  # the project's settings module imports this one

    return (Scope.READ,) if settings.READ_ONLY else (Scope.READ, Scope.WRITE)


def join(scopes: Iterable[str]) -> str:
    """Join scopes into one space-separated OAuth ``scope`` parameter, without repeats, in a stable order."""
    ranks = {scope: rank for rank, scope in enumerate(Scope.HIERARCHY)}
    return " ".join(sorted(set(scopes), key=lambda scope: (ranks.get(scope, len(ranks)), scope)))

"""Secrets of clients that this server made up itself: random and long, so that one round of hashing is enough."""

import hashlib
from typing import Final

from django.utils.crypto import constant_time_compare

# No secret of another origin begins so: the toolkit's have letters and digits only, and those of Django's hashers a "$"
# after the name of a hasher.
PREFIX: Final = "mcp_sha256$"


def hashed_secret(secret: str) -> str:
    """Return what is stored of a random secret."""
    return PREFIX + hashlib.sha256(secret.encode()).hexdigest()


def is_hashed_here(stored: str) -> bool:
    """Return whether this is what :func:`hashed_secret` gave."""
    return stored.startswith(PREFIX)


def same_secret(given: str, stored: str) -> bool:
    """Return whether a client has given its secret."""
    return constant_time_compare(hashed_secret(given), stored)

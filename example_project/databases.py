"""Reads the `EXAMPLE_DATABASE` environment variable."""

from typing import Any
from urllib.parse import unquote, urlsplit


def database_from(value: str) -> dict[str, Any]:
    """The `DATABASES` entry for `postgres://user:password@host:port/name` or the path of an SQLite file."""
    if value.startswith(("postgres://", "postgresql://")):
        return _postgresql(value)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": value,
        "CONN_MAX_AGE": 60,
        "OPTIONS": {
            # A writer waits for its turn instead of failing halfway, and never blocks readers.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


def _postgresql(value: str) -> dict[str, Any]:
    url = urlsplit(value)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(url.path.lstrip("/")),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": url.hostname or "",
        "PORT": url.port or "",
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }

"""Reads the `EXAMPLE_DATABASE` environment variable."""

import sys
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit


def database_from(value: str) -> dict[str, Any]:
    """The `DATABASES` entry for the path of an SQLite file or a URL: `postgres://user:password@host:port/name`, or
    `mysql://` for MySQL and MariaDB."""
    if value.startswith(("postgres://", "postgresql://")):
        return _server(value, "postgresql")
    if value.startswith("mysql://"):
        _find_mysql_driver()
        return _server(value, "mysql") | {"OPTIONS": {"charset": "utf8mb4"}}
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


def _server(value: str, backend: str) -> dict[str, Any]:
    url = urlsplit(value)
    return {
        "ENGINE": f"django.db.backends.{backend}",
        "NAME": unquote(url.path.lstrip("/")),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": url.hostname or "",
        "PORT": url.port or "",
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }


def _find_mysql_driver() -> None:
    """Let PyMySQL, which needs no compiler, take the place of mysqlclient where that is not installed."""
    if find_spec("MySQLdb") is not None or "MySQLdb" in sys.modules:
        return
    import pymysql

    # Django asks for this release of mysqlclient, by its number.
    pymysql.version_info = (2, 2, 1, "final", 0)
    pymysql.install_as_MySQLdb()

"""The isolation levels in which tests of races run."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from django.db import connection

# Django's default on MySQL, and that of MySQL itself. Elsewhere that of the project.
LEVELS = ["read committed", "repeatable read"] if connection.vendor == "mysql" else [""]


@contextmanager
def isolated(level: str) -> Iterator[None]:
    """Let each new connection have this isolation level, "" for the project's."""
    if not level:
        yield
        return
    with patch.dict(connection.settings_dict["OPTIONS"], isolation_level=level):
        connection.close()
        yield
    connection.close()

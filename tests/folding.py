"""A database that finds texts by letters of another case and with spaces at the end, as MySQL does by default."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.db.models import CharField
from django.db.models.lookups import Exact, In
from django.test.utils import register_lookup


class _Folding:
    """A lookup of Django that compares folded texts."""

    def process_lhs(self, compiler: Any, connection: Any, lhs: Any = None) -> Any:
        sql, params = super().process_lhs(compiler, connection, lhs)  # type: ignore[misc]
        return f"LOWER(RTRIM({sql}))", params

    def process_rhs(self, compiler: Any, connection: Any) -> Any:
        sql, params = super().process_rhs(compiler, connection)  # type: ignore[misc]
        return sql, tuple(value.rstrip(" ").lower() if isinstance(value, str) else value for value in params)


class _FoldingExact(_Folding, Exact):  # type: ignore[misc]
    pass


class _FoldingIn(_Folding, In):  # type: ignore[misc]
    pass


@contextmanager
def folding_texts() -> Iterator[None]:
    """Let `filter()` and `get()` fold texts of `CharField`, where the database itself does not."""
    if connection.vendor == "mysql":
        yield
        return
    with register_lookup(CharField, _FoldingExact), register_lookup(CharField, _FoldingIn):
        yield

"""The first page and a deep one of a very long table on PostgreSQL, in a database of this run's own."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from .calls import Call

NAME: Final = "long_pages"
DEFAULT_URL: Final = "postgres://postgres@127.0.0.1:5432/postgres"
CONNECT_TIMEOUT: Final = 2
FILL_TIMEOUT: Final = 900
# Rows come in kinds, each as often as the others.
MULTIPLE: Final = 5
# The orders of :mod:`benchmarks.project.visits`, by name.
ORDERS: Final = {
    "pk": "by primary key",
    "date": "by indexed date",
    "composite": "by kind and date",
}
# The second page has a cursor too, as the first one has not.
PAGES: Final = ("first", "second", "deep")


class Unavailable(Exception):
    """There is no server on which the table could be made."""


@contextmanager
def database(url: str) -> Iterator[str]:
    """Create an empty database on a server; give its URL and drop it in the end.

    Raises:
        Unavailable: no server answers, or there is no driver.
    """
    try:
        import psycopg
        from psycopg import sql
    except ImportError:
        raise Unavailable("psycopg is not installed") from None
    try:
        connection = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT)
    except psycopg.OperationalError as error:
        parts = urlsplit(url)
        raise Unavailable(f"PostgreSQL does not answer at {parts.hostname}:{parts.port}: {_one_line(error)}") from None
    name = f"mcp_django_bench_{uuid.uuid4().hex}"
    with connection:
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege as error:
            raise Unavailable(_one_line(error)) from None
        try:
            yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def prepare(url: str, rows: int, say: Callable[[str], None]) -> list[Call]:
    """Fill the database with about ``rows`` rows; return the calls, those of each order one after the other."""
    rows = max(rows - rows % MULTIPLE, MULTIPLE * 100)
    say(f"Making {rows:,} rows on PostgreSQL ...")
    started = time.perf_counter()
    environment = os.environ | {"BENCH_DATABASE": url, "DJANGO_SETTINGS_MODULE": "benchmarks.project.settings"}
    command = [sys.executable, "-m", "benchmarks.fill", str(rows)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=FILL_TIMEOUT, check=True)
    say(f"... in {time.perf_counter() - started:.1f} s")
    return [call for order in json.loads(done.stdout) for call in calls_of(order, rows)]


def calls_of(order: Mapping[str, Any], rows: int) -> Iterator[Call]:
    """Yield the calls of an order, as :mod:`benchmarks.project.visits` describes it."""
    for name, page in zip(PAGES, order["pages"], strict=True):
        arguments = order["arguments"] | ({"cursor": page["cursor"]} if page["cursor"] else {})
        yield Call(
            f"long_{name}_{order['name']}",
            f"{rows:,} rows {ORDERS[order['name']]}: the page after {page['after']:,}",
            "tools/call",
            {"name": "query_records", "arguments": arguments},
            None,
            _rows_are(page["keys"]),
            only=frozenset({"fast"}),
            group=f"long_{order['name']}",
        )


def _rows_are(keys: Sequence[int]) -> Callable[[Mapping[str, Any]], list[Any]]:
    def read(result: Mapping[str, Any]) -> list[Any]:
        found = [row[0] for row in result["rows"]]
        assert found == keys, "not the rows of this page"
        return found

    return read

"""`python -m benchmarks.console_pages`: how long the pages of the console take with a long log of calls.

It makes the database unless it is there, brings its log up to now, opens each page as a superuser by Django's test
client, and prints the least of the milliseconds that the page and its statements take, for each length of the log. The
rows are made by PostgreSQL, and copied for `--on sqlite` and `--on mysql`: calls of 40 clients and 300 users in
conversations of 25, about one in 25 of which failed or was refused.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit
from uuid import uuid4

from . import console_copies, mysql
from .depth import DEFAULT_URL

LENGTHS: Final = (10_000, 10_000_000)
# At which the statements of a page are too slow, in ms.
MOST: Final = 300
# What an insertion of many rows does without, until they are there.
INDEXES: Final = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'mcp_django_callentry'"
TABLE: Final = "mcp_django_callentry"
# One row for each number n: its place in time, its conversation s, and numbers r, q of no order.
FILL: Final = """
INSERT INTO mcp_django_callentry (
    call_id, time, site, "user", username, kind, client_id, client_name, client_host, token, session, version,
    method, tool, model, action, row_key, writes, rows_read, rows_changed, size, tokens, outcome, detail, error_id,
    cause, release, duration, queries, query_time, trace, history, arguments, result{more_names}
)
SELECT
    md5(n::text || %(seed)s), %(begins)s::timestamptz + (n + 1) * (%(step)s || ' seconds')::interval, 'mcp',
    (1 + s %% 300)::text, 'user' || (1 + s %% 300),
    CASE WHEN c = 7 THEN 'service' ELSE 'person' END,
    'client-' || c, (ARRAY['Claude', 'Codex', 'Cursor', 'VS Code', 'Gemini CLI'])[1 + c %% 5] || CASE WHEN c < 5 THEN ''
        ELSE ' ' || c END,
    '', left(md5('token' || c || s %% 300), 16), md5('session' || s || %(seed)s), '2025-11-25', 'tools/call', t,
    CASE WHEN t IN ('query_records', 'aggregate_records', 'get_record', 'update_record', 'create_record')
        THEN (ARRAY['shop.order', 'shop.product', 'shop.customer', 'shop.category', 'places.place'])[1 + q %% 5]
        ELSE '' END, '',
    CASE WHEN t IN ('get_record', 'update_record') THEN (1 + (s + q * 31) %% 20000)::text ELSE '' END,
    t IN ('update_record', 'create_record', 'run_action'), q %% 25, CASE WHEN t = 'update_record' THEN 1 ELSE 0 END,
    200 + q * 7, 50 + q * 7 / 4,
    CASE WHEN r < 20 THEN 'tool_error' WHEN r < 30 THEN 'refused:scope' WHEN r < 35 THEN 'refused:rate'
        WHEN r < 37 THEN 'error:-32602' WHEN r < 38 THEN 'error:-32603' WHEN r < 39 THEN 'refused:switch'
        WHEN r < 40 THEN 'asked' ELSE 'ok' END,
    '', CASE WHEN r = 37 THEN left(md5(n::text || %(seed)s), 12) ELSE '' END,
    CASE WHEN r < 39 THEN left(md5(t || r), 16) ELSE '' END, CASE WHEN r < 39 THEN '1' ELSE '' END,
    3 + q %% 90 + CASE WHEN q = 17 THEN 2500 WHEN q %% 97 = 0 THEN 600 ELSE 0 END, 2 + q %% 7, 1 + q %% 40,
    CASE WHEN s %% 4 = 0 THEN md5('trace' || n || %(seed)s) ELSE '' END, '[]', '', ''{more_values}
FROM (
    SELECT n, s, (hashint4(s) & 1023) %% 8 * ((hashint4(s + 7) & 1023) %% 6) AS c, hashint4(n) & 1023 AS r,
        hashint4(n + 7) & 1023 AS q,
        (ARRAY['query_records', 'query_records', 'query_records', 'get_record', 'get_record', 'aggregate_records',
            'search', 'describe_model', 'update_record', 'create_record', 'run_action', 'fetch']
        )[1 + (hashint4(n + 13) & 1023) %% 12] AS t
    FROM (SELECT n, (%(conversation)s + n / 100 * 4 + n %% 4)::int AS s FROM generate_series(0, %(count)s - 1) AS n)
        AS numbers
) AS calls
"""
DAYS: Final = 60
# Number of registered clients, each of which a user has connected at some time of these days.
CLIENTS: Final = 10_000
CONSOLE: Final = "/admin/mcp_django/callentry/"
# The pages by their titles: path, and query.
PAGES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "overview, hour": ("overview/", {"q": "last 1h"}),
    "overview, day": ("overview/", {"q": "last 24h"}),
    "overview, week": ("overview/", {"q": "last 7d"}),
    "overview, month": ("overview/", {"q": "last 30d"}),
    "failures, day": ("failures/", {"q": "last 24h"}),
    "failures, month": ("failures/", {"q": "last 30d"}),
    "failures of a client, month": ("failures/", {"q": "client:client-3 last 30d"}),
    "changes": ("changes/", {}),
    "changes, yesterday": ("changes/", {"q": "yesterday"}),
    "changes of a client, yesterday": ("changes/", {"q": "client:client-3 yesterday"}),
    "changes of a row": ("changes/", {"q": "model:shop.customer row:17"}),
    "calls": ("", {}),
    "calls, page 100": ("", {"p": "100"}),
    "one call": ("{call}/change/", {}),
    "clients": ("clients/", {}),
    "clients, page 100": ("clients/", {"p": "100"}),
    "clients, new this week": ("clients/", {"new": ""}),
    "a client": ("clients/", {"client": "client-3"}),
    "connections": ("connections/", {}),
    "switches": ("switches/", {}),
    "health": ("health/", {}),
    "try it": ("try/", {}),
    "connect": ("connect/", {}),
}
# What the list of calls is asked.
QUERIES: Final = (
    "failed",
    "refused",
    "ok",
    "outcome:refused:rate",
    "client:client-3",
    "client:Cursor",
    "tool:update_record",
    "tool:nothing",
    "model:shop.order",
    "user:user7",
    "{session}",
    "{call_id}",
    "{trace}",
    "{error_id}",
    "token:{token}",
    "caller:service",
    "method:tools/list",
    "site:other",
    "writes",
    "row:17",
    "model:shop.customer row:17",
    "slow:1000",
    "duration:>90000",
    "last 1h",
    "yesterday",
    "yesterday 14:05",
    "last 30d",
    "failed yesterday 14:00-15:00",
    "client:client-3 failed last 24h",
    "client:client-3 failed last 30d",
    "client:client-3 tool:update_record",
    "user:user7 failed model:shop.order",
    "caller:service failed",
    "slow:2000 client:client-3",
    "wrong",
)


def say(text: str) -> None:
    """Tell whoever waits what goes on."""
    print(text, file=sys.stderr, flush=True)


def create(server: str, name: str) -> str:
    """Create a database on a server unless it is there, and return its URL."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(server, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def fill(length: int) -> None:
    """Make the rows of the log that are missing until now; an empty log is filled with ``length`` of the last days."""
    from django.db import connection
    from django.utils import timezone

    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
        cursor.execute(f"SELECT max(time), max(id) FROM {TABLE}")
        newest, last = cursor.fetchone()
        step = DAYS * 86_400 / length
        age = DAYS * 86_400 if newest is None else (timezone.now() - newest).total_seconds()
        count = int(age / step)
        if newest is None:
            newest = timezone.now() - timedelta(days=DAYS)
        if not count:
            return
        say(f"Making {count:,} calls ...")
        indexes: list[tuple[str, str]] = []
        if count > length // 2:
            cursor.execute("SET maintenance_work_mem = '1GB'")
            cursor.execute(INDEXES)
            indexes = [(name, made) for name, made in cursor.fetchall() if not name.endswith("_pkey")]
            cursor.execute(f"ALTER TABLE {TABLE} DROP CONSTRAINT IF EXISTS {TABLE}_call_id_key")
            for name, _made in indexes:
                cursor.execute(f'DROP INDEX IF EXISTS "{name}"')
        _insert(cursor, newest, step, count, int(last or 0))
        for name, made in indexes:
            say(f"Making the index {name} ...")
            cursor.execute(made)
        cursor.execute(f"VACUUM ANALYZE {TABLE}")


def _insert(cursor: Any, begins: Any, step: float, count: int, last: int) -> None:
    """Insert rows; columns that are newer than this text get their defaults."""
    from django.db import models

    from mcp_django.models import CallEntry

    more = {
        field.column: "[]" if isinstance(field, models.JSONField) else field.get_default()
        for field in CallEntry._meta.local_concrete_fields
        if str(field.column) not in FILL and not field.null
    }
    statement = FILL.format(
        more_names="".join(f', "{name}"' for name in more), more_values="".join(f", %({name})s" for name in more)
    )
    # A conversation has 25 of 100 calls that follow each other: four go on at a time.
    values = {"begins": begins, "step": step, "count": count, "seed": str(last), "conversation": last // 25}
    cursor.execute(statement, values | more)


def register_clients() -> None:
    """Make what is missing of the registered clients, those of the calls among them, each with a token of a user."""
    from django.contrib.auth import get_user_model
    from django.utils import timezone
    from oauth2_provider.models import AccessToken, Application

    from mcp_django.models import TokenFacts
    from mcp_django.oauth.stored_tokens import checksum_of

    if Application.objects.count() >= CLIENTS:
        return
    say(f"Making {CLIENTS:,} clients ...")
    user, _made = get_user_model()._default_manager.get_or_create(username="user7")
    now = timezone.now()
    applications = [
        Application(
            client_id=f"client-{number}",
            # Hashing one takes long.
            client_secret="",
            hash_client_secret=False,
            name=f"Client {number}",
            redirect_uris=f"https://client-{number}.example/callback",
            client_type="public",
            authorization_grant_type="authorization-code",
            registration_source="dcr",
        )
        for number in range(CLIENTS)
    ]
    made = Application.objects.bulk_create(applications, batch_size=1000)
    until = now + timedelta(days=365)
    AccessToken.objects.bulk_create(
        (
            AccessToken(user=user, application=each, token=each.client_id, expires=until, scope="mcp:read")
            for each in made
        ),
        batch_size=1000,
    )
    facts = [
        TokenFacts(
            token=checksum_of(each.client_id),
            family=uuid4(),
            user=user,
            created=now - timedelta(days=DAYS * number / CLIENTS),
        )
        for number, each in enumerate(made)
    ]
    TokenFacts.objects.bulk_create(facts, batch_size=1000)
    for number, each in enumerate(made):
        each.created = facts[number].created
    Application.objects.bulk_update(made, ["created"], batch_size=500)


def measure(rounds: int) -> dict[str, tuple[float, float]]:
    """Return the milliseconds of each page and query, and those of their statements."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    from mcp_django.models import CallEntry

    root, _made = get_user_model()._default_manager.get_or_create(
        username="root", defaults={"is_staff": True, "is_superuser": True}
    )
    browser = Client()
    browser.force_login(root)
    rows = CallEntry._default_manager.order_by("-time")
    facts = {"call": rows[100].pk, "call_id": rows[200].call_id, "session": rows[300].session, "token": rows[5].token}
    facts |= {"trace": rows.exclude(trace="")[0].trace, "error_id": rows.exclude(error_id="")[0].error_id}
    addresses = {title: f"{CONSOLE}{path.format(**facts)}?{urlencode(query)}" for title, (path, query) in PAGES.items()}
    for query in QUERIES:
        text = query.format(**facts)
        addresses[f"calls: {query}"] = f"{CONSOLE}?{urlencode({'q': text})}"
        addresses[f"  new: {query}"] = f"{CONSOLE}new/?{urlencode({'q': text, 'after': rows[50].pk})}"
    return {title: _quickest(browser, address, rounds) for title, address in addresses.items()}


class Clock:
    """The time that statements take, in ms, as a wrapper of them."""

    def __init__(self) -> None:
        self.taken = 0.0

    def __call__(self, execute: Any, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(*arguments)
        finally:
            self.taken += 1000 * (time.perf_counter() - began)


def _quickest(browser: Any, address: str, rounds: int) -> tuple[float, float]:
    """Return the least that a page and its statements take, whose first opening loads code and is not counted."""
    from django.db import connection

    pages = []
    databases = []
    for _round in range(rounds + 1):
        clock = Clock()
        began = time.perf_counter()
        with connection.execute_wrapper(clock):
            response = browser.get(address)
        pages.append(1000 * (time.perf_counter() - began))
        databases.append(clock.taken)
        if response.status_code != 200:
            return float("nan"), float("nan")
    return min(pages[1:]), min(databases[1:])


def table(found: Mapping[int, Mapping[str, Sequence[float]]]) -> list[str]:
    """Return the lines of the table: a page, and by the length of the log what it and its statements take."""
    most = max(found)
    lines = [f"{'page, database (ms)':<44}" + "".join(f"{length:>18,}" for length in found)]
    for title in found[most]:
        cells = "".join(f"{page:>10.0f}{database:>8.0f}" for page, database in (each[title] for each in found.values()))
        mark = "  ✗" if not found[most][title][1] < MOST else ""
        lines.append(f"{title:<44}{cells}{mark}")
    return lines


def in_a_process(url: str, length: int, rounds: int, source: str = "") -> dict[str, tuple[float, float]]:
    """Measure a database in a process of its own, as settings are read once; ``source`` is where calls are copied
    from."""
    environment = {**os.environ, "EXAMPLE_DATABASE": url, "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    environment["DJANGO_DEBUG"] = "0"
    command = [sys.executable, "-m", "benchmarks.console_pages", "--one", str(length), "--rounds", str(rounds)]
    if source:
        command += ["--source", source]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, tuple[float, float]] = json.loads(done.stdout)
    return found


def measured_on(options: argparse.Namespace, name: str, length: int) -> dict[str, tuple[float, float]]:
    """Return the milliseconds of each page on the database of this name, with the engine of the options."""
    source = create(options.postgres, name)
    if options.on == "postgresql":
        return in_a_process(source, length, options.rounds)

    in_a_process(source, length, 0)
    if options.on == "mysql":
        url = console_copies.create(options.mysql, name)
    else:
        url = str(Path(options.folder, f"{name}.sqlite3").absolute())
    return in_a_process(url, length, options.rounds, source)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make what is missing, measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console_pages", description=__doc__)
    parser.add_argument("--postgres", default=os.environ.get("TEST_POSTGRES_URL", DEFAULT_URL), help="URL of a server")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="of the log, in rows")
    parser.add_argument("--rounds", type=int, default=5, help="of which the quickest is shown; 0 only makes the rows")
    parser.add_argument(
        "--on", choices=("postgresql", "sqlite", "mysql"), default="postgresql", help="what is measured"
    )
    parser.add_argument("--mysql", default=os.environ.get("TEST_MYSQL_URL", mysql.DEFAULT_URL), help="URL of a server")
    parser.add_argument("--folder", default="build", help="of the files of SQLite")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--source", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        if options.source:
            say("Copying calls ...")
            console_copies.copy(options.source, os.environ["EXAMPLE_DATABASE"])
        else:
            fill(options.one)
        register_clients()
        print(json.dumps(measure(options.rounds) if options.rounds else {}))
        return
    found = {}
    for length in options.lengths:
        name = f"console{length // 1_000_000}m" if length >= 1_000_000 else f"console{length // 1000}k"
        found[length] = measured_on(options, name, length)
    print("\n".join(table(found)) if options.rounds else "The databases are made.")


if __name__ == "__main__":
    main()

"""`python -m benchmarks.calllog`: what the log of calls costs a page, and how quick a long log is, on PostgreSQL.

The call is measured with the log and without it in turns, on one server each and one database for both; the ratio is
the median of the rounds'. The long log is made by the database itself.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from . import depth, load
from .calls import MODERN, Call, checker
from .servers import CONTENDERS, Server, cores, running

PAGE = "query_records"
FILL = """
INSERT INTO mcp_django_callentry (call_id, time, site, "user", username, kind, client_id, client_name, client_host,
    token, session, version, method, tool, model, action, writes, rows_read, rows_changed, size, tokens, outcome,
    detail, error_id, duration, queries, query_time, trace, history, arguments, result)
SELECT md5(number::text), now() - interval '60 days' * number / %(rows)s, 'default', (number %% 500)::text,
    'user' || number %% 500, 'person', 'client-' || number %% 40, 'Client', '', md5((number %% 700)::text)::varchar(16),
    md5((number %% 9000)::text), '2026-07-28', 'tools/call', 'tool_' || number %% 30, 'shop.model' || number %% 60,
    '', number %% 20 = 0, 20, 0, 4000, 1000, (ARRAY['ok','ok','ok','tool_error','refused:scope'])[1 + number %% 5],
    '', '', 5, 6, 2, '', '[]', '', ''
FROM generate_series(1, %(rows)s) AS number
"""
# What staff do with the log: the page of the newest, filters, what stands around a call.
LOOKS = {
    "open the newest": ("TRUE", "time DESC, id DESC", 100),
    "filter by user": ("\"user\" = '7'", "time DESC", 100),
    "filter by client": ("client_id = 'client-7'", "time DESC", 100),
    "filter by tool": ("tool = 'tool_7'", "time DESC", 100),
    "filter by model": ("model = 'shop.model7'", "time DESC", 100),
    "filter by outcome": ("outcome = 'refused:scope'", "time DESC", 100),
    "filter by token": ("token = md5('7')::varchar(16)", "time DESC", 100),
    "filter by session": ("session = md5('7')", "time DESC", 100),
    "the last hour": ("time > now() - interval '1 hour'", "time DESC", 100),
    "one call by its id": ("call_id = md5('7')", "id", 1),
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calllog", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1, help="of load for each round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rows", type=int, default=20_000, help="articles")
    parser.add_argument("--calls", type=int, default=1_000_000, help="rows of the long log")
    parser.add_argument("--postgres", default=os.environ.get("TEST_POSTGRES_URL", depth.DEFAULT_URL))
    return parser.parse_args(arguments)


# The cost of a page


@contextmanager
def both(database: str, cpu: int | None) -> Iterator[dict[str, Server]]:
    """Run one server with the log and one without."""
    with ExitStack() as stack:
        servers = {}
        for state in ("on", "off"):
            os.environ["BENCH_CALL_LOG"] = state
            servers[state] = stack.enter_context(running(CONTENDERS[0], database, cpu=cpu))
        os.environ.pop("BENCH_CALL_LOG")
        yield servers


async def costs(call: Call, token: str, database: str, options: argparse.Namespace) -> list[float]:
    """Return by round how many times as long the call takes with the log; each is told as it comes."""
    server_core, load_core = cores()
    found = []
    with both(database, server_core) as servers:
        if load_core is not None:
            os.sched_setaffinity(0, {load_core})
        requests = {
            state: itertools.cycle(call.requests(server.contender, server.port, token, MODERN))
            for state, server in servers.items()
        }
        checks = {state: checker(await load.fetch(servers[state].port, next(requests[state]))) for state in servers}
        # The first round warms up.
        for number in range(options.rounds + 1):
            spent = {}
            # Neither has the better half of each round.
            for state in list(servers)[:: 1 if number % 2 else -1]:
                before = servers[state].cpu_seconds()
                sample = await load.run(
                    servers[state].port,
                    requests[state],
                    checks[state],
                    connections=options.connections,
                    seconds=options.seconds,
                )
                after = servers[state].cpu_seconds()
                cpu = (after - before) if before is not None and after is not None else sample.seconds
                spent[state] = cpu / len(sample.latencies)
            found.append(spent["on"] / spent["off"])
    return found[1:]


# A long log


def long_log(url: str, rows: int) -> Iterator[tuple[str, float, str]]:
    """Fill a log, and yield what was done with it, in how many ms, and by which index."""
    import psycopg

    environment = os.environ | {"BENCH_DATABASE": url, "DJANGO_SETTINGS_MODULE": "benchmarks.project.settings"}

    def manage(*arguments: str) -> str:
        command = [sys.executable, "-m", "django", *arguments]
        return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    manage("migrate", "--run-syncdb", "--verbosity", "0", "--skip-checks")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(FILL % {"rows": rows})
        connection.execute("VACUUM ANALYZE mcp_django_callentry")
        for name, (where, order, limit) in LOOKS.items():
            query = f"SELECT * FROM mcp_django_callentry WHERE {where} ORDER BY {order} LIMIT {limit}"
            yield name, timed(lambda query=query: connection.execute(query).fetchall()), plan_of(connection, query)
        count = "SELECT reltuples FROM pg_class WHERE relname = 'mcp_django_callentry'"
        yield "count, estimated", timed(lambda: connection.execute(count).fetchall()), "statistics"
        old = "SELECT count(*) FROM mcp_django_callentry WHERE time < now() - interval '30 days'"
        [(number,)] = connection.execute(old).fetchall()
        began = time.perf_counter()
        said = manage("clear_mcp_calls", "--skip-checks")
        yield f"clear {number:,}: {said.strip()}", (time.perf_counter() - began) * 1000, "batches"


def timed(work: Any) -> float:
    """Return the ms of the quickest of five."""
    found = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1000)
    return min(found)


def plan_of(connection: Any, query: str) -> str:
    """Return the index that the query is answered by, or how the table is read without one."""
    lines = [line for (line,) in connection.execute(f"EXPLAIN {query}").fetchall()]
    scans = [line.strip(" ->") for line in lines if "Scan" in line]
    return next((line.split(" using ")[1].split()[0] for line in scans if " using " in line), scans[0].split("  ")[0])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parse(arguments)
    with TemporaryDirectory(prefix="benchmarks-") as directory:
        database = str(Path(directory) / "db.sqlite3")
        os.environ |= {"BENCH_DATABASE": database, "DJANGO_SETTINGS_MODULE": "benchmarks.project.settings"}
        import django

        django.setup()
        from .project import data
        from .suite import calls

        data.create(options.rows, 300)
        page = next(call for call in calls(options.rows, "", 1) if call.name == PAGE)
        found = asyncio.run(costs(page, data.TOKEN, database, options))
    print(
        f"a page with the log: {statistics.median(found):.3f} of one without it ({min(found):.3f} to {max(found):.3f})"
    )
    try:
        with depth.database(options.postgres) as url:
            for what, ms, by in long_log(url, options.calls):
                print(f"{what}: {ms:,.1f} ms, {by}")
    except depth.Unavailable as error:
        print(f"The long log is not measured: {error}")


if __name__ == "__main__":
    main()

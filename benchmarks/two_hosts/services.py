"""What both hosts share: PostgreSQL with a replica, PgBouncer, Redis and nginx, each an instance of this run."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .network import CENTER
from .processes import Program, wait_until

POSTGRES_PORT, REPLICA_PORT, POOLER_PORT, REDIS_PORT, PROXY_PORT = 15432, 15433, 16432, 16379, 18080
WEB_PORT = 8000
DATABASE, REPLICA = "bench", "bench_replica"
# Connections of the pooler to each database, and those of its clients.
POOL, POOLER_CLIENTS = 20, 400
# PostgreSQL and PgBouncer do not run as root.
USER = "postgres"
# Seconds without a byte after which nginx gives up a request. Streams send one at least every 15 seconds.
READ_TIMEOUT = 40
NEEDED = {"nginx": "nginx-light", "pgbouncer": "pgbouncer", "redis-server": "redis-server", "ip": "iproute2"}

POOLER = """
[databases]
{database} = host={host} port={port} dbname={database} user={user}
{replica} = host={host} port={replica_port} dbname={database} user={user}
[pgbouncer]
listen_addr = {host}
listen_port = {pooler_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = {clients}
admin_users = {user}
stats_users = {user}
server_login_retry = 1
"""

PROXY = """
daemon off;
user root;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/nginx-errors.log warn;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {directory}/nginx-bodies;
    proxy_temp_path {directory}/nginx-answers;
    fastcgi_temp_path {directory}/nginx-fastcgi;
    uwsgi_temp_path {directory}/nginx-uwsgi;
    scgi_temp_path {directory}/nginx-scgi;
    client_max_body_size 3m;
    upstream shop {{
{servers}
    }}
    server {{
        listen {host}:{port};
        location / {{
            proxy_pass http://shop;
            proxy_connect_timeout 2s;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto https;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_http_version 1.1;
            proxy_buffering off;
            proxy_read_timeout {read_timeout}s;
        }}
    }}
}}
"""


def postgres_programs() -> Path | None:
    """Return the folder with the server programs of the newest PostgreSQL, None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def missing() -> list[str]:
    """Return the Debian packages that the run needs and that are not installed."""
    lacking = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    return [*lacking, *([] if postgres_programs() else ["postgresql"])]


def answers(host: str, port: int) -> bool:
    """Return whether something listens there."""
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


class PostgreSQL:
    """A primary, and a replica that follows its log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        programs = postgres_programs()
        assert programs is not None
        self.programs = programs
        self.primary = self.program("primary", POSTGRES_PORT)
        self.replica = self.program("replica", REPLICA_PORT)

    def program(self, name: str, port: int) -> Program:
        """Return a server with its data in the folder of this name."""
        options = ["-D", str(self.directory / name), "-p", str(port), "-k", str(self.directory), "-h", CENTER]
        return Program(name, [str(self.programs / "postgres"), *options], self.directory / f"{name}.log", user=USER)

    def make(self) -> None:
        """Make both, and start them."""
        shutil.chown(self.directory, USER)
        self.run("initdb", "-D", str(self.directory / "primary"), "-A", "trust", "-U", USER, "-E", "UTF8")
        with (self.directory / "primary" / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {CENTER}/32 trust\nhost replication all {CENTER}/32 trust\n")
        with (self.directory / "primary" / "postgresql.conf").open("a") as file:
            file.write("max_connections = 100\nshared_buffers = 128MB\nwal_level = replica\nhot_standby = on\n")
        self.primary.start()
        wait_until(lambda: answers(CENTER, POSTGRES_PORT), "PostgreSQL")
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        source = ["-h", CENTER, "-p", str(POSTGRES_PORT), "-U", USER]
        self.run("pg_basebackup", *source, "-D", str(self.directory / "replica"), "-R", "-X", "stream", "-c", "fast")
        self.replica.start()
        wait_until(lambda: answers(CENTER, REPLICA_PORT), "the replica")

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs to its end."""
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, user=USER, group=USER, extra_groups=[], cwd=self.directory, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")

    def connect(self, database: str = DATABASE, port: int = POSTGRES_PORT) -> Any:
        """Connect to a database, past the pooler."""
        import psycopg

        return psycopg.connect(host=CENTER, port=port, user=USER, dbname=database, autocommit=True, connect_timeout=5)

    def rows(self, query: str, port: int = POSTGRES_PORT) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the primary, or on the other port."""
        with self.connect(port=port) as connection:
            found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        return found

    def replay(self, state: str) -> None:
        """Let the replica ``pause`` or ``resume`` following the primary."""
        self.rows(f"SELECT pg_wal_replay_{state}()", REPLICA_PORT)


def pooler(directory: Path) -> Program:
    """Return PgBouncer, in transaction mode."""
    ports = {"port": POSTGRES_PORT, "replica_port": REPLICA_PORT, "pooler_port": POOLER_PORT}
    names = {"database": DATABASE, "replica": REPLICA, "host": CENTER, "user": USER}
    path = directory / "pgbouncer.ini"
    path.write_text(POOLER.format(**ports, **names, pool=POOL, clients=POOLER_CLIENTS))
    return Program("pgbouncer", ["pgbouncer", str(path)], directory / "pgbouncer.log", user=USER)


def pooler_numbers(what: str) -> list[dict[str, Any]]:
    """Return what PgBouncer shows of itself: the rows of ``SHOW STATS``, ``SHOW POOLS``."""
    import psycopg

    # Its console knows no prepared statements and no transactions.
    with psycopg.connect(
        host=CENTER,
        port=POOLER_PORT,
        user=USER,
        dbname="pgbouncer",
        autocommit=True,
        cursor_factory=psycopg.ClientCursor,
    ) as connection:
        cursor = connection.execute(f"SHOW {what}")
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def redis(directory: Path) -> Program:
    """Return Redis, which writes down what it keeps: confirmations that were used must not be forgotten."""
    options = [
        "--bind",
        CENTER,
        "--port",
        str(REDIS_PORT),
        "--save",
        "",
        "--appendonly",
        "yes",
        "--protected-mode",
        "no",
    ]
    return Program("redis", ["redis-server", *options, "--dir", str(directory)], directory / "redis.log")


class Proxy:
    """nginx in front of the hosts, which knows no sessions."""

    def __init__(self, directory: Path, addresses: Iterable[str]) -> None:
        self.directory, self.addresses = directory, list(addresses)
        self.path = directory / "nginx.conf"
        self.write()
        command = ["nginx", "-p", str(directory), "-c", str(self.path), "-e", str(directory / "nginx-errors.log")]
        self.program = Program("nginx", command, directory / "nginx.log")

    def write(self, out: str = "") -> None:
        """Write the configuration, with one host taken out."""
        lines = [
            f"        server {address}:{WEB_PORT}{' down' if address == out else ''};" for address in self.addresses
        ]
        values = {"directory": self.directory, "host": CENTER, "port": PROXY_PORT, "read_timeout": READ_TIMEOUT}
        # In one step: nginx may be reading it.
        written = self.path.with_suffix(".new")
        written.write_text(PROXY.format(**values, servers="\n".join(lines)))
        written.replace(self.path)

    def take_out(self, address: str = "") -> None:
        """Take a host out, or none."""
        self.write(address)
        os.kill(self.program.pid, signal.SIGHUP)

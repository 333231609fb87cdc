"""The data side on PostgreSQL and MariaDB: the same tests as on SQLite, with locks and with a planner of its own.

`python -m tests.servers postgresql` runs them on the server that `TEST_POSTGRES_URL` names, and `python -m
tests.servers mysql` on the one that `TEST_MYSQL_URL` names, all of them or the parts named.
"""

import os
import re
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
from pymysql.constants import CLIENT

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
PACKAGES = (
    "--ds=tests.packages_project.settings --nomigrations "
    "tests/behaviour/test_packages.py tests/behaviour/test_packages_databases.py"
)
DATABASES = (
    "--ds=tests.databases_project.settings --nomigrations "
    "tests/behaviour/test_many_databases.py tests/behaviour/test_replicas.py"
)


def marked(name: str) -> list[str]:
    """Return the files of tests that have this mark, without importing them."""
    mark = re.compile(rf"^pytestmark = (\[[^]]*|.*)\bpytest\.mark\.{name}\b", re.MULTILINE)
    found = (path for path in TESTS.rglob("test_*.py") if "node_modules" not in path.parts)
    return sorted(str(path.relative_to(ROOT)) for path in found if mark.search(path.read_text(encoding="utf-8")))


FILES = marked("postgresql")
PARTS = {
    "data": FILES,
    "packages": PACKAGES.split(),
    "databases": DATABASES.split(),
    # The questions that a shop is asked, on the example project.
    "example": "--ds=example_project.settings tests/project/test_example_evals.py".split(),
}
# Seconds in which others may give up their connections.
PATIENCE = 60
# Seconds that each part may take: a run that hangs is ended, and what it said until then is there.
TIMEOUT = 3_600


@dataclass(frozen=True)
class Server:
    """A server of databases for tests; `url` is that of a database that exists, by a user who may create others."""

    name: str
    url: str
    # What the server says when it has no place for one more connection.
    full: str

    def why_not(self) -> Exception | None:
        """Return why the server does not answer, None where it does. For a place among its connections it is waited."""
        for _ in range(PATIENCE):
            try:
                self.connect().close()
            except (psycopg.OperationalError, pymysql.MySQLError) as error:
                if self.full not in str(error):
                    return error
                refused = error
                time.sleep(1)
            else:
                return None
        return refused

    def connect(self) -> Any:
        """Connect to the server; raises the driver's error."""
        raise NotImplementedError

    def is_there(self) -> bool:
        """Return whether the server answers; it has to where `CI` is set."""
        if (error := self.why_not()) is not None:
            print(f"== {self.name} does not answer: {error}", flush=True)
        return error is None

    def run(self, arguments: list[str]) -> bool:
        """Run tests on a database of their own, with their output, and return whether they passed in time."""
        url = urlsplit(self.url)._replace(path=f"/mcp_django_{uuid.uuid4().hex}").geturl()
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        try:
            environment = os.environ | {"TEST_DATABASE_URL": url, "EXAMPLE_DATABASE": url}
            return subprocess.run(command, cwd=ROOT, env=environment, timeout=TIMEOUT).returncode == 0
        except subprocess.TimeoutExpired:
            print(f"== Not done after {TIMEOUT} s: {' '.join(command)}", flush=True)
            return False


class PostgreSQL(Server):
    def connect(self) -> Any:
        return psycopg.connect(self.url, connect_timeout=2)


class MySQL(Server):
    def connect(self) -> Any:
        url = urlsplit(self.url)
        return pymysql.connect(
            host=url.hostname or "127.0.0.1",
            port=url.port or 3306,
            user=url.username or "",
            password=url.password or "",
            connect_timeout=2,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )

    def run(self, arguments: list[str]) -> bool:
        """Run tests on the server, with its tables of time zones."""
        self.load_time_zones()
        return super().run(arguments)

    def load_time_zones(self) -> None:
        """Fill the server's tables of time zones where they are empty, as its administrator does once."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM mysql.time_zone_name")
            [(number,)] = cursor.fetchall()
            if number:
                return
            command = ["mysql_tzinfo_to_sql", "/usr/share/zoneinfo"]
            written = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            cursor.execute(f"USE mysql; {written}")
            while cursor.nextset():
                pass


POSTGRESQL = PostgreSQL(
    "PostgreSQL", os.environ.get("TEST_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/postgres"), "too many clients"
)
MYSQL = MySQL("MariaDB", os.environ.get("TEST_MYSQL_URL", "mysql://root@127.0.0.1:3306/mysql"), "Too many connections")
SERVERS = {"postgresql": POSTGRESQL, "mysql": MYSQL}


def main(server: Server, names: list[str]) -> int:
    """Run these parts, without names all of them, and return the exit status."""
    if not server.is_there():
        return 1 if os.environ.get("CI") else 0
    # Each is run, whatever the others gave.
    passed = [server.run(PARTS[name]) for name in names or PARTS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(SERVERS[sys.argv[1]], sys.argv[2:]))

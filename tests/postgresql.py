"""The data side on PostgreSQL: the same tests as on SQLite, with locks and with a planner of its own.

`python -m tests.postgresql` runs them on the server that `TEST_POSTGRES_URL` names, all of them or the parts named.
"""

import os
import subprocess
import sys
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

ROOT = Path(__file__).resolve().parent.parent
POSTGRES_URL = os.environ.get("TEST_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/postgres")
MODULES = {
    "behaviour": "aggregate_forms aggregates_against_python bad_input composite_keys drawn_questions every_field "
    "every_postgres_field every_relation hidden many_sites oracles packages_wrinkles read_only_database "
    "related_filters tenants unmanaged",
    "unit": "sites",
    "unit/actions": "calls redirects",
    "unit/completions": "arguments fields rows templates",
    "unit/context": "admin_page languages",
    "unit/exposures": "actions admin admin_filters filtersets history model",
    "unit/forms": "constraints files filling formsets inline_forms inline_reading inlines requests uploads",
    "unit/oauth": "bearer tokenplan validator",
    "unit/orm": "access aggregates arguments arithmetic columns conditions converters deletion filters inputs kinds "
    "labels lookups managers "
    "named_filters narrowing ordering pages pagination parsing patterns permissions plans prefetch queries "
    "query_limits relations relative_dates rendering replaced rows serialized shapes unreadable ways",
    "unit/resources": "base files models",
    "unit/rest": "parameters requests resources tools",
    "unit/runtime": "threads",
    "unit/server": "idempotency",
    "unit/server/methods": "completions",
    "unit/tools": "action_tools aggregate aggregation models overviews query record writes",
    "unit/transports/http": "files",
    "unit/writes": "bulk saving selection serializers versions",
}
PACKAGES = (
    "--ds=tests.packages_project.settings --nomigrations "
    "tests/behaviour/test_packages.py tests/behaviour/test_packages_databases.py"
)
DATABASES = "--ds=tests.databases_project.settings --nomigrations tests/behaviour/test_many_databases.py"
FILES = [f"tests/{room}/test_{name}.py" for room, names in MODULES.items() for name in names.split()]
PARTS = {
    "data": ["-n", "2", "--dist", "loadfile", *FILES],
    "packages": PACKAGES.split(),
    "databases": DATABASES.split(),
}
# Seconds that each part may take: a run that hangs is ended, and what it said until then is there.
TIMEOUT = 1_800


def is_there() -> bool:
    """Return whether PostgreSQL answers; it has to where `CI` is set."""
    try:
        psycopg.connect(POSTGRES_URL, connect_timeout=2).close()
    except psycopg.OperationalError as error:
        print(f"== PostgreSQL does not answer: {error}", flush=True)
        return False
    return True


def run(arguments: list[str]) -> bool:
    """Run tests on a database of their own, with their output, and return whether they passed in time."""
    url = urlsplit(POSTGRES_URL)._replace(path=f"/mcp_django_{uuid.uuid4().hex}").geturl()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    try:
        environment = os.environ | {"TEST_DATABASE_URL": url}
        return subprocess.run(command, cwd=ROOT, env=environment, timeout=TIMEOUT).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"== Not done after {TIMEOUT} s: {' '.join(command)}", flush=True)
        return False


def main(names: list[str]) -> int:
    """Run these parts, without names all of them, and return the exit status."""
    if not is_there():
        return 1 if os.environ.get("CI") else 0
    # Each is run, whatever the others gave.
    passed = [run(PARTS[name]) for name in names or PARTS]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

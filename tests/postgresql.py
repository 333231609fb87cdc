"""The data side on PostgreSQL: the same tests as on SQLite, with locks and with a planner of its own.

`python -m tests.postgresql` runs them on the server that `TEST_POSTGRES_URL` names, all of them or the parts named.
"""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

ROOT = Path(__file__).resolve().parent.parent
POSTGRES_URL = os.environ.get("TEST_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/postgres")
MODULES = {
    "behaviour": "aggregate_forms aggregates_against_python bad_input client_documents composite_keys costs_of_forms "
    "drawn_questions errors_are_short every_field every_postgres_field every_relation hidden hidden_fields_in_forms "
    "many_sites oracles oracles_drawn packages_wrinkles plans_of_forms "
    "read_only_database related_filters signing_clients step_up switches tenants unmanaged",
    "unit": "sites",
    "unit/completions": "arguments fields rows templates",
    "unit/console": "as_user call_filters calls connections figures overview try_it",
    "unit/context": "languages narrowing",
    "unit/exposures": "base derived managers",
    "unit/emulation": "actions admin bulk calls errors files forms formsets history history_rows inline_forms "
    "inline_reading inlines list_filters page page_inlines redirects requests saving selection serializers "
    "uploads versions",
    "unit/oauth": "access_filters account_admin accounts admin assertions bearer described hosts identities linking "
    "revoking tokenlist tokenplan unused validator",
    "unit/operating": "calls comments log metrics retention spans switches",
    "unit/orm": "access aggregates arguments arithmetic columns comparisons computed conditions deletion "
    "filters inputs kinds "
    "filtersets labels lookups meanings "
    "named_filters narrowing ordering pages pagination parsing patterns permissions plans plans_of_querysets "
    "prefetch queries query_limits relations relative_dates rendering replaced rows serialized similar sqlite_values "
    "unreadable uris ways",
    "unit/resources": "base files models",
    "unit/rest": "parameters requests resources tools",
    "unit/runtime": "threads",
    "unit/server": "idempotency",
    "unit/server/methods": "completions",
    "unit/tools": "actions aggregate chatgpt examples finding measures models overviews proposals query record writes",
    "unit/transports/http": "files",
}
PACKAGES = (
    "--ds=tests.packages_project.settings --nomigrations "
    "tests/behaviour/test_packages.py tests/behaviour/test_packages_databases.py"
)
DATABASES = (
    "--ds=tests.databases_project.settings --nomigrations "
    "tests/behaviour/test_many_databases.py tests/behaviour/test_replicas.py"
)
FILES = [f"tests/{room}/test_{name}.py" for room, names in MODULES.items() for name in names.split()]
PARTS = {
    "data": ["-n", "2", "--dist", "loadfile", *FILES],
    "packages": PACKAGES.split(),
    "databases": DATABASES.split(),
}
# Seconds in which others may give up their connections.
PATIENCE = 60
# Seconds that each part may take: a run that hangs is ended, and what it said until then is there.
TIMEOUT = 1_800


def why_not(url: str) -> psycopg.OperationalError | None:
    """Return why PostgreSQL does not answer, None where it does. For a place among its connections it is waited."""
    for _ in range(PATIENCE):
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError as error:
            if "too many clients" not in str(error):
                return error
            refused = error
            time.sleep(1)
        else:
            return None
    return refused


def is_there() -> bool:
    """Return whether PostgreSQL answers; it has to where `CI` is set."""
    if (error := why_not(POSTGRES_URL)) is not None:
        print(f"== PostgreSQL does not answer: {error}", flush=True)
    return error is None


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

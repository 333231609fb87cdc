"""The data side on PostgreSQL: the same tests as on SQLite, with locks and with a planner of its own.

`python -m tests.postgresql` runs them on the server that `TEST_POSTGRES_URL` names, all of them or the parts named.
"""

import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
POSTGRES_URL = os.environ.get("TEST_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/postgres")
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

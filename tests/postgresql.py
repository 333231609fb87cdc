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
MODULES = (
    "adminexposure aggregates_against_python bad_input columns completions_arguments completions_fields "
    "completions_rows completions_templates composite_keys converters costs every_field every_postgres_field "
    "every_relation exposures expressions filtering hidden kinds labels languages lookups managers many_sites "
    "methods_completions methods_once namedfilters narrowing oauth_bearer oauth_tokenplan oauth_validator oracles "
    "ordering packages_wrinkles pages pagination patterns peers permissions plans queries read_only_database "
    "relations relativedates repairs replaced resources_base resources_files resources_orm rows serialized "
    "serializers shapes sites tenants tools_actions tools_actiontools tools_adminfilters tools_adminpage "
    "tools_aggregate "
    "tools_arguments tools_bulk tools_constraints tools_deletion tools_filevalues tools_filters tools_filtersets "
    "tools_forms tools_groups tools_history tools_inlineforms tools_inlinereading tools_inlinerows tools_inlines "
    "tools_inputs tools_measures tools_models tools_overviews tools_posting tools_query tools_record tools_redirects "
    "tools_running tools_saving tools_selection tools_serialsaving tools_targets tools_versions tools_writes "
    "transports_files unmanaged uploads viewsets_inputs viewsets_parameters viewsets_resources viewsets_running "
    "viewsets_tools visibility threads"
)
PACKAGES = "--ds=tests.packages_project.settings --nomigrations tests/test_packages.py tests/test_packages_databases.py"
DATABASES = "--ds=tests.databases_project.settings --nomigrations tests/test_many_databases.py"
PARTS = {
    "data": ["-n", "2", "--dist", "loadfile", *(f"tests/test_{name}.py" for name in MODULES.split())],
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

"""The data side on PostgreSQL: the same tests as on SQLite, with locks and with a planner of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODULES = (
    "columns filtering kinds lookups oauth_bearer oauth_tokenplan oauth_validator ordering pages pagination "
    "permissions plans queries relations resources_orm rows serializers tools_actions tools_aggregate "
    "tools_deletion tools_query tools_running tools_saving tools_writes visibility"
)


def test_the_data_side_behaves_on_postgresql_as_on_sqlite(postgres_database: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"]
    command += [f"tests/test_{name}.py" for name in MODULES.split()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"TEST_DATABASE_URL": postgres_database}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout

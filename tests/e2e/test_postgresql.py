"""The data side on PostgreSQL: the same tests as on SQLite, with locks and with a planner of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MODULES = (
    "adminexposure aggregates_against_python bad_input columns completions_arguments completions_fields "
    "completions_rows completions_templates composite_keys converters costs every_field every_postgres_field "
    "every_relation exposures expressions filtering hidden kinds labels languages lookups managers many_sites "
    "methods_completions methods_once namedfilters narrowing oauth_bearer oauth_tokenplan oauth_validator oracles "
    "ordering packages_wrinkles pages pagination peers permissions plans queries read_only_database relations "
    "relativedates repairs replaced resources_base resources_files resources_orm rows serialized serializers sites "
    "tenants tools_actions tools_actiontools tools_adminfilters tools_adminpage tools_aggregate tools_arguments "
    "tools_bulk tools_constraints tools_deletion tools_filevalues tools_filters tools_filtersets tools_forms "
    "tools_groups tools_history tools_inlineforms tools_inlinereading tools_inlinerows tools_inlines tools_inputs "
    "tools_measures tools_models tools_overviews tools_posting tools_query tools_record tools_redirects tools_running "
    "tools_saving tools_selection tools_serialsaving tools_targets tools_versions tools_writes transports_files "
    "unmanaged uploads viewsets_inputs viewsets_parameters viewsets_resources viewsets_running viewsets_tools "
    "visibility"
)
PACKAGES = "--ds=tests.packages_project.settings --nomigrations tests/test_packages.py tests/test_packages_databases.py"
DATABASES = "--ds=tests.databases_project.settings --nomigrations tests/test_many_databases.py"


@pytest.mark.parametrize(
    "arguments",
    [[f"tests/test_{name}.py" for name in MODULES.split()], PACKAGES.split(), DATABASES.split()],
    ids=["data", "packages", "databases"],
)
def test_the_data_side_behaves_on_postgresql_as_on_sqlite(postgres_database: str, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"]
    command += arguments
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"TEST_DATABASE_URL": postgres_database}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout

"""The official conformance suite against the conformance project, both sets of requirements."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import NODE_MODULES
from tests.e2e.servers import ROOT, environment, free_port, run

SUITE = NODE_MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
EXPECTED_FAILURES = ROOT / "tests" / "conformance_project" / "expected-failures.yaml"
TIMEOUT = 120


@pytest.fixture(scope="module", params=["uvicorn", "daphne"])
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.conformance_project", "--port", str(port), "--server", request.param]
    env = environment("tests.conformance_project.settings")
    with run(command, port, env, tmp_path_factory.mktemp("conformance") / "server.log") as origin:
        yield f"{origin}/mcp"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_scored_scenario_passes_but_those_that_are_not_built_yet(
    endpoint: str, node: str, revision: str, tmp_path: Path
) -> None:
    check(node, endpoint, tmp_path, "--requirements", revision, "--expected-failures", str(EXPECTED_FAILURES))


@pytest.mark.parametrize(
    "scenario", ["http-header-validation", "http-custom-header-server-validation", "json-schema-2020-12"]
)
def test_scenarios_that_are_not_scored_yet_pass(endpoint: str, node: str, scenario: str, tmp_path: Path) -> None:
    check(node, endpoint, tmp_path, "--scenario", scenario, "--spec-version", "2026-07-28")


def check(node: str, endpoint: str, results: Path, *options: str) -> None:
    """Run the suite, which must be content."""
    command = [node, str(SUITE), "server", "--url", endpoint, "-o", str(results), *options]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert outcome.returncode == 0, outcome.stdout.rpartition("=== SUMMARY ===")[2] + outcome.stderr

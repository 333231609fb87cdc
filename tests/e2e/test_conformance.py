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
    command = [node, str(SUITE), "server", "--url", endpoint, "--requirements", revision, "-o", str(tmp_path)]
    command += ["--expected-failures", str(EXPECTED_FAILURES)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert outcome.returncode == 0, outcome.stdout.rpartition("=== SUMMARY ===")[2] + outcome.stderr

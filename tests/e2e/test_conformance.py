"""The official conformance suite against the conformance project."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import whole
from tests.e2e.conftest import NODE_MODULES
from tests.e2e.fixture_project import run_conformance_project

SUITE = NODE_MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
TIMEOUT = 120
GOOD = {"SUCCESS", "SKIPPED", "INFO"}
# How many scenarios of the whole suite are of tasks: an extension, which the lists of the revisions leave out.
TASKS = 10


@pytest.fixture(scope="module", params=["uvicorn", *whole(["daphne"])])
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The project under two workers, which know of each other through Redis, and under one without it."""
    directory = tmp_path_factory.mktemp("conformance")
    workers, redis = (2, request.getfixturevalue("redis")) if request.param == "uvicorn" else (1, "")
    with run_conformance_project(directory, request.param, workers=workers, redis=redis) as server:
        yield server.url


@pytest.mark.parametrize(("revision", "scenarios"), [("2025-11-25", 33), ("2026-07-28", 50)])
def test_every_scenario_of_a_revision_passes(
    endpoint: str, node: str, revision: str, scenarios: int, tmp_path: Path
) -> None:
    baseline = tmp_path / "expected-failures.yaml"
    baseline.write_text("server: []\n")
    outcome = run_suite(
        endpoint, node, tmp_path / "results", "--requirements", revision, "--expected-failures", str(baseline)
    )
    assert outcome.returncode == 0, outcome.stdout.rpartition("=== SUMMARY ===")[2] + outcome.stderr
    checked(tmp_path / "results", scenarios)


def test_the_whole_suite_passes_with_its_scenarios_of_tasks(endpoint: str, node: str, tmp_path: Path) -> None:
    run_suite(endpoint, node, tmp_path, "--suite", "all")
    checked(tmp_path, 65)
    assert len(list(tmp_path.glob("server-tasks-*"))) == TASKS


def run_suite(endpoint: str, node: str, results: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [node, str(SUITE), "server", "--url", endpoint, "-o", str(results), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)


def checked(results: Path, scenarios: int) -> None:
    """So many scenarios were run, and none has failed or warned."""
    files = list(results.glob("*/checks.json"))
    assert len(files) == scenarios
    found: list[str] = []
    for file in files:
        named = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.+", file.parent.name)
        assert named
        checks = json.loads(file.read_text())
        found += [f"{named[1]}: {describe(check)}" for check in checks if check["status"] not in GOOD]
    assert not found, "\n".join(found)


def describe(check: dict[str, str]) -> str:
    return f"{check['status']} {check['id']}: {check.get('errorMessage', check['description'])}"

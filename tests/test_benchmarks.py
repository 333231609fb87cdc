"""The harness runs from end to end on little data; what it measures then is of no interest."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.calls import LEGACY, MODERN, checker, mcp_request
from benchmarks.load import Answer, BadAnswer, Sample, split_answer
from benchmarks.report import Cell, ratios

ROOT = Path(__file__).resolve().parent.parent
LITTLE = ["--seconds", "0.05", "--rounds", "1", "--connections", "2", "--rows", "300", "--events", "300"]
LITTLE += ["--streams", "20", "--subscribers", "20", "--settle", "0.05"]


def run(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    path = tmp_path / "out" / "results.json"
    command = [sys.executable, "-m", "benchmarks", *LITTLE, "--json", str(path), *arguments]
    # The settings of the tests are not those of the measured project.
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(path.read_text())


@pytest.mark.e2e
def test_every_call_is_measured_and_compared(tmp_path: Path) -> None:
    table, document = run(tmp_path, "--only", "fast", "plain_mw", "sdk", "bare_mw")
    assert {name: set(cells) for name, cells in document["calls"].items()} == {
        "tools_list": {"fast", "plain_mw", "sdk"},
        "query_records": {"fast", "plain_mw", "sdk", "bare_mw"},
        "get_record": {"fast", "plain_mw", "sdk", "bare_mw"},
        "first_page": {"fast", "plain_mw"},
        "deep_page": {"fast", "plain_mw"},
    }
    cells = [cell for contenders in document["calls"].values() for cell in contenders.values()]
    assert all(cell["calls_per_second"] > 0 and cell["p50_ms"] <= cell["p99_ms"] for cell in cells)
    targets = [ratio for ratio in document["ratios"] if ratio["target"] is not None]
    assert len(targets) == 5
    assert all(ratio["reached"] is (ratio["value"] >= ratio["target"]) for ratio in targets)
    assert document["versions"]["mcp"] == "2.3.0"
    assert document["options"]["connections"] == 2
    assert all(ratio["ratio"] in table for ratio in document["ratios"])
    streams = {name: {kind: set(cells) for kind, cells in kinds.items()} for name, kinds in document["streams"].items()}
    assert streams == {
        "stream_memory": {"listen": {"fast", "sdk"}, "session": {"fast", "sdk"}},
        "one_change": {"listen": {"fast", "sdk"}, "session": {"fast"}},
        "beside_streams": {"listen": {"fast", "sdk"}},
    }
    assert all(target["reached"] is (target["value"] <= target["most"]) for target in document["stream_targets"])
    assert len(document["stream_targets"]) == 6
    assert all(target["what"] in table for target in document["stream_targets"])
    assert table.count("official SDK, no token") == 3 + 4


@pytest.mark.e2e
def test_one_call_of_one_contender_in_the_legacy_era(tmp_path: Path) -> None:
    _, document = run(tmp_path, "--only", "query_records", "fast", "--revision", LEGACY)
    assert {name: set(cells) for name, cells in document["calls"].items()} == {"query_records": {"fast"}}
    assert document["ratios"] == []
    assert document["streams"] == {}


def test_answers_are_split_by_length_and_by_chunks() -> None:
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    chunked = b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
    for data, status in ((plain, 200), (chunked, 404)):
        found = split_answer(data + b"HTTP")
        assert found is not None
        answer, length = found
        assert (answer.status, answer.body, length) == (status, b"hello", len(data))
        assert all(split_answer(data[:part]) is None for part in range(len(data)))


def test_an_answer_without_a_length_is_refused() -> None:
    with pytest.raises(BadAnswer):
        split_answer(b"HTTP/1.1 200 OK\r\n\r\nhello")


@pytest.mark.parametrize("answer", [Answer(500, {}, b"x" * 1000), Answer(200, {}, b"x" * 500)])
def test_an_answer_that_failed_aborts(answer: Answer) -> None:
    check = checker(Answer(200, {}, b"x" * 1000))
    check(Answer(200, {}, b"x" * 1001))
    with pytest.raises(BadAnswer):
        check(answer)


def test_requests_of_the_modern_era_mirror_method_and_name() -> None:
    params = {"name": "query_records", "arguments": {}}
    modern = mcp_request(1, "tools/call", params, token="t", revision=MODERN)
    legacy = mcp_request(1, "tools/call", params, token="t", revision=LEGACY)
    assert b"\r\nMcp-Method: tools/call\r\nMcp-Name: query_records\r\n" in modern
    assert b"Mcp-Method" not in legacy
    assert b"_meta" not in legacy
    head, _, body = modern.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


def test_quantiles_are_of_the_calls() -> None:
    sample = Sample(2.0, [0.004, 0.001, 0.003, 0.002])
    assert (sample.rate, sample.quantile(0.5), sample.quantile(0.99)) == (2.0, 0.003, 0.004)


def test_ratios_compare_rounds_that_followed_each_other() -> None:
    def cell(*rates: float) -> Cell:
        return Cell(rates=list(rates), cpu=[1 / rate for rate in rates])

    # The machine was slow in the last two rounds, for both.
    cells = {("query_records", "fast"): cell(100, 30, 31), ("query_records", "sdk"): cell(40, 10, 20)}
    found = ratios(cells)
    assert [(ratio["value"], ratio["target"], ratio["reached"]) for ratio in found] == [(2.5, 2.0, True)]

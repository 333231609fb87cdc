"""The harness runs from end to end on little data; what it measures then is of no interest."""

import asyncio
import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks import depth, endurance, load, setup
from benchmarks.calls import LEGACY, MODERN, Call, checker, mcp_request
from benchmarks.load import Answer, BadAnswer, Sample, split_answer
from benchmarks.report import Cell, ratios
from benchmarks.servers import CONTENDERS
from benchmarks.suite import CALL_NAMES, ROADS
from mcp_django.orm.compiled_queries import MAX_COMPILED

pytestmark = pytest.mark.one_django

ROOT = Path(__file__).resolve().parents[2]
LITTLE = ["--seconds", "0.05", "--rounds", "1", "--connections", "2", "--rows", "300", "--events", "300"]
LITTLE += [
    "--streams",
    "20",
    "--subscribers",
    "20",
    "--settle",
    "0.05",
    "--pages",
    "50",
    "--long-rows",
    "1000",
    "--starts",
    "1",
]
# Nothing listens there.
NOWHERE = "postgres://nobody@127.0.0.1:9/none"
FAST, SDK, BARE = (next(item for item in CONTENDERS if item.name == name) for name in ("fast", "sdk", "bare"))


def run(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    path = tmp_path / "out" / "results.json"
    command = [sys.executable, "-m", "benchmarks", *LITTLE, "--json", str(path), *arguments]
    # The settings of the tests are not those of the measured project.
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(path.read_text())


@pytest.mark.e2e
def test_a_call_and_a_change_are_measured_and_compared(tmp_path: Path) -> None:
    table, document = run(tmp_path, "--only", "get_record", "one_change", "fast", "sdk_token")
    assert set(document["calls"]["get_record"]) == {"fast", "sdk_token"}
    (ratio,) = document["ratios"]
    assert ratio["ratio"] in table
    assert set(document["streams"]["one_change"]) == {"listen", "session"}


@pytest.mark.whole
@pytest.mark.e2e
def test_every_call_is_measured_and_compared(tmp_path: Path) -> None:
    table, document = run(tmp_path, "--only", "fast", "plain_mw", "sdk", "sdk_token", "bare_mw", "--postgres", NOWHERE)
    everyone = {"fast", "plain_mw", "sdk", "sdk_token", "bare_mw"}
    assert {name: set(cells) for name, cells in document["calls"].items()} == {
        "tools_list": {"fast", "plain_mw", "sdk", "sdk_token"},
        "query_records": everyone,
        **{road: {"fast", "sdk", "sdk_token"} for road in ROADS},
        "plain_columns": {"fast"},
        "related_column": {"fast"},
        "get_record": everyone,
        "aggregate_records": everyone,
        "first_page": {"fast", "plain_mw"},
        "deep_page": {"fast", "plain_mw"},
        "update_record": everyone,
    }
    assert set(document["calls"]) == set(CALL_NAMES)
    cells = [cell for contenders in document["calls"].values() for cell in contenders.values()]
    assert all(cell["calls_per_second"] > 0 and cell["p50_ms"] <= cell["p99_ms"] for cell in cells)
    targets = [ratio for ratio in document["ratios"] if ratio["target"] is not None]
    assert len(targets) == 11
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
    assert table.count("official SDK, no token") == 8 + 4
    memory = document["worker_memory"]
    assert (memory["warm_up_pages"], memory["pages"], len(memory["mib_steps"])) == (15, 50, 13)
    assert memory["reached"] is (memory["growth_percent"] < memory["most_percent"])
    assert "a worker after 15 pages, and after 50 more" in table
    assert set(document["setup"]["over"]) == {"with", "declared", "serving"}
    assert "django.setup(), 1 starts each; over a project without the app" in table
    files = document["exports"]["kinds"]
    assert set(files) == {"plain", "csv", "sorted", "jsonl", "xlsx"}
    assert {cost["rows"] for cost in files.values()} == {300}
    assert list(document["skipped"]) == ["long_pages"]
    assert "not measured: long_pages: PostgreSQL does not answer at 127.0.0.1:9" in table


@pytest.mark.whole
@pytest.mark.e2e
def test_calls_are_measured_on_postgresql_too(postgres: str, tmp_path: Path) -> None:
    table, document = run(
        tmp_path, "--database", "postgresql", "--postgres", postgres, "--only", "get_record", "fast", "sdk_token"
    )
    assert set(document["calls"]["get_record"]) == {"fast", "sdk_token"}
    assert document["options"]["database"] == "postgresql"
    (ratio,) = document["ratios"]
    assert ratio["lowest"] <= ratio["value"] <= ratio["highest"]
    assert f"{ratio['lowest']:.2f}-{ratio['highest']:.2f}" in table


@pytest.mark.whole
@pytest.mark.e2e
def test_two_workers_are_measured_as_uvicorn_starts_them(tmp_path: Path) -> None:
    _, document = run(tmp_path, "--only", "get_record", "fast_two")
    assert document["calls"]["get_record"]["fast_two"]["calls_per_second"] > 0


@pytest.mark.whole
@pytest.mark.e2e
def test_one_call_of_one_contender_in_the_legacy_era(tmp_path: Path) -> None:
    _, document = run(tmp_path, "--only", "query_records", "fast", "--revision", LEGACY)
    assert {name: set(cells) for name, cells in document["calls"].items()} == {"query_records": {"fast"}}
    assert document["ratios"] == []
    assert (document["streams"], document["worker_memory"], document["skipped"]) == ({}, {}, {})


@pytest.mark.whole
@pytest.mark.e2e
def test_pages_of_the_long_table_are_those_at_their_depth(postgres: str, tmp_path: Path) -> None:
    # That the rows are the right ones is a condition of each measurement.
    table, document = run(tmp_path, "--only", "fast", "long_pages", "--postgres", postgres)
    names = {f"long_{page}_{order}" for page in depth.PAGES for order in depth.ORDERS}
    assert {name: set(cells) for name, cells in document["calls"].items()} == {name: {"fast"} for name in names}
    assert [ratio["target"] for ratio in document["ratios"]] == [0.909] * len(depth.ORDERS) + [None] * len(depth.ORDERS)
    assert all(f"1,000 rows {order}: the page after 990" in table for order in depth.ORDERS.values())


def test_the_database_of_the_long_table_is_there_for_a_run_and_no_longer(postgres: str) -> None:
    import psycopg

    with depth.database(postgres) as url:
        assert url != postgres
        psycopg.connect(url).close()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_without_a_server_the_long_table_says_so() -> None:
    with (
        pytest.raises(depth.Unavailable, match=r"PostgreSQL does not answer at 127\.0\.0\.1:9: "),
        depth.database(NOWHERE),
    ):
        pass


def test_a_worker_is_asked_for_more_shapes_than_it_keeps() -> None:
    def shape(query: dict[str, Any]) -> str:
        return json.dumps([sorted(query["filters"]), query["ordering"], query["fields"], query["limit"]])

    asked = list(islice(endurance.queries(100_000), 2 * MAX_COMPILED))
    assert len({shape(query) for query in asked}) > MAX_COMPILED
    assert asked == list(islice(endurance.queries(100_000), 2 * MAX_COMPILED))


def test_the_cost_of_the_app_is_that_of_starts_that_followed_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # The machine is twice as slow in the second round, and the first one writes the bytecode.
    speeds = iter([9, 1, 2, 1])

    def start(kind: str) -> dict[str, float]:
        nonlocal speed
        speed = next(speeds) if kind == "without" else speed
        more = setup.KINDS.index(kind)
        return {"settings_ms": more, "setup_ms": (100 + 10 * more) * speed, "resident_mb": 50 + more, "modules": more}

    speed = 0
    monkeypatch.setattr(setup, "_start", start)
    found = setup.measure(3)
    assert found["without"]["setup_ms"] == 100
    assert [found["over"][kind]["setup_ms"] for kind in setup.TITLES] == [10, 20, 30]
    assert found["over"]["with"]["setup_ms_range"] == [10, 20]
    assert [found["over"][kind]["reached"] for kind in setup.TITLES] == [True, True, None]
    assert any("10 to 20" in line for line in setup.setup_lines(found))


def test_an_answer_with_an_error_ends_the_measurement_of_memory() -> None:
    endurance.check(Answer(200, {}, b'{"result":{"structuredContent":{"rows":[[1]]}}}'))
    for answer in (Answer(200, {}, b'{"result":{"isError":true}}'), Answer(500, {}, b'"rows":[')):
        with pytest.raises(BadAnswer):
            endurance.check(answer)


def test_a_write_is_sent_with_one_value_after_the_other() -> None:
    params = {"name": "update_record", "arguments": {"model": "bench.article", "pk": 1}}
    call = Call("update", "", "tools/call", params, "/bare/articles/1", str, values=[{"words": 1}, {"words": 2}])
    sent = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in call.requests(FAST, 1, "t", MODERN)]
    found = [request["params"]["arguments"] for request in sent]
    assert found == [{"model": "bench.article", "pk": 1, "values": {"words": words}} for words in (1, 2)]
    bare = call.requests(BARE, 1, "t", MODERN)
    assert [request.partition(b" ")[0] for request in bare] == [b"POST", b"POST"]
    assert [json.loads(request.partition(b"\r\n\r\n")[2]) for request in bare] == [{"words": 1}, {"words": 2}]


def test_only_those_are_asked_that_have_the_call() -> None:
    def having(**options: Any) -> list[bool]:
        return [Call("x", "", "tools/call", {}, "/x", str, **options).has(item) for item in (FAST, SDK, BARE)]

    assert having() == [True, True, True]
    assert having(sdk=False) == [True, False, True]
    assert having(only=frozenset({"fast"})) == [True, False, False]


async def test_load_ends_when_each_request_was_answered_once() -> None:
    received = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            received.append(line)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    requests = [b"%d\n" % number for number in range(10)]
    sample = await load.run(port, iter(requests), checker(Answer(200, {}, b"ok")), connections=3, seconds=60)
    server.close()
    assert sorted(received) == requests
    assert len(sample.latencies) == len(requests)


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

    # The machine was slow in the last two rounds, for both contenders.
    cells = {("query_records", "fast"): cell(100, 50, 31), ("query_records", "sdk_token"): cell(25, 10, 20)}
    found = ratios(cells)
    assert [(ratio["value"], ratio["target"], ratio["reached"]) for ratio in found] == [(4.0, 2.0, True)]

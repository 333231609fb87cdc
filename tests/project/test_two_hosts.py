"""The run on two hosts: what it counts as lost, and, where the machine has all that it needs, the run itself."""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.two_hosts import __main__ as command
from benchmarks.two_hosts import report, services
from benchmarks.two_hosts.cluster import ROOT, version_before
from benchmarks.two_hosts.faults import Happened
from benchmarks.two_hosts.people import Subscriber
from benchmarks.two_hosts.promises import PROMISES, Book
from tests.cases import whole

pytestmark = pytest.mark.one_django


def test_an_entry_that_is_missing_or_there_twice_or_that_nobody_asked_for_is_lost() -> None:
    book = Book()
    book.expect("write", "missing", 1)
    book.expect("task", "twice", 0, 1)
    book.expect("confirmation", "right", 0)
    book.expect("confirmation", "unsure", 0, 1)
    book.verify(Counter({"twice": 2, "strange": 1, "unsure": 1}))
    assert {name: len(tally.lost) for name, tally in book.tallies.items() if tally.lost} == {"write": 2, "task": 1}
    assert book.has_lost()


def test_a_change_counts_as_heard_of_only_by_news_that_came_after_it_began() -> None:
    book, now = Book(), time.monotonic()
    subscriber = Subscriber.__new__(Subscriber)
    subscriber.book, subscriber.known = book, {"counter": 1}
    subscriber.changes = [(now, now + 1, 1), (now + 10, now + 11, 2)]
    subscriber.news = [now - 1, now + 4]
    subscriber.settle()
    summary = book.tallies["change"].summary()
    assert (summary["checked"], summary["lost"], summary["late"], summary["longest_seconds"]) == (2, 1, 1, 3.0)


def test_the_report_says_what_a_fault_cost_and_gives_no_rate_of_a_busy_machine() -> None:
    book = Book()
    book.requests = [(1.0, "get_record", "answered", 0.1), (5.0, "get_record", "refused", 0.1)]
    book.requests += [(9.0, "create_record", "answered", 7.5), (40.0, "get_record", "no answer", 1.0)]
    book.kept("write", 7.5)
    book.lost("page", "after 50 came nothing")
    costs = {"cores_are_free": False, "most": {}, "web_mib_first_third": 1, "web_mib_last_third": 1, "processors": 2}
    costs |= {"idle_part": 0.1, "load_at_the_beginning": 3.0}
    more: dict[str, Any] = {"work": {}, "ended": {}, "tracebacks": {}, "clients": 2, "minutes": 1, "pause": 1}
    found = report.document(book, [Happened("cut off", 2, 8)], costs, before="0" * 40, now="1", **more)
    [fault] = found["faults"]
    assert (fault["requests"], fault["refused"], fault["slowest_answer"], fault["longest_silence"]) == (2, 1, 7.5, 9.0)
    assert found["answers_per_second"] is None
    text = report.text(found)
    assert "LOST (page)" in text
    assert all(promise in text for promise in PROMISES.values())


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command.os, "geteuid", lambda: 0)
    monkeypatch.setattr(services, "missing", lambda: ["nginx-light", "pgbouncer"])
    assert command.main(["--minutes", "1"]) == 2
    assert "apt-get install nginx-light pgbouncer" in capsys.readouterr().err


def test_every_kind_of_client_takes_part_in_a_small_run_too() -> None:
    run: Any = SimpleNamespace(people=[{"token": "", "counter": 1}] * 99, book=Book(), http=None)
    kinds = Counter(type(person) for person in command.people_of(run, 10))
    assert set(kinds) == set(command.SHARES)
    assert len(command.people_of(run, 64)) == 64


@pytest.mark.parametrize("minutes", whole(["1"]))
@pytest.mark.e2e
def test_a_run_loses_nothing(minutes: str, tmp_path: Path) -> None:
    if reason := command.why_not():
        pytest.skip(reason)
    path = tmp_path / "run.json"
    options = ["--minutes", minutes, "--clients", "10", "--json", str(path), "--before", version_before()]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.two_hosts", *options], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(path.read_text())
    assert found["promises"]["write"]["checked"]
    assert found["faults"]

"""The list of calls while calls go on: it says how many are new, and adds them for whoever clicks."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.servers import ROOT, Server, manage, run_example

STORE = """
from mcp_django.context.call_record import CallRecord
from mcp_django.operating.call_log_storage import row_of, store
store([row_of(CallRecord(outcome=outcome, tool="query_records")) for outcome in {outcomes}])
"""
TIMEOUT = 120


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("live")
    with run_example(prepared, directory, "runserver", "", "tests.e2e.settings_console") as found:
        yield found


def test_new_calls_of_the_query_are_told_and_added_by_a_click(server: Server, node: str, chromium: str) -> None:
    manage(server, "shell", "-c", STORE.format(outcomes=["tool_error"] * 3 + ["ok"]))
    task = {
        "executable": chromium,
        "login": {"url": f"{server.origin}/admin/login/?next=/admin/", "username": "admin"},
        "url": f"{server.origin}/admin/mcp_django/callentry/?q=failed",
    }
    program = [node, str(ROOT / "tests" / "e2e" / "node" / "live.mjs")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as browser:
        assert browser.stdin is not None
        assert browser.stdout is not None
        browser.stdin.write(f"{json.dumps(task)}\n")
        browser.stdin.flush()
        assert browser.stdout.readline() == "open\n"
        manage(server, "shell", "-c", STORE.format(outcomes=["tool_error", "ok", "tool_error"]))
        browser.stdin.write("\n")
        browser.stdin.flush()
        found = json.loads(browser.stdout.readline())
        browser.wait(TIMEOUT)
    assert found == {
        "said": "2 new",
        "unchanged": True,
        "added": 2,
        "kept": True,
        "focus": True,
        "isQuiet": True,
        "problems": [],
    }

"""The keys j and k: through the list of calls, and from call to call within its query, and never while one types."""

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.e2e.servers import ROOT, Server, manage, run_example

STORE = """
from datetime import timedelta
from django.utils import timezone
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store
CallEntry.objects.all().delete()
for number in range(8):
    values = {"outcome": ["tool_error", "ok"][number % 2], "tool": f"tool_{number}"}
    store([row_of(CallRecord(started=timezone.now() - timedelta(minutes=number), **values))])
print("calls", *CallEntry.objects.order_by("-time").values_list("pk", flat=True))
"""
TIMEOUT = 200


@pytest.fixture(scope="module")
def walked(
    prepared: Path, tmp_path_factory: pytest.TempPathFactory, node: str, chromium: str
) -> dict[str, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("keys")
    with run_example(prepared, directory, "runserver", "", "tests.e2e.settings_console") as server:
        return walk(server, node, chromium)


def walk(server: Server, node: str, chromium: str) -> dict[str, dict[str, Any]]:
    """Where each series of keys leads. Calls have numbers: the newest is 0, and every other one failed."""
    keys = manage(server, "shell", "-c", STORE).rpartition("calls ")[2].split()
    console = f"{server.origin}/admin/mcp_django/callentry/"
    failed = f"{console}?q=failed"
    into_list = {"tab": "^time$"}
    into_links = {"tab": "^Older$"}
    journeys: dict[str, tuple[str, list[dict[str, Any]]]] = {
        "third": (failed, [into_list, {"keys": ["j", "j", "j", "Enter"]}]),
        "back": (failed, [into_list, {"keys": ["j", "j", "j", "k", "k", "k", "k", "Enter"]}]),
        "end": (failed, [into_list, {"keys": ["j"] * 9}, {"follow": "Enter"}]),
        "older": (failed, [into_list, {"keys": ["j"]}, {"follow": "Enter"}, {"follow": "j"}, {"follow": "j"}]),
        "newer": (f"{console}{keys[4]}/change/?q=failed", [into_links, {"follow": "k"}]),
        "all": (f"{console}{keys[4]}/change/", [into_links, {"follow": "k"}]),
        "newest": (f"{console}{keys[0]}/change/?q=failed", [into_links, {"keys": ["k"]}]),
        "elsewhere": (failed, [{"keys": ["j", "j"]}, into_list]),
        "elsewhere on a page": (f"{console}{keys[4]}/change/?q=failed", [{"keys": ["k", "j"]}]),
        "typed": (f"{failed}", [{"tab": "Find$"}, {"keys": ["Shift+Tab", "j", "k", "j"]}, {"follow": "Enter"}]),
        "modified": (failed, [into_list, {"keys": ["Control+j", "Alt+k"]}]),
        "sorted": (failed, [{"click": {"name": "^duration$"}}]),
    }
    task = {
        "executable": chromium,
        "login": {"url": f"{server.origin}/admin/login/?next=/admin/", "username": "admin"},
        "journeys": [{"name": name, "url": url, "actions": actions} for name, (url, actions) in journeys.items()],
    }
    program = [node, str(ROOT / "tests" / "e2e" / "node" / "clicks.mjs")]
    done = subprocess.run(program, input=json.dumps(task), capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    found = {journey["name"]: journey for journey in json.loads(done.stdout)}
    for journey in found.values():
        path = urlsplit(journey["url"]).path.removesuffix("/change/").rpartition("/")[2]
        journey["call"] = keys.index(path) if path in keys else None
        journey["query"] = parse_qs(urlsplit(journey["url"]).query).get("q")
    return found


@pytest.mark.parametrize(
    ("name", "call"), [("third", 4), ("back", 0), ("end", 6), ("older", 4), ("newer", 2), ("newest", 0)]
)
def test_j_and_k_lead_through_the_calls_of_the_query(walked: dict[str, Any], name: str, call: int) -> None:
    assert walked[name]["problems"] == []
    assert walked[name]["call"] == call
    assert walked[name]["query"] == ["failed"]


def test_they_act_only_where_the_focus_is_in_the_list_or_beside_a_call(walked: dict[str, Any]) -> None:
    assert walked["elsewhere"]["problems"] == walked["elsewhere on a page"]["problems"] == []
    # The next Tab leads where it leads on a page that was just opened.
    assert walked["elsewhere"]["stops"][:1] == walked["third"]["stops"][:1]
    assert walked["elsewhere on a page"]["call"] == 4


def test_without_a_query_they_lead_through_all_calls(walked: dict[str, Any]) -> None:
    assert walked["all"]["call"] == 3


def test_what_one_types_is_text_and_what_the_browser_uses_is_the_browsers(walked: dict[str, Any]) -> None:
    assert walked["typed"]["problems"] == walked["modified"]["problems"] == []
    assert walked["typed"]["query"] == ["jkj"]
    assert walked["modified"]["call"] is None


def test_a_click_on_a_column_sorts_it(walked: dict[str, Any]) -> None:
    assert walked["sorted"]["problems"] == []
    assert walked["sorted"]["url"].endswith("?o=-1&q=failed")

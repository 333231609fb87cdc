"""An incident among many calls: how many clicks lead a person to it, and to turning its client off."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cases import drawn
from tests.e2e.browser import obtain_token
from tests.e2e.servers import ROOT, Server, manage, run_example

LOG = f"CALLS = {drawn(50_000)}"
LOG += """
from datetime import timedelta
from mcp_django.models import CallEntry
from tests.incident import log_incident
CallEntry.objects.all().delete()
incident = log_incident(calls=CALLS)
days = [incident.begins, incident.begins - timedelta(days=1)]
first = CallEntry.objects.get(call_id=incident.first_failed)
print("incident", first.pk, *(f"{day:%Y-%m-%d}" for day in days), first.call_id)
"""
# What a screen reader says of a bar, and of the time line's last one.
BAR = r"calls?, ([\d,]+) failed$"


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("incident")
    with run_example(prepared, directory, "runserver", "", "tests.e2e.settings_console") as found:
        yield found


@pytest.fixture(scope="module")
def incident(server: Server) -> list[str]:
    """The key of the first failed call, the day of the incident, the day before, and the call's id.

    A user has connected a client as well.
    """
    obtain_token(server.origin, "warehouse")
    return manage(server, "shell", "-c", LOG).rpartition("incident ")[2].split()


@pytest.fixture(scope="module")
def walked(server: Server, incident: list[str], node: str, chromium: str) -> dict[str, dict[str, Any]]:
    key, day, before, call_id = incident
    index, console = f"{server.origin}/admin/", f"{server.origin}/admin/mcp_django/callentry/"
    worst, line = {"click": {"name": BAR, "most": True}}, {"tab": BAR}
    these = {"click": {"name": "Show these calls"}}
    left, all_but_one = ["ArrowLeft"] * 2 + ["Shift+ArrowLeft"] * 2, ["Home", "Shift+End", "Shift+ArrowLeft", "Enter"]
    journeys: dict[str, tuple[str, list[dict[str, Any]]]] = {
        "failing call": (index, [worst, {"click": {"name": rf"^{day} 14:05:03$"}}]),
        "client off": (
            f"{console}{key}/change/",
            [{"click": {"name": "Turn off: Codex"}}, {"click": {"name": "^Turn off$", "role": "button"}}],
        ),
        "client of the overview off": (
            f"{console}overview/",
            [{"click": {"name": "Turn off: ChatGPT"}}, {"click": {"name": "^Turn off$", "role": "button"}}],
        ),
        "connected this week": (f"{console}overview/", [{"click": {"name": "New this week$"}}]),
        "its record": (
            f"{console}{key}/change/",
            [{"click": {"name": "^About this client$"}}, {"click": {"name": "^Failures by cause$"}}],
        ),
        "slow tool": (index, [{"click": {"name": "Calls of AI clients"}}, {"click": {"name": "Last 7 days"}}]),
        "its calls": (f"{console}overview/?q=last+7d", [{"click": {"name": "aggregate_records"}}, these]),
        "worst bar": (f"{console}overview/", [worst]),
        "keyboard": (f"{console}overview/", [line, {"keys": left}]),
        "keyboard finds one": (f"{console}overview/?q=id:{call_id}", [line, {"keys": ["Home", "Shift+End"]}]),
        "keyboard narrows": (f"{console}overview/?q=client:Codex", [line, {"keys": all_but_one}, these]),
        "keyboard changes its mind": (f"{console}overview/", [line, {"keys": ["Shift+Home", "Escape"]}]),
        "drag": (f"{console}overview/?q=failed+{before}", [{"drag": [rf"^{before} 13:30", rf"^{before} 15:00"]}]),
    }
    return walk(server, node, chromium, journeys)


def walk(server: Server, node: str, chromium: str, journeys: Mapping[str, tuple[str, list[Any]]]) -> dict[str, Any]:
    """Walk as an administrator, from the address of each journey by its actions; return what is found at their ends."""
    task = {
        "executable": chromium,
        "login": {"url": f"{server.origin}/admin/login/?next=/admin/", "username": "admin"},
        "journeys": [{"name": name, "url": url, "actions": actions} for name, (url, actions) in journeys.items()],
    }
    program = [node, str(ROOT / "tests" / "e2e" / "node" / "clicks.mjs")]
    done = subprocess.run(program, input=json.dumps(task), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = {journey["name"]: journey for journey in json.loads(done.stdout)}
    assert {name: journey["problems"] for name, journey in found.items() if journey["problems"]} == {}
    return found


def asked(journey: dict[str, Any]) -> str:
    """The query in the address to which a journey led."""
    return parse_qs(urlsplit(journey["url"]).query)["q"][0]


def test_the_failing_call_is_two_clicks_from_the_index(walked: dict[str, dict[str, Any]], incident: list[str]) -> None:
    found = walked["failing call"]
    assert found["clicks"] <= 2
    assert f"/callentry/{incident[0]}/" in found["url"]
    assert "Codex" in found["text"]


def test_its_client_is_two_clicks_from_being_off(walked: dict[str, dict[str, Any]], server: Server) -> None:
    off = manage(server, "mcp_switch", "--list")
    for name, client in (("client off", "Codex"), ("client of the overview off", "ChatGPT")):
        assert walked[name]["clicks"] <= 2
        assert "Off:" in walked[name]["text"]
        assert client in off


def test_the_slow_tool_is_three_clicks_from_the_index(walked: dict[str, dict[str, Any]]) -> None:
    found = walked["slow tool"]
    assert found["clicks"] <= 3
    # The first of the tools, and how much slower it is.
    tools = found["text"].partition("Tools")[2].splitlines()
    first = next(line for line in tools if re.search(r" m?s\b", line))
    assert "aggregate_records" in first
    assert re.search(r"\N{MULTIPLICATION SIGN}\d", first)
    its = walked["its calls"]
    assert urlsplit(its["url"]).path.endswith("/callentry/")
    assert asked(its) == "last 7d tool:aggregate_records"


def test_who_connected_a_client_this_week_is_one_click_from_the_overview(walked: dict[str, dict[str, Any]]) -> None:
    found = walked["connected this week"]
    assert found["clicks"] == 1
    line = found["text"].partition("by hand")[2].partition("Turn off")[0]
    assert re.search(r"warehouse\s+20\d\d-\d\d-\d\d", line)


def test_a_call_leads_to_the_record_of_its_client_and_on_to_its_failures(walked: dict[str, dict[str, Any]]) -> None:
    found = walked["its record"]
    assert found["clicks"] == 2
    assert asked(found) == "client:codex-cli-7f3a last 7d"


def test_a_bar_narrows_the_page(walked: dict[str, dict[str, Any]], incident: list[str]) -> None:
    found = walked["worst bar"]
    assert found["clicks"] == 1
    assert re.fullmatch(rf"{incident[1]} 14:0\d(:\d\d)?-14:[0-3]\d(:\d\d)?", asked(found))
    # The one that fails most comes first.
    clients = found["text"].partition("Models")[0].rpartition("Clients")[2]
    assert re.findall(r"Codex|Claude|ChatGPT|Cursor", clients)[:1] == ["Codex"]


def test_the_keyboard_chooses_a_range(walked: dict[str, dict[str, Any]], incident: list[str]) -> None:
    # From the last bar two to the left, and two more: three bars of half an hour.
    (told,) = walked["keyboard"]["status"]
    # The time line is one stop: a bar.
    assert "Calls by outcome" not in walked["keyboard"]["stops"]
    begins, ends = re.findall(r"20\d\d-\d\d-\d\d (\d\d):(\d\d):00", told)
    minutes = (int(ends[0]) * 60 + int(ends[1]) - int(begins[0]) * 60 - int(begins[1])) % 1440
    assert minutes == 90
    assert re.search(r": [\d,]+ calls, [\d,]+ failed$", told)
    (one,) = walked["keyboard finds one"]["status"]
    assert one.endswith(": 1 call, 1 failed")
    narrowed = walked["keyboard narrows"]
    assert urlsplit(narrowed["url"]).path.endswith("/callentry/")
    assert re.match(r"client:Codex (since )?20\d\d-", asked(narrowed))
    assert walked["keyboard changes its mind"]["status"] == [
        "Drag over the time line, or use the arrow keys with Shift, to choose a time."
    ]


def test_a_pointer_chooses_a_range(walked: dict[str, dict[str, Any]], incident: list[str]) -> None:
    assert re.fullmatch(rf"failed {incident[2]} 13:30-15:30", asked(walked["drag"]))

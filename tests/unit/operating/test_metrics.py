import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from django.contrib.auth.models import Permission
from django.db import DatabaseError
from django.test import Client, RequestFactory
from django.utils import timezone
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from mcp_django import site
from mcp_django.context.call_record import CallRecord
from mcp_django.exceptions import CallRefused
from mcp_django.models import Session, Stream
from mcp_django.operating import metrics
from mcp_django.operating import recorded_calls as operating_calls
from mcp_django.runtime.cache_and_rate_limits import Caller
from mcp_django.signals import call_started
from mcp_django.subscriptions.bus import bus
from mcp_django.testing import MCPClient, MCPError
from tests.configured import configure
from tests.documentation import blocks_of
from tests.factories import make_author, make_superuser, make_user
from tests.making_tasks import ended, make_task, running

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
TOKEN = "a-token-of-the-tests"


@pytest.fixture(autouse=True)
def counting(settings):
    configure(settings, TELEMETRY={"prometheus": True, "metrics_token": TOKEN})


@pytest.fixture
def client():
    return MCPClient(make_superuser())


def value(name, **labels):
    return REGISTRY.get_sample_value(f"mcp_django_{name}", labels) or 0.0


@pytest.fixture
def client_of_django(settings):
    """Django's test client, in a project that has the URLs of the documentation."""
    (block,) = (block for block in blocks_of(DOCS / "telemetry.md") if block.file == "metrics_urls.py")
    module = ModuleType("metrics_urls")
    exec(block.text, module.__dict__)
    settings.ROOT_URLCONF = module
    return Client()


@pytest.fixture
def added():
    """How much a sample has grown since it was asked for the first time."""
    first = {}

    def ask(name, **labels):
        key = (name, *labels.items())
        now = value(name, **labels)
        return now - first.setdefault(key, now)

    return ask


def page(**headers):
    return metrics.metrics(RequestFactory().get("/metrics", headers=headers))


def families():
    response = page(Authorization=f"Bearer {TOKEN}")
    assert response.status_code == 200
    return {family.name: family for family in text_string_to_metric_families(response.content.decode())}


QUERY = {"site": site.name, "method": "tools/call", "tool": "query_records"}


def test_a_call_is_counted_with_its_duration_its_queries_and_its_answer(client, added):
    make_author("Ada")
    tool = {"site": site.name, "tool": "query_records"}
    asked = [
        ("calls_total", {**QUERY, "outcome": "ok"}),
        ("call_duration_seconds_count", QUERY),
        ("call_duration_seconds_sum", QUERY),
        ("answer_bytes_total", tool),
        ("queries_total", tool),
        ("query_seconds_total", tool),
    ]
    for name, labels in asked:
        added(name, **labels)
    client.call("query_records", model="testapp.author")
    calls, count, seconds, size, queries, query_seconds = (added(name, **labels) for name, labels in asked)
    assert (calls, count) == (1, 1)
    assert size > 100
    assert queries >= 1
    assert seconds > query_seconds > 0


def test_rows_are_counted_by_what_became_of_them(added):
    labels = {"site": site.name, "tool": "update_record"}
    for kind in ("read", "changed"):
        added("rows_total", **labels, kind=kind)
    record = CallRecord(site=site.name, method="tools/call", target="update_record", rows_read=3, rows_changed=2)
    metrics.observe(record)
    assert added("rows_total", **labels, kind="read") == 3
    assert added("rows_total", **labels, kind="changed") == 2


def test_ends_and_refusals_are_told_apart(client, added, tools):
    def broken(request) -> str:
        """Fail."""
        raise RuntimeError

    def refuse(record, **kwargs):
        raise CallRefused("Closed until noon.", "lunch")

    tools(broken, scopes=["mcp:read"])
    ends = [("query_records", "tool_error"), ("broken", "failed"), ("", "refused"), ("create_record", "refused")]
    for tool, outcome in ends:
        added("calls_total", **{**QUERY, "tool": tool, "outcome": outcome})
    reasons = ("lunch", "scope")
    for reason in reasons:
        added("refusals_total", site=site.name, reason=reason)
    client.call("query_records", model="no.model")
    client.call("broken")
    reader = MCPClient(make_superuser("reader"), scopes=["mcp:read"])
    with pytest.raises(MCPError):
        reader.call("create_record", model="testapp.author", values={"name": "Ada"})
    call_started.connect(refuse)
    try:
        client.call("list_models")
    finally:
        call_started.disconnect(refuse)
    assert [added("calls_total", **{**QUERY, "tool": tool, "outcome": outcome}) for tool, outcome in ends] == [1] * 4
    assert [added("refusals_total", site=site.name, reason=reason) for reason in reasons] == [1, 1]


@pytest.mark.parametrize("log", [True, False])
def test_each_refused_request_is_counted_also_those_that_the_log_leaves_out(added, settings, monkeypatch, log):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": log}
    monkeypatch.setattr(operating_calls, "OF_STRANGERS", 2)
    operating_calls._counted.clear()
    added("refusals_total", site=site.name, reason="token")
    for _ in range(5):
        MCPClient().send("tools/list", {})
    assert added("refusals_total", site=site.name, reason="token") == 5


def test_no_text_of_a_client_is_a_label(client):
    canary = "canary-93d0"
    make_author(canary)
    for number in range(3):
        client.send("tools/call", {"name": f"{canary}{number}", "arguments": {"model": canary}})
        client.send(f"{canary}/{number}", {})
        client.send("resources/read", {"uri": f"django://{canary}/{number}"})
    client.call("query_records", model="testapp.author", filters={"name": canary})
    MCPClient(make_superuser("other"), name=f'{canary}"}}\n# <b>').tools()
    text = page(Authorization=f"Bearer {TOKEN}").content.decode()
    assert "mcp_django_calls_total{" in text
    assert canary not in text


def test_methods_and_reasons_are_bounded(monkeypatch, added):
    monkeypatch.setattr(metrics, "_reasons", {f"reason{number}" for number in range(metrics.MAX_REASONS)})
    labels = {"site": "mcp", "method": "other", "tool": ""}
    added("calls_total", **labels, outcome="refused")
    added("calls_total", **labels, outcome="other")
    added("refusals_total", site="mcp", reason="other")
    metrics.observe(CallRecord(site="mcp", method="x" * 1000, outcome="refused:one more"))
    metrics.observe(CallRecord(site="mcp", method="y", outcome="never heard of"))
    assert added("calls_total", **labels, outcome="refused") == 1
    assert added("calls_total", **labels, outcome="other") == 1
    assert added("refusals_total", site="mcp", reason="other") == 1


def test_what_is_there_now_is_asked_at_the_time(monkeypatch):
    before = {name: families()[f"mcp_django_{name}"].samples[0].value for name in ("running_calls", "open_streams")}
    with Caller("someone").hold_call(), Caller("someone").hold_stream(), Caller("someone").hold_stream():
        found = families()
        assert found["mcp_django_running_calls"].samples[0].value == before["running_calls"] + 1
        assert found["mcp_django_open_streams"].samples[0].value == before["open_streams"] + 2
    monkeypatch.setattr(bus, "_queue", [("topic", 1)] * 3)
    assert families()["mcp_django_hub_queue"].samples[0].value == 3


def test_sessions_and_tasks_are_those_of_all_workers(monkeypatch):
    now = timezone.now()
    for number, is_over in enumerate((False, False, True)):
        Session.objects.create(id=str(number), created=now, seen=now, ended=is_over)
    old = now - timezone.timedelta(days=365)
    Session.objects.create(id="old", created=old, seen=old)
    for number, state in enumerate(("running", "asking", "asking", "done")):
        Stream.objects.create(id=str(number), session_id="0", state=state, alive=now)
    found = families()
    assert found["mcp_django_sessions"].samples[0].value == 2
    states = {sample.labels["state"]: sample.value for sample in found["mcp_django_tasks"].samples}
    assert states == {"running": 1, "asking": 2}
    for _ in range(3):
        make_task()
    running()
    make_task(state="input_required")
    ended("completed")
    states = {sample.labels["state"]: sample.value for sample in families()["mcp_django_open_tasks"].samples}
    assert states == {"waiting": 3, "running": 1, "asking": 1}

    def away(*args, **kwargs):
        raise DatabaseError

    monkeypatch.setattr("django.db.models.query.QuerySet.count", away)
    assert "mcp_django_sessions" not in families()


def test_the_page_is_mounted_as_the_documentation_says(client_of_django):
    response = client_of_django.get("/metrics")
    assert response.status_code == 403
    response = client_of_django.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert b"mcp_django_running_calls" in response.content


def test_only_who_has_the_token_or_the_permission_may_read():
    request = RequestFactory().get("/metrics")
    assert page().status_code == 403
    for given in ("Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"):
        assert page(Authorization=given).status_code == 403
    assert page(Authorization=f"bearer {TOKEN}").status_code == 200
    user = make_user("auditor")
    request.user = user
    assert metrics.metrics(request).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_callentry"))
    request.user = type(user).objects.get(pk=user.pk)
    response = metrics.metrics(request)
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain")
    assert "no-store" in response["Cache-Control"]
    request.user.is_active = False
    assert metrics.metrics(request).status_code == 403
    post = RequestFactory().post("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert metrics.metrics(post).status_code == 405


@pytest.mark.parametrize("token", [None, ""])
def test_without_a_token_none_is_taken(settings, token):
    configure(settings, TELEMETRY={"metrics_token": token})
    for given in ("Bearer", "Bearer ", "Bearer None"):
        assert page(Authorization=given).status_code == 403


def test_a_failure_to_count_is_logged_and_fails_no_call(client, monkeypatch, caplog):
    def full(record):
        raise OSError("No space left")

    monkeypatch.setattr(metrics, "observe", full)
    assert client.tools()
    assert "A call could not be measured" in caplog.text


def test_while_it_is_off_nothing_is_counted(client, settings, added):
    configure(settings, TELEMETRY={"prometheus": False})
    labels = {"site": site.name, "method": "tools/list", "tool": "", "outcome": "ok"}
    added("calls_total", **labels)
    client.tools()
    assert added("calls_total", **labels) == 0


WORKER = """
import sys
import django
django.setup()
from mcp_django import site
from mcp_django.context.call_record import CallRecord
from mcp_django.operating import metrics
from mcp_django.operating import recorded_calls
from mcp_django.subscriptions.bus import bus
from django.test import Client, RequestFactory
bus._queue = [1] * int(sys.argv[1])
metrics.observe(CallRecord(site="mcp", method="tools/list", outcome="ok", duration=5.0))
if sys.argv[2:]:
    sys.stdin.read()
metrics.Stored.collect = lambda self: iter(())
response = metrics.metrics(RequestFactory().get("/metrics", headers={"Authorization": "Bearer x"}))
print(response.content.decode())
"""


def test_several_processes_are_added_up(tmp_path):
    mcp = {"TELEMETRY": {"metrics_token": "x"}, "BASE_URL": "http://a.b"}
    code = f"from django.conf import settings\nsettings.MCP_DJANGO = {mcp}{WORKER}"
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": str(ROOT),
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
    }
    first = subprocess.run(
        [sys.executable, "-c", code, "2"], env=environment, capture_output=True, check=True, text=True
    ).stdout
    second = subprocess.run(
        [sys.executable, "-c", code, "3"], env=environment, capture_output=True, check=True, text=True
    ).stdout
    ok = 'mcp_django_calls_total{method="tools/list",outcome="ok",site="mcp",tool=""}'
    assert f"{ok} 1.0" in first
    assert f"{ok} 2.0" in second
    assert "mcp_django_hub_queue 5.0" in second


# The board, the alerts and the page of the documentation


def names():
    """The names of all samples that there can be."""
    found = set()
    for family in (*metrics.CALLS.collect(), *metrics.SECONDS.collect()):
        found |= {family.name}
    counters = (metrics.CALLS, metrics.REFUSALS, metrics.ROWS, metrics.BYTES, metrics.QUERIES, metrics.QUERY_SECONDS)
    found = {f"{counter._name}_total" for counter in counters}
    seconds = metrics.SECONDS._name
    levels = {family.name for family in metrics.Levels().collect()}
    stored = {family.name for family in metrics.Stored().collect()}
    return found | {seconds, f"{seconds}_bucket", f"{seconds}_sum", f"{seconds}_count"} | levels | stored


def test_the_page_of_the_documentation_lists_each_metric():
    text = (DOCS / "telemetry.md").read_text()
    listed = set(re.findall(r"^\| `(mcp_django_\w+)` \| ", text, re.MULTILINE))
    assert listed == {name for name in names() if not name.endswith(("_bucket", "_sum", "_count"))}


def queries_of_the_board():
    board = json.loads((DOCS / "grafana.json").read_text())
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]


def rules():
    (group,) = yaml.safe_load((DOCS / "alerts.yml").read_text())["groups"]
    return group["rules"]


def check_query(expression):
    used = set(re.findall(r"\bmcp_django_\w+", expression))
    assert used
    assert used <= names()
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing)
    labels = set(re.findall(r"(\w+)(?:=~|!=|=)\"", expression))
    labels |= {name for by in re.findall(r"by \(([^)]*)\)", expression) for name in by.split(", ")}
    assert labels <= {"site", "method", "tool", "outcome", "reason", "kind", "state", "le"}


@pytest.mark.parametrize(("title", "expression"), queries_of_the_board())
def test_the_board_asks_for_what_there_is(title, expression):
    check_query(expression)


def test_the_board_can_be_imported():
    board = json.loads((DOCS / "grafana.json").read_text())
    assert board["title"]
    identifiers = [panel["id"] for panel in board["panels"]]
    assert len(set(identifiers)) == len(identifiers) >= 12
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    cells = [(x, place["y"]) for place in places for x in range(place["x"], place["x"] + place["w"])]
    assert len(set(cells)) == len(cells)
    # All of it is asked of the source that whoever imports it chooses.
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {"${datasource}"}
    # What is counted is in it.
    text = json.dumps(board["panels"])
    shown = {name for name in names() if name in text}
    assert {name for name in names() if name.endswith("_total")} <= shown


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_alert_asks_for_what_there_is_and_says_what_to_do(rule):
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    check_query(rule["expr"])
    assert re.search(r"[<>]=? [\d.]+$", rule["expr"].strip())
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"].keys() == {"summary", "action"}
    assert re.fullmatch(r"\d+m", rule.get("for", "1m"))
    assert f"| `{rule['alert']}` |" in (DOCS / "telemetry.md").read_text()
